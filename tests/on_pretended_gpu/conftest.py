"""Fixtures of small runs."""

from small_runs import illustrated_run, settings, small_npz, small_run  # noqa: F401
