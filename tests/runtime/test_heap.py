"""Freed memory: kept for the next pass inside the block, given back after it."""

import resource
import sys

import pytest
import torch

from sslkit.runtime import heap

PAGE = resource.getpagesize()
BYTES = 2**26  # of a block: as a feature map of a batch


def faults_of_a_pass() -> int:
    """Pages that the system has to fill while blocks are made and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.empty(BYTES, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(heap._library() is None, reason="the C library is not glibc")
def test_memory_is_kept_inside_and_given_back_after() -> None:
    with heap.freed_memory_kept():
        kept = min(faults_of_a_pass() for _ in range(4))  # the first fills the heap; a hole may move a block
    assert kept < BYTES / PAGE / 8 and faults_of_a_pass() > kept


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with heap.freed_memory_kept():
        assert heap._library() is None
