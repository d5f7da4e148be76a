"""Models whose features are degenerate: every metric warns or refuses, and `rank` survives them all."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import evaluation
from evaluation.ranking import scoring
from evaluation.ranking.rank import rank
from evaluation.ranking.scoring import evaluate_metric, parse
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

pytestmark = pytest.mark.filterwarnings("error")  # of numpy, scipy and scikit-learn too

N, D, C = 40, 12, 4
Y = np.arange(N) % C
RNG = np.random.default_rng(0)
X = RNG.normal(size=(C, D))[Y] + RNG.normal(size=(N, D))
P = torch.from_numpy(RNG.normal(size=(N, 6))).softmax(1).numpy()
MODEL = nn.Linear(2, 3)
UNTRAINED = np.random.default_rng(1).normal(size=(N, 7))
WIDE = RNG.normal(size=(N, 3 * N))
BOXES = np.random.default_rng(2).uniform(size=(N, 4))

# Rows of tenths and of random numbers are equal, but their computed mean is not one of them.
WARNED = {
    "collapsed": (np.tile(X[:1], (N, 1)), "all 40 rows of features are equal: the score is meaningless"),
    "collapsed, tenths": (np.full((N, D), 1000.1), "all 40 rows of features are equal"),
    "collapsed, float32": (np.tile(X[:1], (N, 1)).astype(np.float32), "all 40 rows of features are equal"),
    "collapsed but for rounding": (X[:1] * (1 + 1e-16 * RNG.normal(size=(N, D))), "all 40 rows of features are equal"),
    "collapsed, float32 rounding": ((1 + 3e-8 * X).astype(np.float32), "all 40 rows of features are equal"),
    "collapsed, wide": (np.tile(WIDE[:1], (N, 1)), "all 40 rows of features are equal"),
    "dead": (np.zeros((N, D)), "all 40 rows of features are equal"),
    "dead columns": (X * (np.arange(D) < 3), "9 of 12 columns of features are constant"),
    "duplicated rows": (np.tile(X[:8], (5, 1)), "only 8 of 40 rows of features differ"),
    "duplicated rows of other classes": (np.repeat(X[:10], 4, 0), "only 10 of 40 rows of features differ"),
    "duplicated columns": (np.hstack([X, X]), "only 12 of 24 columns of features differ"),
    "constant within classes": (X[:C][Y], "only 4 of 40 rows of features differ"),
    "constant within classes, wide": (WIDE[:C][Y], "only 4 of 40 rows of features differ"),
}
REFUSED = {
    "1e200": (X * 1e200, "as large as .*e.200: .* overflow float64; divide"),
    "1e150": (X * 1e150, "as large as .*e.150: .* overflow float64; divide"),
    "1e308": (X / np.abs(X).max() * 1.7e308, "overflow float64"),
    "1e-200": (X * 1e-200, "at most .*e-200: .* underflow float64; multiply"),
    "1e-310": (X * 1e-310, "underflow float64; multiply"),
}
SOUND = {
    "1e30, float32": (X * 1e30).astype(np.float32),
    "1e-30, float32": (X * 1e-30).astype(np.float32),
    "1e70": X * 1e70,
    "1e-70": X * 1e-70,
    "an outlier": np.vstack([X[:-1], 1e12 * X[-1:]]),
    "duplicated columns, large": np.hstack([X, X[:, :5]]) * 1e9,
}
OPTIONS = (
    "ped+logme",
    "ped+h_score",
    "ped(lam=both)+logme",
    "lead(init=svm)",
    "lead(kernel=empirical)",
    "nleep(covariance=diag)",
    "etran(variant=official)",
    "sfda(standardize=true)",
    "transrate(normalize=true)",
    "gbc(pca=none)",
    "gbc(floor_unit=absolute)",
    "logme(unit=absolute)",
    "gbc(covariance=diagonal)",
    "gbc(floor=0)",
    "parc(n_dims=none)",
    "itm(eta=adaptive,iterations=20)",
)
METRICS = tuple("itm(iterations=20)" if name == "itm" else name for name in evaluation.metrics()) + OPTIONS


@pytest.fixture(autouse=True)
def narrow_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """LEAD's random head, 1024 and 2048 wide, is drawn for each of hundreds of scores: narrower sees the same."""
    monkeypatch.setattr("evaluation.transferability.lead.WIDTHS", (64, 128))


def of(metric: str, x: np.ndarray, y: np.ndarray = Y) -> scoring.MetricResult | UserError:
    """The result, whose numbers are finite, or the refusal."""
    try:
        found = evaluate_metric(metric, x, y, source_probs=P, model=MODEL, untrained=UNTRAINED, boxes=BOXES)
    except UserError as error:
        return error
    values = found.parts.values() if math.isnan(found.score) and found.parts else [found.score]
    assert all(map(math.isfinite, values))
    return found


