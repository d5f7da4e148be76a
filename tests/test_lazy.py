"""Names of packages that are imported when they are first used."""

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

from sslkit import lazy


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package with a lazy module, a lazy function, and an attribute of its own."""
    made = types.ModuleType("made_up")
    made.own = 1
    names = {"colours": "colorsys", "rgb": "colorsys:hsv_to_rgb"}
    made.__getattr__, made.__dir__, made.__all__ = lazy.attributes("made_up", names)
    monkeypatch.setitem(sys.modules, "made_up", made)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    return made


def test_a_name_is_imported_when_it_is_asked_for(package) -> None:
    assert package.own == 1 and "colorsys" not in sys.modules
    assert package.colours is sys.modules["colorsys"] and package.rgb is package.colours.hsv_to_rgb
    assert vars(package)["rgb"] is package.rgb  # found without the table from then on


def test_names_are_listed_without_an_import(package) -> None:
    assert {"own", "colours", "rgb"} <= set(dir(package)) and package.__all__ == ["colours", "rgb"]
    assert "colorsys" not in sys.modules


def test_an_unknown_name_is_the_usual_error(package) -> None:
    with pytest.raises(AttributeError, match="module 'made_up' has no attribute 'hue'"):
        _ = package.hue
    assert not hasattr(package, "hue")


@pytest.mark.parametrize(
    "name",
    [
        "sslkit",
        "sslkit.backbones",
        "sslkit.zoo",
        "evaluation",
        "evaluation.features",
        "evaluation.tasks.detection.names",
    ],
)
def test_every_name_that_a_package_promises_is_there(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__all__ and all(getattr(package, promised) is not None for promised in package.__all__)


def test_names_of_modules_that_stand_elsewhere() -> None:
    import evaluation
    import sslkit

    assert sslkit.exporting.__name__ == "sslkit.zoo.exporting" and callable(sslkit.exporting.lines)
    assert sslkit.heads.mlp and sslkit.backbones.clips.slow_r50 and evaluation.detection.build_detector


def test_a_file_that_hides_the_package_evaluation_is_named(tmp_path: Path) -> None:
    (tmp_path / "evaluation.py").write_text("")
    (tmp_path / "own.py").write_text("import sslkit")
    done = subprocess.run([sys.executable, str(tmp_path / "own.py")], capture_output=True, text=True)
    assert done.returncode == 0 and f"{tmp_path / 'evaluation.py'} hides the package evaluation" in done.stderr
    (tmp_path / "evaluation.py").unlink()
    done = subprocess.run([sys.executable, str(tmp_path / "own.py")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
