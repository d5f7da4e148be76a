"""Convert `key=value` words of a command line to Hydra's grammar and check them against the settings' names."""

import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from sslkit.errors import UserError
from sslkit.options import members

WORDS = {"data": "source", "optimizer": "name"}  # `data=X` is short for `data.source=X`
ELSEWHERE = {  # what other programs call a setting
    "arch": ("backbone", "checkpoint"),
    "checkpoint": ("zoo", "entry", "init"),
    "batchsize": ("data.batch_size", "batch_size"),
    "dataset": ("data",),
    "dataset_path": ("data",),
    "entry": ("checkpoint", "zoo"),
    "gpus": ("trainer.devices", "device"),
    "img_size": ("data.image_size", "image_size"),
    "learning_rate": ("optimizer.lr",),
    "max_epochs": ("epochs",),
    "metric": ("metrics",),
    "model": ("backbone", "checkpoint", "zoo"),
    "models": ("checkpoint", "zoo"),
    "num_epochs": ("epochs",),
    "num_workers": ("data.workers", "workers"),
    "output": ("out",),
    "output_dir": ("out",),
    "path": ("data", "folder"),
    "pretrained": ("init",),
    "protocol": ("protocols",),
    "resolution": ("data.image_size", "image_size"),
    "weights": ("init", "checkpoint", "zoo"),
    "zoo": ("checkpoint", "entry"),
}
MOST_MEANT = 3
MOST_SHOWN = 60  # characters of a value that is repeated
SHOWING = ("--cfg", "-c", "--package", "-p", "--info", "-i")  # Hydra's flags that take a value
SWEEP = frozenset(("-m", "--multirun"))
CALL = re.compile(r"""[^\s\[\],"'()][^\[\],"'()]*\([^()"']*\)[^\[\],"'()]*""")  # ped(lam=0.3)+logme
IN_LIST = re.compile(rf"(?<=[\[, ]){CALL.pattern}")


def joined(words: Sequence[str]) -> list[str]:
    """Write `--cfg hydra` as `--cfg=hydra`: a word without = would be parsed as a setting."""
    found: list[str] = []
    for word in words:
        if found and found[-1] in SHOWING and "=" not in word and not word.startswith("-"):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def lengthened(word: str) -> str:
    """Write `data=X` as `data.source=X`."""
    key, equals, value = word.partition("=")
    return f"{key}.{WORDS[key]}={value}" if equals and key in WORDS else word


def quoted(word: str, texts: Collection[str] = ()) -> str:
    """Quote a value that Hydra's grammar would parse differently from its plain text.

    These are settings of plain text (texts: their paths), paths with blanks or =, and calls such as
    `nleep(covariance=diag)`, also in lists.
    """
    key, equals, value = word.partition("=")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    if not equals or word.startswith("-") or is_quoted or value in ("", "null") or key == "experiment":
        return word  # an experiment is a file's name, in its folder after a /
    if value[0] == "[" and value[-1] == "]":
        return f"{key}={IN_LIST.sub(lambda call: quote(call.group()), value)}"
    is_text = key.lstrip("+") in texts or "/" in value or CALL.fullmatch(value)
    return f"{key}={quote(value)}" if is_text and value[0] != "{" else word


def quote(value: str) -> str:
    """Put a value in double quotes; Hydra treats a backslash as an escape only before quotes."""
    return '"' + re.sub(r'(\\*)("|$)', lambda found: found[1] * 2 + ('\\"' if found[2] else ""), value) + '"'


def is_sweep() -> bool:
    """Return True if this process was called with -m: a comma then separates values."""
    return bool(SWEEP & set(sys.argv))


def check(words: Sequence[str], tree: Mapping[str, Any]) -> None:
    """Raise UserError for an unknown key, with the nearest known one, and for a value that Hydra cannot parse.

    tree: the known keys, nested; None stands for any keys below it.
    """
    for word in words:
        if word.startswith("-"):
            continue
        key, equals, value = word.lstrip("+~").partition("=")
        if not equals:
            raise UserError(f"cannot read {word!r}: write key=value")
        _check_key(key, value, tree)
        try:
            OverridesParser.create().parse_override(word)
        except (HydraException, ValueError) as error:  # ValueError: a number of thousands of digits
            raise UserError(f"cannot read {word[:200]!r}: {one_line(error)}") from error


def unescaped(words: Sequence[str]) -> str:
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
    for depth, part in enumerate(parts):
        if node is None:
            return
        if not isinstance(node, Mapping) or part not in node:
            known = node if isinstance(node, Mapping) else ()
            path = ".".join(parts[:depth])
            of = f" in {path}" if path else ""
            meant = _meant(part, value.strip("\"'"), tree, inside=bool(path))
            raise UserError(f"there is no setting {key!r}{of}: {meant or members.nearest(part, known)}")
        node = node[part]


def _meant(name: str, value: str, tree: Mapping[str, Any], inside: bool) -> str:
    """The setting that another program calls so, or that is found in a group, with its value; "" if there is none.

    inside: the name was given in a group; only one of that name outside of the groups is meant.
    """
    groups = {key: group for key, group in tree.items() if isinstance(group, Mapping) and key != "hydra"}
    grouped = [f"{key}.{name}" for key, group in groups.items() if name in group]
    elsewhere = [path for path in ELSEWHERE.get(name, ()) if _is_there(path, tree)]
    found = ([name] if name in tree else []) if inside else (grouped or elsewhere)[:MOST_MEANT]
    shown = f"={value}" if value and len(value) <= MOST_SHOWN else ""
    return f"did you mean {' or '.join(repr(path + shown) for path in found)}?" if found else ""


def _is_there(path: str, tree: Any) -> bool:
    for part in path.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return False
        tree = tree[part]
    return True
