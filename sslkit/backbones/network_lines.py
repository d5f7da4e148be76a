"""Build the network of a card from its lines of Python, without executing them.

`backbones.build` writes the lines so that they can be run by hand. This module accepts only lines of that form, and
only those that run no outside code: a timm model with the arguments that sslkit writes, sslkit's own networks for
clips, torchvision's r3d_18, and sslkit's changes of a stem. A user's own function is called only if the caller trusts
it by name.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sslkit.backbones import clips, timm_allowed
from sslkit.backbones.timm_allowed import MAX_WIDTH
from sslkit.errors import UserError
from sslkit.options import own_code

IDENTITY = "torch.nn.Identity()"
WRAPPED = "torch.nn.Sequential"  # of the layer itself: its weights get another name
STRIDES = ("conv1.stride", "conv1.0.0.stride", "conv_stem.0.stride", "stem.0.stride")
DROPPED = ("maxpool", "fc")
RENAMED = ("conv1.0", "conv_stem")
NARROWED = "conv1"
LONGEST = 10_000  # characters; sslkit writes a few hundred


@dataclass(frozen=True)
class Stem:
    """A 3x3 convolution in the place of a larger one."""

    in_channels: int
    out_channels: int
    stride: tuple[int, int]

    def written(self) -> str:
        return f"torch.nn.Conv2d({self.in_channels}, {self.out_channels}, 3, {self.stride}, 1, bias=False)"

    def build(self) -> nn.Conv2d:
        """With the random weights that timm gives it."""
        layer = nn.Conv2d(self.in_channels, self.out_channels, 3, self.stride, 1, bias=False)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        return layer


@dataclass(frozen=True)
class TimmNetwork:
    """A network made by timm.

    model, arguments: of `timm.create_model`. changes: attributes set afterwards, ("conv1", Stem(3, 64, (1, 1))) or
    ("conv_stem.0.stride", (1, 1)); IDENTITY means a torch.nn.Identity, WRAPPED a Sequential of the layer.
    change_lines: the same changes as Python, to run after `net` is made.
    """

    model: str
    arguments: dict[str, Any]
    changes: tuple[tuple[str, Any], ...] = ()
    change_lines: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Python that makes the network, as `backbones.build` writes it; the last line binds `net`."""
        return ["import timm", timm_call(self.model, self.arguments), *self.change_lines]

    def build(self, where: str) -> nn.Module:
        """The network with random weights; the caller's random state is unchanged.

        where: the card's name in messages. Raises UserError for arguments that timm refuses.
        """
        import timm

        try:
            with torch.random.fork_rng(devices=[]):
                return self.change(timm.create_model(self.model, pretrained=False, **self.arguments), where)
        except UserError:
            raise
        except Exception as error:  # timm's constructors raise many classes
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UserError(f"{where}: timm cannot make {self.model} with {self.arguments}: {reason}") from error

    def change(self, net: nn.Module, where: str) -> nn.Module:
        """Apply the changes to timm's network. Raises UserError for a layer that it does not have."""
        return _apply_changes(net, self.changes, where)


def timm_call(model: str, options: Mapping[str, Any]) -> str:
    """The line `net = timm.create_model(...)`."""
    written = (f"{name}={value!r}" for name, value in options.items())
    return f"net = timm.create_model({', '.join([repr(model), *written])})"


@dataclass(frozen=True)
class FunctionNetwork:
    """A network made by a function without arguments. name: package.module:function. changes: as above."""

    name: str
    changes: tuple[tuple[str, Any], ...] = ()

    def build(self, where: str, trust: str | Sequence[str] | None) -> nn.Module:
        """The network; the caller's random state is unchanged. Raises UserError as `own_code` does."""
        if self.name not in clips.MAKERS:
            own_code.check_trusted(self.name, trust, where)
        with torch.random.fork_rng(devices=[]):
            net = own_code.network(self.name, where)
        return _apply_changes(net, self.changes, where)


def parse(lines: Sequence[str]) -> TimmNetwork | None:
    """The timm network of the lines; None if they make another network, or are not of sslkit's form."""
    try:
        network = _parse(lines)
    except ValueError:
        return None
    return network if isinstance(network, TimmNetwork) else None


def build(lines: Sequence[str], where: str, trust: str | Sequence[str] | None = ()) -> nn.Module:
    """The network of the lines, with random weights.

    where: the card's name in messages. trust: the user functions that may be called.
    Raises UserError for lines not of sslkit's form, and for a function that is not trusted or fails.
    """
    try:
        network = _parse(lines)
    except ValueError as error:
        raise UserError(
            f"{where}: its backbone.lines are not lines that sslkit writes, and are not run ({error}): make the "
            "network yourself and pass it, entry.backbone(net)"
        ) from error
    return network.build(where) if isinstance(network, TimmNetwork) else network.build(where, trust)


def _parse(lines: Sequence[str]) -> TimmNetwork | FunctionNetwork:
    """Raises ValueError, with the reason, for lines not of sslkit's form."""
    text = "\n".join(lines)
    if len(text) > LONGEST:
        raise ValueError(f"they are longer than {LONGEST:,} characters")
    try:
        body = ast.parse(text).body
        if body and isinstance(body[0], ast.ImportFrom):
            return _function_network([node for node in body if not _imports(node, "torch")])
        return _timm_network([node for node in body if not _imports(node, "timm", "torch")], text)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:  # not Python, or nested too deeply
        raise ValueError(f"they cannot be parsed as Python: {type(error).__name__}") from error


