"""The consensus: by hand, against a simulation of its own assumptions, and for models and metrics that lack scores."""

import numpy as np
import pytest
from scipy.stats import norm

from evaluation.ranking.consensus import AGREEMENT, SPREAD, Consensus, agreement_of, consensus, normal_scores

NAMES = ("knn", "logme", "parc")


def test_the_score_is_the_mean_of_the_normal_scores_of_the_ranks() -> None:
    scores = np.array([[3.0, 30], [2, 10], [1, 20]])
    found = consensus(NAMES[:2], scores, seed=0)
    high, low = norm.ppf(5 / 6), norm.ppf(1 / 6)
    assert np.allclose(found.score, [high, low / 2, low / 2])
    assert found.rank.tolist() == [1, 2.5, 2.5]
    assert found.metrics == NAMES[:2]


def test_normal_scores_share_the_mean_rank_of_equal_scores() -> None:
    assert np.allclose(normal_scores(np.array([[1.0, 2, 2, 5], [4, 3, 2, 1]]))[0], norm.ppf([0.125, 0.5, 0.5, 0.875]))
    assert np.allclose(normal_scores(np.array([7.0, 7, 7])), 0)


def test_metrics_that_lack_a_model_take_no_part_and_a_model_without_scores_has_none() -> None:
    nan = np.nan
    scores = np.array([[1, nan, 3], [2, 5, 1], [3, 4, 2], [nan, nan, nan]])
    found = consensus(NAMES, scores, accuracies=np.array([0.5, 0.6, 0.7, nan]), seed=0)
    assert found.metrics == ("knn", "parc")
    assert np.isnan(found.score[3]) and np.isnan(found.best[3]) and np.isnan(found.regret[3])
    assert found.best[:3].sum() == pytest.approx(1)
    assert found.order().tolist()[-1] == 3


def test_without_a_common_metric_there_is_no_consensus() -> None:
    found = consensus(NAMES[:2], np.array([[1, np.nan], [np.nan, 1]]), seed=0)
    assert np.isnan(found.rank).all() and found.first() == [] and found.shortlist() == []


def test_probabilities_are_those_of_fine_tuning_that_agrees_as_assumed() -> None:
    """Tuned accuracies are drawn anew, with the stated correlation; one metric, so that nothing else varies."""
    rng = np.random.default_rng(0)
    z = norm.ppf((np.arange(5) + 0.5) / 5)
    of_knn = AGREEMENT["knn"]
    tuned = of_knn * z / z.std() + np.sqrt(1 - of_knn**2) * rng.standard_normal((200_000, 5))
    right = np.bincount(tuned.argmax(1), minlength=5) / len(tuned)
    falling = np.array([0.9, 0.8, 0.6, 0.5, 0.1])
    places = (-tuned).argsort(1).argsort(1)
    found = consensus(("knn",), np.arange(5.0)[:, None], accuracies=falling[::-1], spread=1, seed=0)
    assert np.allclose(found.best, right, atol=0.04)
    assert np.allclose(found.regret, falling[0] - falling[places].mean(0), atol=0.02)
    narrow = consensus(("knn",), np.arange(5.0)[:, None], accuracies=falling[::-1], seed=0)
    assert np.allclose(narrow.regret, SPREAD * found.regret)


def test_metrics_that_agree_more_are_surer() -> None:
    first = [
        consensus(("knn",), np.arange(5.0)[:, None], agreement=agreement, seed=0).best[4]
        for agreement in (1e-9, 0.5, 1.0)
    ]
    assert first[0] == pytest.approx(0.2, abs=1e-6) and first[0] < first[1] < first[2] == 1


def test_probabilities_rest_on_what_was_measured_for_the_metrics() -> None:
    scores, accuracies = np.arange(5.0)[:, None], np.linspace(0.4, 0.8, 5)
    found = {name: consensus((name,), scores, accuracies=accuracies, seed=0) for name in ("logme", "knn", "pactran")}
    assert {name: one.agreement for name, one in found.items()} == {name: AGREEMENT[name] for name in found}
    first = [one.best[4] for one in found.values()]
    assert first == sorted(first, reverse=True) and first[0] > first[2] + 0.05
    assert f"Correlation here: {AGREEMENT['pactran']:.2f}." in found["pactran"].explanation
    both = consensus(("knn", "pactran"), np.repeat(scores, 2, 1), seed=0)
    assert both.agreement == pytest.approx((AGREEMENT["knn"] + AGREEMENT["pactran"]) / 2)


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (("leep",), "was not measured for leep"),
        (("knn", "leep", "nce"), "was not measured for leep and nce"),
        (("knn(k=5)",), "was not measured for knn(k=5)"),
        (("param_count",), "of param_count was -0.21 where it was measured"),
        (("random",), "of random was -0.02 where it was measured"),
    ],
)
def test_without_a_measured_agreement_nothing_is_printed_but_why(metrics: tuple[str, ...], why: str) -> None:
    scores = np.repeat(np.arange(3.0)[:, None], len(metrics), 1)
    found = consensus(metrics, scores, accuracies=np.array([0.4, 0.5, 0.6]), seed=0)
    assert np.isnan(found.best).all() and np.isnan(found.regret).all() and found.shortlist() == []
    assert found.order().tolist() == [2, 1, 0] and found.first() == [2]
    assert found.explanation == f"no P(best) and no regret, as the agreement with fine-tuning {why}"
    assert str(found.decision("abc")) == "c is first", "nothing says that it is the one to take"


