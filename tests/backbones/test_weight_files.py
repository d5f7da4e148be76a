"""Weights in torch's files: what has changed since it was written, or asks for more than the file, is refused."""

import argparse
import collections
import datetime
import enum
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from omegaconf import OmegaConf

from sslkit.backbones.weight_files import Unknown, read_content, read_weights, split_part
from sslkit.errors import UserError
from sslkit.priors import build as build_prior


def state() -> dict[str, Any]:
    return {"w": torch.arange(5000.0), "b": torch.arange(12.0).view(3, 4).t(), "part": torch.arange(9)[3:6]}


def with_a_flipped_bit(path: Path) -> Path:
    """Torch's own reader takes the file all the same."""
    content = bytearray(path.read_bytes())
    content[content.index(torch.arange(5000.0).numpy().tobytes()) + 9_999] ^= 4
    path.write_bytes(content)
    assert not torch.equal(torch.load(path, weights_only=True)["w"], torch.arange(5000.0))
    return path


def test_weights_come_back_from_both_of_torchs_formats(tmp_path: Path) -> None:
    for zipped in (True, False):
        torch.save({"state_dict": state()}, tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
        given = read_weights(tmp_path / "w.pth", "init=x")
        assert given.keys() == state().keys() and all(
            torch.equal(given[name], value) for name, value in state().items()
        )


def test_a_file_without_checksums_is_read(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state(), tmp_path / "w.pth")
    finally:
        torch.serialization.set_crc32_options(True)
    assert torch.equal(read_weights(tmp_path / "w.pth", "init=x")["w"], torch.arange(5000.0))


def test_a_flipped_bit_is_told_by_its_record(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"init=x: .*w\.pth .*damaged .*CRC-32 .*w/data/0.*: copy it again"):
        read_weights(with_a_flipped_bit(tmp_path / "w.pth"), "init=x")


def test_a_prior_from_a_local_file_is_held_to_the_same(tmp_path: Path) -> None:
    pytest.importorskip("open_clip")
    torch.save(state(), tmp_path / "w.pt")
    with_a_flipped_bit(tmp_path / "w.pt")
    for prior in ("clip:RN50", "timm:resnet10t"):
        with pytest.raises(UserError, match="copy it again"):
            build_prior(f"{prior}:{tmp_path / 'w.pt'}")


@pytest.mark.filterwarnings("ignore")  # torch's, of sparse tensors and of quantized ones
@pytest.mark.parametrize("kind", ["sparse", "rows", "without values", "expanded", "quantized"])
def test_tensors_that_are_not_in_the_file_element_by_element_are_refused(kind: str, tmp_path: Path) -> None:
    value = {
        "sparse": torch.eye(3).to_sparse,
        "rows": torch.eye(3).to_sparse_csr,
        "without values": lambda: torch.zeros(3, device="meta"),
        "expanded": lambda: torch.zeros(1).expand(10**12),  # 4 TB, in a file of a kilobyte
        "quantized": lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8),
    }[kind]()
    torch.save(state() | {"wrong": value}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"init=x: .*w\.pth holds wrong, which is sparse, .*: save plain tensors"):
        read_weights(tmp_path / "w.pth", "init=x")


def test_a_record_that_unpacks_to_more_than_the_file_is_refused(tmp_path: Path) -> None:
    torch.save(state() | {"zeros": torch.zeros(10**6)}, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as old,
        zipfile.ZipFile(tmp_path / "z.pth", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(UserError, match=r"z\.pth .*: a record of it unpacks to more than the whole file"):
        read_weights(tmp_path / "z.pth", "init=x")


def make(folder: Path) -> None:
    folder.mkdir()


class Code:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return make, (self.path,)


class Kind(enum.Enum):
    STUDENT = 1


@pytest.mark.parametrize("zipped", [True, False])
def test_settings_of_any_class_are_left_out_and_run_nothing(zipped: bool, tmp_path: Path) -> None:
    """Checkpoints of Lightning hold their hyperparameters (Lightning-AI/pytorch-lightning 20058)."""
    settings = {
        "path": Path("data"),
        "kind": Kind.STUDENT,
        "options": argparse.Namespace(lr=0.1),
        "best": np.float64(3),
    }
    settings |= {"when": datetime.date(2024, 1, 1), "code": Code(tmp_path / "ran")}
    if zipped:
        settings["config"] = OmegaConf.create({"model": {"layers": [1, 2]}})
    content = {"state_dict": state(), "hyper_parameters": settings, "epoch": 3}
    torch.save(content, tmp_path / "w.ckpt", _use_new_zipfile_serialization=zipped)
    found = read_content(tmp_path / "w.ckpt", "init=x")
    assert torch.equal(found["state_dict"]["b"], state()["b"]) and found["epoch"] == 3
    assert all(isinstance(value, Unknown) for value in found["hyper_parameters"].values())
    assert not (tmp_path / "ran").exists() and Unknown not in {
        one[0] for one in torch.serialization.get_safe_globals() if isinstance(one, tuple)
    }
    torch.load(tmp_path / "w.ckpt", weights_only=False)
    assert (tmp_path / "ran").exists()  # the code was there to be run


def test_what_cannot_be_read_so_is_one_line_that_says_how_to_write_it(tmp_path: Path) -> None:
    torch.save(state() | {"counts": collections.defaultdict(int, a=1)}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"no state dict of tensors: Can only SETITEM .*torch\.save\(model\.state_dict"):
        read_content(tmp_path / "w.pth", "init=x")


def test_safetensors_are_known_by_their_content(tmp_path: Path) -> None:
    safetensors.torch.save_file({"w": torch.arange(3.0)}, tmp_path / "weights")
    assert torch.equal(read_content(tmp_path / "weights", "init=x")["w"], torch.arange(3.0))


def test_a_word_names_a_file_and_a_part_of_it(tmp_path: Path) -> None:
    plain, odd = tmp_path / "w.pth", tmp_path / "odd:name.pth"
    for file in (plain, odd):
        file.touch()
        assert split_part(str(file)) == (file, "") and split_part(f"{file}:teacher.net") == (file, "teacher.net")
    assert split_part("none.pth:teacher") == (Path("none.pth:teacher"), "") and split_part("")[1] == ""
