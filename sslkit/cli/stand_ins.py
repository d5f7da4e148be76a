"""Stand-ins for large libraries while a program only prints its `--help`: what the text needs of them is their names.

The options in a help text come from the members themselves: signatures, dataclasses and docstrings. Their files also
import torch and others, which takes seconds; between `install` and `remove` such an import gives a module whose every
attribute is an empty class, as in Sphinx's `autodoc_mock_imports`. Nothing else may be run meanwhile.
"""

import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

LARGE = frozenset(
    (
        "PIL",
        "faiss",
        "hydra",
        "lightning_fabric",
        "matplotlib",
        "numpy",
        "omegaconf",
        "open_clip",
        "psutil",
        "pytorch_lightning",
        "scipy",
        "sklearn",
        "timm",
        "torch",
        "torchmetrics",
        "torchvision",
        "tqdm",
        "yaml",
    )
)
HELP = ("--help", "-h")
ALL = "all"  # of the help's parts


def help_group(words: Sequence[str]) -> str | None:
    """Return which part of the help is asked for: "" its first page, ALL, or a group; None without --help."""
    flags = (word.partition("=") for word in words)
    return next((group for flag, _, group in flags if flag in HELP), None)


def _compute_kind(*operands: Any) -> type:
    return _kind("computed")


class _Kind(type):
    """A class of a large library; its attributes, and what is computed with it, are such classes too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or cls.__module__ != __name__:  # the latter: a class of ours, made from a stand-in
            raise AttributeError(name)
        return _kind(name)

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = _compute_kind


class _Nothing(metaclass=_Kind):
    """Base class, decorator or value: whatever is made of it at import is made of nothing."""

    def __init__(self, *args: Any, **options: Any) -> None: ...

    def __call__(self, decorated: Any) -> Any:
        return decorated

    def __getattr__(self, name: str) -> Any:
        return getattr(type(self), name)

    def __class_getitem__(cls, part: Any) -> type:
        return cls

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = _compute_kind
    __getitem__ = _compute_kind


def _kind(name: str) -> type:
    return _Kind(name, (_Nothing,), {"__module__": __name__})


class _Module(types.ModuleType):
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _kind(name)


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in LARGE else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


_FINDER = _Finder()


def install(words: Sequence[str]) -> None:
    """Let imports of large libraries give stand-ins; words: of a command line that asks for help.

    Nothing changes where torch is already loaded, nor for a method from outside the package: its file may need more.
    """
    outside = any(word.startswith("method=") and ":" in word for word in words)
    if not outside and "torch" not in sys.modules:
        sys.meta_path.insert(0, _FINDER)


def remove() -> None:
    """Take the stand-ins away again. sslkit's own modules keep them: they are good for nothing more in this process."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Module)]:
        del sys.modules[name]
