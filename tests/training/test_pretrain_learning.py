"""On real images at full length: the runs learn, and DSA helps BYOL (DSA.md, section 7: at least 1.5 points)."""

import pytest

import sslkit


@pytest.mark.nightly
def test_byol_learns_and_dsa_helps_it(tmp_path) -> None:
    gain = {"knn": 0.0, "probe": 0.0}
    objective = {"momentum": 0.98, "hidden": 256, "dim": 64}
    settings = {
        "data": "fashion_mnist",
        "out": str(tmp_path),
        "optimizer": {"lr": 4e-3},
        "eval": {"every": 99, "tsne": 0},
    }
    for seed in (0, 1):
        for name, sign in (("byol", -1), ("byol+dsa", 1)):
            method = {"name": name, "objective": objective, "views": {"scale": [0.2, 1.0]}}
            card = sslkit.pretrain({**settings, "method": method, "seed": seed}).card
            assert card["after"]["knn"] > card["before"]["knn"] + 0.1
            for k in gain:
                gain[k] += sign * card["after"][k] / 2
    assert gain["knn"] > 0.015 and gain["probe"] > 0.015, gain
