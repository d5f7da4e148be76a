"""Memory that a pass on the CPU frees is kept for the next one.

The C library gives large blocks back to the system as soon as they are freed, and the next pass asks for them again:
each page is then filled with zeros anew, which takes a large part of the time of a pass whose maps are large.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, see malloc.h
_MOST = 2**31 - 1  # bytes that are kept: the largest number that it takes
# bytes of a block that still goes back at once; larger ones are few in a pass, and would leave holes in the heap
_LARGE = 2**28


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the block; afterwards it goes back to the system, in this process as a whole.

    Does nothing where the C library is not glibc.
    """
    library = _library()
    if library is None:
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, _LARGE)
    library.mallopt(_TRIM_THRESHOLD, _MOST)
    try:
        yield
    finally:
        library.malloc_trim(0)


def _library() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "gnu_get_libc_version") else None
