"""The fixtures of the published layouts."""

from written_sets import named, opened, picture, text  # noqa: F401
