"""Pickles of plain values and numpy arrays, read without running what else they may hold.

CIFAR's published files are such pickles. A pickle can name any function of Python and call it; here it may name those
alone that make an array, and a file that names another is refused before that one is imported.
"""

import pickle
from pathlib import Path
from typing import Any

from sslkit.errors import UserError


def read(path: Path) -> Any:
    """The content: mappings, lists, texts, numbers and arrays; texts of Python 2 are read as latin-1.

    Raises UserError for a file that cannot be read, and for one that holds anything else.
    """
    try:
        with path.open("rb") as stream:
            return _Unpickler(stream, encoding="latin1").load()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except Exception as error:  # a damaged pickle can raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{path} is no pickle of plain values and arrays ({reason}): take the published file"
        ) from error


def _encoded(text: str, encoding: str) -> bytes:
    """Bytes as Python 3 writes them with protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes a text as {encoding!r}")
    return text.encode("latin1")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _encoded
        # numpy 2 calls its module numpy._core, where 1 had numpy.core; both read both.
        known = module.replace("numpy._core", "numpy.core"), name
        if known not in _ARRAYS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not followed")
        return _array_maker(*known)


_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


def _array_maker(module: str, name: str) -> Any:
    """The functions that numpy writes into pickles, where this numpy has them."""
    import numpy as np

    array = np.zeros(1, dtype=np.uint8)
    return {
        "_reconstruct": array.__reduce__()[0],
        "scalar": array[0].__reduce__()[0],
        "_frombuffer": array.__reduce_ex__(5)[0],
        "ndarray": np.ndarray,
        "dtype": np.dtype,
    }[name]
