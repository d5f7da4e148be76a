"""Pretraining: one step for every method, exact resume, and a zoo entry at the end."""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(__name__, {})
