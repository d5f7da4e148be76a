"""Successive halving on real digits."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.datasets import open_split
from evaluation.datasets._copies import divide
from evaluation.protocols.fine_tune import settings_of
from evaluation.ranking.choice import elimination
from evaluation.ranking.choice.beliefs import Beliefs, beliefs
from evaluation.ranking.choice.halving import successive_halving
from evaluation.ranking.choice.halving_output import lines, next_command
from evaluation.ranking.choice.rounds import Round
from evaluation.ranking.rank import rank
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model

QUICK: dict[str, Any] = {
    "metrics": ["knn"],
    "first": 3,
    "steps": 8,
    "lr": [1e-2, 1e-3, 1e-4],
    "max_images": 120,
    "rank_images": 60,
    "device": "cpu",
    "cache": None,
    "progress": False,
}


@pytest.fixture(scope="module")
def zoo() -> dict[str, Model]:
    return {f"seed {seed}": load(f"random:narrow_resnet:{seed}", image_size=8, in_chans=1) for seed in range(4)}


def test_each_round_says_its_runs_and_the_models_that_are_done(zoo: dict, tmp_path: Path) -> None:
    said: list[str] = []
    successive_halving(zoo, "digits", out=tmp_path, sure=1, say=said.append, seeds=[0], **QUICK)
    assert "round 1 of 2: 3 models, 9 runs of 4 steps, 1 seed" in said
    assert "round 2 of 2: 2 models, 2 runs of 8 steps, 1 seed" in said
    assert any(line.startswith("model 1 of 3: ") and line.endswith("to go in this round") for line in said)
    assert any(line.startswith("model 3 of 3: ") and "to go" not in line for line in said)


def test_each_round_keeps_the_better_half_with_twice_the_steps(zoo: dict, tmp_path: Path) -> None:
    found = successive_halving(zoo, "digits", out=tmp_path, sure=1, **QUICK)
    first, last = found.rounds
    assert (first.steps, last.steps) == (4, 8) and (len(first.arms), len(last.arms)) == (3, 2)
    assert {arm.model for arm in first.arms} == set(found.ranking.order[:3])
    assert {arm.model for arm in last.arms} == {arm.model for arm in first.arms[:2]}
    assert all(sum(one.best.values()) == pytest.approx(1) for one in found.rounds)
    assert all(len(arm.lrs) == 3 and len(arm.values) == 1 for arm in first.arms)
    assert all(len(arm.lrs) == 1 and len(arm.values) == 3 for arm in last.arms)
    assert all(arm.lrs[0] == next(a for a in first.arms if a.model == arm.model).lrs[0] for arm in last.arms)
    assert found.winner == last.arms[0].model and found.lr == last.arms[0].lrs[0]
    assert found.steps == 3 * 3 * 4 + 2 * 3 * 8 and found.whole_steps == 4 * (3 + 3) * 8
    assert (found.train, found.held_out) == (100, 20)
    assert 0 <= found.probability <= 1 and 0 < found.within <= 1
    told = "\n".join(lines(found))
    assert found.winner in told and f"{found.steps:,} steps" in told and "20 held-out images" in told
    assert f"best {100 * found.probability:3.0f} %" in told and "is optimistic" in told
    assert "20 held-out images are few" in told
    assert "are few" not in "\n".join(lines(replace(found, held_out=100)))
    assert "takes 192 (2.3 times as many)" in told
    assert "times as many" not in "\n".join(lines(replace(found, whole_steps=84)))


def test_a_second_call_tunes_nothing_and_chooses_the_same(zoo: dict, tmp_path: Path) -> None:
    first = successive_halving(zoo, "digits", out=tmp_path, **QUICK)
    runs = (tmp_path / "halving.jsonl").read_bytes()
    again = successive_halving(zoo, "digits", out=tmp_path, **QUICK)
    assert (tmp_path / "halving.jsonl").read_bytes() == runs
    assert (again.winner, again.probability, again.seconds) == (first.winner, first.probability, first.seconds)


def test_the_outcome_is_what_the_rounds_say(zoo: dict) -> None:
    found = successive_halving(zoo, "digits", sure=1, **QUICK)
    alone = beliefs(found.rounds, 2)
    assert alone is not None and alone.best == found.rounds[-1].best
    last = {arm.model for arm in found.rounds[-1].arms}
    assert found.winner == next(name for name in alone.order() if name in last)


def test_it_stops_once_a_model_is_surely_the_best(zoo: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(rounds: Sequence[Round], planned: int) -> Beliefs:
        names = [arm.model for arm in rounds[0].arms]
        return Beliefs(
            {name: place / 10 for place, name in enumerate(names)}, dict(zip(names, (0.9, 0.1, 0), strict=True))
        )

    monkeypatch.setattr("evaluation.ranking.choice.elimination.beliefs", told)
    found = successive_halving(zoo, "digits", sure=0.9, **QUICK)
    assert len(found.rounds) == 1 and found.rounds[0].kept == 1 and found.probability == 0.9
    assert len(successive_halving(zoo, "digits", sure=0.91, **QUICK).rounds) == 2


@pytest.mark.nightly
def test_rates_that_diverge_are_left_out_and_if_all_do_it_says_so(zoo: dict) -> None:
    found = successive_halving(zoo, "digits", sure=1, **QUICK | {"lr": [1e-3, 1e30]})
    assert all(arm.lrs == (1e-3,) for arm in found.rounds[0].arms)
    with pytest.raises(UserError, match="every learning rate of every model diverged"):
        successive_halving(zoo, "digits", **QUICK | {"lr": [1e30]})


def test_held_out_images_are_a_fifth_of_each_class_and_groups_stay_together() -> None:
    split = open_split("digits", "train")
    train, held = divide(split, 0, "to compare models")
    assert not set(train.ids) & set(held.ids) and len(train) + len(held) == len(split)
    assert np.allclose(np.bincount(held.y) / np.bincount(split.y), 0.2, atol=0.01)
    groups = np.arange(len(split)) // 3
    object.__setattr__(split, "groups", groups)
    train, held = divide(split, 0, "to compare models")
    assert not set(train.groups) & set(held.groups)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"first": 1}, "first"),
        ({"steps": 1}, "steps"),
        ({"lr": []}, "lr"),
        ({"lr": [-1.0]}, "lr"),
        ({"seeds": [0, 0]}, "seeds"),
        ({"sure": 0.2}, "sure"),
        ({"metrics": ["knnn"]}, "did you mean 'knn'"),
        ({"max_images": 5}, "max_images=5"),
        ({"workers": 0}, "workers"),
    ],
)
def test_bad_options_are_told_before_any_extraction(given: dict, said: str, zoo: dict) -> None:
    with pytest.raises(UserError, match=said):
        successive_halving(zoo, "digits", say=lambda line: pytest.fail(line), **QUICK | given)


def test_one_model_and_no_data_are_errors(zoo: dict) -> None:
    with pytest.raises(UserError, match="at least 2"):
        successive_halving({"one": zoo["seed 0"]}, "digits", **QUICK)
    with pytest.raises(UserError, match="name the task"):
        successive_halving(zoo, None, **QUICK)
    with pytest.raises(UserError, match="then use recipes/detect"):
        successive_halving(zoo, "boxes:clipart_boxes", **QUICK)


def test_models_that_cannot_be_ranked_are_named_and_not_counted(zoo: dict) -> None:
    broken = load("random:narrow_resnet:9", image_size=8, in_chans=1)
    with torch.no_grad():
        next(broken.net.parameters()).fill_(math.nan)
    found = successive_halving({**zoo, "broken": broken}, "digits", **QUICK)
    assert list(found.ranking.left_out) == ["broken"] and found.whole_steps == 4 * (3 + 3) * 8
    assert "left out  broken: " in "\n".join(lines(found))
    with pytest.raises(UserError, match=r"1 usable model.*at least 2; left out  broken: .*not finite"):
        successive_halving({"one": zoo["seed 0"], "broken": broken}, "digits", **QUICK)


def test_without_a_score_of_every_model_none_is_tuned(zoo: dict) -> None:
    with pytest.raises(UserError, match=r"no metric scores every model.*no source classifier"):
        successive_halving(zoo, "digits", **QUICK | {"metrics": ["leep"]})


def test_the_next_command_has_the_recipe_of_the_choice(zoo: dict) -> None:
    found = successive_halving(zoo, "digits", **QUICK)
    how = {"weight_decay": 0.01, "optimizer": "adamw", "steps": 8, "batch_size": 32, "seeds": [0], "mirror": False}
    how |= {
        "image_size": None,
        "trust": (),
        "root": "data",
        "crop": (0.5, 1.0),
        "range": None,
        "opacity": None,
        "fill": "auto",
        "columns": {"group": "film"},
    }
    told = next_command(found, "digits", {**how, "precision": "bfloat16"})
    assert all(word in told for word in ("columns.group=film", "fine_tune.crop=[0.5,1.0]", "precision=bfloat16"))
    told = next_command(found, "digits", {**how, "precision": "float32", "range": [0, 4095]})
    assert "precision" not in told and "range=[0,4095]" in told and "opacity" not in told and "fill" not in told
    told = next_command(found, "digits", {**how, "precision": "float32", "opacity": False, "fill": -2000.0})
    assert "opacity=false" in told and "fill=-2000" in told


@pytest.mark.nightly
def test_images_of_more_than_8_bits_are_read_by_the_range_that_is_given(zoo: dict, tmp_path: Path) -> None:
    digits = open_split("digits", "train")
    for row in np.flatnonzero(digits.y < 2)[:40]:
        for kind, values in (("plain", digits.images.pixels[row, 0]), ("deep", digits.images.pixels[row, 0] * 16.0)):
            place = tmp_path / kind / "train" / str(digits.y[row])
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values.astype((np.uint8, np.uint16)[kind == "deep"])).save(place / f"{row}.png")
    two = {name: zoo[name] for name in ("seed 0", "seed 1")}
    quick = QUICK | {"max_images": None, "rank_images": None, "first": 2, "steps": 2}
    plain, deep = (
        successive_halving(two, tmp_path / kind, **how, **quick)
        for kind, how in (("plain", {}), ("deep", {"range": [0, 4080]}))
    )
    assert [arm.values.tolist() for arm in deep.rounds[0].arms] == [arm.values.tolist() for arm in plain.rounds[0].arms]
    assert np.array_equal(deep.ranking.scores, plain.ranking.scores)
    with pytest.raises(UserError, match="range"):
        successive_halving(two, tmp_path / "deep", range=[9, 3], **quick)


@pytest.mark.nightly
def test_two_models_are_one_round(zoo: dict) -> None:
    found = successive_halving(dict(list(zoo.items())[:2]), "digits", **QUICK)
    assert len(found.rounds) == 1 and found.within == pytest.approx(1) and not math.isnan(found.probability)


def test_the_rate_of_a_model_is_the_best_by_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {(1e-2, 0): 0.9, (1e-2, 1): 0.6, (1e-2, 2): 0.6, (1e-3, 0): 0.89, (1e-3, 1): 0.88, (1e-3, 2): 0.87}
    sound = {"beta": None, "diverged": False, "loss": 1.0, "seconds": 1.0, "right": None, "weight_decay": 0.0}

    class Runner:
        def run(self, trials: Sequence[Any], _: str) -> list[dict[str, Any]]:
            own = [trial.setting for trial in trials]
            return [{**sound, "lr": one.lr, "value": values[one.lr, one.seed]} for one in own]

    class Task:
        test = SimpleNamespace(groups=None)

        def rows(self) -> np.ndarray:
            return np.arange(3)

    monkeypatch.setattr(elimination, "open_runner", lambda *_: nullcontext(Runner()))
    monkeypatch.setattr(elimination, "open_task", lambda *_: Task())
    grid = settings_of({"lr": (1e-2, 1e-3), "weight_decay": [0.0], "optimizer": "sgd"}, steps=2)
    for seeds in ((0, 1, 2), (2, 0, 1)):
        arm = elimination._arm("a", None, {}, grid, seeds, None)
        assert arm.lrs == (1e-3, 1e-2) and arm.values.tolist() == [values[1e-3, seed] for seed in seeds]


def test_a_split_is_taken_as_it_is_open(zoo: dict) -> None:
    """Published sets are tuned on their trainval, or on a split that has two names."""
    given = replace(open_split("digits", "train"), split="trainval")
    ranking = rank(zoo, given, ["knn"], max_images=40, bootstrap=0, cache=None)
    assert np.array_equal(ranking.scores, rank(zoo, "digits", ["knn"], max_images=40, bootstrap=0, cache=None).scores)
    with pytest.raises(UserError, match="is open as its split 'trainval', not 'test'"):
        rank(zoo, given, ["knn"], split="test", cache=None)
