"""A checkpoint knows whether it is whole: its checksum and the parts that a run needs."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sslkit.errors import UserError
from sslkit.files.checksums import seal
from sslkit.runtime.checkpoint import KINDS, LAST, PREVIOUS, damage, newest_whole
from sslkit.training.run import HOOKS


def a_state(**changes: object) -> dict:
    """The parts of a run's checkpoint, with a tensor of 4 KB."""
    state = {name: kind() for name, kind in KINDS.items()}
    state["module"] = {"weight": torch.arange(1024.0)}
    state["hooks"] = {name: dict.fromkeys(keys) for name, keys in HOOKS.items()}
    return {**state, **changes}


def written(path: Path, **changes: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(a_state(**changes), path)
    seal(path)
    return path


def _empty_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _other_pickle(path: Path) -> None:
    torch.save({"weights": io.BytesIO}, path)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "or a part of one"),
    "all but a byte": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "checksum"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "is "),
    "junk": (lambda path: path.write_bytes(b"junk" * 999), "or a part of one"),
    "text": (lambda path: path.write_text("state: none\n"), "or a part of one"),
    "folder": (_empty_folder, "is no file"),
    "loop": (lambda path: (path.unlink(), path.symlink_to(path)), "is no file"),
    "missing": (lambda path: path.unlink(), "is missing"),
    "old torch": (
        lambda path: torch.save(a_state(), path, _use_new_zipfile_serialization=False),
        "or a part of one",
    ),
    "unsafe pickle": (_other_pickle, "is no checkpoint of a run"),
    "other dict": (lambda path: torch.save({"weight": torch.ones(2)}, path), "epoch is missing"),
    "a list": (lambda path: torch.save([1, 2], path), "epoch is missing"),
    "no hooks": (lambda path: written(path, hooks={}), "Start.judged is missing"),
    "no digest": (lambda path: written(path, hooks={"Start": {"judged": {}}}), "Start.digest is missing"),
    "of another kind": (lambda path: written(path, module=[1]), "module is missing"),
    "other zip": (lambda path: zipfile.ZipFile(path, "w").writestr("a.txt", "a"), "is no checkpoint of a run"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_every_kind_of_damage_is_said_in_one_line(kind: str, tmp_path) -> None:
    make, said = DAMAGES[kind]
    path = written(tmp_path / "a.ckpt")
    assert damage(path, HOOKS) is None
    make(path)
    assert said in damage(path, HOOKS) and "\n" not in damage(path, HOOKS)


def test_the_newest_whole_one(tmp_path) -> None:
    assert newest_whole(tmp_path, HOOKS) == (None, None)
    written(tmp_path / LAST)
    assert newest_whole(tmp_path, HOOKS) == (tmp_path / LAST, None)
    written(tmp_path / PREVIOUS)
    assert newest_whole(tmp_path, HOOKS) == (tmp_path / LAST, None)
    (tmp_path / LAST).unlink()  # killed between two renames
    found, note = newest_whole(tmp_path, HOOKS)
    assert found == tmp_path / PREVIOUS and str(tmp_path / LAST) in note and str(tmp_path / PREVIOUS) in note
    (tmp_path / LAST).mkdir()
    with pytest.raises(UserError, match="remove it"):
        newest_whole(tmp_path, HOOKS)
    (tmp_path / LAST).rmdir()
    (tmp_path / PREVIOUS).write_bytes(b"junk")
    with pytest.raises(UserError, match=r"last.ckpt is missing; .*previous.ckpt is no checkpoint.*without resume=true"):
        newest_whole(tmp_path, HOOKS)
