"""The members of a zoo by name: listed and opened before any computation; damaged ones are left out and reported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sslkit import zoo as zoos
from sslkit.backbones.words import is_untrained, split_size
from sslkit.errors import UserError
from sslkit.models.loading import AS_USUAL, Loading
from sslkit.models.model import Model
from sslkit.runtime.distributed import world_size
from sslkit.zoo.exporting import is_export

M = TypeVar("M")
# bytes of weights of open networks, a round number: more are read again, from the disk, when they are used
KEPT = 4 * 2**30


@dataclass(frozen=True)
class Closed:
    """A member of a zoo that was opened once and is not kept in memory. open(): load it again."""

    open: Callable[[], Model]


class Members(dict[str, M]):
    """Names and models of a zoo.

    left_out: name -> reason, for each member of the zoo that was left out.
    listed: names found in a folder; the other names were given explicitly.
    """

    def __init__(
        self,
        found: Mapping[str, M] | Sequence[tuple[str, M]] = (),
        left_out: Mapping[str, str] | None = None,
        listed: Sequence[str] = (),
    ):
        super().__init__(found)
        self.left_out, self.listed = dict(left_out or {}), frozenset(listed)

    def of_each(self, make: Callable[[str, M], Any], *, spare_all: bool = False) -> "Members[Any]":
        """Return `make(name, model)` for each member; leave out a listed one for which it raises UserError.

        spare_all: also leave out explicitly given ones. Raises UserError when none is left, and for the first failure
        in a process group, whose ranks must do the same calls.
        """
        made, failed = {}, {}
        for name, model in self.items():
            try:
                made[name] = make(name, model)
            except UserError as error:
                if not (spare_all or name in self.listed) or world_size() > 1:
                    raise
                failed[name] = str(error)
        if not made and len(set(failed.values())) == 1 and (len(failed) > 1 or not self.left_out):
            raise UserError(next(iter(failed.values())))  # caused by the data or an option, not by a model
        return some_left(Members(made, {**self.left_out, **failed}, self.listed))


def some_left(found: Members[M]) -> Members[M]:
    """Return the members. Raises UserError when all were left out, with the reasons."""
    if found or not found.left_out:
        return found
    reasons = list(dict.fromkeys(found.left_out.values()))
    if len(reasons) == 1:
        raise UserError(reasons[0])
    told = "; ".join(f"{name}: {reason}" for name, reason in found.left_out.items())
    raise UserError(f"none of the {len(found.left_out)} models can be used: {told}")


def lines_of(left_out: Mapping[str, str]) -> list[str]:
    """Return a line for each left-out member, for the command lines."""
    return [f"left out  {name}: {reason}" for name, reason in left_out.items()]


def members(zoo: Any) -> Members[Any]:
    """Return the names and models of a zoo, without damaged entries of its folders.

    Raises UserError for an empty zoo and for two members with the same name.
    """
    if isinstance(zoo, Members):
        return zoo
    if isinstance(zoo, Mapping) and not zoo:
        raise UserError("there is no model to rank")
    if isinstance(zoo, Mapping):
        unnamed = [name for name in zoo if not isinstance(name, str)]
        if unnamed:
            raise UserError(f"the name of a model must be text, got {unnamed[0]!r}")
        return Members(zoo)
    sources = zoo if isinstance(zoo, Sequence) and not isinstance(zoo, str) else [zoo]
    models: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    listed: list[str] = []
    for source in sources:
        inside = _members_of(source)
        for name, model in inside.items():
            if name in models:
                raise UserError(f"two members of the zoo are called {name!r}; give a mapping {{name: model}}")
            models[name] = model
        left_out |= inside.left_out
        listed += inside.listed
    if not models and not left_out:
        raise UserError(f"there is no finished entry in {zoo}; recipes/train.py makes one")
    return some_left(Members(models, left_out, listed))


def entries_of(folder: str | Path) -> Members[zoos.ZooEntry]:
    """Return the finished entries of a folder. Raises UserError if there is no such folder."""
    entries = zoos.open(folder)
    names = [entry.folder.name for entry in entries]
    damaged = {path.name: reason for path, reason in entries.damaged.items()}
    return Members(dict(zip(names, entries, strict=True)), damaged, names)


def load_member(one: Any, loading: Loading = AS_USUAL) -> Model:
    """Load a member of a zoo, see `sslkit.load`; one that was opened before stays as it is."""
    if isinstance(one, Closed):
        return one.open()
    return loading.load(one)


def open_all(zoo: Any, load: Callable[[Any], Model], *, most: int = KEPT) -> Members[Any]:
    """Open every member once, so that an error comes first, and return them by name.

    The first ones, of up to `most` bytes of weights together, stay open; the others are `Closed`, to be opened again
    when it is their turn: a thousand networks do not fit in memory. load: given -> model.
    """
    left = most

    def open_member(_: str, one: Any) -> Any:
        nonlocal left
        model = load(one)
        if not isinstance(one, Model):
            left -= sum(value.nbytes for value in model.net.state_dict().values())
        return model if left >= 0 else Closed(partial(load, one))

    return members(zoo).of_each(open_member)


def _folder_of(one: str | Path) -> Path:
    """Return the folder in ENTRY, random:ENTRY or random:ENTRY:SEED."""
    text = str(one)
    return Path(text.removeprefix("random:").partition(":")[0] if is_untrained(text) else text)


def _members_of(one: Any) -> Members[Any]:
    word = split_size(str(one))[0] if isinstance(one, (str, Path)) else None
    folder = None if word is None else Path(word)
    is_model = folder is not None and ((folder / zoos.CARD).is_file() or is_export(folder))
    if folder is not None and folder.is_dir() and not is_model:
        if word != str(one):
            raise UserError(
                f"{one} is a folder of entries, and the size is that of one model: give image_size= for all"
            )
        return entries_of(folder)
    if isinstance(one, (Model, zoos.ZooEntry)):
        return Members({one.name if isinstance(one, Model) else one.folder.name: one})
    if folder is not None:
        named = _folder_of(word)
        is_folder = named.expanduser().is_dir()
        return Members({word.rstrip("/").replace(str(named), named.name) if is_folder else word: one})
    return Members({type(one).__name__: one})


@dataclass(frozen=True)
class Failure:
    """A failed measurement. data: the task, "" if the model could not be loaded. reason: in one line."""

    model: str
    data: str
    reason: str

    def __str__(self) -> str:
        return f"{self.model}{' on ' if self.data else ''}{self.data}: {self.reason}"


def load_zoo(zoo: Any, loading: Loading = AS_USUAL) -> tuple[dict[str, Model], list[Failure]]:
    """Load the models of a zoo by name; also return those that could not be loaded.

    zoo: see `evaluation.rank`. Raises UserError for an empty zoo, for duplicate names, and if no model can be loaded.
    """
    in_zoo = members(zoo)
    models = {}
    failures = [Failure(name, "", reason) for name, reason in in_zoo.left_out.items()]
    for name, member in in_zoo.items():
        try:
            models[name] = load_member(member, loading)
        except Exception as error:
            failures.append(Failure(name, "", error_line(error)))
    if not models:
        raise UserError(f"none of the models can be loaded: {'; '.join(map(str, failures))}")
    return models, failures


def error_line(error: Exception) -> str:
    """Return an error as one line."""
    message = " ".join(str(error).split()) or "no message"
    return message if isinstance(error, UserError) else f"{type(error).__name__}: {message}"


def unlike_sizes(sizes: Mapping[str, int]) -> str:
    """Return a note on models that see the images at different sizes, "" where all have one. sizes: by model."""
    if len(set(sizes.values())) < 2:
        return ""
    by_size = {size: [name for name, other in sizes.items() if other == size] for size in sorted(set(sizes.values()))}
    seen = "; ".join(f"{size} px ({', '.join(names)})" for size, names in by_size.items())
    return f"the models see the images at different sizes: {seen}"
