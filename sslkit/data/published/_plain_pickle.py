"""Read pickles of plain values and numpy arrays without running any other code in them.

CIFAR's published files are such pickles. A pickle can name any Python function and call it. Here only the functions
that build an array are allowed; a file that names another one is rejected before the import.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular


def load_plain(path: Path) -> Any:
    """Return the content: mappings, lists, strings, numbers and arrays; Python 2 strings are read as latin-1.

    Raises UserError for an unreadable file and for any other content.
    """
    try:
        with regular(path).open("rb") as stream:
            return _Unpickler(stream, encoding="latin1").load()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except Exception as error:  # a damaged pickle can raise anything
        reason = first_line(error)
        raise UserError(
            f"{path} is not a pickle of plain values and arrays ({reason}): use the published file"
        ) from error


def _encode(text: str, encoding: str) -> bytes:
    """Restore bytes that Python 3 wrote as encoded text (protocol 2)."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes a text as {encoding!r}")
    return text.encode("latin1")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _encode
        # The module is numpy._core in numpy 2 and numpy.core in numpy 1; accept both names.
        name_of_class = module.replace("numpy._core", "numpy.core"), name
        if name_of_class not in _ARRAYS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not followed")
        return _ARRAYS[name_of_class]


_ARRAY = np.zeros(1, dtype=np.uint8)
_ARRAYS = {  # the functions that numpy writes into pickles, as this numpy has them
    ("numpy.core.multiarray", "_reconstruct"): _ARRAY.__reduce__()[0],
    ("numpy.core.multiarray", "scalar"): _ARRAY[0].__reduce__()[0],
    ("numpy.core.numeric", "_frombuffer"): _ARRAY.__reduce_ex__(5)[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
