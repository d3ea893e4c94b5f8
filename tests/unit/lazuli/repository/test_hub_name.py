import pytest

from lazuli.repository.hub_name import HubName


@pytest.mark.parametrize(
    ("text", "repository", "revision"),
    [
        ("BAAI/bge-m3", "BAAI/bge-m3", None),
        ("Qwen/Qwen3-Embedding-0.6B@main", "Qwen/Qwen3-Embedding-0.6B", "main"),
        ("a/b@refs/pr/1", "a/b", "refs/pr/1"),
        ("a/b@0123abc", "a/b", "0123abc"),
    ],
)
def test_names(text, repository, revision):
    assert HubName.parse(text) == HubName(repository, revision)
    assert str(HubName.parse(text)) == text


@pytest.mark.parametrize("text", ["", "bge-m3", "/a/b", "./a", "../a", "~/a", "a/b/c", "a/b@", "a b/c", "a/", "a/b\n"])
def test_what_cannot_be_a_name(text):
    assert HubName.parse(text) is None
