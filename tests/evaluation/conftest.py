"""Nothing waits for the disk: what these tests kill are processes, and what those wrote outlives them all the same."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
