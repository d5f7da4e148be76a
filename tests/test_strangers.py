"""Entries and exports from a stranger: nothing is executed, no connection is opened, each is one clear error."""

import hashlib
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import sslkit
from sslkit import backbones, zoo
from sslkit.errors import UserError

TIMM = "import timm\nnet = timm.create_model({})"
ABOUT = {"format": 1, "name": "x", "method": "", "lines": [], "width": 4, "image_size": 28, "in_chans": 1}
ABOUT |= {"mean": [0.5], "std": [0.5], "crop_pct": 1.0, "interpolation": "bicubic"}


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 4))


def ends() -> None:
    sys.exit(0)


def returns_text() -> str:
    return "net"


def fails() -> None:
    raise ZeroDivisionError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An entry, and each of its exports; not to be changed."""
    body = backbones.build("narrow_resnet", image_size=28, in_chans=1)
    recipe = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 28, "in_chans": 1}
    card = {"backbone": recipe, "normalize": {"mean": [0.5], "std": [0.5]}}
    return zoo.save(tmp_path_factory.mktemp("zoo") / "entry", body.export(), card).folder


@pytest.fixture
def entry(source: Path, tmp_path: Path, no_sockets: None) -> Callable[..., Path]:
    """entry(lines, image_size=...): a copy whose card says so, written past sslkit."""

    def make(lines: str, **backbone: object) -> Path:
        folder = tmp_path / "stranger"
        shutil.copytree(source, folder, dirs_exist_ok=True)
        card = json.loads((folder / zoo.CARD).read_text())
        card["backbone"] |= {"lines": lines.splitlines(), **backbone}
        (folder / zoo.CARD).write_text(json.dumps(card))
        return folder

    return make


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'resnet18', checkpoint_path={evil!r}", "checkpoint_path"),
        ("'resnet18', pretrained=True", "pretrained"),
        ("'resnet18', pretrained_cfg={{'file': {evil!r}}}", "pretrained_cfg"),
        ("'resnet18', pretrained_cfg_overlay={{'file': {evil!r}}}", "pretrained_cfg_overlay"),
        ("'resnet18', cache_dir='/'", "cache_dir"),
        ("'resnet18', features_only=True", "features_only"),
        ("'resnet18', scriptable=True", "scriptable"),
        ("'hf-hub:somebody/something'", "hf-hub"),
        ("'hf_hub:somebody/something'", "hf_hub"),
        ("'local-dir:{evil}'", "local-dir"),
        ("'../resnet18'", "not a timm model name"),
        ("'resnet81'", "not a timm model name"),
        ("''", "not a timm model name"),
        ("'resnet18', in_chans=10**9", "not lines that sslkit writes"),
        ("'resnet18', in_chans=1000000000", "in_chans=1000000000 must be"),
        ("'resnet18', in_chans=True", "in_chans=True must be"),
        ("'resnet18', num_classes=1000000000", "num_classes"),
        ("'resnet10t', channels=(16, 32, 64, 1000000)", "channels"),
        ("'vit_tiny_patch16_224', depth=1000000000", "depth"),
        ("'vit_tiny_patch16_224', embed_dim=1000000000", "embed_dim"),
        ("'vit_tiny_patch16_224', img_size=1000000000", "img_size"),
        ("'vit_tiny_patch16_224', img_size=(224, 224)", "img_size"),
        ("'vit_tiny_patch16_224', img_size=4096, patch_size=1", "more than 16,384 patches"),
        ("'vit_tiny_patch16_224', global_pool='x'", "global_pool"),
    ],
)
def test_timm_is_called_with_what_sslkit_gives_it_alone(
    arguments: str, said: str, entry, tmp_path: Path, monkeypatch
) -> None:
    import timm

    evil = tmp_path / "evil.pth"
    evil.write_bytes(pickle.dumps(Evil(tmp_path / "owned")))
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("timm was called"))
    with pytest.raises(UserError, match="not lines that sslkit writes, and are not run") as error:
        sslkit.load(entry(TIMM.format(arguments.format(evil=str(evil)))))
    assert said in str(error.value) and not (tmp_path / "owned").exists()


@pytest.mark.parametrize("keyword", ["checkpoint_path='evil.pth'", "pretrained=True", "depth=1000000000"])
@pytest.mark.parametrize("form", ["timm", "hf", "torchvision"])
def test_exports_are_held_to_the_same(form: str, keyword: str, tmp_path: Path, no_sockets, monkeypatch) -> None:
    import timm

    path = write_export(form, tmp_path, ABOUT | {"lines": TIMM.format(f"'resnet18', {keyword}").splitlines()})
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("timm was called"))
    with pytest.raises(UserError, match="make no timm network, and are not run"):
        sslkit.load(path)


def write_export(form: str, folder: Path, about: object) -> Path:
    """A file or folder of this form that says `about` of itself, around one tensor."""
    state = {"a": torch.zeros(2)}
    if form == "hf":
        (folder / "hub").mkdir()
        (folder / "hub" / "model.safetensors").write_bytes(safetensors.torch.save(state))
        (folder / "hub" / "config.json").write_text(json.dumps({"sslkit": about}))
        return folder / "hub"
    if form == "timm":
        path = folder / "x.safetensors"
        path.write_bytes(safetensors.torch.save(state, metadata={"sslkit": json.dumps(about)}))
        return path
    path = folder / "x.pth"
    torch.save(state, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    side = about | {"sha256": digest} if isinstance(about, dict) else about
    path.with_suffix(".json").write_text(json.dumps(side))
    return path


@pytest.mark.parametrize("form", ["timm", "hf", "torchvision"])
@pytest.mark.parametrize(
    "about",
    [
        [],
        5,
        {},
        {"format": 1},
        {"image_size": 10**9},
        {"in_chans": 10**9},
        {"image_size": 4096, "in_chans": 1024},
        {"mean": "0.5"},
        {"mean": [None]},
        {"lines": 5},
        {"lines": [5]},
        {"width": "x"},
        {"frames": -1},
    ],
)
def test_what_an_export_says_of_itself_is_checked(form: str, about: object, tmp_path: Path, no_sockets) -> None:
    given = ABOUT | about if isinstance(about, dict) and len(about) and "format" not in about else about
    with pytest.raises(UserError, match="damaged, export again"):
        sslkit.load(write_export(form, tmp_path, given))


@pytest.mark.parametrize("function", ["http.server:test", "sys:exit", "os:abort", "own_file:net", "os.path:abspath"])
def test_a_function_that_a_card_names_is_neither_imported_nor_called(
    function: str, entry, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.delitem(sys.modules, "http.server", raising=False)
    (tmp_path / "own_file.py").write_text("open('owned', 'w')\ndef net(): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module, _, name = function.partition(":")
    folder = entry(f"from {module} import {name}\nnet = {name}()")
    found = zoo.ZooEntry.load(folder)
    calls = [found.backbone, found.random_network, lambda: sslkit.load(folder), lambda: zoo.export(folder, to="timm")]
    calls += [lambda: sslkit.load(str(folder)), lambda: sslkit.load(f"random:{folder}"), lambda: sslkit.load(found)]
    for call in [*calls, lambda: found.backbone(trust=["other.module:name"])]:
        with pytest.raises(UserError, match=rf"is made by {function}, code that is not.*pass trust='{function}'"):
            call()
    assert not {"http.server", "own_file"} & set(sys.modules) and not (tmp_path / "owned").exists()


def test_a_function_of_ones_own_is_called_where_it_is_trusted(entry) -> None:
    name = f"{__name__}:plain"
    folder = entry(f"from {__name__} import plain\nnet = plain()", name=name)
    net = plain()
    (folder / zoo.WEIGHTS).write_bytes(safetensors.torch.save(net.state_dict()))
    x = torch.rand(2, 1, 28, 28)
    for trust in (name, [name], ["other.module:name", name]):
        torch.testing.assert_close(sslkit.load(folder, trust=trust).net(x), net(x))
    assert sslkit.load(folder, trust=name).width == sslkit.load(f"random:{folder}", trust=name).width == 4


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ends", "SystemExit: 0"),
        ("fails", "ZeroDivisionError: no message"),
        ("returns_text", "returned str, not an nn.Module"),
        ("missing", "cannot import"),
    ],
)
def test_what_a_trusted_function_raises_is_one_error(name: str, said: str, entry) -> None:
    folder = entry(f"from {__name__} import {name}\nnet = {name}()")
    for call in (
        lambda: sslkit.load(folder, trust=f"{__name__}:{name}"),
        lambda: backbones.build(f"{__name__}:{name}", image_size=28, in_chans=1),
    ):
        with pytest.raises(UserError, match=said) as error:
            call()
        assert f"{__name__}:{name}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("trust", [True, 5, "plain", "a.b", "a:b:c", ["a:b", 5], {"a:b": 1}])
def test_trust_is_given_by_name(trust: object, entry) -> None:
    with pytest.raises(UserError, match=r"trust=.* must be package\.module:function"):
        zoo.ZooEntry.load(entry("from a.b import c\nnet = c()")).backbone(trust=trust)


@pytest.mark.parametrize(
    "change",
    [
        "net.forward = 1",
        "net.fc = 1",
        "net.conv1.stride = (1000, 1)",
        "net.conv1.stride = (1, 1, 1)",
        "net.conv1.weight = 0",
        "net.maxpool = (1, 1)",
        "net.conv_stem.stride = (1, 1)",
        "net.conv1 = torch.nn.Identity()",
        "net.conv1 = torch.nn.Conv2d(3, 64, 3, (1, 1), 1)",
        "net.conv1 = torch.nn.Conv2d(5, 64, 3, (1, 1), 1, bias=False)",
        "net.conv1 = torch.nn.Conv2d(3, 10**9, 3, (1, 1), 1, bias=False)",
        "net.conv1 = torch.nn.Conv2d(*[3, 64], 3, (1, 1), 1, bias=False)",
        "net.layer1 = torch.nn.Sequential(net.layer1)",
        "net.conv_stem = torch.nn.Sequential(net.conv1)",
        "net.conv_stem = torch.nn.Sequential(net.conv_stem)",
    ],
)
def test_other_changes_than_sslkits_are_refused(change: str, entry) -> None:
    with pytest.raises(UserError, match=r"backbone\.lines"):
        sslkit.load(entry(TIMM.format("'resnet18', num_classes=0") + "\n" + change))


@pytest.mark.parametrize(
    "lines",
    ["x" * 20_000, "net = " + "-" * 9_000 + "1", "(" * 9_000, "net = {[]: 1}", "net = '\x00'", "net = '\ud800'"],
)
def test_lines_that_no_parser_takes_are_one_error(lines: str, entry) -> None:
    with pytest.raises(UserError, match="not lines that sslkit writes"):
        zoo.ZooEntry(entry(""), {"backbone": {"lines": [lines]}}).random_network()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' * 100_000, "nested too deeply"),
        ('{"method": "\\ud800"}', "no JSON"),
        ("9" * 5_000, "no JSON"),
        ("", "no JSON"),
    ],
)
def test_json_that_hurts_is_one_error(text: str, said: str, entry, tmp_path: Path) -> None:
    folder = entry("")
    (folder / zoo.CARD).write_text(text)
    path = write_export("hf", tmp_path, {})
    (path / "config.json").write_text(text)
    for place in (folder, path):
        with pytest.raises(UserError, match=said) as error:
            sslkit.load(place)
        assert len(str(error.value)) < 500 and "\n" not in str(error.value)


def test_json_of_any_size_is_not_read(entry, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.files.reading.LARGEST", 100)
    with pytest.raises(UserError, match="more than the 100 that sslkit reads"):
        sslkit.load(entry(""))


@pytest.mark.parametrize(
    ("field", "value"), [("image_size", 10**9), ("in_chans", 10**9), ("frames", 10**9), ("stride", 10**9)]
)
def test_absurd_sizes_are_refused_before_memory_is_taken(field: str, value: int, entry) -> None:
    with pytest.raises(UserError, match=rf"backbone\.{field} is 1000000000, expected .* at most"):
        sslkit.load(entry("", **{field: value}))


def test_an_input_that_would_fill_the_memory_is_refused(entry) -> None:
    with pytest.raises(UserError, match="one input would have 17,179,869,184 numbers"):
        sslkit.load(entry("", image_size=4096, in_chans=1024))
