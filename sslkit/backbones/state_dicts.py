"""The state dicts in the content of a weights file, and the places in them where a network's tensors may stand."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sslkit.backbones.weight_files import is_dense

# Parts of names that torch's wrappers of modules add, anywhere in a network.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_AVERAGED = {"ema", "model_ema", "ema_model", "state_dict_ema", "ema_state_dict", "module_ema", "net_ema"}
# Of two networks in one file, the part of the name of the one that its project evaluates, and that of the other.
_PAIRS = (("teacher", "student"), ("encoder_q", "encoder_k"), ("online", "target"), ("", "momentum"))


@dataclass(frozen=True)
class StateDict:
    """Tensors by name, and the keys of the file's content that lead to them: `("teacher",)`; none: at its top."""

    place: tuple[str, ...]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Reading:
    """The tensors below a prefix of a state dict, by the names of a network's library.

    prefix: with its dot, or "". tensors: all below it, without it; those that are no part of the network as well.
    used: how each is called in the state dict. naming: of the file, if it is another than the network's; a phrase.
    """

    source: StateDict
    prefix: str
    tensors: Mapping[str, Tensor]
    used: Mapping[str, str]
    naming: str = ""

    @property
    def label(self) -> str:
        """Keys and prefix, `teacher.backbone`, or "." at the top: a part of a file, see `weight_files.split_part`."""
        return ".".join([*self.source.place, self.prefix]).strip(".") or "."

    @property
    def describe(self) -> str:
        """`teacher, prefix backbone., names of another library`, or "" for the network's names at the top of a file."""
        prefix = f"prefix {self.prefix}" if self.prefix else ""
        return ", ".join(filter(None, (".".join(self.source.place), prefix, self.naming)))

    def is_part(self, part: str) -> bool:
        """Return whether a word such as `teacher` or `student.module` stands in the label; "" stands in every one."""
        return not part or part == self.label or f".{part}." in f".{self.label}."


def state_dicts(content: Any) -> list[StateDict]:
    """All mappings in a file's content that hold tensors by name, at whatever depth."""
    return list(_state_dicts(content, (), set()))


def _state_dicts(content: Any, place: tuple[str, ...], seen: set[int]) -> Iterator[StateDict]:
    if not isinstance(content, Mapping) or id(content) in seen:
        return
    seen.add(id(content))  # a pickle may hold itself
    named = {name: value for name, value in content.items() if isinstance(name, str)}
    if tensors := {_unwrap(name): value for name, value in named.items() if isinstance(value, Tensor)}:
        yield StateDict(place, tensors)
    for name, value in named.items():
        yield from _state_dicts(value, (*place, name), seen)


def _unwrap(name: str) -> str:
    return ".".join(word for word in name.split(".") if word not in _WRAPPERS)


def prefixes(names: Collection[str], own: Collection[str]) -> list[str]:
    """The prefixes below which a name is one of `own`, those of most names first."""
    counts: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in own:
                counts[".".join([*parts[:start], ""]) if start else ""] += 1
    return [prefix for prefix, _ in counts.most_common()]


def below(source: StateDict, prefix: str) -> dict[str, str]:
    """The names below a prefix, without it, with the whole ones."""
    return {name[len(prefix) :]: name for name in source.tensors if name.startswith(prefix)}


def choose_reading(readings: Sequence[Reading]) -> Reading | None:
    """The one to take of several readings of a file that all fit a network; None if no rule says.

    Averaged weights before others, and of two networks the one that its project evaluates: teacher before student.
    Equal weights are the same.
    """
    for reading in readings:
        if all(reading is other or _comes_first(reading, other) or _are_equal(reading, other) for other in readings):
            return reading
    return None


def _comes_first(one: Reading, other: Reading) -> bool:
    ours, theirs = one.label.split("."), other.label.split(".")
    votes = {bool(_AVERAGED & set(ours)) - bool(_AVERAGED & set(theirs))}
    votes |= {_is_first(pair, ours, theirs) - _is_first(pair, theirs, ours) for pair in _PAIRS}
    return votes - {0} == {1}


def _is_first(pair: tuple[str, str], ours: Sequence[str], theirs: Sequence[str]) -> bool:
    first, second = pair
    we_are_second, they_are_second = (any(second in word for word in words) for words in (ours, theirs))
    return they_are_second and not we_are_second and any(first in word for word in ours)


def _are_equal(one: Reading, other: Reading) -> bool:
    return one.tensors.keys() == other.tensors.keys() and all(
        _is_equal(one.tensors[name], value) for name, value in other.tensors.items()
    )


def _is_equal(one: Tensor, other: Tensor) -> bool:
    alike = (one.dtype, one.shape) == (other.dtype, other.shape) and is_dense(one) and is_dense(other)
    return alike and one.equal(other)
