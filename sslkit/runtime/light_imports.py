"""Imports that libraries make for nothing, left out: more than half of the processor time in which a training starts.

| module | imports | because |
|---|---|---|
| lightning_fabric.utilities.imports | torchmetrics, and with it scipy.signal | it compares torchmetrics' version |
| lightning_fabric.wrappers | torch._dynamo, sympy | it asks whether a module is a compiled one |
| torchvision.ops.roi_align, beside what timm needs | torch._dynamo, sympy | it asks whether a device can compile |
| timm.models.naflexvit | torch._dynamo, sympy | it keeps five methods out of what is compiled |
| timm.utils.summary | wandb, if it is installed | its `update_summary` may send to it |
| torch.optim.optimizer | torch._dynamo, sympy | it keeps its methods out of what is compiled |

Nothing is taken from the caller: each module is the library's own and answers as it would have answered, since nothing
is compiled before torch._dynamo is imported. Versions of the libraries that lack a name used here import as they do.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

DYNAMO = "torch._dynamo"
OPTIM, DIRECT = "torch.optim.optimizer", ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
STEP = "_use_grad_for_differentiable"  # torch's decorator of their steps
MARK = "__dynamo_disable"  # where torch keeps the form of a function that is never compiled


@contextmanager
def light_imports() -> Iterator[None]:
    """Leave these imports out for the block. A module that is imported after it is imported as the library wrote it."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        yield
        return
    finder = leave_out()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def leave_out() -> "_Finder":
    """Leave these imports out from now on: for a process of ours, a command's."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder


class _Finder:
    """Finds the modules of the table where Python finds them, and runs each within its change."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _CHANGES else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def run(module: ModuleType) -> None:
                with _CHANGES[name]():
                    execute(module)

            spec.loader.exec_module = run  # a loader belongs to one spec
        return spec


@contextmanager
def _replace(owner: ModuleType, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _with_installed_versions() -> AbstractContextManager[None]:
    """Let Lightning read the version of what is not imported from its metadata."""
    from importlib import metadata

    from lightning_utilities.core import imports
    from packaging.version import Version

    compare = imports.compare_version

    def compare_installed(package: str, op: Callable, version: str, use_base_version: bool = False) -> bool:
        if package in sys.modules or use_base_version:
            return compare(package, op, version, use_base_version)
        try:
            return op(Version(metadata.version(package)), Version(version))
        except metadata.PackageNotFoundError:
            return False

    return _replace(imports, "compare_version", compare_installed)


def _with_late_disable() -> AbstractContextManager[None]:
    """Let timm decorate with torch's own form of `torch.compiler.disable`, which imports torch._dynamo when called."""
    import timm.layers
    import torch

    late = getattr(torch, "_disable_dynamo", timm.layers.disable_compiler)
    return _replace(timm.layers, "disable_compiler", late)


class _Compiled(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return DYNAMO in sys.modules and isinstance(instance, sys.modules[DYNAMO].OptimizedModule)


class _OptimizedModule(metaclass=_Compiled):
    """Stand for the class of modules that `torch.compile` makes, in `isinstance`."""


def _is_compile_supported(device_type: str) -> bool:
    from torch._dynamo.utils import is_compile_supported

    return is_compile_supported(device_type)


@contextmanager
def _in_place(name: str, **values: Any) -> Iterator[None]:
    """Let `from name import ...` give these values, unless that module is imported; other names import it."""
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)

    def put_away() -> None:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]

    def find(attribute: str) -> Any:
        if attribute.startswith("__"):  # asked for by Python's import, which takes it for a plain module
            raise AttributeError(attribute)
        put_away()
        return getattr(import_module(name), attribute)

    vars(stand_in).update(values, __getattr__=find)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        put_away()


@contextmanager
def _with_direct_optimizers() -> Iterator[None]:
    """Let the four methods and the steps of all optimisers run as they are until torch._dynamo is imported."""
    yield
    optim = sys.modules[OPTIM]
    for name in DIRECT:
        method = getattr(optim.Optimizer, name)
        if hasattr(method, "__wrapped__"):
            setattr(method.__wrapped__, MARK, _Direct(method))
    if hasattr(optim, STEP):
        setattr(optim, STEP, _direct_step(getattr(optim, STEP)))


class _Direct:
    """A method of optimisers, which imports torch._dynamo no sooner than anything else does."""

    def __init__(self, method: Callable) -> None:
        self.method, self.plain = method, method.__wrapped__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if DYNAMO not in sys.modules:
            return self.plain(*args, **kwargs)
        if getattr(self.plain, MARK, None) is self:
            delattr(self.plain, MARK)
        return self.method(*args, **kwargs)


def _direct_step(decorate: Callable) -> Callable:
    """Return torch's decorator of steps, whose result differs in that it ends no graph where nothing is compiled."""

    def wrap(function: Callable) -> Callable:
        as_torch_does = decorate(function)

        @functools.wraps(function)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if DYNAMO in sys.modules:
                return as_torch_does(self, *args, **kwargs)
            with sys.modules["torch"].set_grad_enabled(self.defaults["differentiable"]):
                return function(self, *args, **kwargs)

        return step

    return wrap


_CHANGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "lightning_fabric.utilities.imports": _with_installed_versions,
    "lightning_fabric.wrappers": lambda: _in_place(DYNAMO, OptimizedModule=_OptimizedModule),
    "torchvision.ops.roi_align": lambda: _in_place(f"{DYNAMO}.utils", is_compile_supported=_is_compile_supported),
    "timm.utils.summary": lambda: _in_place("wandb"),
    "timm.models.naflexvit": _with_late_disable,
    OPTIM: _with_direct_optimizers,
}
