"""Keep freed memory in the process: glibc returns large blocks to the system, which must then clear new pages."""

import ctypes
import platform

# <malloc.h>
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 2**30  # bytes
MOST_BEFORE_2_35 = 2**25  # older versions refuse more


def keep_freed_memory() -> bool:
    """Keep freed blocks for reuse, in this process and those it forks; False where the C library is not glibc.

    A network on the CPU allocates and frees each activation: an EfficientNet at 224 pixels runs 1.5 to 1.9 times as
    fast with it (two cores, float32, batches of 8 to 32). The process then keeps the memory of its peak. Programs
    call it before they start to compute; importing sslkit does not call it.
    """
    if (libc := _glibc()) is None:
        return False
    kept = libc.mallopt(M_MMAP_THRESHOLD, KEPT) or libc.mallopt(M_MMAP_THRESHOLD, MOST_BEFORE_2_35)
    return bool(kept and libc.mallopt(M_TRIM_THRESHOLD, KEPT))


def return_freed_memory() -> None:
    """Return free memory to the system, so that the process size is the memory in use; no effect without glibc."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
