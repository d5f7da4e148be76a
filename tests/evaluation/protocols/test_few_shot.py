"""few_shot on real glyphs of scripts never trained on, against scikit-learn episode by episode."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import NearestCentroid
from threadpoolctl import threadpool_limits

from evaluation.features import Features, as_features
from evaluation.learners.episode_solvers import CLASSIFIERS, solve_episodes
from evaluation.learners.episodes import draw_episodes
from evaluation.protocols.few_shot import few_shot, pool
from evaluation.results.result import Result
from sslkit import open_images
from sslkit.errors import UserError
from sslkit.numerics.neighbours import unit_rows

EPISODES = 100


@pytest.fixture(scope="module")
def glyphs() -> Features:
    """Pixels of 60 letters, 20 renders each."""
    images = open_images("glyphs", split="novel_test")
    batch = images.__getitems__(list(range(1200)))
    x = batch["images"].float().flatten(1).numpy() / 255
    return Features(x, batch["label"].numpy(), images.classes, "pixels", np.arange(1200).astype(str))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def logistic_oracle(x: np.ndarray, y: np.ndarray, c: float = 1.0) -> LogisticRegression:
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("error")  # it must converge
        return LogisticRegression(C=c, tol=1e-8, max_iter=1000, solver="newton-cg").fit(x, y)


@pytest.mark.parametrize(
    ("k_shot", "normalize", "c"),
    [
        (1, "l2", 1.0),
        (5, "l2", 1.0),
        pytest.param(1, "none", 1.0, marks=pytest.mark.slow),
        pytest.param(5, "none", 1.0, marks=pytest.mark.slow),
        pytest.param(3, "l2", 20.0, marks=pytest.mark.slow),
    ],
)
def test_query_labels_are_those_of_scikit_learn_converged(glyphs, k_shot: int, normalize: str, c: float) -> None:
    x = glyphs.x.astype(np.float64)
    x = unit(x) if normalize == "l2" else x * (25 / np.linalg.norm(x, axis=1).mean())
    given = replace(glyphs, x=x.astype("f"))
    table = draw_episodes(given, k_shot=k_shot, episodes=EPISODES)
    solved = solve_episodes(*pool(given, table.rows(given), normalize), k_shot, c)
    assert solved.has_converged.all()
    way, compared = np.repeat(np.arange(5), k_shot), 0
    for episode, labels in zip(table.rows(given), solved.labels["logistic"].numpy(), strict=True):
        oracle = logistic_oracle(x[episode[:, :k_shot].reshape(-1)], way, c)
        scores = np.sort(oracle.decision_function(x[episode[:, k_shot:].reshape(-1)]), axis=1)
        sure = scores[:, -1] - scores[:, -2] > 1e-5  # others are ties as far as the oracle can tell
        want = oracle.predict(x[episode[:, k_shot:].reshape(-1)])
        assert (labels == want)[sure].all()
        compared += sure.sum()
    assert compared > 0.999 * EPISODES * 75


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
@pytest.mark.parametrize("c", [1.0, 0.2])
def test_ridge_and_centroid_are_those_of_scikit_learn(glyphs, c: float) -> None:
    x, table = unit(glyphs.x.astype(np.float64)), draw_episodes(glyphs, k_shot=5, episodes=40)
    solved = solve_episodes(*pool(glyphs, table.rows(glyphs), "l2"), 5, c)
    oracles = {"ridge": RidgeClassifier(alpha=1 / c), "nearest_centroid": NearestCentroid()}
    for e, episode in enumerate(table.rows(glyphs)):
        for name, oracle in oracles.items():
            oracle.fit(x[episode[:, :5].reshape(-1)], np.repeat(np.arange(5), 5))
            want = oracle.predict(x[episode[:, 5:].reshape(-1)])
            assert (solved.labels[name][e].numpy() == want).mean() > 0.98  # a tie or two: pixels repeat
    assert (solved.labels["ridge"] != solved.labels["nearest_centroid"]).double().mean() > 0.02


def test_the_result_is_the_mean_over_episodes_with_its_interval(glyphs) -> None:
    result = few_shot(glyphs, k_shot=5, episodes=100, seed=3)
    values = result.outcomes
    assert values.shape == (100,) and result.value == pytest.approx(values.mean()) and 0.6 < result.value < 0.99
    half = 1.984217 * values.std(ddof=1) / 10  # Student's t of 99
    assert result.interval == pytest.approx((values.mean() - half, values.mean() + half))
    assert (result.kind, result.n, result.seeds, result.converged) == ("episodes", 100, [3], True)
    assert result.recipe == "5-way 5-shot, logistic, c=1, l2-normalised"
    assert set(result.others) == set(CLASSIFIERS) and result.others["logistic"] == result.estimate
    assert result.details["not_converged"] == 0 and result.details["classes"] == 60
    assert Result.from_json(result.to_json()).others == result.others and json.loads(result.to_json())["details"]


def test_each_classifier_can_be_the_main_number(glyphs) -> None:
    table = draw_episodes(glyphs, episodes=60)
    results = {name: few_shot(glyphs, table=table, classifier=name) for name in CLASSIFIERS}
    assert all(results[name].estimate == results["logistic"].others[name] for name in CLASSIFIERS)
    assert len({result.value for result in results.values()}) == 3
    assert {result.paired_on for result in results.values()} == {table.digest}


def test_the_order_of_the_rows_does_not_matter(glyphs) -> None:
    order = np.random.default_rng(0).permutation(len(glyphs))
    one, other = (few_shot(f, episodes=50, k_shot=5) for f in (glyphs, glyphs.take(order)))
    assert one.paired_on == other.paired_on and (one.outcomes == other.outcomes).all()


def test_two_models_are_compared_on_the_same_episodes(glyphs) -> None:
    """Five rows of pixels are a worse model, and paired episodes show it."""
    worse = replace(glyphs, x=np.ascontiguousarray(glyphs.x[:, 280:420]), model="rows", digest="rows")
    a, b = few_shot(glyphs, episodes=80), few_shot(worse, episodes=80)
    assert a.paired_on == b.paired_on
    difference = a.outcomes - b.outcomes
    assert difference.mean() > 5 * difference.std(ddof=1) / 80**0.5


def test_a_pair_of_arrays_with_names_gives_what_features_give(glyphs) -> None:
    names = np.array(glyphs.classes)[glyphs.y]
    given = few_shot((glyphs.x, names), episodes=50, k_shot=5)
    same = few_shot(replace(as_features((glyphs.x, names)), model="m"), episodes=50, k_shot=5)
    assert given.value == same.value and given.paired_on == same.paired_on and same.model == "m"


def test_features_that_nearly_coincide_keep_their_digits(glyphs) -> None:
    """Far from the origin float32 keeps few digits of the inner products, unless the pool is centred first."""
    far = replace(glyphs, x=glyphs.x + np.float32(300))
    rows = draw_episodes(far, k_shot=5, episodes=30).rows(far)
    exact = torch.from_numpy(unit_rows(far.x, "far").astype(np.float64))
    want = solve_episodes(exact, torch.from_numpy(rows), 5, c=1.0).labels
    got = solve_episodes(*pool(far, rows, "l2"), 5, 1.0).labels
    assert all((got[name] == want[name]).double().mean() > 0.999 for name in CLASSIFIERS)


def test_what_did_not_converge_is_said(glyphs) -> None:
    result = few_shot(replace(glyphs, x=glyphs.x * 3000), normalize="none", k_shot=5, episodes=4)
    assert result.converged is False and result.details["not_converged"] > 0
    assert result.details["steps"] == 5000 and "not normalised" in result.recipe


def test_a_table_brings_its_own_numbers(glyphs) -> None:
    table = draw_episodes(glyphs, n_way=3, k_shot=2, n_query=4, episodes=20)
    assert few_shot(glyphs, table=table).recipe.startswith("3-way 2-shot")
    assert few_shot(glyphs, table=table, n_way=3, k_shot=2).n == 20
    with pytest.raises(UserError, match="k_shot=5 differs from k_shot=2 of the episode table"):
        few_shot(glyphs, table=table, k_shot=5)
    with pytest.raises(UserError, match="seed=3 differs from seed=0 of the episode table"):
        few_shot(glyphs, table=table, seed=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classifier": "ridg"}, "classifier must be .*, got 'ridg': did you mean 'ridge'"),
        ({"normalize": "std"}, "normalize must be l2 or none, got 'std'"),
        ({"c": 0}, "c must be a number, above 0, got 0"),
        ({"k_shot": 6}, r"has 20 images and an episode needs 21 \(6 support \+ 15 query\)"),
        ({"n_way": 61}, "n_way=61, but the pool has only 60 classes"),
    ],
)
def test_bad_options(glyphs, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        few_shot(glyphs, **options)


def test_bad_features(glyphs) -> None:
    def changed(value: float, rows: slice = slice(5, 6)) -> Features:
        x = glyphs.x.copy()
        x[rows] = value
        return replace(glyphs, x=x)

    unlabelled = glyphs.y.copy()
    unlabelled[0] = -1
    for bad, message in [
        (changed(np.nan), "NaN or infinite, the first in row 5"),
        (changed(1.0, slice(None)), "are equal"),
        (changed(0.0, slice(20, 1000)), "rows of features are all zeros"),
        (replace(glyphs, y=unlabelled), "1 of 1200 labels are -1"),
        ((glyphs.x, np.tile([[1, -1, -1]], (1200, 1))), "few_shot needs one label per image"),
    ]:
        with pytest.raises(UserError, match=message):
            few_shot(bad, episodes=20)


def test_a_seed_of_numpy_is_a_seed(glyphs) -> None:
    found = few_shot(glyphs, n_way=3, k_shot=np.int64(1), episodes=5, seed=np.int64(4))
    assert json.loads(found.to_json())["seeds"] == [4]
    assert np.array_equal(found.outcomes, few_shot(glyphs, n_way=3, k_shot=1, episodes=5, seed=4).outcomes)
