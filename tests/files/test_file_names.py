"""Names of files that are made of somebody's words stay in their folder."""

from pathlib import Path

import pytest

import sslkit
from evaluation.judging.run import results_folder
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.files.writing import check_name, name_of
from sslkit.training import run
from sslkit.training.config import Config

BAD = ["../../x", "/absolute/x", "a/b", "a\\b", "", " ", ".", "..", "a\0b", "a\nb", "x" * 300, "ä" * 150, 5]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_leaves_its_folder_is_refused(name: object) -> None:
    with pytest.raises(UserError, match="name="):
        check_name(name, "name")


@pytest.mark.parametrize("name", ["byol+dsa", "run 1", "a=b,c", ".hidden", "x..y", "äöü"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert check_name(name, "name") == name


@pytest.mark.parametrize("text", ["..", ".", "...", "", "../../x", "/etc/passwd", "a\0b", "timm:x"])
def test_a_name_made_of_any_text_is_one_in_its_folder(text: str, tmp_path: Path) -> None:
    path = tmp_path / "out" / name_of(text)
    assert path.resolve().parent == tmp_path / "out"


@pytest.mark.parametrize("name", ["../../x", "/{folder}/absolute", "..", ""])
def test_a_run_is_not_written_elsewhere(name: str, tmp_path: Path) -> None:
    out = tmp_path / "zoo" / "here"
    out.mkdir(parents=True)
    name = name.replace("/{folder}", str(tmp_path))
    settings = {"data": "digits", "method": "simclr", "epochs": 1, "out": str(out), "name": name}
    settings |= {"progress": False, "eval": {"tsne": 0, "max_images": 200}}
    with pytest.raises(UserError, match="must be the name of a folder"):
        sslkit.pretrain(settings)
    assert [path.name for path in tmp_path.rglob("*")] == ["zoo", "here"]


def test_a_name_of_ones_own_and_the_usual_one() -> None:
    assert run.base_name(Config(name="mine"), "resnet18") == "mine"
    assert run.base_name(Config(), "a.b:c") == "byol+dsa-fashion_mnist-a.b_c-e6-s0"


def test_results_stay_below_out(tmp_path: Path) -> None:
    from dataclasses import replace

    model = sslkit.load(backbones.build("narrow_resnet", image_size=28, in_chans=1))
    for name in ("..", ".", "../../x", ""):
        folder = results_folder(replace(model, name=name), tmp_path / "out")
        assert folder.resolve().parent == tmp_path / "out"
