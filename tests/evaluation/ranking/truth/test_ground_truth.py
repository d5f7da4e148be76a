"""The ground truth of a ranking: every result kept at once, never measured twice, failures left for the end."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import evaluation
from evaluation.features.zoo_members import load_zoo
from evaluation.ranking.summary import read_truth
from evaluation.ranking.truth import ground_truth as module
from evaluation.ranking.truth.ground_truth import DETAILS, RESULTS, TRUTH, GroundTruth, ground_truth
from evaluation.tuning.task import Task
from sslkit import backbones, zoo
from sslkit.data.decode.scale import Scale
from sslkit.errors import UserError
from sslkit.models.loading import Loading, load
from sslkit.models.model import Model

QUICK = {
    "max_images": 100,
    "max_test_images": 100,
    "lr": [3e-2, 1e-5],
    "extend": False,
    "steps": 12,
    "batch_size": 32,
    "seeds": [0, 1],
    "progress": False,
    "device": "cpu",
}


def network(width: int) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(width)
        return load(nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU()), image_size=8, in_chans=1)


class Broken(nn.Module):
    """It runs once, to be measured, and then no more."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise RuntimeError("out of\nmemory")
        return images.flatten(1) @ self.weight


ZOO = {"narrow": network(4), "wide": network(48)}
BROKEN = load(Broken(), image_size=8, in_chans=1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the networks that are fine-tuned, as they come."""
    found: list[str] = []
    plain = module.tune_grid

    def counted(task: Task, *how: Any) -> Any:
        found.append(f"{task.model.width} on {task.name}")
        return plain(task, *how)

    monkeypatch.setattr(module, "tune_grid", counted)
    return found


def test_the_time_that_is_said_is_of_what_is_not_measured_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "announce", lambda work, runs, *_: said.append((sum(s for _, s in work), runs)))
    ground_truth({"narrow": ZOO["narrow"]}, "digits", out=tmp_path, **QUICK)
    ground_truth(ZOO, "digits", out=tmp_path, **QUICK)
    assert said == [(4 * 12, 4), (4 * 12, 4)], "two rates and two seeds of one model, then of the other"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_the_files_have_the_form_that_rank_reads(tmp_path: Path) -> None:
    found = ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK)
    truth = read_truth(tmp_path / TRUTH)
    assert truth == found.truth and set(truth["digits"]) == {"narrow", "wide"} and found.failures == ()
    ranking = evaluation.rank(ZOO, "digits", ["feature_dim"], truth=truth["digits"], bootstrap=0, cache=tmp_path / "c")
    assert ranking.truth.tolist() == list(truth["digits"].values())
    details = read(tmp_path, DETAILS)
    assert details["settings"]["seeds"] == [0, 1] and details["settings"]["max_images"] == 100
    record = details["results"]["digits"]["wide"]
    assert record["value"] == pytest.approx(np.mean(record["values"])) and record["kind"] == "t over 2 seeds"
    assert record["interval"][0] <= record["value"] <= record["interval"][1] and record["seeds"] == [0, 1]
    assert record["chosen"]["lr"] == 3e-2 and len(record["grid"]) == 2 and record["seconds"] > 0
    assert (record["train_images"], record["test_images"], record["image_size"]) == (100, 100, 8)
    assert record["leaky"] is False and record["value"] > 0.3


def test_what_is_there_is_not_measured_again(tmp_path: Path, calls: list[str]) -> None:
    first = ground_truth({"narrow": ZOO["narrow"]}, ["digits"], out=tmp_path, **QUICK)
    both = ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK)
    assert calls == ["4 on digits", "48 on digits"]
    assert both.truth["digits"]["narrow"] == first.truth["digits"]["narrow"]
    alone = ground_truth({"wide": ZOO["wide"]}, "digits", out=tmp_path, **QUICK)
    assert len(calls) == 2 and alone.truth == both.truth  # earlier calls' models stay


def test_other_settings_are_another_truth(tmp_path: Path, calls: list[str]) -> None:
    ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK)
    other = ground_truth({"wide": ZOO["wide"]}, ["digits"], out=tmp_path, **QUICK | {"steps": 3})
    assert len(calls) == 3 and set(other.truth["digits"]) == {"wide"} and read(tmp_path, TRUTH) == other.truth
    assert len((tmp_path / RESULTS).read_text().splitlines()) == 3
    back = ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK)
    assert len(calls) == 3 and set(back.truth["digits"]) == {"narrow", "wide"}


def test_several_folds_are_another_truth(tmp_path: Path, calls: list[str]) -> None:
    one = {"wide": ZOO["wide"]}
    plain = ground_truth(one, "digits", out=tmp_path, **QUICK)
    several = ground_truth(one, "digits", out=tmp_path, folds=3, **QUICK)
    assert len(calls) == 2 and several.settings["folds"] == 3 and "folds" not in plain.settings
    assert "3 held-out fifths" in several.results["digits"]["wide"]["recipe"]


def test_the_closest_models_get_more_seeds(tmp_path: Path, calls: list[str]) -> None:
    plain = ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK)
    found = ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK | {"closest": 1, "more_seeds": [5]})
    best = max(plain.truth["digits"], key=plain.truth["digits"].get)
    (other,) = set(ZOO) - {best}
    assert len(calls) == 3, "only the best one is tuned again"
    values = {name: found.results["digits"][name]["values"] for name in ZOO}
    assert values[best][:2] == plain.results["digits"][best]["values"] and len(values[best]) == 3
    assert values[other] == plain.results["digits"][other]["values"]
    assert found.truth["digits"][best] == pytest.approx(np.mean(values[best]))
    assert len((tmp_path / "fine_tune.jsonl").read_text().splitlines()) == 2 * (2 + 2) + 1  # no run is repeated


def test_a_grid_whose_end_is_chosen_is_extended(tmp_path: Path) -> None:
    found = ground_truth({"wide": ZOO["wide"]}, "digits", out=tmp_path, **QUICK | {"lr": [1e-4, 1e-3], "extend": True})
    record = found.results["digits"]["wide"]
    rates = sorted(tried["lr"] for tried in record["grid"])
    assert rates[:3] == pytest.approx([1e-4, 1e-3, 1e-2]) and rates[0] < record["chosen"]["lr"] < rates[-1]
    assert found.settings["extend"] and found.settings["grid"]["lr"] == [1e-4, 1e-3]


def test_a_model_that_was_trained_anew_is_measured_anew(tmp_path: Path, calls: list[str]) -> None:
    old = ground_truth({"a": ZOO["narrow"]}, ["digits"], out=tmp_path, **QUICK)
    new = ground_truth({"a": ZOO["wide"]}, ["digits"], out=tmp_path, **QUICK)
    assert calls == ["4 on digits", "48 on digits"] and new.truth["digits"]["a"] > old.truth["digits"]["a"]
    again = ground_truth({"a": ZOO["narrow"]}, ["digits"], out=tmp_path, **QUICK)
    assert len(calls) == 2 and again.truth == old.truth


def test_results_of_images_that_were_replaced_are_not_reported(tmp_path: Path) -> None:
    images = tmp_path / "images"
    write_images(images, seed=0)
    more = {**QUICK, "closest": 2, "more_seeds": [2]}
    before = ground_truth(ZOO, str(images), out=tmp_path / "truth", **more)
    assert before.results[str(images)]["wide"]["seeds"] == [0, 1, 2]
    write_images(images, seed=1)
    after = ground_truth({"narrow": ZOO["narrow"]}, str(images), out=tmp_path / "truth", **QUICK)
    assert list(after.results[str(images)]) == ["narrow"]
    found = after.results[str(images)]["narrow"]
    assert found["seeds"] == [0, 1] and found["images"] != before.results[str(images)]["narrow"]["images"]
    assert read_truth(tmp_path / "truth" / TRUTH) == {str(images): {"narrow": found["value"]}}


def test_images_of_more_than_8_bits_are_read_by_the_range_that_is_given(tmp_path: Path) -> None:
    write_images(tmp_path / "plain", seed=0)
    write_images(tmp_path / "deep", seed=0, times=16)  # 0 to 4080, so that the range that is found is [0,4095]

    def measured(kind: str, **how: Any) -> GroundTruth:
        own = {"wide": replace(ZOO["wide"], scale=Scale((0.0, 2000.0)))}  # of its training
        return ground_truth(own, str(tmp_path / kind), out=tmp_path / "truth", **how, **QUICK)

    plain = measured("plain").results[str(tmp_path / "plain")]["wide"]["values"]
    assert measured("deep", range=[0, 4080]).results[str(tmp_path / "deep")]["wide"]["values"] == plain
    for how, runs in (({}, 3), ({"range": [0, 4095]}, 4), ({"range": [0.0, 4095.0]}, 4)):
        measured("deep", **how)
        assert len((tmp_path / "truth" / RESULTS).read_text().splitlines()) == runs, "of each range its own"


def write_images(folder: Path, seed: int, times: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for split, label, number in itertools.product(("train", "test"), "ab", range(10)):
        place = folder / split / label
        place.mkdir(parents=True, exist_ok=True)
        values = rng.integers(256, size=(8, 8), dtype=np.uint8)
        Image.fromarray(values if times == 1 else values.astype(np.uint16) * times).save(place / f"{number}.png")


def test_a_stop_costs_only_what_was_not_finished(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = module.tune_grid

    def stopped(task: Task, *how: Any) -> Any:
        if task.model.width == 48:
            raise KeyboardInterrupt
        return counted(task, *how)

    monkeypatch.setattr(module, "tune_grid", stopped)
    with pytest.raises(KeyboardInterrupt):
        ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK)
    assert set(read(tmp_path, TRUTH)["digits"]) == {"narrow"}
    monkeypatch.setattr(module, "tune_grid", counted)
    found = ground_truth(ZOO, ["digits"], out=tmp_path, **QUICK)
    assert calls == ["4 on digits", "48 on digits"] and set(found.truth["digits"]) == {"narrow", "wide"}


def test_one_that_fails_does_not_stop_the_others_and_is_tried_again(tmp_path: Path) -> None:
    said: list[str] = []
    models = {"broken": BROKEN, "narrow": ZOO["narrow"]}
    found = ground_truth(models, ["digits"], out=tmp_path, say=said.append, **QUICK)
    assert list(map(str, found.failures)) == ["broken on digits: RuntimeError: out of memory"]
    assert set(read(tmp_path, TRUTH)["digits"]) == {"narrow"}
    assert read(tmp_path, DETAILS)["failures"][0]["model"] == "broken"
    assert said[0].startswith("FAILED    broken on digits") and "narrow" in said[1]
    mended = ground_truth(ZOO | {"broken": network(5)}, ["digits"], out=tmp_path, **QUICK)
    assert mended.failures == () and set(mended.truth["digits"]) == {"broken", "narrow", "wide"}
    assert read(tmp_path, DETAILS)["failures"] == []


def test_one_that_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    found = ground_truth({"gone": "nowhere", **ZOO}, ["digits"], out=tmp_path, **QUICK)
    assert [(one.model, one.data) for one in found.failures] == [("gone", "")] and len(found.truth["digits"]) == 2
    assert "there is no model 'nowhere'" in str(found.failures[0])


def test_all_models_take_the_size_that_is_asked_for_but_one_of_its_own_in_its_word(tmp_path: Path) -> None:
    body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
    lines = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1}
    for name in ("a", "b"):
        zoo.save(
            tmp_path / "zoo" / name, body.export(), {"backbone": lines, "normalize": {"mean": [0.3], "std": [0.4]}}
        )
    models, failures = load_zoo([str(tmp_path / "zoo"), "random:narrow_resnet(image_size=24)"], Loading(image_size=16))
    assert {name: one.image_size for name, one in models.items()} == {"a": 16, "b": 16, "random:narrow_resnet": 24}
    assert failures == [] and load_zoo([str(tmp_path / "zoo" / "a")], Loading(image_size=16))[0]["a"].image_size == 16
    controls, _ = load_zoo(
        [f"random:{tmp_path / 'zoo' / 'a'}", f"random:{tmp_path / 'zoo' / 'a'}:1"], Loading(image_size=16)
    )
    assert {name: one.image_size for name, one in controls.items()} == {"random:a": 16, "random:a:1": 16}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": ["digitz"]}, "digits"),
        ({"data": []}, "name the tasks"),
        ({"lr": []}, "at least one number"),
        ({"seeds": [0, 0]}, "different whole numbers"),
        ({"closest": 1, "more_seeds": [1]}, "different whole numbers"),
        ({"closest": -1}, "closest"),
        ({"optimizer": "adam"}, "adamw"),
        ({"steps": 0}, "steps"),
        ({"max_images": 12}, "less than two for each class"),
    ],
)
def test_a_mistake_is_said_before_anything_is_measured(change: dict, said: str, tmp_path: Path) -> None:
    given = {"data": ["digits"], **QUICK, **change}
    with pytest.raises(UserError, match=said):
        ground_truth(ZOO, given.pop("data"), out=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_a_damaged_entry_of_a_folder_is_a_failure_and_none_left_is_an_error(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
        own = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1}
        zoo.save(tmp_path / "zoo" / name, body.export(), {"backbone": own, "normalize": {"mean": [0.3], "std": [0.4]}})
    (tmp_path / "zoo" / "bad" / "backbone.safetensors").write_bytes(b"junk")
    models, failures = load_zoo(tmp_path / "zoo")
    assert list(models) == ["good"] and [failure.model for failure in failures] == ["bad"]
    with pytest.raises(UserError, match="none of the models can be loaded: nowhere: there is no model 'nowhere'"):
        load_zoo("nowhere")
