"""The identity of a network: a digest of its structure, its weights and the code of one's own that it runs."""

import dis
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LIBRARIES = ("torch", "torchvision", "timm", "open_clip")
NOT_OWN = {*LIBRARIES, *sys.stdlib_module_names, "builtins", "numpy"}
PLAIN = (bool, int, float, complex, str, bytes, type(None))
DATA = (*PLAIN, tuple, list, set, frozenset, Mapping, np.ndarray, Tensor)
OF_EVERY_MODULE = frozenset(vars(nn.Module()))  # its state, of which hooks, parameters and buffers are read apart
ADDRESS = " at 0x"  # in the default repr of an object, another one in each process


def weights_digest(net: nn.Module) -> str:
    """Return the sha256 of a network: its classes, settings, hooks and weights.

    Of classes outside libraries it also reads attributes of any kind (of an object those that are data or functions),
    the source, and that of the functions and classes of one's own that they name. What code finds otherwise, as by
    `getattr` or in a file, it does not see. An attribute that changes with each call, as a count of calls, makes
    another digest each time.
    """
    return _digest(net, {})


def _digest(net: nn.Module, numbers: dict[int, int]) -> str:
    """numbers: of the modules that were met, by id: they may hold each other."""
    for module in net.modules():
        numbers.setdefault(id(module), len(numbers))
    digest = hashlib.sha256(repr(net).encode())
    seen: set[Any] = set()  # classes and functions that were read
    for name, module in net.named_modules():
        kind = type(module)
        is_own = kind.__module__.partition(".")[0] not in LIBRARIES
        digest.update(f"{name} {kind.__module__}.{kind.__qualname__} {_settings(module, is_own, numbers)}".encode())
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            digest.update(f"hook {_describe(hook, numbers)}".encode())
        for source in _sources(kind, seen) if is_own else ():
            digest.update(source.encode())
    for name, value in [*net.named_parameters(), *net.named_buffers()]:  # a state dict lacks non-persistent buffers
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _settings(module: nn.Module, is_own: bool, numbers: dict[int, int]) -> list[str]:
    """Return the attributes that `repr` may leave out; of a library's class those of plain types, and functions."""
    if is_own:
        attributes = ((name, value) for name, value in sorted(vars(module).items()) if name not in OF_EVERY_MODULE)
        return [f"{name}={_describe(value, numbers)}" for name, value in attributes]
    plain = (*PLAIN, tuple, FunctionType)
    public = ((name, x) for name, x in sorted(vars(module).items()) if not name.startswith("_") and name != "training")
    return [f"{name}={_describe(value, numbers)}" for name, value in public if isinstance(value, plain)]


def _describe(value: Any, numbers: dict[int, int], inside: tuple[int, ...] = (), in_object: bool = False) -> str:
    """Return a value in words that are the same in every process, and others for another value.

    inside: id of each thing that holds it. in_object: an object holds it; of further ones, such as the trainer and the
    data of a network in training, only the kind is told.
    """
    if isinstance(value, PLAIN):
        return repr(value)
    if id(value) in inside:
        return "itself"
    tell = functools.partial(_describe, numbers=numbers, inside=(*inside, id(value)), in_object=in_object)
    if isinstance(value, nn.Module):  # in a list, where it is no part of the network
        return f"module {numbers[id(value)]}" if id(value) in numbers else _digest(value, numbers)
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy(), tuple(value.shape), value.dtype
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{tell(key)}: {tell(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [tell(entry) for entry in value]
        return f"{type(value).__name__}{sorted(parts) if isinstance(value, (set, frozenset)) else parts}"
    if isinstance(value, functools.partial):
        return f"partial {tell(value.func)} {tell(value.args)} {tell(value.keywords)}"
    if isinstance(value, MethodType):
        return tell(value.__func__)
    if isinstance(value, FunctionType):
        cells = [tell(cell.cell_contents) for cell in value.__closure__ or ()]
        return f"{_code(value.__code__)} {tell(value.__defaults__)} {tell(value.__kwdefaults__)} {cells}"
    if isinstance(value, (type, ModuleType)) or ADDRESS not in repr(value):
        return getattr(value, "__qualname__", None) or repr(value)
    held = None if in_object else getattr(value, "__dict__", None)
    return f"{type(value).__qualname__} {tell(held, in_object=True)}"


def _code(code: CodeType) -> str:
    inner = [_code(constant) if isinstance(constant, CodeType) else repr(constant) for constant in code.co_consts]
    return f"{code.co_code.hex()} {inner} {code.co_names!r}"


def _sources(kind: type | FunctionType, known: set[Any]) -> Iterator[str]:
    """Yield the sources of a class and its bases, or of a function, and what of one's own their code names."""
    for member in kind.__mro__ if isinstance(kind, type) else [kind]:
        if member in known or member.__module__.partition(".")[0] in NOT_OWN:
            continue
        known.add(member)
        yield _source(member)
        for function in _functions(member):
            for name, value in _globals_read(function):
                if isinstance(value, (type, FunctionType)) and _is_own(value):
                    yield from _sources(value, known)
                elif isinstance(value, DATA):
                    yield f"{name}={_describe(value, {})}"


def _functions(kind: type | FunctionType) -> list[FunctionType]:
    if isinstance(kind, FunctionType):
        return [inspect.unwrap(kind)]
    members = [
        getattr(member, "fget", None) or getattr(member, "__func__", None) or member for member in vars(kind).values()
    ]
    return [inspect.unwrap(member) for member in members if isinstance(member, FunctionType)]


def _globals_read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function reads, and attributes of modules of one's own, with their values."""
    for code in _codes(function.__code__):
        for name in {step.argval: None for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}:
            value = function.__globals__.get(name)
            yield name, value
            if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in NOT_OWN:
                yield from ((inner, getattr(value, inner, None)) for inner in code.co_names)


def _codes(code: CodeType) -> list[CodeType]:
    return [
        code,
        *(inner for constant in code.co_consts if isinstance(constant, CodeType) for inner in _codes(constant)),
    ]


def _is_own(thing: type | FunctionType) -> bool:
    """Return whether it is outside the standard library and installed packages."""
    if (thing.__module__ or "builtins").partition(".")[0] in NOT_OWN:
        return False
    file = getattr(sys.modules.get(thing.__module__), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file


def _source(thing: type | FunctionType) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed into an interpreter
        functions = _functions(thing)
        return " ".join(_code(function.__code__) for function in functions)
