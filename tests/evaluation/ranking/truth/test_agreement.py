import itertools

import numpy as np
import pytest
import scipy.stats

from evaluation.ranking.truth import agreement as module
from evaluation.ranking.truth import published
from evaluation.ranking.truth.agreement import (
    FEWEST,
    MEASURES,
    Agreement,
    agreement,
    spearman,
    weighted_tau,
)
from sslkit.errors import UserError


def pearson(truth, scores):
    return agreement(truth, scores, measures=["Pearson"], n=0)[0].value


def at(name, truth, scores, k=1):
    """A measure of the k highest scores, for any k."""
    return MEASURES[f"{name}@1"].func(*module._pair_up(truth, scores), np.arange(len(truth)), k=k)


def drawn(seed, n=12, ties=False):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n)
    scores = truth + rng.normal(size=n)
    return (truth.round(), scores.round()) if ties else (truth, scores)


CASES = [drawn(seed, n, ties) for seed, n, ties in ((0, 12, False), (1, 12, True), (2, 3, False), (3, 30, True))]


def itm_by_loop(truth, scores):
    rank = scipy.stats.rankdata([-value for value in truth])
    above = below = 0.0
    for i, j in itertools.combinations(range(len(truth)), 2):
        weight = 1 / (rank[i] + rank[j])
        above += weight * np.sign(truth[i] - truth[j]) * np.sign(scores[i] - scores[j])
        below += weight
    return above / below


def kendall_by_loop(truth, scores):
    pairs = list(itertools.combinations(range(len(truth)), 2))
    return sum(np.sign(truth[i] - truth[j]) * np.sign(scores[i] - scores[j]) for i, j in pairs) / len(pairs)


@pytest.mark.parametrize(("truth", "scores"), CASES)
def test_against_scipy_and_loops(truth, scores):
    assert weighted_tau(truth, scores) == pytest.approx(scipy.stats.weightedtau(truth, scores).statistic, abs=1e-12)
    assert weighted_tau(truth, scores, kind="itm") == pytest.approx(itm_by_loop(truth, scores), abs=1e-12)
    assert weighted_tau(truth, scores, kind="kendall") == pytest.approx(kendall_by_loop(truth, scores), abs=1e-12)
    assert spearman(truth, scores) == pytest.approx(scipy.stats.spearmanr(truth, scores).statistic, abs=1e-12)
    assert pearson(truth, scores) == pytest.approx(scipy.stats.pearsonr(truth, scores).statistic, abs=1e-12)


def test_the_number_worked_out_in_print():
    truth = published.truth("itm")
    assert weighted_tau(truth["cars"], truth["cifar100"]) == pytest.approx(0.752, abs=5e-4)
    assert weighted_tau(truth["cars"], truth["cifar100"], kind="itm") == pytest.approx(0.665, abs=5e-4)


@pytest.mark.parametrize("kind", ["vigna", "itm", "kendall"])
def test_taus_see_only_the_order(kind):
    truth, scores = CASES[0]
    assert weighted_tau(truth, truth**3, kind) == pytest.approx(1)
    assert weighted_tau(truth, -truth, kind) == pytest.approx(-1)
    assert weighted_tau(truth, np.exp(scores), kind) == pytest.approx(weighted_tau(truth, scores, kind))
    order = np.random.default_rng(0).permutation(len(truth))
    assert weighted_tau(truth[order], scores[order], kind) == pytest.approx(weighted_tau(truth, scores, kind))


def test_weighted_taus_care_more_for_good_models():
    truth = [5, 4, 3, 2, 1]
    best_swapped, worst_swapped = [4, 5, 3, 2, 1], [5, 4, 3, 1, 2]
    for kind in ("vigna", "itm"):
        assert weighted_tau(truth, best_swapped, kind) < weighted_tau(truth, worst_swapped, kind)
    assert weighted_tau(truth, best_swapped, "kendall") == weighted_tau(truth, worst_swapped, "kendall")


