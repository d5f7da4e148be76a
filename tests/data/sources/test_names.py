"""A word that names no data: what is said, and how early."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sslkit.cli.words import check_data

import sslkit
from sslkit.data.sources import builtin, names, torchvision_sets
from sslkit.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "labels.csv").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_names_are_those_of_the_readers() -> None:
    assert names.BUILTIN == builtin.NAMES
    assert set(torchvision_sets.names()) <= set(names.torchvision_classes())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "photo",
            "there is no data 'photo': did you mean 'photos/'?; {here} has no such file or folder, and",
        ),
        ("Digit", "there is no data 'Digit': did you mean 'digits'?; "),
        ("STL11", "there is no data 'STL11': did you mean 'stl10'?; "),
        ("nothing-like-it", "there is no data 'nothing-like-it'; {here} has no such file or folder"),
        ("photos/cat", "there is no file or folder {here}/photos/cat: did you mean 'photos/cats/'?; data is "),
        ("label.csv", "there is no file or folder {here}/label.csv: did you mean 'labels.csv'?; data is "),
    ],
)
def test_the_nearest_file_and_name_are_proposed(source: str, said: str, here: Path, capsys) -> None:
    with pytest.raises(UserError) as error:
        sslkit.open_images(source)
    assert str(error.value).startswith(said.format(here=here))
    with pytest.raises(SystemExit) as end:
        check_data([f"data={source}"])
    assert end.value.code == 2 and capsys.readouterr().err.startswith(f"error: {said.format(here=here)}")


@pytest.mark.parametrize("source", ["photos", "digits", "CIFAR10", "a,b", "hf:x", "*.jpg", "null", "~no", "x" * 999])
def test_other_forms_are_not_refused_early(source: str, here: Path) -> None:
    check_data([f"data={source}"])


def test_a_training_says_it_before_the_large_imports(here: Path) -> None:
    (here / "stubs" / "torch").mkdir(parents=True)
    (here / "stubs" / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here / "stubs"), str(ROOT)])}
    command = [sys.executable, str(ROOT / "recipes" / "train.py"), "method=simclr", "data=photo"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and done.stderr.startswith("error: there is no data 'photo': did you mean 'photos/'?")
