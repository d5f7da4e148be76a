"""A training step of every method on a pretended GPU: no devices mixed, no host wait, launches as measured."""

from pathlib import Path

import pytest
import torch
from contract import build
from gpu_contract import ALLOWED, SLACK, check, clean, images_of, measured, names, pinned, quick, trained
from photographs import write_jpegs
from pretended_device import Pretended
from pretended_device.seen import ROOT

import sslkit
from sslkit import objectives
from sslkit.data.loader import collate
from sslkit.data.sources.named import open_images
from sslkit.data.views.cropped import CroppedImages

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*no data set.*", "ignore:.*eta.*", "ignore:.*dead.*", "ignore:TF32 acceleration"
)
QUICK = quick()
LONG = [pytest.param(name, marks=pytest.mark.nightly) for name in names() if name not in QUICK]
FROM_FILES = ["byol+dsa", "dino+guide", "mae", "simclr+koleo+sigreg"]
OTHERS = [pytest.param(name, marks=pytest.mark.nightly) for name in objectives.names() if name not in FROM_FILES]
DSA = [
    {"tau": "auto", "alpha": "relative:2"},
    {"mode": "view", "neighbours": "dataset"},
    {"mode": "view", "neighbours": "batch"},
    {"variant": "code", "neighbours": "none"},
    {"arranger": "cosine", "balance": 1.0},
]


@pytest.mark.parametrize("name", [*QUICK, *LONG])
def test_of_every_method(name: str) -> None:
    method = build(name)
    method.prepare(clean())
    gpu, terms = trained(method, images_of(method))
    check(gpu)
    assert all(term.isfinite() for term in terms.values())
    count, most = sum(gpu.launches.values()), SLACK * measured().get(name, float("inf"))
    often = ", ".join(f"{n} at {place}" for place, n in gpu.places.most_common(8))
    assert count <= most, f"{count} launches, at most {most:.0f}; see tests/gpu_contract.py. Most: {often}"


def test_every_method_of_the_quick_suite_is_measured() -> None:
    assert list(measured()) == QUICK, "run python tests/gpu_contract.py, which writes gpu_launches.csv"


@pytest.mark.parametrize("name", [*FROM_FILES, *OTHERS])
def test_from_files(name: str, tmp_path) -> None:
    method = build(name)
    files = open_images(write_jpegs(tmp_path, count=6), image_size=16)
    method.prepare(files)
    rows = CroppedImages(files, method.recipe, method.image_size, whole=method.needs_images)
    count = len(images_of(method)["index"])
    given = collate(rows.__getitems__([number % len(rows) for number in range(count)]))
    check(trained(method, {**given, "label": given["index"] % 5})[0])


@pytest.mark.parametrize("options", DSA, ids=str)
def test_with_the_options_of_dsa(options: dict) -> None:
    method = build("byol+dsa", dsa=options)
    method.prepare(clean())
    check(trained(method, images_of(method))[0])


@pytest.mark.parametrize("optimizer", ["sgd", "lars"])
def test_with_another_optimiser(optimizer: str) -> None:
    method = build("simsiam")
    check(trained(method, images_of(method), optimizer)[0])


def test_in_which_shares_are_measured() -> None:
    method = build("byol+dsa", dsa={"balance": 1.0})
    method.prepare(clean())
    check(trained(method, images_of(method), shares=True)[0])


def test_a_method_is_built_without_a_change_to_the_seeds_of_the_device() -> None:
    with Pretended() as gpu:
        torch.cuda.manual_seed_all(5)
        sslkit.method("byol", backbone="narrow_resnet", image_size=16)
        assert gpu.seed == 5


def test_every_allowed_wait_is_in_a_function_that_exists() -> None:
    for place in ALLOWED:
        file, name = place.split()
        assert f"def {name.rpartition('.')[2]}(" in (Path(ROOT) / file).read_text(), place


def test_a_growth_of_launches_and_a_wait_are_seen(monkeypatch) -> None:
    method = build("simsiam")
    align = method.objective.align

    def slow(e):
        assert e.z.sum().item() or all((e.z + 1).sum() for _ in range(40))
        return align(e)

    monkeypatch.setattr(method.objective, "align", slow)
    gpu, _ = trained(method, images_of(method))
    assert sum(gpu.waits.values()) == 1
    with pytest.raises(AssertionError, match=r"test_steps.py .*slow:\d+: .item()"):
        check(gpu)
    assert pinned({"bad": []}) == {"bad": []}
