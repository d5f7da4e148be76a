"""Defects: the published layouts, values of squares that are found, heat maps, and wrong sets in one line."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from defective import write_good_and_bad, write_image, write_mvtec, write_visa
from PIL import Image
from torch import nn

import evaluation
from evaluation.datasets import Reading
from evaluation.datasets.defects import open_defects, read_mask
from evaluation.judging.run import list_pairs
from evaluation.learners import defect_scores
from evaluation.learners.defect_scores import auroc
from evaluation.protocols import anomaly
from evaluation.protocols._heat_maps import most_wrong
from evaluation.protocols.anomaly import Options, image_scores, open
from evaluation.protocols.base import Subject
from evaluation.results.comparison import compare
from sslkit.data.columns import Columns
from sslkit.errors import RunFailed, UserError
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.models.places import place_features
from sslkit.runtime.context import Runtime

QUIET = {"progress": False, "device": "cpu", "cache": None}


def model(image_size: int = 32) -> Model:
    return load("random:narrow_vit", image_size=image_size)


def test_squares_are_found_in_an_object_of_mvtec_and_drawn(tmp_path: Path) -> None:
    data = write_mvtec(tmp_path / "mvtec") / "bottle"
    [result] = evaluation.anomaly(model(), data, side=32, out=tmp_path / "out", **QUIET)
    assert (result.metric, result.data, result.n) == ("auroc", "bottle", 12) and result.value > 0.9
    assert result.others["aupro"].value > 0.5 and result.others["aupro"].kind.endswith("6 images with defects")
    assert [name for name in result.others if name != "aupro"] == [
        f"auroc, {n} shot{'s' * (n > 1)}" for n in (1, 2, 4, 8)
    ]
    assert result.others["auroc, 1 shot"].kind == "t over 3 draws of normal images"
    assert result.details["chance"] == {"auroc": 0.5, "aupro": 0.15}
    with Image.open(tmp_path / "out" / "anomaly-bottle.png") as image:
        assert image.width > image.height
    again = evaluation.anomaly(load("random:narrow_resnet", image_size=64), data, side=32, **QUIET)[0]
    assert compare(result, again).test == "paired t", "a convolutional network's positions are patches, too"
    assert not list(tmp_path.glob("anomaly-*")), "nothing is drawn without out="


def test_all_objects_and_their_mean_or_those_that_are_named(tmp_path: Path) -> None:
    data = write_visa(tmp_path / "visa")
    results = evaluation.anomaly(model(), data, side=32, shots=[2], heat_maps=0, **QUIET)
    assert [result.data for result in results] == ["candle", "pcb1", "visa"]
    assert results[2].value == pytest.approx(np.mean([result.value for result in results[:2]]))
    assert results[2].kind == "t over 2 objects" and {"aupro", "auroc, 2 shots"} == set(results[2].others)
    [one] = evaluation.anomaly(model(), data, objects=["pcb1"], side=32, shots=[2], **QUIET)
    assert one.data == "pcb1" and one.value == results[1].value
    found = open_defects(data, [])
    assert [len(each.train) for each in found] == [6, 6] and found[0].is_defect.tolist() == [False] * 4 + [True] * 4
    both = write_mvtec(tmp_path / "both", ("bottle", "cable"))
    assert [each.name for each in open_defects(both, [])] == ["bottle", "cable"]


def test_good_and_bad_hold_out_a_fifth_of_the_good_and_have_no_pixels(tmp_path: Path) -> None:
    data = write_good_and_bad(tmp_path / "parts")
    [found] = open_defects(data, [])
    assert (len(found.train), len(found.test), int(found.is_defect.sum())) == (16, 9, 5)
    assert not {*found.train} & {*found.test}
    [result] = evaluation.evaluate(
        model(), str(data), "anomaly", options={"anomaly": {"shots": [1]}}, out=tmp_path / "out", **QUIET
    )
    assert result.value > 0.9 and set(result.others) == {"auroc, 1 shot"} and not result.details["masks"]


def test_patches_are_those_of_the_files_in_any_order_of_names(tmp_path: Path) -> None:
    """The defects have names before and after those of the good: a row that moves would move its label."""
    for number in range(6):
        write_image(tmp_path / "o" / "train" / "good" / f"{number}.png", number)
        write_image(tmp_path / "o" / "test" / "good" / f"{9 - number}.png", 50 + number)
        write_image(tmp_path / "o" / "test" / ("a", "z")[number % 2] / f"{number}.png", 80 + number, defect=True)
    [result] = evaluation.anomaly(model(), tmp_path / "o", shots=[], **QUIET)
    assert result.value > 0.9


def test_patches_are_kept_and_a_stopped_run_goes_on_with_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By blocks of few numbers, from the disk, as by all normal patches at once in float64."""
    data, network, passes = write_mvtec(tmp_path / "mvtec") / "bottle", model(), []
    monkeypatch.setattr(anomaly, "BATCH", 4)
    monkeypatch.setattr(defect_scores, "BLOCK", 1000)

    def places(backbone: nn.Module, pixels: torch.Tensor, blocks: int) -> torch.Tensor:
        passes.append(len(pixels))
        if sum(passes) == 18:
            raise RunFailed("stopped")
        return place_features(backbone, pixels, blocks)

    distances: list[np.ndarray] = []
    monkeypatch.setattr(anomaly, "place_features", places)
    monkeypatch.setattr(anomaly, "image_scores", lambda some: distances.append(some) or image_scores(some))
    how = {"shots": [2], "side": 32, **QUIET, "cache": tmp_path / "cache"}
    with pytest.raises(RunFailed):
        evaluation.anomaly(network, data, **how)
    passes[:] = [100]
    [result] = evaluation.anomaly(network, data, **how)
    assert sum(passes) == 100 + 12 - 4 and len(list((tmp_path / "cache").glob("patches-*.npy"))) == 2
    [again] = evaluation.anomaly(network, data, **how)
    assert sum(passes) == 108 and again.value == result.value and again.others == result.others
    found = open_defects(data, [])[0]
    squares = (np.array([np.asarray(Image.open(path)) for path in some]) for some in (found.train, found.test))
    pixels = (torch.from_numpy(some).permute(0, 3, 1, 2) for some in squares)
    with torch.inference_mode():
        train, test = (
            place_features(network.backbone, network.normalize(some), 1).double().flatten(2) for some in pixels
        )
    unit = [nn.functional.normalize(some, dim=1).transpose(1, 2) for some in (train, test)]
    distance = (1 - unit[1].flatten(0, 1) @ unit[0].flatten(0, 1).T).amin(1).view(len(test), -1).numpy()
    np.testing.assert_allclose(distances[0], distance, atol=1e-6)
    assert result.value == auroc(image_scores(distance), found.is_defect)[0].value


