"""Files of weights as others save them, torch's and safetensors: read without running code of theirs, and checked."""

import os
import pickletools
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular, stand_in_of

SHOWN = 3  # tensor names in a message
PART_OF_A_CHECKPOINT = {  # by the ending of its name: how its files become one
    ".distcp": "torch.distributed.checkpoint.format_utils.dcp_to_torch_save(FOLDER, FILE) writes one",
    ".index.json": "load the model with the library that wrote it, then torch.save(model.state_dict(), FILE)",
}
_ZIP = b"PK\x03\x04"  # how the files of torch begin; those of versions before 1.6 have no checksums
_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # named as in Python 2 by the protocol of torch's pickles
_PICKLES = 4  # in the older files: a number, a version, the machine, and the content


class Unknown:
    """Stands for an object of a class that is neither a tensor nor a plain value: nothing of it is kept or run."""

    def __init__(self, *args: Any) -> None:
        pass

    def __new__(cls, *args: Any) -> "Unknown":
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass


def split_part(word: str) -> tuple[Path, str]:
    """The file and the part of it that a word names: "w.pth:teacher" -> (w.pth, "teacher"), "w.pth" -> (w.pth, "").

    A colon may belong to the name of the file.
    """
    whole = Path(word).expanduser()
    file, _, piece = word.rpartition(":")
    if file and not whole.is_file() and Path(file).expanduser().is_file():
        return Path(file).expanduser(), piece
    return whole, ""


def read_content(path: str | Path, where: str) -> Any:
    """The content of a .safetensors or torch file, on the CPU; objects besides tensors and plain values are `Unknown`.

    where: the network's name in messages. Raises UserError if the file is missing or cannot be read, and if its content
    does not have the checksums that torch wrote.
    """
    if not Path(path).is_file():
        if Path(path).is_dir():
            raise UserError(f"{where}: {path} is a folder: name the file of weights in it")
        raise UserError(f"{where}: there is no file {path}")
    for ending, remedy in PART_OF_A_CHECKPOINT.items():
        if str(path).endswith(ending):
            raise UserError(f"{where}: {path} is a part of a checkpoint in several files: {remedy}")
    try:
        if _is_safetensors(path):
            from safetensors.torch import load_file

            return load_file(path)
        check_records(path)
        with torch.serialization.safe_globals([(Unknown, name) for name in _other_classes(path)]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and safetensors each raise their own
        if message := stand_in_of(path):
            raise UserError(f"{where}: {path} holds no weights: {message}") from error
        raise UserError(
            f"{where}: {path} is no state dict of tensors: {_reason(error)}; where you trust it, write its tensors "
            "alone, torch.save(model.state_dict(), FILE)"
        ) from error


def _reason(error: Exception) -> str:
    """An error's own reason in one line, without torch's advice on files that one trusts."""
    text = str(error).rpartition("WeightsUnpickler error: ")[2]
    for advice in (". Please use", " In PyTorch 2.6"):
        text = text.partition(advice)[0]
    return (text.strip(" .\n") or type(error).__name__).splitlines()[0]


def _is_safetensors(path: str | Path) -> bool:
    """By its content: the length of a header in JSON, then the header."""
    with open(regular(path), "rb") as file:
        start = file.read(9)
    is_header = start[8:] == b"{" and int.from_bytes(start[:8], "little") < os.path.getsize(path)
    return is_header or str(path).endswith(".safetensors")


def _other_classes(path: str | Path) -> list[str]:
    """The names of the classes and functions in a file that torch would not make without being told to."""
    try:
        return torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # torch lists those of its newer files only
        return _classes_of_old_file(path)


def _classes_of_old_file(path: str | Path) -> list[str]:
    """All classes and functions that a file of torch before 1.6 names; none if it is damaged."""
    globals_ = []
    with open(regular(path), "rb") as file, suppress(Exception):  # pickletools raises many classes
        for _ in range(_PICKLES):
            globals_ += [name for code, name, _ in pickletools.genops(file) if code.name == "GLOBAL"]
    parts = [name.split(" ", 1) for name in globals_]
    return [f"{_MODULES.get(module, module)}.{name}" for module, name in parts]


def check_records(path: str | Path) -> None:
    """Raises ValueError if the content of a torch file has changed: `torch.load` does not compare its checksums.

    Also for a record that unpacks to more than the file, which torch does not write. Raises OSError as `regular` does.
    """
    with open(regular(path), "rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return
        with _open_zip(file) as records:
            for record in records.infolist():
                if record.file_size > os.path.getsize(path):
                    raise ValueError("a record of it unpacks to more than the whole file")
                if record.CRC:  # 0: saved after torch.serialization.set_crc32_options(False)
                    _read_through(records, record)


def _open_zip(file: BinaryIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise ValueError("its end is missing, as of a download that was cut off: copy it again") from error


def _read_through(records: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    try:
        with records.open(record) as content:
            while content.read(1 << 20):
                pass
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"it is damaged ({first_line(error)}): copy it again") from error


def check_dense(state: Mapping[str, Any], path: str | Path, where: str) -> None:
    """Raises UserError for a tensor that does not have a number of its own in the file for each of its elements."""
    for name, value in state.items():
        if isinstance(value, Tensor) and not is_dense(value):
            raise UserError(
                f"{where}: {path} holds {name}, which is sparse, quantized, nested, expanded or without values: save "
                "plain tensors, {name: value.to_dense().clone()}"
            )


def is_dense(value: Tensor) -> bool:
    """Return whether a tensor has a number of its own in the file for each of its elements."""
    if value.layout != torch.strided or value.is_meta or value.is_quantized or value.is_nested:
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()


def kind(value: Tensor) -> str:
    """The kind of its numbers: those of one kind are converted to each other, whatever their width."""
    if value.dtype == torch.bool:
        return "truth"
    return "complex" if value.is_complex() else "float" if value.is_floating_point() else "integer"


def read_weights(path: str | Path, where: str) -> dict[str, Tensor]:
    """The state dict of a .safetensors or torch file. Raises UserError if it holds anything but dense tensors."""
    state = read_content(path, where)
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise UserError(f"{where}: {path} is no state dict of tensors")
    check_dense(state, path, where)
    return state
