"""Convert `key=value` words of a command line to Hydra's grammar and check them against the settings' names."""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from sslkit.cli import process

from sslkit.data.sources import names
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.options.meant import meanings
from sslkit.terminal.say import printable

WORDS = {"data": "source", "optimizer": "name"}  # `data=X` is short for `data.source=X`
MOST_MEANT = 3  # settings that a wrong name may mean: a line has room for them
MOST_SHOWN = 60  # characters of a value that is repeated
SHOWING = ("--cfg", "-c", "--package", "-p", "--info", "-i")  # Hydra's flags that take a value
SWEEP = frozenset(("-m", "--multirun"))
FLAGS = frozenset((  # Hydra's
    *SHOWING, *SWEEP, "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--shell-completion",
    "-sc", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd", "--experimental-rerun",
))  # fmt: skip
CARD = "card.json"  # of a zoo entry
PLAIN = re.compile(r"[\w./-]{1,200}")  # a name of data or a path, and nothing of another form
CALL = re.compile(r"""[^\s\[\],"'()][^\[\],"'()]*\([^()"']*\)[^\[\],"'()]*""")  # ped(lam=0.3)+logme
IN_LIST = re.compile(rf"(?<=[\[, ]){CALL.pattern}")
PARTS = re.compile(r"""(?:"[^"]*"|'[^']*'|\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)|[^,])+""")  # between commas
SWEEPS = re.compile(r"(choice|range|interval|glob|shuffle|sort|tag|extend_list)\(")  # functions of Hydra's grammar


def check_data(words: Sequence[str]) -> None:
    """End the process in one line if the last data=NAME names nothing; said before the imports that take seconds.

    Only a plain word, neither a path nor a name, is looked at.
    """
    sources = [value for key, _, value in (word.partition("=") for word in words) if key in ("data", "data.source")]
    source = sources[-1] if sources else "null"
    if (
        source in ("null", *names.BUILTIN, *names.names_of_published())
        or not PLAIN.fullmatch(source)
        or os.path.lexists(source)
    ):
        return
    others = names.torchvision_classes()
    if others and source.lower() not in {*names.BUILTIN, *others}:
        process.end(process.REFUSED, f"error: {printable(names.unknown(source, others), keep='')}")


def join_flags(words: Sequence[str]) -> list[str]:
    """Write `--cfg hydra` as `--cfg=hydra`: a word without = would be parsed as a setting."""
    out: list[str] = []
    for word in words:
        if out and out[-1] in SHOWING and "=" not in word and not word.startswith("-"):
            out[-1] += f"={word}"
        else:
            out.append(word)
    return out


def lengthen(word: str) -> str:
    """Write `data=X` as `data.source=X`."""
    key, equals, value = word.partition("=")
    return f"{key}.{WORDS[key]}={value}" if equals and key in WORDS else word


def quote_value(word: str, texts: Collection[str] = ()) -> str:
    """Quote a value that Hydra's grammar would parse differently from its plain text.

    These are settings of plain text (texts: their paths), paths with blanks or =, and calls such as
    `nleep(covariance=diag)`, also in lists.
    """
    key, equals, value = word.partition("=")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    if not equals or word.startswith("-") or is_quoted or value in ("", "null") or key == "experiment":
        return word  # an experiment is a file's name, in its folder after a /
    if value[0] == "[" and value[-1] == "]":
        inside = IN_LIST.sub(lambda call: quote(call.group()), value)[1:-1]
        return f"{key}=[{','.join(map(_quote_part, _parts(inside)))}]"
    is_text = key.lstrip("+") in texts or "/" in value or CALL.fullmatch(value)
    return f"{key}={quote(value)}" if is_text and value[0] != "{" else word


def quote_each(word: str, texts: Collection[str] = ()) -> str:
    """Quote as `quote_value` does, for a sweep (-m): each of the values between commas, where it is read otherwise."""
    key, equals, value = word.partition("=")
    if not equals or "\\" in value or SWEEPS.match(value):
        return word
    parts = (piece if _is_read_as(piece) else quote_value(f"{key}={piece}", texts) for piece in _parts(value))
    return f"{key}={','.join(piece.removeprefix(f'{key}=') for piece in parts)}"


def of_one_value(word: str, texts: Collection[str] = ()) -> str:
    """A word as -m takes it for one value: several folders, `data=A,B`, would be a sweep without quotes."""
    return word if _is_read_as(word.partition("=")[2]) else quote_value(word, texts)


def _parts(values: str) -> list[str]:
    """The values between commas; all as one, for Hydra to refuse, if one is empty."""
    parts = PARTS.findall(values)
    return parts if ",".join(parts) == values else [values]


def _quote_part(part: str) -> str:
    is_name = not set(part) & set("[]{},")
    return quote(part.strip()) if is_name and not _parses(f"x=[{part}]") else part


