"""Settings: the fields of a dataclass declare their type, range and help, and every value is checked against them.

@dataclass
class OptimizerConfig:
    lr: float = setting(2e-3, "peak learning rate", above=0)

Command lines, their `--help`, `sslkit.training.config.Config` and the tests all read these declarations.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import operator
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar

from sslkit.errors import UserError, closest, format_value, nearest
from sslkit.options.meant import VALUES_ELSEWHERE, meanings

MOST = 10**9  # of counts, far above anything that is run: it stops what no machine can count
MOST_SEED = 2**32 - 1  # the largest that numpy, scikit-learn and torch all take
UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # in paths, YAML or JSON: NUL, halves of surrogate pairs
UNIONS = (types.UnionType, typing.Union)
S = TypeVar("S")


@dataclass(frozen=True)
class Limits:
    """The allowed values of a setting: numbers within bounds, texts of a list.

    least, most: inclusive bounds. above, below: exclusive bounds. choices: allowed texts; () is any text.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    def hold(self, number: float) -> bool:
        """Return whether a number lies within the bounds; NaN, infinity and numbers too large for a float never do."""
        try:
            finite = math.isfinite(number)
        except OverflowError:  # an integer of more than 308 digits
            return False
        return (
            finite
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def union(self, other: "Limits") -> "Limits":
        """Return the limits of a union of two kinds, such as a number within bounds or a word of a list."""
        values = {name: value for name, value in vars(other).items() if value not in (None, ())}
        return dataclasses.replace(self, **values)

    def __str__(self) -> str:
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {bound:,}" for words, bound in bounds.items() if bound is not None)


@dataclass(frozen=True)
class Declared:
    """The declaration of one setting. path: `batch_size`. kind: its annotation, such as `int | None`."""

    path: str
    kind: Any
    limits: Limits
    default: Any
    help: str

    def check(self, value: Any) -> Any:
        """Return the checked value, of Python's types; integers become floats where these are meant, paths texts.

        Raises UserError, with the path, the allowed values and the value, for another type or a value out of range.
        """
        is_device = (type(value).__module__, type(value).__name__) == ("torch", "device")
        if isinstance(value, PurePath) or is_device:  # YAML and JSON, which keep the settings, have neither
            value = str(value)
        value = as_plain(value)
        for kind in alternatives(self.kind):
            if fits(value, kind, self.limits):
                return float(value) if kind is float else value
        close = None
        if isinstance(value, str):
            meant = VALUES_ELSEWHERE.get(value)
            close = meant if meant in self.limits.choices else closest(value, self.limits.choices)
        hint = f": did you mean {close!r}?" if close else ""
        raise UserError(
            f"{self.path} must be {describe_values(self.kind, self.limits)}, got {format_value(value)}{hint}"
        )


def setting(default: Any, help: str, **limits: Any) -> Any:
    """A dataclass field with its help text and, as keyword arguments, its `Limits`."""
    return dataclasses.field(default=default, metadata={"help": help, "limits": Limits(**limits)})


def with_default(options: type, name: str, default: Any) -> Any:
    """A field of a dataclass of options with another default, for a subclass of it."""
    return dataclasses.field(default=default, metadata=options.__dataclass_fields__[name].metadata)


def iter_settings(settings: Any, where: str = "") -> Iterator[Declared]:
    """Yield every setting of a dataclass instance and of the dataclasses nested in it, in order: groups last."""
    kinds = typing.get_type_hints(type(settings), include_extras=True)
    annotations = type(settings).__annotations__

    def order(field: dataclasses.Field) -> tuple[bool, bool]:
        return dataclasses.is_dataclass(getattr(settings, field.name)), field.name not in annotations

    for field in sorted(dataclasses.fields(settings), key=order):
        default, path = getattr(settings, field.name), f"{where}{field.name}"
        if dataclasses.is_dataclass(default):
            yield from iter_settings(default, f"{path}.")
        else:
            kind, limits = plain(kinds[field.name])
            limits = limits.union(field.metadata.get("limits", Limits()))
            yield Declared(path, _without_paths(kind), limits, default, field.metadata.get("help", ""))


def _without_paths(kind: Any) -> Any:
    """An annotation without Path, which `Declared.check` turns into text."""
    kinds = [option for option in alternatives(kind) if not (isinstance(option, type) and issubclass(option, PurePath))]
    return functools.reduce(operator.or_, kinds)


def overlaid(settings: S, given: Mapping[str, Any], where: str = "", tree: Mapping[str, Any] | None = None) -> S:
    """Return `settings` (a dataclass) with the values of `given`, each checked; a mapping fills a nested dataclass.

    where, tree: the path of a nested one, and all settings, for the error.
    Raises UserError for an unknown name, with the nearest known one, and for a value that a setting does not allow.
    """
    by_path = {option.path.removeprefix(where): option for option in iter_settings(settings, where)}
    names = [field.name for field in dataclasses.fields(settings)]
    tree = dataclasses.asdict(settings) if tree is None else tree
    changes = {}
    for name, value in given.items():
        if name not in names:
            meant = meanings(str(name), tree, inside=bool(where))
            hint = f"did you mean {' or '.join(map(repr, meant))}?" if meant else nearest(str(name), names)
            raise UserError(f"there is no setting {f'{where}{name}'!r}: {hint}")
        if name in by_path:
            changes[name] = by_path[name].check(value)
        elif isinstance(value, Mapping):
            changes[name] = overlaid(getattr(settings, name), value, f"{where}{name}.", tree)
        elif type(value) is type(getattr(settings, name)):
            changes[name] = value
        else:
            raise UserError(f"{where}{name} must be a mapping of settings, got {format_value(value)}")
    return dataclasses.replace(settings, **changes)


def nest(given: Mapping[str, Any], short: Mapping[str, str]) -> dict[str, Any]:
    """Return settings with dotted keys in nested form: {"trainer.devices": 1} as {"trainer": {"devices": 1}}.

    short: {"data": "source"} where {"data": X} stands for {"data": {"source": X}}.
    Raises UserError for a setting that is given twice, and for one below a value that is no mapping.
    """
    dotted = [key for key in given if isinstance(key, str) and "." in key]
    settings = {key: value for key, value in given.items() if key not in dotted}
    for path in dotted:
        *above, last = path.split(".")
        node = settings
        for name in above:
            value = node.get(name, {})
            if not isinstance(value, Mapping):
                if node is not settings or name not in short:
                    raise UserError(
                        f"{path} cannot be set: {name} is given as {format_value(value)}, not as a mapping of settings"
                    )
                value = {short[name]: value}
            node[name] = node = dict(value)
        if last in node:
            raise UserError(f"{path} is given twice: {format_value(node[last])} and {format_value(given[path])}")
        node[last] = given[path]
    return settings


def leaves(options: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of each option in nested mappings, `optimizer.lr`, and its value."""
    if not isinstance(options, Mapping):
        yield path, options
        return
    for name, value in options.items():
        yield from leaves(value, f"{path}.{name}".lstrip("."))


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The parts of `int | None`; a plain annotation is its only part."""
    return typing.get_args(kind) if typing.get_origin(kind) in UNIONS else (kind,)


def plain(kind: Any) -> tuple[Any, Limits]:
    """Split `Annotated[float, Limits(...)]`, also in a union or a list, into `float` and the limits.

    `Literal["a", "b"]` is a text whose limits are these choices.
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:  # of texts
        return str, Limits(choices=parts)
    if origin is typing.Annotated:
        return parts[0], next((mark for mark in parts[1:] if isinstance(mark, Limits)), Limits())
    if origin not in (*UNIONS, list, Sequence):
        return kind, Limits()
    kinds, limits = zip(*map(plain, parts), strict=True)
    stripped = functools.reduce(operator.or_, kinds) if origin in UNIONS else origin[kinds[0]]
    return stripped, functools.reduce(Limits.union, limits)


def as_word(value: Any) -> str:
    """A value as a command line writes it: `null`, `true`, `[a,b]`."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "[" + ",".join(map(as_word, value)) + "]" if isinstance(value, (list, tuple)) else str(value)


def as_plain(value: Any) -> Any:
    """The numbers, texts and rows of numpy as Python's, also in lists and mappings: YAML and JSON cannot hold them."""
    if type(value) is dict:
        return {name: as_plain(entry) for name, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(as_plain, value))
    is_flat = type(value).__module__ == "numpy" and len(getattr(value, "shape", "no array")) < 2
    return value.tolist() if is_flat else value


def storable(value: Any) -> Any:
    """Settings as values that YAML and JSON can hold; a function becomes its name."""
    value = as_plain(value)
    if isinstance(value, Mapping):
        return {str(k): storable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(v) for v in value]
    if callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def takes_text(kind: Any) -> bool:
    """Return whether this annotation takes text, or lists of texts, and neither numbers nor true or false."""
    return set(alternatives(kind)) <= {str, types.NoneType, list[str]} and str in alternatives(kind)


def texts_of(settings: Any) -> set[str]:
    """The paths of the settings of plain text."""
    return {option.path for option in iter_settings(settings) if takes_text(option.kind)}


def fits(value: Any, kind: Any, limits: Limits) -> bool:
    """Return whether a value is of one plain type (no union) and within the limits."""
    if kind in (Any, inspect.Parameter.empty):
        return True
    if typing.get_origin(kind) in (list, tuple, Sequence):
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        inner = typing.get_args(kind)[0]
        return listed and all(any(fits(entry, k, limits) for k in alternatives(inner)) for entry in value)
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real  # numpy's too
        return isinstance(value, number) and not isinstance(value, bool) and limits.hold(value)
    if kind is str:
        return (
            isinstance(value, str) and not UNWRITABLE.search(value) and (not limits.choices or value in limits.choices)
        )
    if typing.get_origin(kind) is Callable:
        return callable(value)
    return not isinstance(kind, type) or isinstance(value, kind)


def describe_values(kind: Any, limits: Limits) -> str:
    """The values that an annotation and its limits allow, in words: `a whole number, at least 1, or null`."""
    parts = [_describe_type(alternative, limits, alternatives(kind)) for alternative in alternatives(kind)]
    comma = "," if any("," in text for text in parts) else ""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}{comma} or {parts[-1]}"


def _describe_type(kind: Any, limits: Limits, beside: Sequence[Any]) -> str:
    """One type in words. beside: all types of the setting; a list of one of these is "a list of such"."""
    if typing.get_origin(kind) in (list, tuple, Sequence):
        inner = typing.get_args(kind)[0]
        return (
            "a list of such"
            if set(alternatives(inner)) <= set(beside)
            else f"a list, each {describe_values(inner, limits)}"
        )
    if kind in (int, float):
        return ", ".join(filter(None, ("a whole number" if kind is int else "a number", str(limits))))
    if kind is str:
        return ", ".join((*limits.choices[:-2], " or ".join(limits.choices[-2:]))) if limits.choices else "text"
    if typing.get_origin(kind) is Callable:
        return "a function"
    return {bool: "true or false", types.NoneType: "null", dict: "a mapping", Mapping: "a mapping"}.get(kind, str(kind))
