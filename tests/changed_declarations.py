"""A copy of the product in which every declared option has another default, another text and another range.

copy(source, target) writes it and returns {Class.field: its changed declaration}. As a program, in the folder of such a
copy, it prints what a person meets of each option, as JSON.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from commands import COMMANDS, PROTOCOLS

import evaluation
import sslkit
from sslkit.errors import UserError
from sslkit.options.settings import Declared, describe_values, iter_settings, leaves

PARTS = ("sslkit", "evaluation", "recipes")
MOST = 987_654_321  # of every changed range that has an upper bound
MOCO = {
    "temperature: Temperature = 0.2": f"temperature: Annotated[float, Limits(above=0, most={MOST})] = 0.31",
    "temperature: divides every cosine.": "temperature: changed text of MoCo.temperature.",
    "import torch\n": "from typing import Annotated\n\nimport torch\n\nfrom sslkit.options.settings import Limits\n",
}


def copy(source: Path, target: Path) -> dict[str, str]:
    """Write the Python and YAML files of the product with each `name: type = setting(...)` changed, in its own line."""
    changed: dict[str, str] = {}
    for part in PARTS:
        for path in (source / part).rglob("*"):
            if path.suffix in (".py", ".yaml") and "__pycache__" not in path.parts:
                place = target / path.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_text(encoding="utf-8")
                place.write_text(_changed(text, changed) if path.suffix == ".py" else text, encoding="utf-8")
    _change_objective(target / "sslkit/objectives/moco.py")
    return changed


def _change_objective(file: Path) -> None:
    """Another default and range of an objective's argument, and another text: a line each of its file."""
    text = file.read_text(encoding="utf-8")
    for old, new in MOCO.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def _changed(text: str, changed: dict[str, str]) -> str:
    """The text of a module with each declaration changed."""
    if "setting(" not in text:
        return text
    lines = text.splitlines(keepends=True)
    for owner in reversed([node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]):
        for node in reversed([node for node in owner.body if _declares(node)]):
            option = f"{owner.name}.{node.target.id}"
            call = _call(option, node)
            first, last = node.value.lineno - 1, node.value.end_lineno - 1
            before = lines[first].encode()[: node.value.col_offset].decode()
            lines[first : last + 1] = [f"{before}{call}\n"]
            changed[option] = call
    return "".join(lines)


def _declares(node: ast.AST) -> bool:
    is_call = isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call)
    return is_call and getattr(node.value.func, "id", "") == "setting"


def _call(option: str, node: ast.AnnAssign) -> str:
    """`setting(...)` with another default, text and range."""
    limits = {word.arg: ast.unparse(word.value) for word in node.value.keywords}
    default = _other(option, node.value.args[0], limits)
    if {"least", "above", "most"} & limits.keys():
        limits["most"] = str(MOST)
    return f"setting({default}, {text_of(option)!r}{''.join(f', {name}={value}' for name, value in limits.items())})"


def text_of(option: str) -> str:
    """The changed text of an option."""
    return f"changed text of {option}"


def _other(option: str, default: ast.expr, limits: dict[str, str]) -> str:
    """Another default of the same type within the limits, not equal in two classes; a name stays what it is."""
    if not isinstance(default, ast.Constant):
        return ast.unparse(default)
    value, number = default.value, zlib.crc32(option.encode()) % 97
    if isinstance(value, bool):
        return repr(not value)
    if isinstance(value, int):
        return repr(value + 1 + number)
    if isinstance(value, float):
        return repr(value * (1 - (1 + number) / 1000))
    if isinstance(value, str) and limits.get("choices", "").startswith("("):
        nodes = ast.parse(limits["choices"], mode="eval").body.elts
        words = [node.value for node in nodes if isinstance(node, ast.Constant) and node.value != value]
        return repr(words[0] if words else value)
    return repr(value)


Shown = dict[str, tuple[str, str, str]]  # of each option its default, text and range


def _shown(options: Iterable[Declared]) -> Shown:
    return {option.path: (repr(option.default), option.help, _values(option)) for option in options}


def _values(option: Declared) -> str:
    return describe_values(option.kind, option.limits)


