"""Freed memory stays with the process: in one of its own, as the setting cannot be taken back."""

import platform
import subprocess
import sys

import pytest

from sslkit.cli.process import keep_freed_memory

FAULTS = """
import resource
from sslkit.cli.process import keep_freed_memory
{call}
import numpy as np
np.ones(8_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    np.ones(8_000_000)  # 64 MB: 15,625 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    found = subprocess.run([sys.executable, "-c", FAULTS.format(call=call)], check=True, capture_output=True, text=True)
    return int(found.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's own")
def test_freed_pages_are_used_again() -> None:
    assert faults("keep_freed_memory()") < 1000


KEPT = """
from sslkit.cli.process import keep_freed_memory
keep_freed_memory()
import numpy as np
from evaluation.ranking.memory import resident, return_freed_memory
kept = [np.ones(8_000_000) for _ in range(3)]
last = np.ones(1000)  # what lies above the freed blocks, so that the heap's end stays where it is
kept.clear()
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's own")
def test_freed_memory_is_given_back_when_asked() -> None:
    found = subprocess.run([sys.executable, "-c", KEPT], check=True, capture_output=True, text=True)
    assert int(found.stdout) > 150e6


def test_another_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sslkit.cli.process.platform.libc_ver", lambda: ("", ""))
    assert keep_freed_memory() is False
