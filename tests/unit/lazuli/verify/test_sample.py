import json

import pytest

from lazuli.errors import ConfigError
from lazuli.verify.sample import Sample, load_sample


def test_the_built_in_sample_has_an_answer_for_each_query():
    sample = load_sample()
    assert len(sample.queries) >= 20
    assert len(set(sample.documents)) == len(sample.documents) >= 40
    assert all(max(grades.values()) == 2 for grades in sample.relevant)


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "sample.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_a_sample_of_ones_own(write):
    sample = load_sample(
        write({"documents": ["a", "b"], "queries": [{"text": "q", "relevant": {"1": 3}}, {"text": "r"}]})
    )
    assert (sample.queries, sample.documents) == (("q", "r"), ("a", "b"))
    assert sample.relevant == ({1: 3}, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ([], "documents is missing"),
        ({"documents": ["a"]}, "queries is missing"),
        ({"documents": [], "queries": [{"text": "q"}]}, "documents must be texts"),
        ({"documents": ["a", ""], "queries": [{"text": "q"}]}, "documents must be texts"),
        ({"documents": ["a"], "queries": ["q"]}, "queries must be a list of objects"),
        ({"documents": ["a"], "queries": [{}]}, r"queries\[\].text must be texts"),
        ({"documents": ["a"], "queries": [{"text": "q", "relevant": [0]}]}, r"queries\[0\].relevant must map"),
        ({"documents": ["a"], "queries": [{"text": "q", "relevant": {"x": 1}}]}, r"queries\[0\].relevant must map"),
        (
            {"documents": ["a"], "queries": [{"text": "q", "relevant": {"1": 1}}]},
            "document 1 with grade 1, but there are 1",
        ),
        ({"documents": ["a"], "queries": [{"text": "q", "relevant": {"0": 0}}]}, "document 0 with grade 0"),
    ],
)
def test_what_is_wrong_is_named(write, content, said):
    path = write(content)
    with pytest.raises(ConfigError, match=said) as caught:
        load_sample(path)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_sample(tmp_path / "none.json")


def test_candidates():
    sample = Sample(("q", "r", "s"), tuple("abcdefgh"), ({6: 2, 7: 1}, {}, {0: 1}))
    assert sample.candidates(4).tolist() == [[0, 1, 6, 7], [2, 3, 4, 5], [0, 1, 2, 3]]
    assert sample.candidates(1).tolist() == [[6, 7], [2, 3], [0, 1]]  # whatever answers is among them
    assert sample.candidates(99).tolist() == [list(range(8))] * 3


def test_candidates_of_the_built_in_sample_hold_all_answers():
    sample = load_sample()
    for row, grades in zip(sample.candidates(10), sample.relevant, strict=True):
        assert set(grades) <= set(row.tolist())
        assert len(set(row.tolist())) == 10
