"""Detection and segmentation as protocols: numbers under their own names, kept trials, pictures, refusals."""

import builtins
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from detectors import images, narrow
from PIL import Image

import sslkit
from evaluation.judging import run
from evaluation.results import store
from evaluation.results.result import Result
from evaluation.tasks.detection import trials as module
from evaluation.tasks.detection.pictures import draw_predictions
from evaluation.tasks.detection.prediction import predictions
from evaluation.tasks.detection.protocols.detection import detection
from evaluation.tasks.detection.protocols.segmentation import segmentation
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime

CPU = Runtime(device=torch.device("cpu"), progress=False)
QUICK = {"schedule": "smoke", "steps": 1, "batch_size": 2, "progress": False}


@pytest.fixture(scope="module")
def data() -> dict:
    return {"train": images(4), "test": images(2, "test")}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials draw no pictures, where a test does not look at them."""
    monkeypatch.setattr(module, "draw_predictions", lambda *_, **__: None)


def test_every_ap_stands_under_its_own_name_with_its_trials(data: dict, tmp_path: Path) -> None:
    coco, voc = detection(narrow(1), data, trials=2, seed=3, out=tmp_path, **QUICK)
    assert (coco.metric, list(coco.others)) == ("coco_ap", ["coco_ap50", "coco_ap75", "seed 3", "seed 4"])
    assert (voc.metric, list(voc.others)[:2]) == ("voc_ap50", ["voc_ap", "voc_ap75"])
    for result in (coco, voc):
        assert result.kind == "t over 2 seeds" and result.seeds == [3, 4] and result.outcomes.shape == (2,)
        assert not result.details["comparable"] and "smoke, 1 steps" in result.recipe
        assert "not comparable to published numbers" in result.recipe
        assert Result.from_json(result.to_json()).to_json() == result.to_json()
    assert coco.details["input"].startswith("gray") and voc.details["voc_form"] == "area"
    assert coco.seconds > 0 and voc.seconds == 0, "the seconds of all trials stand once"
    for name in coco.details["pictures"]:
        assert Image.open(tmp_path / "detection" / name).size[0] > 500
    assert not list(tmp_path.rglob("*.ckpt"))


def test_finished_trials_are_not_done_again(data: dict, undrawn: None, tmp_path: Path, monkeypatch) -> None:
    first = detection(narrow(), data, out=tmp_path, **QUICK)
    done = []
    real = module.train_detector
    monkeypatch.setattr(module, "train_detector", lambda *a, **k: done.append(a[2].seed) or real(*a, **k))
    again = detection(narrow(), data, trials=2, out=tmp_path, **QUICK)
    assert done == [1] and again[0].outcomes[0] == first[0].value
    boxes = {split: part.without_masks() for split, part in data.items()}
    detection(narrow(), boxes, trials=2, out=tmp_path, **QUICK)
    assert done == [1], "masks that boxes do not look at make no other trial"


@pytest.mark.parametrize("protocol", [detection, segmentation])
def test_trained_detectors_are_kept_as_entries_that_predict(
    protocol, data: dict, undrawn: None, tmp_path: Path, monkeypatch
) -> None:
    trained, real = [], module.train_detector
    monkeypatch.setattr(module, "train_detector", lambda *a, **k: trained.append(real(*a, **k)) or trained[-1])
    how = {"trials": 2, "out": tmp_path, "arch": "fpn", **QUICK}
    first = protocol(narrow(), data, keep="none", **how)[0]
    assert first.details["kept"] == [] and not (tmp_path / "models").exists() and len(trained) == 2
    [name] = protocol(narrow(), data, **how)[0].details["kept"]
    assert len(trained) == 3, "the numbers were kept, and the weights not: the best is trained again"
    entry = sslkit.ZooEntry.load(tmp_path / name)
    card = entry.card["detector"]
    assert card["measured"]["metric"] == first.metric and card["measured"]["n"] == len(data["test"])
    assert [card["measured"][end] for end in ("low", "high")] == list(first.interval)
    assert card["measured"]["images"] == "test images of clipart_boxes: the mean of 2 trials"
    seed = int(np.argmax(first.outcomes))
    assert f"1 steps, not comparable to published numbers, 4 images, seed {seed}" in card["made"]
    assert card["arch"] == "fpn" and card["classes"] == list(data["train"].classes)
    for _ in range(2):
        assert protocol(narrow(), data, keep="all", **how)[0].details["kept"][seed] == name and len(trained) == 4
    assert not list(tmp_path.rglob(".*.safetensors")) and not list(tmp_path.rglob("*.ckpt"))
    pixels = data["test"][0][0]
    found = sslkit.load(tmp_path / name).predict(pixels[None], progress=False)
    [again] = predictions(trained[2].detector, data["test"].take([0]), 3, CPU)
    np.testing.assert_allclose(found.boxes, again["boxes"], atol=1e-4)
    np.testing.assert_allclose(found.scores, again["scores"], atol=1e-6)
    assert (found.masks is None) == (protocol is detection)


def test_what_no_entry_holds_is_measured_and_not_kept(
    data: dict, undrawn: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = narrow()
    model.backbone.recipe.lines = []  # as of features that no line makes
    [first, *_] = detection(model, data, out=tmp_path, **{**QUICK, "progress": True})
    assert first.details["kept"] == [] and "not kept: " in capsys.readouterr().err


def test_a_trial_that_was_done_says_so(
    data: dict, undrawn: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    how = {**QUICK, "out": tmp_path, "progress": True}
    detection(narrow(), data, **how)
    assert "was done before" not in capsys.readouterr().err
    detection(narrow(), data, **how)
    assert "detection: was done before, its numbers are kept" in capsys.readouterr().err


def test_masks_come_first_in_segmentation(data: dict, undrawn: None) -> None:
    found = segmentation(narrow(), data, **QUICK)
    assert [result.metric for result in found] == ["coco_mask_ap", "coco_ap", "voc_ap50"]
    assert all(result.protocol == "segmentation" and "Mask R-CNN" in result.recipe for result in found)
    assert list(found[0].others) == ["coco_mask_ap50", "coco_mask_ap75"] and found[0].interval is None


def test_vocs_numbers_come_first_on_its_own_sets(data: dict, undrawn: None) -> None:
    voc = {split: replace(part, name="voc07", voc_form="11point") for split, part in data.items()}
    found = detection(narrow(), voc, **QUICK)
    assert [result.metric for result in found] == ["voc_ap50", "coco_ap"]
    assert found[0].details["voc_form"] == "11point"


def test_evaluate_keeps_the_results_beside_the_weights(data: dict, undrawn: None, tmp_path: Path) -> None:
    options = {"detection": {"schedule": "smoke", "steps": 1, "batch_size": 2}}
    how = {"out": tmp_path, "options": options, "progress": False}
    results = run.evaluate(narrow(), [data], ["detection"], **how)
    kept = store.read(run.results_folder(narrow(), tmp_path))
    assert [r.to_json() for r in kept] == [r.to_json() for r in results] and len(kept) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "smoek"}, "did you mean 'smoke'"),
        ({"arch": "c44"}, "did you mean 'c4'"),
        ({"trials": 0}, "trials must be a whole number, at least 1"),
        ({"tune": "half"}, "must be all or none"),
        ({"precision": "half"}, "precision must be float32 or bfloat16, got 'half'"),
        ({"batch_size": 7, "steps": 1}, "must be at most 4, the number of training images"),
    ],
)
def test_bad_options_are_refused_before_a_step(options: dict, said: str, data: dict, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        detection(narrow(), data, out=tmp_path, **{**QUICK, **options})
    assert not list(tmp_path.rglob("*.ckpt")) and not list(tmp_path.rglob("*.safetensors"))


def test_all_that_is_missing_on_disk_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        detection(narrow(), "voc07", root=tmp_path)
    assert all(name in str(error.value) for name in ("trainval.txt", "Main/test.txt", "JPEGImages", "Annotations"))
    with pytest.raises(UserError, match="did you mean 'voc07'"):
        detection(narrow(), "voc7", root=tmp_path)


def test_without_a_folder_no_picture_is_promised(data: dict, tmp_path: Path) -> None:
    assert "pictures" not in detection(narrow(), data, **QUICK)[0].details
    [picture] = detection(narrow(), data, out=tmp_path, **QUICK)[0].details["pictures"]
    assert (tmp_path / "detection" / picture).is_file()


def test_splits_must_fit_each_other(data: dict) -> None:
    with pytest.raises(UserError, match="different classes"):
        detection(narrow(), {**data, "test": replace(data["test"], classes=("a", "b", "c", "d"))}, **QUICK)
    with pytest.raises(UserError, match="has boxes but no masks"):
        segmentation(narrow(), {split: part.without_masks() for split, part in data.items()}, **QUICK)
    with pytest.raises(UserError, match="must have the splits train and test; it has train"):
        detection(narrow(), {"train": data["train"]}, **QUICK)


def test_a_missing_package_is_said_before_the_training(data: dict, monkeypatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest):
        if name.startswith("faster_coco_eval"):
            raise ImportError("No module named 'faster_coco_eval'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(module, "train_detector", lambda *a, **k: pytest.fail("it trained"))
    with pytest.raises(UserError, match=r'pip install -e "\.\[detection\]"'):
        detection(narrow(), data, **QUICK)


def test_the_picture_shows_truth_and_guess(data: dict, tmp_path: Path) -> None:
    test = data["test"]
    sure = {**{k: test.target(0)[k] for k in ("boxes", "labels", "masks")}}
    sure["scores"] = test.target(0)["boxes"][:, 0] * 0 + 0.9
    none = {name: value[:0] for name, value in sure.items()}
    drawn = []
    for number, found in enumerate(([sure], [none])):
        draw_predictions(test, found, tmp_path / f"{number}.png", title="here")
        drawn.append(np.asarray(Image.open(tmp_path / f"{number}.png").convert("RGB")).astype(int))
    assert drawn[0].shape == drawn[1].shape
    half = drawn[0].shape[1] // 4
    different = (drawn[0] != drawn[1]).any(2)
    assert different[:, half : 2 * half].any() and not different[60:, :half].any(), "only the guess differs"


@pytest.mark.nightly
def test_pretrained_weights_beat_random_ones_on_images_of_the_same_kind(tmp_path: Path) -> None:
    entry = sslkit.pretrain(
        {
            "method": {
                "name": "byol+dsa",
                "objective": {"momentum": 0.98, "hidden": 256, "dim": 64},
                "views": {"scale": (0.2, 1.0)},
            },
            "batch_size": 128,
            "workers": 0,
            "data": {"source": "clipart"},
            "backbone": "narrow_resnet",
            "optimizer": {"lr": 9e-3},
            "epochs": 20,
            "out": str(tmp_path / "zoo"),
            "eval": {"every": 1000, "tsne": 0},
            "progress": False,
        }
    )
    how = {"schedule": "smoke", "progress": False, "device": "cpu"}
    values = [
        detection(model, "clipart_boxes", out=tmp_path / name, **how)[0].value
        for name, model in (("pretrained", str(entry.folder)), ("random", f"random:{entry.folder}"))
    ]
    assert values[0] > values[1] + 0.01
