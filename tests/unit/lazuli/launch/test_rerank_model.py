import re
from pathlib import Path

import pytest

from lazuli.launch import rerank_model, serve
from lazuli.launch.errors import LaunchError
from lazuli.launch.folders import user_models
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.rerank_model import with_rerank_model
from lazuli.repository import addition

COMMITTED = Path(__file__).resolve().parents[4] / "model_repository"


@pytest.fixture
def wishes(monkeypatch):
    """What is to be added, which is not: only its folder is made."""
    made = []

    def add(wish, show):
        made.append(wish)
        (wish.repository / wish.name).mkdir(parents=True, exist_ok=True)
        (wish.repository / wish.name / "config.pbtxt").touch()

    monkeypatch.setattr(addition, "add", add)
    return made


def make(options, place):
    return with_rerank_model(options, place, lambda text: None)


def test_without_a_checkpoint_nothing_changes(tmp_path, wishes):
    options = ServeOptions()
    assert make(options, tmp_path) is options
    assert wishes == []


def test_a_model_beside_the_others_is_made_anew(tmp_path, wishes):
    options = make(ServeOptions(rerank_checkpoint="/x"), tmp_path)
    assert options.model_repositories == (COMMITTED, tmp_path)
    assert (options.models, options.rerank_checkpoint) == ((), None)
    (wish,) = wishes
    assert (wish.name, wish.checkpoint, wish.repository, wish.task, wish.force) == (
        "rerank",
        "/x",
        tmp_path,
        "rerank",
        True,
    )
    assert make(options, tmp_path) is options, "what is made is not made again"


def test_it_is_among_the_models_that_are_asked_for(tmp_path, wishes):
    options = make(ServeOptions(rerank_checkpoint="/x", models=("embed",)), tmp_path)
    assert options.models == ("embed", "rerank")


def test_the_user_has_one_of_this_name(tmp_path, wishes):
    (user_models() / "rerank").mkdir(parents=True)
    (user_models() / "rerank" / "config.pbtxt").touch()
    with pytest.raises(LaunchError, match=r"--rerank-checkpoint serves a model rerank, but .* has one") as caught:
        make(ServeOptions(rerank_checkpoint="/x"), tmp_path)
    remedy = f"leave --rerank-checkpoint out .* lazuli model remove rerank --repository {user_models()}"
    assert re.search(remedy, caught.value.remedy)
    assert str(tmp_path / "rerank") not in f"{caught.value} {caught.value.remedy}"
    assert wishes == [], "nothing is made first"


def test_it_has_no_stream_door(tmp_path, wishes):
    with pytest.raises(LaunchError, match="--rerank-checkpoint needs the unary door"):
        make(ServeOptions(rerank_checkpoint="/x", door=Door.STREAM), tmp_path)
    with pytest.raises(LaunchError, match="--rerank-checkpoint is empty"):
        ServeOptions(rerank_checkpoint=" ")


def test_what_cannot_rerank_is_told(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["T5Model"], "max_position_embeddings": 8}')
    with pytest.raises(LaunchError, match=r"^--rerank-checkpoint .*the architecture T5Model is not supported"):
        make(ServeOptions(rerank_checkpoint=str(tmp_path)), tmp_path / "models")


def test_the_server_is_started_with_it(monkeypatch, tmp_path, reranker):
    """Made before the machine is checked, in the cache, in a folder of the server's own, by another process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    seen = []

    def check(options):
        seen.append(options)
        raise LaunchError("enough")

    monkeypatch.setattr(serve, "check_machine", check)
    monkeypatch.setattr(addition, "add", lambda *_: pytest.fail("it was made here"))
    with pytest.raises(LaunchError, match="enough"):
        serve.serve(ServeOptions(rerank_checkpoint=str(reranker), http_port=9000))
    place = tmp_path / "cache" / "lazuli" / "served" / "9000"
    assert place in seen[0].model_repositories
    assert (place / "rerank" / "config.pbtxt").is_file()


def test_what_the_other_process_finds_is_told_with_its_remedy(tmp_path):
    with pytest.raises(LaunchError, match=r"^--rerank-checkpoint /nowhere: not a folder") as caught:
        rerank_model.add_apart("/nowhere", tmp_path, pytest.fail)
    with pytest.raises(LaunchError) as here:
        rerank_model.add_here("/nowhere", tmp_path, pytest.fail)
    assert (str(caught.value), caught.value.remedy) == (str(here.value), here.value.remedy)


def test_a_process_that_dies_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(rerank_model.sys, "executable", "/bin/false")
    with pytest.raises(LaunchError, match="what makes the model rerank ended with 1"):
        rerank_model.add_apart("/nowhere", tmp_path, pytest.fail)