def test_pearson_at_a_large_offset_and_scale():
    truth, scores = CASES[0]
    assert pearson(truth, scores * 1e200) == pytest.approx(pearson(truth, scores))
    assert pearson(truth, scores + 1e6) == pytest.approx(pearson(truth, scores), abs=1e-8)


def test_constant_scores():
    truth = [1.0, 2, 3, 4]
    for value in (weighted_tau(truth, [5] * 4), spearman(truth, [5] * 4), pearson(truth, [0.1] * 4)):
        assert np.isnan(value)
    assert weighted_tau(truth, [5] * 4, "itm") == 0
    assert weighted_tau(truth, [5] * 4, "kendall") == 0
    assert at("regret", truth, [5] * 4) == pytest.approx(1.5)  # as a model drawn by lot
    assert at("recall", truth, [5] * 4, 2) == pytest.approx(0.5)


def test_regret_and_recall():
    truth, scores = [70.0, 90, 80, 60], [4.0, 1, 3, 2]
    assert [at("regret", truth, scores, k) for k in (1, 2, 3, 4)] == [20, 10, 10, 0]
    assert [at("recall", truth, scores, k) for k in (1, 2, 3, 4)] == [0, 0, 0, 1]
    assert at("recall", [90, 90, 80], [1, 3, 2]) == 1  # either of two best ones
    assert [at("rel", truth, scores, k) for k in (1, 2, 3, 4)] == pytest.approx([70 / 90, 80 / 90, 80 / 90, 1])
    assert at("rel", [80.0, 90], [1, 1]) == pytest.approx(85 / 90)
    assert np.isnan(at("rel", [0.0, -1], [2, 1]))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_ties_are_drawn_from(k):
    truth, scores = np.array([3.0, 9, 7, 1, 5]), np.array([2.0, 1, 1, 1, 0])
    sets = []
    for order in itertools.permutations(range(5)):
        top = sorted(order, key=lambda i: -scores[i])[:k]
        sets.append(truth[top].max())
    assert at("regret", truth, scores, k) == pytest.approx(9 - np.mean(sets))
    assert at("recall", truth, scores, k) == pytest.approx(np.mean(np.array(sets) == 9))


def test_agreement_names_every_measure():
    truth, scores = CASES[0]
    found = agreement(truth, scores, n=50)
    assert [one.name for one in found] == list(MEASURES)
    for one in found:
        assert one.n == 12
        assert (one.interval is None) == ("@" in one.name or one.name == "Pearson")  # which takes 20 models
        assert str(one).startswith(one.name)
        assert "12 models" in str(one) or "one set of models is one choice" in str(one)
    values = {one.name: one.value for one in found}
    assert values["weighted tau (ITM)"] == pytest.approx(weighted_tau(truth, scores, "itm"))
    assert values["regret@3"] == pytest.approx(at("regret", truth, scores, 3))
    assert values["rel@3"] == pytest.approx(at("rel", truth, scores, 3))


def test_a_model_drawn_twice_is_no_pair_with_itself():
    truth = np.arange(20.0)
    found = agreement(truth, truth, n=200)
    for one in found[:5]:
        assert one.interval == pytest.approx((1, 1))


def test_the_interval_is_seeded_and_narrows_with_models():
    truth, scores = drawn(5, 12)
    once, again, other = (agreement(truth, scores, n=200, seed=seed) for seed in (0, 0, 1))
    assert once == again != other
    many = agreement(*drawn(5, 120), measures=["Spearman"], n=200)[0].interval
    few = once[3].interval
    assert many[1] - many[0] < few[1] - few[0]


def test_the_interval_holds_the_truth_of_other_zoos():
    def covers(seed):
        low, high = agreement(*drawn(seed, 20), measures=["Pearson"], n=200)[0].interval
        return low <= 0.5**0.5 <= high  # of scores = truth + noise of the same size

    assert sum(covers(seed) for seed in range(100, 160)) >= 50