def test_groups_are_of_names_stay_together_and_widen_the_interval(tmp_path: Path) -> None:
    data, group = write_mvtec(tmp_path / "mvtec") / "bottle", Columns(group="(.)[.]png$")
    [alone] = evaluation.anomaly(model(), data, shots=[], **QUIET)
    [result] = evaluation.anomaly(model(), data, shots=[], columns=group, **QUIET)
    assert result.value == alone.value and "6 groups of images" in result.kind
    assert result.others["aupro"].kind.endswith("6 groups with defects")
    assert compare(result, replace(result, model="b")).test == "randomisation over groups"
    parts = write_good_and_bad(tmp_path / "parts")
    found = open(Subject(model(), parts, Reading(columns=group)), Options()).objects[0]
    digits = [{path.stem[2] for path in some if path.parent.name == "good"} for some in (found.train, found.test)]
    assert not set.intersection(*digits) and len(set.union(*digits)) == 10
    with pytest.raises(UserError, match=r"columns.label=kind.*is read by its folders"):
        open(Subject(model(), data, Reading(columns=Columns(label="kind"))), Options())


def test_an_image_has_the_mean_of_its_highest_patches() -> None:
    distance = np.arange(400.0).reshape(2, 200)
    assert image_scores(distance).tolist() == [198.5, 398.5] and image_scores(distance[:, :9]).tolist() == [8, 208]


def test_the_most_wrong_images_are_low_defects_and_high_normal_ones() -> None:
    score = np.array([0.1, 0.2, 0.9, 0.3, 0.8, 0.95])
    assert set(most_wrong(score, np.array([False, False, False, True, True, True]), 2)) == {2, 3}


def test_masks_are_resized_by_the_nearest_pixel(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", 0, defect=True, mask=tmp_path / "m.png")
    large = read_mask(tmp_path / "m.png", (64, 64))
    assert large.sum() == 400 and large.dtype == bool and not read_mask(None, (3, 4)).any()


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def wrong_mask(root: Path) -> None:
    path = root / "ground_truth" / "hole" / "000_mask.png"
    Image.new("L", (16, 32)).save(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: empty(root / "train" / "good"), "bottle has 0 normal images to learn from: at least 2"),
        (lambda root: shutil.rmtree(root / "test" / "good"), "bottle has 0 normal images among its test images"),
        (lambda root: [shutil.rmtree(root / "test" / kind) for kind in ("hole", "spot")], "bottle has 0 defects among"),
        (wrong_mask, r"000_mask.png is 16 x 32 pixels, and its image 32 x 32"),
        (
            lambda root: shutil.rmtree(root / "train"),
            "has no normal image in a known place: it reads OBJECT/train/good",
        ),
        (lambda root: (root / "test" / "hole" / "000.png").write_bytes(b"no image"), "000.png cannot be read"),
    ],
)
def test_a_set_that_cannot_be_judged_is_one_line_before_compute(tmp_path: Path, change, message: str) -> None:
    data = write_mvtec(tmp_path / "mvtec") / "bottle"
    change(data)
    with pytest.raises(UserError, match=message) as caught:
        open(Subject(model(), data), Options())
    assert "\n" not in str(caught.value)


def test_a_network_without_patches_no_data_and_unknown_objects(tmp_path: Path) -> None:
    data = write_mvtec(tmp_path / "mvtec")
    flat = load(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8)), image_size=32)
    for network, source, options, message in (
        (flat, data, Options(), "has no map|one place|feature map"),
        (load("random:resnet18", image_size=8), data, Options(), "has one place in its last map"),
        (model(), None, Options(), "anomaly needs data=FOLDER"),
        (model(), data / "none", Options(), "is no folder"),
        (model(), data, Options(objects=["cup"]), "has no object 'cup': it has bottle"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            open(Subject(network, source), options)
        assert "\n" not in str(caught.value)
    assert list_pairs(None, ["anomaly"]) == [(None, "anomaly")]
    assert Runtime().out is None
