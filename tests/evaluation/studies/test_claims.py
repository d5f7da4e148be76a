import numpy as np
import pytest
from scipy import stats

from evaluation.results.statistics import Estimate
from evaluation.studies.claims import AGREES, DISAGREES, OPEN, Claim, evaluate_claims, outcome


def rows(**values: list[float]) -> dict[str, dict[str, float]]:
    return {f"{name} | {seed}": {"top-1": one} for name, row in values.items() for seed, one in enumerate(row)}


def told(claim: Claim, found: dict, published: dict | None = None) -> tuple[str, str]:
    return evaluate_claims([claim], found, published or {}, {"top-1": "fraction"})[:2]


def test_a_difference_over_seeds_has_students_interval() -> None:
    plain, added = [0.70, 0.72, 0.71], [0.75, 0.78, 0.77]
    one, sentence = told(Claim("more", "top-1", (("dsa", "plain"),)), rows(plain=plain, dsa=added))
    differences = np.subtract(added, plain)
    low, high = stats.t.interval(0.95, 2, differences.mean(), stats.sem(differences))
    assert one == AGREES
    assert f"{100 * differences.mean():+.2g} points ({100 * low:+.2g} to {100 * high:+.2g}) over 3 seeds" in sentence


def test_only_seeds_that_both_rows_have_are_compared() -> None:
    found = rows(plain=[0.7, 0.7, 0.7], dsa=[0.8, 0.8])
    assert "over 2 seeds" in told(Claim("more", "top-1", (("dsa", "plain"),)), found)[1]


def test_a_mean_of_two_pairs_says_what_each_of_them_does() -> None:
    found = rows(a=[0.5, 0.5, 0.5], b=[0.5, 0.5, 0.5], a_dsa=[0.7, 0.69, 0.71], b_dsa=[0.52, 0.48, 0.5])
    sentence = told(Claim("more", "top-1", (("a_dsa", "a"), ("b_dsa", "b"))), found)[1]
    assert (
        "+10 points (+6.7 to +13) over 3 seeds (a_dsa: +20 points (+18 to +22), b_dsa: +0 points (-5 to +5))"
        in sentence
    )
    both = told(Claim("more", "top-1", (("a_dsa", "a"), ("a_dsa", "b"))), found)[1]
    assert "(a_dsa over a: +20 points (+18 to +22), a_dsa over b: +20 points (+18 to +22))" in both
    assert "over 3 seeds" in (one := told(Claim("more", "top-1", (("a_dsa", "a"),)), found)[1]) and "a_dsa:" not in one


def test_three_pairs_or_more_are_the_sample() -> None:
    found = rows(a=[0.5, 0.5], b=[0.5, 0.5], c=[0.5, 0.5], d=[0.4, 0.6])
    pairs = (("a", "d"), ("b", "d"), ("c", "d"))
    assert "+0 points (+0 to +0) over 3 rows" in told(Claim("more", "top-1", pairs), found)[1]


def test_settings_of_a_metric_on_the_same_data_sets_are_no_sample() -> None:
    found = rows(a=[0.5, 0.5], b=[0.5, 0.5], c=[0.5, 0.5], d=[0.4, 0.6])
    claim = Claim("more", "top-1", (("a", "d"), ("b", "d"), ("c", "d")))
    one, sentence, _ = evaluate_claims([claim], found, {}, {"top-1": "fraction"}, over="data sets")
    assert one == OPEN and "over 2 data sets" in sentence


def test_the_interval_of_a_difference_may_go_below_0() -> None:
    sentence = told(Claim("more", "top-1", (("dsa", "plain"),)), rows(plain=[0.1, 0.1], dsa=[0.2, 0.5]))[1]
    assert "(-1.7e+02 to" in sentence


def test_the_papers_difference_stands_beside_ours() -> None:
    published = {"dsa": {"top-1": 72.09}, "plain": {"top-1": 70.15}}
    claim = Claim("more", "top-1", (("dsa", "plain"),))
    assert told(claim, rows(plain=[0.1, 0.2], dsa=[0.2, 0.3]), published)[1].endswith("in the paper +1.94")


@pytest.mark.parametrize(
    ("interval", "sign", "expected"),
    [
        ((0.1, 0.3), 1, AGREES),
        ((0.1, 0.3), -1, DISAGREES),
        ((-0.3, -0.1), -1, AGREES),
        ((-0.1, 0.3), 1, OPEN),
        (None, 1, OPEN),
        ((-0.005, 0.004), 0, AGREES),
        ((-0.02, 0.004), 0, OPEN),
        ((0.005, 0.03), 0, OPEN),
        ((0.02, 0.04), 0, DISAGREES),
        ((-0.04, -0.02), 0, DISAGREES),
    ],
)
def test_outcomes(interval: tuple[float, float] | None, sign: int, expected: str) -> None:
    value = 0.2 if interval is None else sum(interval) / 2
    assert outcome(Estimate(value, interval), sign) == expected


def test_the_worst_outcome_is_that_of_all_and_nothing_measured_is_open() -> None:
    found = rows(plain=[0.70, 0.72, 0.71], dsa=[0.75, 0.78, 0.77])
    pair, back = (("dsa", "plain"),), (("plain", "dsa"),)
    unknown = Claim("x", "top-1", (("none", "plain"),))
    units = {"top-1": "fraction"}
    assert evaluate_claims([Claim("a", "top-1", pair), Claim("b", "top-1", back)], found, {}, units)[0] == DISAGREES
    assert evaluate_claims([Claim("a", "top-1", pair), unknown], found, {}, units)[0] == OPEN
    assert "not measured" in evaluate_claims([unknown], found, {}, units)[1]


def test_findings_are_those_that_say_a_difference_and_have_an_interval() -> None:
    found = rows(plain=[0.70, 0.72, 0.71], dsa=[0.75, 0.78, 0.77], alone=[0.9])
    pairs = [(("dsa", "plain"),), (("plain", "dsa"),), (("alone", "plain"),), (("none", "plain"),)]
    claims = [Claim("x", "top-1", pair) for pair in pairs] + [Claim("no difference", "top-1", pairs[0], sign=0)]
    assert evaluate_claims(claims, found, {}, {"top-1": "fraction"})[2] == (AGREES, DISAGREES)
