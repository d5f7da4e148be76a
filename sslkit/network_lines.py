"""The lines of Python that make a card's network, read and followed without executing them.

`backbones.build` writes them so that anybody can run them by hand. Here only what it writes is understood: a timm
model with literal arguments, or a function imported from an installed package, and a changed stem.
"""

import ast
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sslkit.errors import UserError

IDENTITY = "torch.nn.Identity()"


@dataclass(frozen=True)
class TimmNetwork:
    """A network that timm makes.

    model, arguments: of `timm.create_model`. changes: attributes set afterwards, ("conv1.stride", (1, 1)); IDENTITY
    stands for a module of that kind. change_lines: the same as Python that is run after `net` is made.
    """

    model: str
    arguments: dict[str, Any]
    changes: tuple[tuple[str, Any], ...] = ()
    change_lines: tuple[str, ...] = ()

    def build(self) -> nn.Module:
        """The network with random weights; the random numbers of the caller stay as they were."""
        import timm

        with torch.random.fork_rng(devices=[]):
            net = timm.create_model(self.model, **self.arguments)
        return _changed(net, self.changes)


def _changed(net: nn.Module, changes: Sequence[tuple[str, Any]]) -> nn.Module:
    for path, value in changes:
        owner, _, name = path.rpartition(".")
        setattr(net.get_submodule(owner), name, nn.Identity() if value == IDENTITY else value)
    return net


def parse(lines: Sequence[str]) -> TimmNetwork | None:
    """What the lines make, None if that is not a timm model with literal arguments."""
    try:
        text = "\n".join(lines)
        creation, *rest = [node for node in ast.parse(text).body if not _imports(node, "timm", "torch")]
        model, arguments = _creation(creation)
        changes = [change for node in rest for change in _changes(node)]
    except (SyntaxError, ValueError):
        return None
    return TimmNetwork(model, arguments, tuple(changes), _change_lines(rest, text))


def build(lines: Sequence[str], where: str) -> nn.Module:
    """The network that the lines make, with random weights. where: how to call it in messages.

    Raises UserError for lines that sslkit does not write, and for a function that cannot be imported.
    """
    if network := parse(lines):
        return network.build()
    found = _function(lines)
    if found is None:
        raise UserError(
            f"{where}: its backbone.lines are none that sslkit writes, and are not run for you: make the network "
            "yourself and pass it, entry.backbone(net)"
        )
    module, function, changes = found
    try:
        with torch.random.fork_rng(devices=[]):
            net = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise UserError(f"{where}: its network is made by {module}:{function}, not at hand here: {error}") from error
    return _changed(net, changes)


def _function(lines: Sequence[str]) -> tuple[str, str, list[tuple[str, Any]]] | None:
    """(module, function, changes) of `from module import function`, `net = function()` and changes afterwards."""
    try:
        imported, creation, *rest = [node for node in ast.parse("\n".join(lines)).body if not _imports(node, "torch")]
        found = re.fullmatch(
            r"from ([\w.]+) import (\w+)\nnet = (\w+)\(\)", "\n".join(map(ast.unparse, (imported, creation)))
        )
        changes = [change for node in rest for change in _changes(node)]
    except (SyntaxError, ValueError):
        return None
    return (found[1], found[2], changes) if found and found[2] == found[3] else None


def _imports(node: ast.stmt, *packages: str) -> bool:
    return isinstance(node, ast.Import) and all(name.name in packages and not name.asname for name in node.names)


def _creation(node: ast.stmt) -> tuple[str, dict[str, Any]]:
    """Of `net = timm.create_model("NAME", key=literal, ...)`. Raises ValueError for any other statement."""
    if not (isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["net"]):
        raise ValueError("not an assignment to net")
    call = node.value
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "timm.create_model" and len(call.args) == 1):
        raise ValueError("not a call of timm.create_model")
    model = ast.literal_eval(call.args[0])
    if not isinstance(model, str) or not all(keyword.arg for keyword in call.keywords):
        raise ValueError("not a name and literal arguments")
    return model, {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}


def _changes(node: ast.stmt) -> list[tuple[str, Any]]:
    """Of `net.conv1.stride, net.maxpool = (1, 1), torch.nn.Identity()`. Raises ValueError for any other statement."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        raise ValueError("not one assignment")
    target, value = node.targets[0], node.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple):
        if not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
            raise ValueError("not one value for each attribute")
        pairs = list(zip(target.elts, value.elts, strict=True))
    return [(_path(left), _value(right)) for left, right in pairs]


def _path(node: ast.expr) -> str:
    """`net.conv1[0].stride` -> "conv1.0.stride"."""
    found = re.fullmatch(r"net((?:\.[a-zA-Z]\w*|\[\d+\])*\.[a-zA-Z]\w*)", ast.unparse(node))
    if found is None:
        raise ValueError("not an attribute of net")
    return re.sub(r"\[(\d+)\]", r".\1", found[1]).removeprefix(".")


def _value(node: ast.expr) -> Any:
    return IDENTITY if ast.unparse(node) == IDENTITY else ast.literal_eval(node)


def _change_lines(nodes: Sequence[ast.stmt], text: str) -> tuple[str, ...]:
    written = [ast.get_source_segment(text, node) or "" for node in nodes]
    return ("import torch", *written) if any("torch." in line for line in written) else tuple(written)
