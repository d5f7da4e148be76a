"""Fixtures of small runs."""

from small_runs import settings, small_npz, small_run  # noqa: F401
