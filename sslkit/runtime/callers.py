"""What belongs to the caller's process, and is as it was when a function has ended."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sslkit.options.calls import by_keywords
from sslkit.runtime.light_imports import light_imports


@contextmanager
def environment_kept() -> Iterator[None]:
    """Put the environment variables back after the block: libraries set some for the processes that they start."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@contextmanager
def process_kept() -> Iterator[None]:
    """Put environment, filters and form of warnings and the number of threads back after the block.

    Imports change them too, and many libraries are imported when they are first used. Public functions are decorated
    with it, those of declared options by `public`.
    """
    torch = sys.modules.get("torch")  # some functions need no torch, and should not wait for it
    threads, form = torch and torch.get_num_threads(), warnings.formatwarning
    try:
        with environment_kept(), warnings.catch_warnings(), light_imports():
            yield
    finally:
        warnings.formatwarning = form
        if torch and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def public(*shared: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function for people: each declared option is a keyword, and the process is as it was afterwards.

    shared: see `sslkit.options.calls.by_keywords`.
    """
    return lambda function: process_kept()(by_keywords(function, *shared))