@pytest.mark.parametrize("metric", METRICS)
class TestEveryMetric:
    def test_it_warns_or_refuses_features_that_say_little(self, metric: str) -> None:
        for kind, (x, said) in WARNED.items():
            found = of(metric, x)
            if parse(metric).reads_features and not isinstance(found, UserError):
                assert found.warnings and said in found.warnings[0], kind

    def test_it_refuses_what_float64_cannot_square(self, metric: str) -> None:
        for kind, (x, said) in REFUSED.items():
            if parse(metric).reads_features:
                with pytest.raises(UserError, match=said):
                    evaluate_metric(metric, x, Y, source_probs=P, model=MODEL, untrained=UNTRAINED, boxes=BOXES)
            else:
                assert isinstance(of(metric, x), scoring.MetricResult), kind

    def test_large_and_small_features_have_a_score(self, metric: str) -> None:
        for kind, x in SOUND.items():
            assert isinstance(of(metric, x), scoring.MetricResult), kind

    def test_a_class_of_one_image(self, metric: str) -> None:
        assert isinstance(of(metric, X, np.where(np.arange(N) == 5, 9, Y)), scoring.MetricResult)

    def test_equal_rows_score_the_same_whatever_the_row(self, metric: str) -> None:
        """A collapsed model has one score, or none: not that of the rounding of its mean."""
        if metric.startswith(("etran", "random", "logme", "tlogme", "det_logme", "ped", "knn", "leep", "nce")):
            return  # these see the length of the row, chance, or, knn, its neighbours' order
        found = [of(metric, WARNED[kind][0]) for kind in ("collapsed", "collapsed, tenths", "collapsed, float32")]
        assert len({one.score for one in found}) == 1

    def test_rank_says_which_models_it_could_not_score(self, metric: str) -> None:
        arrays = zoo()
        found = rank({name: (x, Y) for name, x in arrays.items()}, metrics=[metric], bootstrap=2)
        scores = dict(zip(found.models, found.scores[:, 0], strict=True))
        if parse(metric).needs == ("features",):
            assert math.isfinite(scores["sound"]) and math.isfinite(scores["sound again"])
        for name in arrays:
            if math.isnan(scores[name]):
                assert any(name in note.rpartition("(")[2] for note in found.notes), name
        if parse(metric).reads_features and parse(metric).needs == ("features",):
            assert math.isnan(scores["1e200"]) and math.isnan(scores["1e-200"])
        assert not np.isinf(found.scores).any()


@cache
def zoo() -> dict[str, np.ndarray]:
    """One sound model, the same again, and every degenerate one."""
    kinds = {name: x for name, (x, _) in {**WARNED, **REFUSED}.items()} | SOUND
    return {"sound": X, "sound again": X.copy()} | {name.replace(",", ""): x for name, x in kinds.items()}


def test_rank_says_once_what_is_degenerate_of_a_model() -> None:
    arrays = {"sound": X, "flat": WARNED["collapsed"][0], "dead": WARNED["dead"][0]}
    found = rank({name: (x, Y) for name, x in arrays.items()}, metrics=["logme", "sfda", "h_score"], bootstrap=0)
    said = [note for note in found.notes if "rows of features are equal" in note]
    assert said == ["all 40 rows of features are equal: the score is meaningless (flat, dead)"]


def test_equal_models_share_their_rank() -> None:
    turned = {"a": (X, Y), "b": (X.copy(), Y), "columns in another order": (X[:, ::-1], Y), "d": (X[::-1], Y)}
    found = rank(turned, metrics=["etran_energy", "logme", "h_score", "sfda"], bootstrap=4)
    assert (found.ranks[:3] == found.ranks[0]).all() and (found.tied[:3] == found.tied[0]).all()


def test_sound_features_are_not_doubted() -> None:
    digits = open_images("digits").pixels[:N].reshape(N, -1) / np.float32(16)
    for x in (digits, X, X.astype(np.float32), X + 1024, np.maximum(X, 0), np.vstack([X[:20], X[:20] + 1e-6])):
        assert evaluate_metric("etran_energy", x, Y).warnings == ()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("transrate(eps=1e-320)", "is too small for these features"),
        ("ped(lam=1e100)+h_score_regularized", "as large as .* overflow float64"),
        ("ped(lam=1e200)+h_score", "as large as .* overflow float64"),
        ("gbc(floor=1e308)", "gbc.* of these features is"),
    ],
)
def test_options_beyond_what_the_features_bear_are_refused(metric: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluate_metric(metric, WIDE[:, :N] if "ped" in metric else WIDE, Y)


def test_a_score_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from evaluation.transferability import logme
    from evaluation.transferability.base import Score

    monkeypatch.setattr(logme, "score", lambda sample: Score(math.inf))
    with pytest.raises(UserError, match="logme of these features is inf"):
        evaluate_metric("logme", X, Y)


def test_dead_columns_do_not_change_which_others_ped_masks() -> None:
    rng = np.random.default_rng(0)
    y, mean, std = np.arange(90) % 5, np.zeros(6), np.array([1, 1, 1e-5, 1, 1, 1])
    x = rng.normal(size=(90, 6)) + rng.normal(size=(5, 6))[y]
    few, many = (
        evaluation.evaluate_metric(
            "ped+logme", np.pad(x, ((0, 0), (0, dead))), y, reference=[np.pad(part, (0, dead)) for part in (mean, std)]
        ).diagnostics
        for dead in (0, 30)
    )
    assert many["potential_energy"][0] == pytest.approx(few["potential_energy"][0])
    assert (few["masked_columns"], many["masked_columns"]) == (1, 31)
