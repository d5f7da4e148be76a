"""A file that `torch.save` wrote knows whether it is whole: by its checksum, or by the CRC of its records."""

import zipfile
from pathlib import Path

import torch

from sslkit.files.checksums import damage, seal


def written(path: Path, *, with_seal: bool = True) -> Path:
    torch.save({"weight": torch.arange(1024.0)}, path)
    if with_seal:
        seal(path)
    return path


def test_a_sealed_checkpoint_is_one_that_torch_loads(tmp_path) -> None:
    path = written(tmp_path / "a.ckpt")
    for mmap in (False, True):
        state = torch.load(path, weights_only=True, mmap=mmap)
        assert torch.equal(state["weight"], torch.arange(1024.0))
    assert zipfile.ZipFile(path).testzip() is None and damage(path) is None


def test_any_flipped_byte_is_found(tmp_path) -> None:
    whole = written(tmp_path / "a.ckpt").read_bytes()
    path, places = tmp_path / "b.ckpt", [*range(0, len(whole), 97), *range(len(whole) - 120, len(whole))]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert damage(path), f"byte {place} of {len(whole)}"


def test_without_a_checksum_the_records_are_compared(tmp_path) -> None:
    """As checkpoints of earlier versions are."""
    path = written(tmp_path / "a.ckpt", with_seal=False)
    assert damage(path) is None
    whole = path.read_bytes()
    place = whole.index(torch.arange(1024.0).numpy().tobytes()) + 5
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert "wrong CRC" in damage(path)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch) -> None:
    path = written(tmp_path / "a.ckpt")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert damage(path) == "cannot be read (Permission denied)"
