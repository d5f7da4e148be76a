"""What a file system says of a file without reading it.

Equal stamps say that a file has not changed. Others say nothing: then its content decides. Size and modification time
alone do not say it: a copy, an archive and names that are exchanged (`mv`) keep both.
"""

import os
import time
from typing import NamedTuple

import numpy as np

_STEP, _COARSE_STEP = 20_000_000, 2_000_000_000  # ns; 10 ms are the longest tick of Linux, 2 s that of FAT


class Stamp(NamedTuple):
    """inode: number of the file, another one after most replacements.

    changed: time in ns of the last change of content, name or times, which programs cannot set; on Windows that of the
    creation. modified: time in ns that programs can set. bytes: its size.
    """

    inode: int
    changed: int
    modified: int
    bytes: int

    @property
    def text(self) -> str:
        """All but the size."""
        return f"{self.inode} {self.changed} {self.modified}"


def stamp_of(about: os.stat_result) -> Stamp:
    """The stamp in a result of `os.stat`."""
    return Stamp(about.st_ino & 2**63 - 1, about.st_ctime_ns, about.st_mtime_ns, about.st_size)


def wait_for_tick(changed: np.ndarray | int) -> None:
    """Wait, mostly for nothing, until a change of files that were `changed` at these times (ns) gets another time.

    To be called before files are read whose stamps are remembered.
    """
    now, changed = time.time_ns(), np.atleast_1d(changed)
    recent = changed[(changed <= now) & (changed > now - _COARSE_STEP)].tolist()
    waits = (at + (_STEP if at % 10**9 else _COARSE_STEP) - now for at in recent)
    time.sleep(max(0, max(waits, default=0)) / 1e9)
