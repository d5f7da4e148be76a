"""rank: scores, ranks, ties, cost and agreement of a zoo on real images."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import evaluation
from evaluation.ranking import rank as rank_module
from evaluation.ranking.inputs.candidates import of_arrays
from evaluation.ranking.plots import plot_agreement, plot_ranking
from evaluation.ranking.ranking import WIDENED, intervals, ranks_of, ties_with_best
from evaluation.ranking.scoring import parse
from evaluation.report.ranked import task_of
from evaluation.report.reading import Material, Ranked
from evaluation.transferability import feature_dim
from evaluation.transferability.base import Score
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


@pytest.fixture(scope="module")
def zoo() -> dict:
    """Pixels of real digits, and the same with more and more noise: the order is known."""
    images = open_images("digits")
    x = images.pixels[:400, 0].reshape(400, -1) / 16.0
    noise = np.random.default_rng(0).normal(size=x.shape)
    return {f"noise {level}": (x + level * noise, images.labels[:400]) for level in (0.5, 1.5, 4.0, 20.0)}


METRICS = ["logme", "h_score", "knn", "feature_dim"]


@pytest.fixture(scope="module")
def ranking(zoo: dict) -> evaluation.Ranking:
    return evaluation.rank(zoo, metrics=METRICS, truth=[0.97, 0.9, 0.6, 0.2], bootstrap=40)


def test_the_order_is_that_of_the_noise(ranking: evaluation.Ranking, zoo: dict) -> None:
    for k in range(3):
        assert ranking.ranks[:, k].tolist() == [1, 2, 3, 4]
        assert (np.diff(ranking.scores[:, k]) < 0).all()
    assert ranking.ranks[:, 3].tolist() == [2.5] * 4
    assert ranking.order == list(zoo) and ranking.best == "noise 0.5"
    assert ranking.consensus.rank.tolist() == [1, 2, 3, 4]
    assert (np.diff(ranking.consensus.best) < 0).all() and (np.diff(ranking.consensus.regret) > 0).all()


def test_redrawn_images_and_kinds_of_metrics_reach_the_consensus(ranking: evaluation.Ranking, zoo: dict) -> None:
    fixed = evaluation.rank(zoo, metrics=METRICS, bootstrap=0)
    assert fixed.consensus.metrics == ranking.consensus.metrics == tuple(METRICS)
    assert not np.array_equal(fixed.consensus.best, ranking.consensus.best)


def test_scores_are_those_of_score(ranking: evaluation.Ranking, zoo: dict) -> None:
    for m, name in enumerate(ranking.models):
        assert ranking.scores[m, 0] == pytest.approx(evaluation.score("logme", *zoo[name]), rel=1e-12)


def test_intervals_hold_the_score_and_tell_far_models_apart(ranking: evaluation.Ranking) -> None:
    low, high = ranking.intervals[:, :3, 0], ranking.intervals[:, :3, 1]
    assert (low <= ranking.scores[:, :3]).all() and (ranking.scores[:, :3] <= high).all() and (low < high).all()
    assert not ranking.tied[2:, :3].any() and ranking.tied[0].all()
    assert ranking.tied[:, 3].all()  # equal widths
    assert (ranking.rank_intervals[3, :3] == 4).all()


def test_agreement_with_the_truth_has_a_name(ranking: evaluation.Ranking) -> None:
    assert set(ranking.agreement) == {"logme", "h_score", "knn"}  # feature_dim does not tell any model from another
    taus = {one.name: one.value for one in ranking.agreement["logme"]}
    assert any("tau" in name for name in taus) and max(taus.values()) == pytest.approx(1.0)


def test_the_same_seed_gives_the_same_and_another_other_intervals(zoo: dict) -> None:
    first, second, third = (evaluation.rank(zoo, metrics=["logme"], bootstrap=10, seed=seed) for seed in (0, 0, 1))
    assert (first.intervals == second.intervals).all() and (first.scores == third.scores).all()
    assert (first.intervals != third.intervals).any()


def test_a_zoo_of_models_on_a_data_set(tmp_path: Path) -> None:
    def net(width: int) -> nn.Module:
        torch.manual_seed(width)
        return nn.Sequential(nn.Flatten(), nn.Linear(192, width), nn.ReLU())

    ranking = evaluation.rank(
        {"narrow": net(4), "wide": net(200)},
        "digits",
        ["ped+logme", "param_count", "etran", "leep"],
        image_size=8,
        max_images=200,
        bootstrap=20,
        cache=tmp_path,
    )
    assert ranking.n == 200 and ranking.data == "digits"
    assert ranking.scores[:, 1].tolist() == [4 * 193, 200 * 193]
    assert np.isnan(ranking.scores[:, 3]).all() and np.isnan(ranking.ranks[:, 3]).all()
    assert np.isfinite(ranking.consensus.rank).all() and "leep" not in ranking.consensus.metrics
    assert any("no source classifier" in note for note in ranking.notes)
    assert any("no reference statistics" in note for note in ranking.notes)
    assert "-" in ranking.table() and "| model |" in ranking.table("markdown")


def test_several_labels_an_image_are_ranked_by_what_is_defined_for_them(zoo: dict, tmp_path: Path) -> None:
    y = np.stack([zoo["noise 0.5"][1] > 4, zoo["noise 0.5"][1] % 2 == 0], 1).astype(float)
    several = {name: (x, y) for name, (x, _) in zoo.items()}
    numbers = ["logme", "parc", "feature_dim", "random", "etran_energy"]
    ranking = evaluation.rank(several, metrics=[*numbers, "h_score", "ped+logme"], bootstrap=4)
    assert np.isfinite(ranking.scores[:, :5]).all() and np.isnan(ranking.scores[:, 5:]).all()
    assert ranking.agreement == {}
    for metric in ("h_score", "ped+logme"):
        assert any(f"not defined for {metric} (noise 0.5, noise 1.5" in note for note in ranking.notes)
    assert not any(f"not defined for {metric}" in note for metric in numbers for note in ranking.notes)


def test_it_is_written_as_json_and_drawn(ranking: evaluation.Ranking, tmp_path: Path) -> None:
    found = json.loads(ranking.to_json(tmp_path / "ranking.json").read_text())
    assert found["models"] == list(ranking.models) and found["scores"] == ranking.scores.tolist()
    assert found["agreement"]["logme"][0]["name"]
    for draw in (plot_ranking, plot_agreement):
        path = draw(ranking, tmp_path / f"{draw.__name__}.png")
        assert path.read_bytes()[:4] == b"\x89PNG"


def test_every_consumer_has_the_order_of_the_regrets(ranking: evaluation.Ranking, tmp_path: Path) -> None:
    """The consensus ties: the order by name would put the model of the highest regret first."""
    regret, best = np.array([0.04, 0.01, 0.03, 0.02]), np.array([0.1, 0.4, 0.2, 0.3])
    level = replace(ranking.consensus, rank=np.full(4, 2.5), regret=regret, best=best)
    tied = replace(ranking, consensus=level)
    order = ["noise 1.5", "noise 20.0", "noise 4.0", "noise 0.5"]
    assert tied.order == order and tied.best == order[0]
    assert str(level.decision(tied.models)).startswith(f"take {order[0]}: 40 % to be the best, 1.0 points")
    rows = [line.split("|")[1].strip() for line in tied.table("markdown").splitlines()]
    assert rows[2:6] == order
    assert json.loads(tied.to_json(tmp_path / "ranking.json").read_text())["order"] == order
    task = task_of(Ranked(tied, tmp_path / "ranking.json", "today"), Material(tmp_path))
    assert [row[0].text.rstrip(" †") for row in task.table.rows] == order
    assert [cell.text for cell in task.table.rows[0][2:5]] == ["1.0", "40 %", "2.5"]
    assert task.first.first.startswith(order[0])


def test_the_table_shows_ranks_ties_cost_and_agreement(ranking: evaluation.Ranking) -> None:
    lines = ranking.table().splitlines()
    assert max(map(len, lines)) <= 80 and lines[0] == "regret, P(best), rank, truth, model"
    assert lines[3].endswith("noise 0.5") and "1. " in lines[4] and "±" in lines[4]
    assert any(line.startswith("seconds, all models") for line in lines)
    for measure in ("weighted tau (Vigna)", "regret@1", "recall@1", "rel@1", "rel@3"):
        assert any(line.startswith(measure) for line in lines)
    with pytest.raises(UserError, match="text, markdown"):
        ranking.table("html")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": ["logmee"]}, "did you mean 'logme'"),
        ({"metrics": []}, "no metric to rank by"),
        ({"metrics": ["logme", "logme"]}, "twice"),
        ({"truth": {"noise 0.5": 1.0}}, "truth has no accuracy of noise 1.5"),
        ({"truth": [1.0, 2.0]}, "one finite accuracy for each of the 4 models"),
        ({"truth": ["high", "low", "low", "low"]}, "one accuracy a model"),
        ({"nonsense": 3}, "rank has no option 'nonsense'"),
        ({"max_images": 10}, "max_images is for models and a data set"),
        ({"dataset": "digits"}, "give features without a data set"),
    ],
)
def test_one_clear_error(zoo: dict, change: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluation.rank(zoo, **({"metrics": ["logme"], "bootstrap": 0} | change))


def test_models_of_other_images_are_refused(zoo: dict) -> None:
    x, y = zoo["noise 0.5"]
    with pytest.raises(UserError, match="same labels in the same order"):
        evaluation.rank({"a": (x, y), "b": (x[::-1].copy(), y[::-1].copy())}, metrics=["logme"])
    with pytest.raises(UserError, match="name the task"):
        evaluation.rank(["efficientnet_lite0"], metrics=["logme"])


def test_ranks_and_ties_by_hand() -> None:
    assert ranks_of(np.array([3.0, 5.0, 3.0, np.nan])).tolist()[:3] == [2.5, 1, 2.5]
    rng = np.random.default_rng(0)
    common = rng.normal(size=(500, 1))  # all models move together: the differences are sure
    redrawn = np.array([1.0, 0.9, 0.5]) + common + 0.01 * rng.normal(size=(500, 3))
    assert ties_with_best(np.array([1.0, 0.9, 0.5]), redrawn).tolist() == [True, False, False]
    alone = np.array([1.0, 0.9, 0.5]) + 0.1 * rng.normal(size=(500, 3))
    assert ties_with_best(np.array([1.0, 0.9, 0.5]), alone).tolist() == [True, True, False]
    scores = np.array([1.0, 0.9, 0.2])
    ends, places = intervals(scores, alone, 100)
    half = 1.96 * 0.1 * WIDENED
    assert ends[0] == pytest.approx([1 - half, 1 + half], abs=0.03) and places[2].tolist() == [3, 3]
    assert np.isnan(intervals(scores, alone, 99)).all()
    assert ties_with_best(np.array([1.0, 1.0, 0.5]), alone[:0]).tolist() == [True, True, False]


def test_a_pair_may_be_a_list(zoo: dict) -> None:
    listed = {name: list(pair) for name, pair in zoo.items()}
    found, expected = (evaluation.rank(one, metrics=["logme"], bootstrap=0) for one in (listed, zoo))
    assert (found.scores == expected.scores).all()
    with pytest.raises(UserError, match=r"b must be Features or a pair \(x, y\)"):
        evaluation.rank({"a": zoo["noise 0.5"], "b": (1, 2, 3)}, metrics=["logme"])


def test_what_arrays_lack_is_said(zoo: dict) -> None:
    ranking = evaluation.rank(zoo, metrics=["ped+logme", "leep", "param_count"], bootstrap=0)
    for said in ("no reference statistics", "no source classifier", "no network"):
        assert any(note.startswith(said) and "noise 20.0" in note for note in ranking.notes), said
    assert not evaluation.rank(zoo, metrics=["logme"], bootstrap=0).notes


def test_a_metrics_own_warning_is_kept_however_it_begins(zoo: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "no reference=x is needed, but one would help"
    monkeypatch.setattr(feature_dim, "score", lambda sample: Score(float(sample.dim), warnings=(said,)))
    ranking = evaluation.rank(zoo, metrics=["feature_dim", "ped+logme"], bootstrap=0)
    noted = [note.partition(" (")[0] for note in ranking.notes]
    assert f"feature_dim: {said}" in noted
    assert sum("no reference" in note for note in noted) == 2, "PED's own is told once, as a lack of the model"


def test_features_that_a_metric_refuses_cost_this_model_its_score_and_no_other(zoo: dict) -> None:
    (x, y), other = zoo["noise 0.5"], zoo["noise 1.5"]
    broken = x.astype(np.float64)
    broken[3] = 1e100  # its square overflows
    ranking = evaluation.rank({"broken": (broken, y), "other": other}, metrics=["logme", "feature_dim"], bootstrap=4)
    assert np.isnan(ranking.scores[0, 0]) and np.isfinite(ranking.scores[[1, 0, 1], [0, 1, 1]]).all()
    assert any(note.startswith("logme has no score: ") and note.endswith("(broken)") for note in ranking.notes)
    assert not ranking.tied[0, 0] and np.isfinite(ranking.consensus.rank).all()
    alone = {"a": (x[:12], np.arange(12)), "b": (other[0][:12], np.arange(12))}
    ranking = evaluation.rank(alone, metrics=["itm", "feature_dim"], bootstrap=0)
    assert np.isnan(ranking.scores[:, 0]).all() and any("itm has no score" in note for note in ranking.notes)
    ranking = evaluation.rank(alone, metrics=["itm"], bootstrap=0)
    with pytest.raises(UserError, match=r"no metric scores every model.*itm has no score"):
        _ = ranking.best


def test_why_there_is_no_agreement_is_said(zoo: dict) -> None:
    two = dict(list(zoo.items())[:2])
    ranking = evaluation.rank(two, metrics=["logme"], truth=[2, 1], bootstrap=0)
    assert ranking.agreement == {} and any("logme: no agreement" in note and "not 2" in note for note in ranking.notes)
    ranking = evaluation.rank(zoo, metrics=["feature_dim"], truth=[4, 3, 2, 1], bootstrap=0)
    assert any("all models have the same score" in note for note in ranking.notes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"truth": {"wide": 1.0}}, "truth has no accuracy of narrow"),
        ({"metrics": ["nleep(covariance=diagonal)"]}, "must be full or diag, got 'diagonal': did you mean 'diag'"),
        ({"metrics": ["ped(rule=other)+logme"]}, "ped option rule must be code or paper, got 'other'"),
        ({"metrics": ["logme", "gbc(floor=nan)"]}, "gbc option floor must be a number, at least 0, got nan"),
        ({"bootstrap": -1}, "bootstrap must be a whole number, at least 0 .*, got -1"),
        ({"bootstrap": 1}, "must be 0 or at least 2"),
        ({"bootstrap": 2.5}, "bootstrap must be a whole number, .*, got 2.5"),
        ({"device": "cuda:99"}, "torch sees"),
        ({"device": "abacus"}, "not known to torch"),
        ({"seed": 2**63}, "seed must be .*, got 9223372036854775808"),
        ({"seed": -1}, "seed must be .*, got -1"),
        ({"nonsense": 3}, "rank has no option 'nonsense'"),
        ({"max_image": 3}, "did you mean 'max_images'"),
        ({"max_images": 0.5}, "max_images must be a whole number"),
    ],
)
def test_it_is_refused_before_anything_is_extracted(
    change: dict, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("features were extracted")

    monkeypatch.setattr("evaluation.ranking.inputs.candidates.source_probs", never)
    monkeypatch.setattr("evaluation.features.extraction._extract", never)
    nets = {name: nn.Sequential(nn.Flatten(), nn.Linear(192, 4)) for name in ("narrow", "wide")}
    with pytest.raises(UserError, match=said):
        evaluation.rank(nets, "digits", **({"metrics": ["logme"], "image_size": 8, "cache": tmp_path} | change))


def test_a_model_without_a_score_is_tied_with_none() -> None:
    scores = np.array([np.nan, 1.0, 0.9, 0.5])
    redrawn = scores + 0.1 * np.random.default_rng(0).normal(size=(500, 4))
    assert ties_with_best(scores, redrawn).tolist() == [False, True, True, False]
    assert ties_with_best(scores, redrawn[:0]).tolist() == [False, True, False, False]
    assert ties_with_best(scores, redrawn[:1]).tolist() == [False, True, False, False]
    assert not ties_with_best(scores[:1], redrawn[:, :1]).any()


def test_scores_that_rounding_parts_share_their_rank() -> None:
    up = 1 + 2.0**-52
    for scale in (1e-20, 1.0, 1e20):
        scores = scale * np.array([0.3, 0.3 * up, 0.1, 0.3 / up])
        assert ranks_of(scores).tolist() == [2, 2, 4, 2]
        assert ties_with_best(scores, np.empty((0, 4))).tolist() == [True, True, False, True]


def test_what_only_rounding_parts_shares_a_rank_and_is_tied() -> None:
    scores = np.array([2.0, 1.0 + 1e-13, 1.0, 2.0 - 1e-13, np.nan])
    assert np.array_equal(ranks_of(scores), [1.5, 3.5, 3.5, 1.5, np.nan], equal_nan=True)
    assert ties_with_best(scores, np.empty((0, 5))).tolist() == [True, False, False, True, False]
    assert ties_with_best(scores, np.tile(scores, (3, 1))).tolist() == [True, False, False, True, False]


def test_the_sums_that_metrics_share_are_dropped_with_their_model(zoo: dict) -> None:
    candidates = of_arrays(zoo)
    scored, failed = rank_module._score([parse("h_score"), parse("sfda")], candidates)
    assert [len(results) for _, results in scored] == [4, 4] and failed == [{}, {}]
    assert all("scatter" not in vars(one.sample) and "moments" not in vars(one.sample) for one in candidates)


def test_without_metrics_it_is_knn_and_logme_for_several_labels() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40, 5)), np.arange(40) % 4
    several = (rng.random((40, 3)) > 0.5).astype(float)
    found = evaluation.rank({"a": (x[0], y), "b": (x[1], y)}, bootstrap=0)
    assert found.metrics == ("knn",) and found.consensus.metrics == ("knn",)
    found = evaluation.rank({"a": (x[0], several), "b": (x[1], several)}, bootstrap=0)
    assert found.metrics == ("logme",) and np.isfinite(found.scores).all()
    with pytest.raises(UserError, match="no metric to rank by"):
        evaluation.rank({"a": (x[0], y)}, metrics=[])
