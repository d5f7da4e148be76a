"""Weights: a damaged file, or one of another network, is one clear error that names it."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sslkit import zoo
from sslkit.errors import UserError
from sslkit.zoo import weights

CARD = {
    "backbone": {
        "name": "conv",
        "lines": ["import timm", 'net = timm.create_model("test_resnet.r160_in1k", num_classes=0)'],
        "image_size": 32,
        "in_chans": 3,
    },
    "normalize": {"mean": [0.5] * 3, "std": [0.2] * 3},
}


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    import timm

    net = timm.create_model("test_resnet.r160_in1k", num_classes=0)
    return {name: value.contiguous() for name, value in net.state_dict().items()}


def header_of(content: bytes, change: Callable[[dict], None]) -> bytes:
    """The file with its header changed."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


FILES = {
    "empty": lambda content: b"",
    "junk": lambda content: b"no weights at all" * 100,
    "truncated": lambda content: content[:1000],
    "short by one": lambda content: content[:-1],
    "huge header": lambda content: b"\xff" * 8 + content[8:],
    "flipped bracket": lambda content: flipped(content, 8),
    "a number type that is not known": lambda content: content.replace(b'"F32"', b'"F99"'),
    "a type that numpy lacks": lambda content: content.replace(b'"F32"', b'"Q32"'),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_named(kind: str, state: dict, tmp_path: Path) -> None:
    entry = zoo.save(tmp_path / "a", state, CARD)
    path = entry.folder / zoo.WEIGHTS
    path.write_bytes(FILES[kind](path.read_bytes()))
    for read in (entry.state_dict, entry.backbone, lambda: weights.shapes(path)):
        with pytest.raises(UserError, match="not a whole safetensors file") as found:
            read()
        assert str(path) in str(found.value) and "train the entry again" in str(found.value)
        assert "\n" not in str(found.value)
    assert not zoo.open(tmp_path) and list(zoo.open(tmp_path).damaged) == [entry.folder]


def without(state: dict, names: int) -> dict:
    return dict(list(state.items())[names:])


def mapped(state: dict, change: Callable[[torch.Tensor], torch.Tensor]) -> dict:
    """The state with its floats changed."""
    return {name: change(value) if value.is_floating_point() else value for name, value in state.items()}


STATES = {
    "another network's": (lambda state: {"fc.weight": torch.zeros(3)}, "the network has no fc.weight"),
    "missing": (lambda state: without(state, 2), "it lacks conv1"),
    "more": (lambda state: {**state, "head.bias": torch.zeros(3)}, "the network has no head.bias"),
    "of another shape": (lambda state: {name: value[None] for name, value in state.items()}, "of another shape are"),
    "of whole numbers": (lambda state: mapped(state, torch.Tensor.char), "of another kind of number are"),
    "NaN": (lambda state: mapped(state, lambda value: value * torch.nan), "NaN or infinite"),
}


@pytest.mark.parametrize("kind", STATES)
def test_weights_that_do_not_fit_are_told(kind: str, state: dict, tmp_path: Path) -> None:
    change, said = STATES[kind]
    entry = zoo.save(tmp_path / "a", change(state), CARD)
    with pytest.raises(UserError, match=said) as found:
        entry.backbone()
    assert str(entry.folder / zoo.WEIGHTS) in str(found.value) and len(str(found.value)) < 600


def test_shorter_floats_are_converted(state: dict, tmp_path: Path) -> None:
    net = zoo.save(tmp_path / "a", mapped(state, torch.Tensor.half), CARD).backbone()
    assert next(net.parameters()).dtype is torch.float32


@pytest.mark.parametrize("kind", ["directory", "dangling symlink", "looping symlink"])
def test_what_is_no_file_is_no_entry(kind: str, state: dict, tmp_path: Path) -> None:
    entry = zoo.save(tmp_path / "a", state, CARD)
    path = entry.folder / zoo.WEIGHTS
    path.unlink()
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("nothere" if kind == "dangling symlink" else path.name)
    with pytest.raises(UserError, match="is no zoo entry"):
        zoo.ZooEntry.load(entry.folder)
    with pytest.raises(UserError, match=r"backbone\.safetensors"):
        entry.state_dict()
    assert list(zoo.open(tmp_path).damaged) == [entry.folder]


@pytest.mark.parametrize(
    "line",
    [
        'net = timm.create_model("nosuchnetwork", num_classes=0)',
        'net = timm.create_model("test_resnet.r160_in1k", nosuchoption=3)',
    ],
)
def test_lines_that_make_no_network_are_told(line: str, state: dict, tmp_path: Path) -> None:
    card = {**CARD, "backbone": {**CARD["backbone"], "lines": ["import timm", line]}}
    with pytest.raises(UserError, match=r"card\.json") as found:
        zoo.save(tmp_path / "a", state, card).backbone()
    assert "\n" not in str(found.value)


def test_lines_of_another_network_are_told(state: dict, tmp_path: Path) -> None:
    lines = ["import timm", 'net = timm.create_model("test_vit.r160_in1k", num_classes=0)']
    card = {**CARD, "backbone": {**CARD["backbone"], "lines": lines}}
    with pytest.raises(UserError, match="does not fit the network that the card beside it makes"):
        zoo.save(tmp_path / "a", state, card).backbone()