def _timm_network(nodes: list[ast.stmt], text: str) -> TimmNetwork:
    if not nodes:
        raise ValueError("they make no network")
    model, arguments = _creation(nodes[0])
    changes = tuple(change for node in nodes[1:] for change in _changes(node))
    if reason := timm_allowed.fault(model, arguments):
        raise ValueError(reason)
    written = [ast.get_source_segment(text, node) or "" for node in nodes[1:]]
    imports = ["import torch"] if any("torch." in line for line in written) else []
    return TimmNetwork(model, arguments, changes, (*imports, *written))


def _function_network(nodes: list[ast.stmt]) -> FunctionNetwork:
    """Read `from module import function`, `net = function()` and the changes after them."""
    text = "\n".join(map(ast.unparse, nodes[:2]))
    made = re.fullmatch(r"from (\w+(?:\.\w+)*) import (\w+)\nnet = \2\(\)", text)
    if not made:
        raise ValueError("they are not one import of a function and its call without arguments")
    changes = tuple(change for node in nodes[2:] for change in _changes(node))
    return FunctionNetwork(f"{made[1]}:{made[2]}", changes)


def _imports(node: ast.stmt, *packages: str) -> bool:
    return isinstance(node, ast.Import) and all(name.name in packages and not name.asname for name in node.names)


def _creation(node: ast.stmt) -> tuple[str, dict[str, Any]]:
    """Read `net = timm.create_model("NAME", key=literal, ...)`. Raises ValueError for any other statement."""
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
    """Read `net.conv1.stride, net.maxpool = (1, 1), torch.nn.Identity()`. Raises ValueError for other statements."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        raise ValueError("not one assignment")
    target, value = node.targets[0], node.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple):
        if not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
            raise ValueError("not one value for each attribute")
        pairs = list(zip(target.elts, value.elts, strict=True))
    return [_change(_path(left), _value(right)) for left, right in pairs]


def _change(path: str, value: Any) -> tuple[str, Any]:
    """Return the change if sslkit writes it: a stride, a stem, another name, or a removed layer.

    Raises ValueError otherwise.
    """
    is_own = {
        "a stride": path in STRIDES and _is_stride(value),
        "a stem": path == NARROWED and isinstance(value, Stem),
        "a name": path in RENAMED and value == (WRAPPED, path),
        "nothing": path in DROPPED and value == IDENTITY,
    }
    if not any(is_own.values()):
        raise ValueError(f"net.{path} is set to something that sslkit does not write")
    return path, value


def _is_stride(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(step) is int and 1 <= step <= 4 for step in value)


def _path(node: ast.expr) -> str:
    """`net.conv1[0].stride` -> "conv1.0.stride"."""
    path = re.fullmatch(r"net((?:\.[a-zA-Z]\w*|\[\d+\])+)", ast.unparse(node))
    if path is None:
        raise ValueError("not an attribute of net")
    return re.sub(r"\[(\d+)\]", r".\1", path[1]).removeprefix(".")


def _value(node: ast.expr) -> Any:
    text = ast.unparse(node)
    if text == IDENTITY or not isinstance(node, ast.Call):
        return IDENTITY if text == IDENTITY else ast.literal_eval(node)
    if ast.unparse(node.func) == WRAPPED and len(node.args) == 1:
        return WRAPPED, _path(node.args[0])
    inputs, outputs, _, stride = (
        [ast.literal_eval(argument) for argument in node.args[:4]] if len(node.args) > 3 else [0] * 4
    )
    stem = Stem(inputs, outputs, stride)
    is_small = all(type(count) is int and 1 <= count <= MAX_WIDTH for count in (inputs, outputs))
    if not is_small or not _is_stride(stride) or text != stem.written():
        raise ValueError(f"{text[:60]} is no layer that sslkit writes")
    return stem


def _apply_changes(net: nn.Module, changes: Sequence[tuple[str, Any]], where: str) -> nn.Module:
    """Apply the changes. Raises UserError for a layer that the network does not have."""
    for path, value in changes:
        owner, _, name = path.rpartition(".")
        try:
            layer = net.get_submodule(owner)
            before = getattr(layer, name)
        except AttributeError as error:
            raise UserError(
                f"{where}: its backbone.lines change net.{path}, which the network does not have"
            ) from error
        setattr(layer, name, _new(before, value, f"{where}: its backbone.lines set net.{path} to"))
    return net


def _new(before: Any, value: Any, told: str) -> Any:
    """The layer or the stride in the place of one. Raises UserError, which begins with `told`, if it does not fit."""
    if value == IDENTITY:
        return nn.Identity()
    if isinstance(value, Stem):
        sides = isinstance(before, nn.Conv2d) and (before.in_channels, before.out_channels)
        if sides != (value.in_channels, value.out_channels):
            raise UserError(f"{told} {value.written()}, which was {before}")
        return value.build()
    if value[0] == WRAPPED:
        return nn.Sequential(before)
    if not isinstance(before, tuple) or len(before) != len(value):
        raise UserError(f"{told} {value}, which was {before}")
    return value
