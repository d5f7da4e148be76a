"""Regularisers. One file or folder each; its name is the name after the `+` in `method=...`."""

import sys
from types import ModuleType

from sslkit.options import members

BEGIN_WITH = "dsa or guide"


def names() -> tuple[str, ...]:
    """The name of every regulariser."""
    return members.names(__name__)


def find(name: str) -> type:
    """The class of a regulariser by its name, or `package.module:Class`."""
    return members.find(__name__, name)


class _Callable(ModuleType):
    """Lets `sslkit.regularizers()` give the names."""

    def __call__(self) -> tuple[str, ...]:
        return names()


sys.modules[__name__].__class__ = _Callable