def _is_read_as(value: str) -> bool:
    """Return whether Hydra reads a value as this text, and as no sweep."""
    return not SWEEPS.match(value) and _parses(f"x={value}", lambda read: read == value)


def _parses(word: str, meant: Callable[[Any], bool] = lambda _: True) -> bool:
    try:
        override = OverridesParser.create().parse_override(word)
        return not override.is_sweep_override() and meant(override.value())
    except (HydraException, ValueError):
        return False


def quote(value: str) -> str:
    """Put a value in double quotes; Hydra treats a backslash as an escape only before quotes."""
    return '"' + re.sub(r'(\\*)("|$)', lambda found: found[1] * 2 + ('\\"' if found[2] else ""), value) + '"'


def check(words: Sequence[str], tree: Mapping[str, Any]) -> None:
    """Raise UserError for an unknown key, with the nearest known one, and for a value that Hydra cannot parse.

    tree: the known keys, nested; None stands for any keys below it.
    """
    _check_form(words, tree)
    for word in words:
        if word.startswith("-"):
            continue
        key, _, value = word.lstrip("+~").partition("=")
        _check_key(key, value, tree)
        try:
            OverridesParser.create().parse_override(word)
        except (HydraException, ValueError) as error:  # ValueError: a number of thousands of digits
            raise UserError(f"cannot read {word[:200]!r}: {one_line(error)}") from error


def _check_form(words: Sequence[str], tree: Mapping[str, Any]) -> None:
    """Raise UserError for words that are no key=value, with what they would be as such."""
    options = [word for word in words if word.startswith("-") and word.partition("=")[0] not in FLAGS]
    bare = [word for word in words if not word.startswith("-") and "=" not in word]
    if options:
        raise UserError(
            f"options are written {' '.join(_as_settings(words, tree))}, without {options[0].partition('=')[0]}"
        )
    if bare:
        key = _key_of(bare[0], tree)
        meant = f"did you mean {shlex.quote(f'{key}={bare[0]}')}?" if key else "write key=value"
        raise UserError(f"cannot read {bare[0]!r}: {meant}")


def _as_settings(words: Sequence[str], tree: Mapping[str, Any]) -> Iterator[str]:
    """`--data photos --lr=0.1` and a path alone, as settings."""
    rest = [word for word in words if word.partition("=")[0] not in FLAGS and (word.startswith("-") or "=" not in word)]
    while rest:
        word = rest.pop(0)
        key, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            key, value = _key_of(word, tree), word
        elif not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("-") else "true"
        if key:
            key = key.replace("-", "_")
            yield shlex.quote(f"{key if key in tree else next(iter(meanings(key, tree)), key)}={value}")


def _key_of(path: str, tree: Mapping[str, Any]) -> str | None:
    """The setting that a path alone is for, by what is there; None for what is nowhere."""
    folder = Path(path).expanduser()
    if not os.path.exists(folder):
        return None
    kinds = ("checkpoint",) if (folder / CARD).is_file() else ("zoo",) if any(folder.glob(f"*/{CARD}")) else ()
    return next((key for key in (*kinds, "data", "folder") if key in tree), None)


def hint_to_escape(words: Sequence[str]) -> str:
    """The end of a message: how to write a name with ${ in it, which Hydra takes for another setting; "" without."""
    named = next((word for word in words if re.search(r"(?<!\\)\$\{", word)), None)
    if named is None:
        return ""
    escaped = re.sub(r"(?<!\\)\$\{", lambda _: "\\${", named)
    return f"; if the ${{ belongs to a name, write {shlex.quote(escaped)}"


def one_line(error: Exception) -> str:
    """Shorten the message of a Hydra error, which has many lines, to one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return "; ".join(line for line in lines if line and not set(line) <= {"^", "~", " "})


def _check_key(key: str, value: str, tree: Mapping[str, Any]) -> None:
    parts = key.replace("/", ".").split(".")  # hydra/launcher=... selects from a group
    node: Any = tree
    for depth, name in enumerate(parts):
        if node is None:
            return
        if not isinstance(node, Mapping) or name not in node:
            choices = node if isinstance(node, Mapping) else ()
            path = ".".join(parts[:depth])
            of = f" in {path}" if path else ""
            meant = _meant(name, value.strip("\"'"), tree, inside=bool(path))
            raise UserError(f"there is no setting {key!r}{of}: {meant or members.nearest(name, choices)}")
        node = node[name]


def _meant(name: str, value: str, tree: Mapping[str, Any], inside: bool) -> str:
    """The settings that `name` may mean, with its value, as a question; "" if there is none.

    inside: the name was given in a group; only one of that name outside of the groups is meant.
    """
    paths = meanings(name, tree, inside=inside)[:MOST_MEANT]
    shown = f"={value}" if value and len(value) <= MOST_SHOWN else ""
    return f"did you mean {' or '.join(repr(path + shown) for path in paths)}?" if paths else ""
