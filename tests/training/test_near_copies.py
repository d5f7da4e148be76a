"""The quick accuracies of a run on labels by coin: near-copies are told, and as groups leave them at chance."""

from pathlib import Path

import pytest
from coins import write_coins

import sslkit
from sslkit.numerics.wilson import wilson


@pytest.mark.parametrize("group", [None, "near-copies"])
def test_quick_accuracies(group: str | None, tmp_path: Path, capsys) -> None:
    data = write_coins(tmp_path / "coins")
    config = {"method": "simclr", "data": str(data), "backbone": "narrow_resnet", "image_size": 32, "epochs": 1}
    config |= {"batch_size": 64, "device": "cpu", "workers": 0, "out": str(tmp_path), "cache": str(tmp_path / "cache")}
    entry = sslkit.pretrain({**config, "columns.group": group})
    said, before = " ".join(capsys.readouterr().out.split()), entry.card["before"]
    told = "note 80 of 80 images of the quick evaluation have a near-copy in train; columns.group=near-copies"
    if group is None:
        assert said.index(told) < said.index("before 20-NN") and before["probe"] > 0.9
        return
    assert "near-copy in train" not in said and before["units"] == 8
    for name in ("knn", "probe"):
        low, high = wilson(before[name], before["units"])
        assert low <= 0.5 <= high