def test_two_models_have_no_interval():
    found = agreement([1, 2], [3, 4])
    assert all(one.interval is None and one.n == 2 for one in found)
    assert [one.name for one in found if "@" in one.name] == ["regret@1", "recall@1", "rel@1"]
    assert str(Agreement("Spearman", 1.0, None, 2)) == "Spearman 1.000, no interval, 2 models: it takes about 8"


@pytest.mark.parametrize(("name", "least"), FEWEST.items())
def test_too_few_models_have_no_interval(name: str, least: int):
    """Of five models with a correlation of 0.9 a bootstrap holds the tau of other models in 75 %."""
    (few,), (enough,) = (agreement(*drawn(0, n), measures=[name], n=50) for n in (least - 1, least))
    assert few.interval is None and few.kind == f"no interval, {least - 1} models: it takes about {least}"
    assert enough.interval[0] <= enough.value <= enough.interval[1] and enough.kind == "bootstrap over models"


def test_constant_scores_have_no_interval_where_there_is_no_value():
    found = {one.name: one for one in agreement(np.arange(9.0), [0.0] * 9, n=100)}
    assert np.isnan(found["Spearman"].value)
    assert found["Spearman"].interval is None
    assert found["Kendall tau-a"].interval == pytest.approx((0, 0))


def test_by_name():
    truth, scores = {"a": 1.0, "b": 2.0, "c": 3.0}, {"c": 30.0, "a": 10.0, "b": 20.0}
    assert weighted_tau(truth, scores) == pytest.approx(1)
    with pytest.raises(UserError, match="only one of truth and scores: b, d"):
        weighted_tau(truth, {"a": 1.0, "c": 2.0, "d": 3.0})
    with pytest.raises(UserError, match="both by the models' names"):
        weighted_tau(truth, [1, 2, 3])


@pytest.mark.parametrize(
    ("truth", "scores", "said"),
    [
        ([1, 2, 3], [1, 2], "3 models in truth and 2 in scores"),
        ([1], [1], "at least 2 models"),
        ([], [], "at least 2 models"),
        ([1, 2, 3], [1, float("nan"), 3], "scores of model 1 is nan"),
        ([1, float("inf"), 3], [1, 2, 3], "truth of model 1 is inf"),
        ([[1, 2]], [[1, 2]], "must be"),
        (["a", "b"], [1, 2], "truth must be"),
        ([1, 2], [[1], [1, 2]], "scores must be"),
    ],
)
def test_unsound_input(truth, scores, said):
    for call in (weighted_tau, spearman, pearson, agreement):
        with pytest.raises(UserError, match=said):
            call(truth, scores)


def test_unknown_names():
    with pytest.raises(UserError, match="kind='tau' must be one of vigna, itm, kendall"):
        weighted_tau([1, 2], [1, 2], kind="tau")
    with pytest.raises(UserError, match="no measure of agreement 'rho'"):
        agreement([1, 2], [1, 2], measures=["rho"])
    with pytest.raises(UserError, match="n=-1 draws"):
        agreement([1, 2], [1, 2], n=-1)


def test_scores_that_rounding_parts_are_tied() -> None:
    up = 1 + 2.0**-52
    truth, scores = [0.9, 0.8, 0.7, 0.6], [3.0, 2.0, 2.0, 1.0]
    rough = [3.0, 2.0 / up, 2.0 * up, 1.0]
    for measure in MEASURES:
        (exact,), (found,) = (agreement(truth, one, measures=[measure], n=0) for one in (scores, rough))
        assert found.value == exact.value
    assert np.isnan(weighted_tau(truth, [1.0, up, 1.0, up])) and np.isnan(pearson(truth, [1.0, up, 1.0, up]))
    assert at("recall", [0.3, 0.3 * up, 0.1], [2.0, 1.0, 0.0]) == 1
