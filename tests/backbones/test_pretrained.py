"""Weights in torch's files: what has changed since it was written, or asks for more than the file, is refused."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from sslkit.backbones.pretrained import read_weights
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
