"""Without labels: the other view of an image is looked for among all, before and after training, and by raw pixels."""

import numpy as np
import pytest
import torch
from PIL import Image

import sslkit
from sslkit.decision import LABEL, UNLABELLED
from sslkit.numerics.view_retrieval import compare_views
from sslkit.training.results import decide, list_results


def test_found_is_counted_as_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(50, 8, generator=generator)
    second = first + 0.8 * torch.randn(50, 8, generator=generator)
    right = 0
    for row in range(50):
        one = first[row].numpy()
        cosines = [one @ other / np.linalg.norm(one) / np.linalg.norm(other) for other in second.numpy()]
        right += int(np.argmax(cosines)) == row
    measured = compare_views(first, second)
    assert 0.2 < measured["found"] < 1 and measured["found"] == right / 50 and measured["n"] == 50
    unit = [x / x.norm(dim=1, keepdim=True) for x in (first, second)]
    assert measured["alignment"] == pytest.approx((unit[0] - unit[1]).square().sum(1).mean().item(), rel=1e-6)


def test_a_collapsed_network_finds_none() -> None:
    assert compare_views(torch.ones(30, 4), torch.ones(30, 4))["found"] == 0, "a tie is no answer"


@pytest.fixture
def flat(tmp_path) -> dict:
    images = sslkit.open_images("clipart", split="train")
    for row in range(48):
        pixels = images.__getitems__([row])["images"][0].numpy()
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(pixels.transpose(1, 2, 0)).save(tmp_path / "photos" / f"{row:02d}.png")
    more = {"batch_size": 16, "image_size": 32, "workers": 0, "progress": False, "out": str(tmp_path / "zoo")}
    return {"method": "simclr", "data": {"source": str(tmp_path / "photos")}, "device": "cpu", "epochs": 1, **more}


def test_a_run_on_a_flat_folder_says_whether_it_learned(flat, capsys) -> None:
    entry = sslkit.pretrain(flat)
    views = entry.card["views"]
    assert entry.card["after"] == {} and views["before"]["network"]["n"] == views["after"]["network"]["n"] == 48
    assert views["before"]["pixels"] == views["after"]["pixels"], "the same images and views at both times"
    assert views["before"]["network"] != views["after"]["network"]
    said = " ".join(capsys.readouterr().out.split())
    assert "on 48 training images, without labels" in said and "other view of an image found among all" in said
    assert UNLABELLED in said and "its start with" in said


def test_the_measure_changes_no_weight(flat, monkeypatch) -> None:
    whole = sslkit.pretrain(flat, name="whole")
    for module in ("start", "finish"):
        monkeypatch.setattr(f"sslkit.training.{module}.measure_views", lambda *_: ({}, {}))
    without = sslkit.pretrain(flat, name="without")
    ours, others = whole.state_dict(), without.state_dict()
    assert without.card["views"] == {"before": {}, "after": {}} and all(torch.equal(ours[k], others[k]) for k in ours)


def test_a_labelled_run_has_its_accuracies_instead(small_run) -> None:
    card = sslkit.pretrain({**small_run, "epochs": 1}).card
    assert card["views"] == {"before": {}, "after": {}} and card["after"]["knn"] > 0


@pytest.mark.parametrize(
    ("start", "pixels", "end", "said"),
    [
        (0.5, 0.1, 0.3, "above raw pixels with 10.0 %; not above its start with 50.0 %"),
        (0.3, 0.1, 0.31, "above raw pixels with 10.0 %; not above its start with 30.0 %"),
        (0.1, 0.5, 0.4, "above its start with 10.0 %; not above raw pixels with 50.0 %"),
        (0.1, 0.2, 0.5, "above raw pixels with 20.0 % and its start with 10.0 %"),
    ],
)
def test_whether_a_run_learned_follows_from_the_interval(start: float, pixels: float, end: float, said: str) -> None:
    before, after = ({"network": {"found": share, "n": 400}, "pixels": {"found": pixels}} for share in (start, end))
    [line] = decide("a", {"views": {"before": before, "after": after}}, None)
    assert f"; {said}; {UNLABELLED}" in line and line.startswith(f"{LABEL}a: {100 * end:.1f} %")
    for one, other in (({}, after), (before, {})):
        card = {"views": {"before": one, "after": other}}
        assert decide("a", card, None) == [] == list_results(card, None)