def _call_of(function: Callable[..., Any]) -> dict[str, dict[str, str]]:
    """The defaults of a function, and the text of each keyword in its docstring."""
    parameters = inspect.signature(function).parameters.values()
    texts: list[str] = []
    for line in inspect.getdoc(function).partition("Keywords:")[2].splitlines():
        texts += [line] if line[:1].strip() else []
        texts[-1:] = [f"{texts[-1]} {line.strip()}"] if line[:1] == " " else texts[-1:]
    defaults = {one.name: repr(one.default) for one in parameters if one.default is not one.empty}
    return {"defaults": defaults, "texts": dict(text.split(": ", 1) for text in texts)}


def surfaces(functions: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What a person meets: settings and help of each command, signature and docstring of each function, a run's YAML.

    functions: the paths of those of each command.
    """
    from sslkit.cli.command import compose
    from sslkit.cli.help import help_text, plain_help

    import sslkit
    from evaluation import protocols
    from sslkit.options import members
    from sslkit.training.config import Config
    from sslkit.training.settled import Settled

    sys.path.insert(0, "recipes")
    modules = {name: importlib.import_module(name) for name in (*functions, "zoo")}
    settings = {name: module.SETTINGS for name, module in modules.items() if name != "zoo"}
    settings |= {"zoo": modules["zoo"].Settings(), "train": Config()}
    families = {name: protocols.find(name).Options for name in protocols.names()}
    helps = {name: plain_help(one, "", {}, "all") for name, one in settings.items()}
    helps |= {"train": help_text(Config(), "moco", "", Path("recipes/conf"), "all")}
    helps |= {"evaluate": plain_help(settings["evaluate"], "", families, "all")}
    paths = [*PROTOCOLS.values(), *(path for listed in functions.values() for path in listed)]
    calls = {path: _call_of(pkgutil.resolve_name(path)) for path in paths}
    calls |= {f"protocol {name}": _call_of(protocols.function(name)) for name in families}
    calls |= {"open_images": _call_of(sslkit.open_images), "extract": _call_of(evaluation.extract)}
    calls |= {"open_split": _call_of(evaluation.open_split), "load": _call_of(sslkit.load)}
    calls |= {"draw_episodes": _call_of(evaluation.draw_episodes)}
    declared = {name: _shown(iter_settings(one)) for name, one in settings.items()}
    declared |= {f"protocol {name}": _shown(members.declarations(kind).values()) for name, kind in families.items()}
    declared |= {"objective moco": _shown(members.declarations(sslkit.objectives.find("moco")).values())}
    composed = compose(["method=moco"], Config(), Path("recipes/conf"))
    return {
        "declared": declared,
        "help": {name: " ".join(text.split()) for name, text in helps.items()},
        "calls": calls,
        "node": {path: repr(value) for path, value in leaves(composed)},
        "yaml": {path: repr(value) for path, value in leaves(Settled(Config(), {}).to_dict()["asked"])},
        "refused": {kind: _refused(call) for kind, call in WRONG.items()},
    }


def _refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except UserError as error:
        return str(error)
    return "taken"


def _sweep(word: str) -> None:
    import zoo

    from sslkit.cli.grid import parse_words

    from sslkit.training.config import Config

    parse_words([word], zoo.Settings(), Config())


WRONG = {  # a number above every range, by the kind of the task
    "protocol few_shot": lambda: evaluation.few_shot(None, episodes=10**12),
    "rank": lambda: evaluation.rank(None, None, bootstrap=10**12),
    "extract": lambda: evaluation.extract(None, None, workers=10**12),
    "embed": lambda: pkgutil.resolve_name("evaluation.embedding.run:run")(threshold=10**12),
    "train": lambda: sslkit.pretrain({"epochs": 10**12}),
    "open_images": lambda: sslkit.open_images(None, image_size=10**12),
    "zoo": lambda: _sweep("jobs=1000000000000"),
    "objective moco": lambda: sslkit.method("moco", objective={"temperature": 10**12}),
}

if __name__ == "__main__":
    print(json.dumps(surfaces(COMMANDS)))
