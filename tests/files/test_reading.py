"""A pipe in the place of a file is refused and never opened; tests/test_fuzz_files.py has more."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from named_pipes import pipe

from evaluation import datasets
from evaluation.embedding import file as embeddings
from evaluation.ranking.inputs.references import open_reference
from evaluation.tasks.action.datasets import hmdb51, ucf101
from sslkit.errors import UserError
from sslkit.files.reading import is_there, regular
from sslkit.priors import build as build_prior
from sslkit.training.run import settings_in

READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "features of a prior": ("x.npy", lambda path: build_prior(f"features:{path}")),
    "PED's reference": ("x.json", open_reference),
    "PED's reference as arrays": ("x.npz", open_reference),
    "an embedding": ("x.npz", embeddings.read),
    "an output of embed.py": ("x.npz", lambda path: embeddings.check_out(path, {})),
    "the settings of a run": ("config.yaml", settings_in),
    "a list of SUN397": ("Training_01.txt", lambda path: datasets.open_split("sun397", "train", root=path.parent)),
    "a list of VOC": (
        "ImageSets/Main/bicycle_test.txt",
        lambda path: datasets.open_split("voc07", "test", root=path.parents[2]),
    ),
    "a list of HMDB51": (
        "splits/wave_test_split1.txt",
        lambda path: hmdb51.ENTRY.open(path.parents[1], "train", 1, "raise"),
    ),
    "a list of UCF101": ("trainlist01.txt", lambda path: ucf101.ENTRY.open(path.parent, "train", 1, "raise")),
}


def surroundings(folder: Path) -> None:
    """Make the folders and files that the readers of lists look for before they open one."""
    for name in ("a", "z", "JPEGImages", "videos/wave", "splits", "ImageSets/Main", "UCF-101", "ucfTrainTestlist"):
        (folder / name).mkdir(parents=True)
    for name in ("ClassName.txt", "classInd.txt", "testlist01.txt", "ucfTrainTestlist/trainlist01.txt"):
        (folder / name).touch()
    for name in ("test", "aeroplane_test"):
        (folder / "ImageSets" / "Main" / f"{name}.txt").touch()


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_and_never_opened(reader: str, tmp_path: Path) -> None:
    surroundings(tmp_path)
    name, read = READERS[reader]
    with pipe(tmp_path / name) as path, pytest.raises(UserError, match="it is a named pipe, not a file") as raised:
        read(path)
    assert "\n" not in str(raised.value)


def test_sockets_devices_and_links_to_them_are_no_files(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.relpath(tmp_path / "socket"))
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("socket", "device"):
        with pytest.raises(OSError, match=f"it is a {name}, not a file"):
            regular(tmp_path / name)
        assert not is_there(tmp_path / name)
    listening.close()
    with pytest.raises(FileNotFoundError):
        regular(tmp_path / "nothing")


def test_files_and_links_to_them_are_opened_as_before(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    (tmp_path / "b.npy").symlink_to("a.npy")
    np.save(tmp_path / "b.npy", np.eye(3, dtype=np.float32))
    assert regular(str(tmp_path / "b.npy")) == str(tmp_path / "b.npy")
    assert build_prior(f"features:{tmp_path / 'b.npy'}").array.shape == (3, 3)