def test_agreement_was_measured_for_one_class_an_image_only() -> None:
    found = consensus(("logme",), np.arange(3.0)[:, None], agreement=np.nan, seed=0)
    assert np.isnan(found.best).all() and found.explanation.endswith("was measured for one class an image only")
    assert agreement_of(("logme", "leep")) != agreement_of(("logme", "leep")), "nan"


def test_redrawn_images_that_swap_two_models_bring_their_probabilities_together() -> None:
    scores = np.array([[3.0, 2.9, 1], [3.0, 2.9, 1]]).T
    swapped = np.array([[3.0, 2.9, 1], [2.9, 3.0, 1]] * 50)
    fixed, redrawn = consensus(NAMES[:2], scores, seed=0), consensus(NAMES[:2], scores, [swapped, swapped], seed=0)
    assert fixed.best[0] - fixed.best[1] > 0.1
    assert abs(redrawn.best[0] - redrawn.best[1]) < 0.05


def test_draws_in_which_a_model_has_no_score_keep_the_scores() -> None:
    scores = np.array([[3.0], [2], [1]])
    broken = np.full((10, 3), [np.nan, 2, 1])
    assert np.array_equal(
        consensus(("knn",), scores, [broken], seed=0).best,
        consensus(("knn",), scores, [scores.T.repeat(10, 0)], seed=0).best,
    )
    assert np.isfinite(consensus(("knn",), scores, [np.empty((0, 3))], seed=0).best).all()


def test_the_same_seed_gives_the_same_probabilities() -> None:
    scores = np.random.default_rng(1).normal(size=(6, 3))
    one, again, other = (consensus(NAMES, scores, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(one.best, again.best) and not np.array_equal(one.best, other.best)


def test_one_model_is_the_best_for_sure() -> None:
    found = consensus(NAMES, np.ones((1, 3)), accuracies=np.array([0.4]), seed=0)
    assert found.best.tolist() == [1] and found.regret.tolist() == [0]
    assert str(found.decision(["a"])) == "take a: 100 % to be the best, 0.0 points expected to be lost"


def test_the_order_is_that_of_the_regrets_where_the_consensus_ties() -> None:
    """Two metrics and two models suffice: kNN prefers b, LogME prefers a, and redrawn images mostly prefer b."""
    scores = np.array([[1.0, 2.0], [2.0, 1.0]])
    redrawn = [np.array([[1.0, 2.0]] * 50), np.array([[2.0, 1.0]] * 10 + [[1.0, 2.0]] * 40)]
    found = consensus(NAMES[:2], scores, redrawn, np.array([0.5, 0.9]), seed=0)
    assert found.rank.tolist() == [1.5, 1.5]
    assert found.best[1] > found.best[0] + 0.1 and found.regret[1] < found.regret[0] - 0.01
    assert found.order().tolist() == found.first() == [1, 0]
    assert str(found.decision(["a", "b"])).startswith("take b: ")


def test_numbers_decide_before_the_rank_and_what_no_model_has_decides_nothing() -> None:
    nan, rank = np.full(3, np.nan), np.array([1.0, 2.0, 3.0])
    best, regret = np.array([0.3, 0.3, 0.4]), np.array([0.02, 0.01, 0.02])
    orders = [
        Consensus(("knn",), -rank, rank, *numbers).order().tolist()
        for numbers in ((best, regret), (best, nan), (nan, nan))
    ]
    assert orders == [[1, 2, 0], [2, 0, 1], [0, 1, 2]]
    assert Consensus(("knn",), -rank, rank, best, regret).shortlist(0.6) == [1, 2], "the first of the order"


def test_models_of_equal_scores_are_not_ordered_by_random_numbers() -> None:
    accuracies = np.linspace(0.5, 0.9, 8)
    found = consensus(("knn",), np.ones((8, 1)), accuracies=accuracies, seed=0)
    assert np.ptp(found.best) < 1e-12 and np.ptp(found.regret) < 1e-12


def test_the_verdict_names_what_may_be_as_good_and_no_control_that_is_worse() -> None:
    nan = np.full(6, np.nan)
    rank = np.arange(1.0, 7)
    sharp = Consensus(("knn",), -rank, rank, np.array([0.7, 0.25, 0.05, 0, 0, 0]), nan)
    even = Consensus(("knn",), -rank, rank, np.full(6, 1 / 6), nan)
    assert sharp.shortlist() == [0, 1]
    models = ["a", "b", "c", "random:d", "e", "random:f"]
    assert str(sharp.decision(models)) == "take a: 70 % to be the best; not told apart from b; better than c and e"
    costs = (5.0, 2.0, 9.0, 1.0, 1.0, 1.0)
    assert "not told apart from b, which is cheaper; better" in str(sharp.decision(models, costs=costs))
    assert str(even.decision(models)).endswith("; not told apart from b, c, random:d and 2 others")
