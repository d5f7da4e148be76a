"""Files of CLIP's weights: open_clip's state dicts, and the TorchScript archives that OpenAI published."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sslkit.backbones.weight_files import check_records, read_content
from sslkit.errors import UserError, first_line

_OF_OPENAI = {"input_resolution", "context_length", "vocab_size"}  # beside the weights in OpenAI's files
_DTYPES = {
    "HalfStorage": torch.float16,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "BoolStorage": torch.bool,
}


def read_clip(path: str | Path, where: str) -> tuple[Any, bool]:
    """The content of a file, and whether it is OpenAI's own, whose networks have QuickGELU. No code of it is run.

    where: the prior's name in messages. Raises UserError if the file cannot be read.
    """
    try:
        content = _of_archive(path) if _is_archive(path) else read_content(path, where)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, EOFError) as error:
        raise UserError(f"{where}: {path} cannot be read as weights: {first_line(error)}") from error
    except (pickle.UnpicklingError, zipfile.BadZipFile, RecursionError) as error:
        raise UserError(f"{where}: {path} is a damaged archive: copy it again") from error
    names = set(content) if isinstance(content, dict) else set()
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        names |= set(content["state_dict"])
    return content, names >= _OF_OPENAI


def _is_archive(path: str | Path) -> bool:
    """Return whether a file is of torch.jit.save: only these have constants beside the data."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return any(name.endswith("/constants.pkl") for name in file.namelist())


def _of_archive(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a TorchScript module by name, without its code."""
    check_records(path)
    with zipfile.ZipFile(path) as file:
        (data,) = (name for name in file.namelist() if name.count("/") == 1 and name.endswith("/data.pkl"))
        with file.open(data) as content:
            module = _Reader(content, file, data.removesuffix(".pkl")).load()
    return dict(_tensors(module, ""))


class _Module:
    """Stands for a module or another object of the archive: its attributes only."""

    attributes: Any = None

    def __new__(cls, *_: Any) -> "_Module":
        return super().__new__(cls)

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.attributes = state


class _Reader(pickle.Unpickler):
    """Makes tensors, and `_Module` of everything else that is named: no other function or class is ever called."""

    def __init__(self, content: Any, file: zipfile.ZipFile, folder: str) -> None:
        super().__init__(content)
        self.file, self.folder = file, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        return _Module

    def persistent_load(self, about: Any) -> Tensor:
        _, dtype, key, _, count = about
        content = self.file.read(f"{self.folder}/{key}")
        return torch.frombuffer(bytearray(content), dtype=dtype) if count else torch.empty(0, dtype=dtype)


def _tensor(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Tensor:
    """A view of the stored numbers; torch refuses one that leaves them."""
    return storage.as_strided(size, stride, offset)


def _tensors(value: Any, name: str) -> Any:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, _Module) and isinstance(value.attributes, dict):
        for key, inner in value.attributes.items():
            yield from _tensors(inner, f"{name}.{key}" if name else str(key))
