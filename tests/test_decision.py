"""The decision: what is taken, what is not told apart, what is above nothing; and no other file gives such advice."""

import ast
import math
import re
from pathlib import Path

import numpy as np
import pytest

from sslkit.decision import (
    ADVICE,
    GO_ON,
    LEAVE,
    PRECEDENTS,
    UNDECIDED,
    UNLABELLED,
    Candidate,
    Continuing,
    Decision,
    Difference,
    decide_shares,
)
from sslkit.numerics.paired import Paired

ROOT = Path(__file__).resolve().parents[1]
PIXELS = Candidate("raw pixels", "30.0 %")
# labels of a terminal's line, and a sentence that goes on with a model's name, by which a person would take one
ADVISES = re.compile(r"(take $|take none|use it {2,}|best {2,}|decision {2,})")


def test_a_model_that_is_above_every_null_is_taken() -> None:
    decision = Decision(Candidate("a", "90.0 %"), [Candidate("b")], [Candidate("c"), Candidate("d")], [PIXELS])
    assert decision.taken == "a"
    assert str(decision) == "take a: 90.0 %; not told apart from b; better than c and d; above raw pixels with 30.0 %"


def test_the_cheapest_of_those_that_may_be_as_good_is_named() -> None:
    first, others = Candidate("a", cost=5.0), [Candidate("b", cost=2.0), Candidate("c", cost=1.0), Candidate("d")]
    assert str(Decision(first, others[:1])) == "take a: not told apart from b, which is cheaper"
    assert str(Decision(first, others)).endswith("not told apart from b, c and d, of which c is the cheapest")
    assert "cheap" not in str(Decision(Candidate("a"), others)), "a cost that is not known is compared with none"


@pytest.mark.parametrize("difference", [-0.02, 0.0])
def test_none_is_taken_that_is_not_above_a_null(difference: float) -> None:
    missed = [(PIXELS, Difference(difference, 0.5, 200, 0.1))]
    alone = Decision(Candidate("a", "29.0 %"), missed=missed)
    assert alone.taken == "" and str(alone) == f"take none: a with 29.0 % is not above raw pixels with 30.0 %; {ADVICE}"
    two = Decision(Candidate("a", "29.0 %"), tied=[Candidate("b")], missed=missed)
    assert str(two).startswith("take none: none of 2 models is above raw pixels with 30.0 %")


def test_images_that_are_too_few_are_counted() -> None:
    # 100 images tell 0.1; to tell a fifth of it takes 25 times as many
    decision = Decision(Candidate("a", "32.0 %"), missed=[(PIXELS, Difference(0.02, 0.4, 100, 0.1))])
    told = "is not told apart from raw pixels with 30.0 %: 100 images do not tell 2.0 points, about 2,500 would"
    assert decision.taken == "" and told in str(decision)
    assert Difference(0.02, 0.4).images_to_tell is None and Difference(-0.02, 0.4, 100, 0.1).images_to_tell is None


def test_the_null_that_is_furthest_ahead_is_the_one_that_is_named() -> None:
    missed = [(Candidate("the largest class"), Difference(0.01, 0.6)), (PIXELS, Difference(-0.1, 0.01))]
    assert "is not above raw pixels" in str(Decision(Candidate("a"), missed=missed))


def test_a_measure_beside_a_better_one_takes_nothing() -> None:
    decision = Decision(Candidate("a", "90.0 %"), decides=False, missed=[(PIXELS, Difference(-0.1, 0.01))])
    assert decision.taken == "" and str(decision) == "a is first: 90.0 %"


def test_a_measure_without_labels_takes_nothing_and_says_what_is_above_what() -> None:
    missed = [(Candidate("random:a", "40.0 %"), Difference(0.01, 0.5))]
    alone = Decision(Candidate("a", "41.0 %"), above=[PIXELS], missed=missed, decides=False, has_labels=False)
    above = "above raw pixels with 30.0 %; not above random:a with 40.0 %"
    assert alone.taken == "" and str(alone) == f"a: 41.0 %; {above}; {UNLABELLED}"
    two = Decision(Candidate("a", "41.0 %"), [Candidate("b")], decides=False, has_labels=False)
    assert str(two) == f"a is first: 41.0 %; not told apart from b; {UNLABELLED}"


def test_a_worse_model_is_above_nothing_and_p_alone_is_not_enough() -> None:
    assert Difference(0.1, 0.049).is_above
    assert not any(Difference(*pair).is_above for pair in ((-0.1, 0.001), (0.1, 0.05), (0.0, 0.0), (math.nan, 0.0)))


def test_shares_decide_as_results_do() -> None:
    nulls = {"raw pixels": 0.7, "its start": 0.4}
    decision = decide_shares({"b": 0.7, "a": 0.8, "c": 0.79}, 400, nulls)
    above = "above raw pixels with 70.0 % and its start with 40.0 %"
    assert str(decision) == f"take a: 80.0 % (75.8 to 83.6); not told apart from c; better than b; {above}"
    missed = str(decide_shares({"a": 0.8}, 400, {"raw pixels": 0.79}))
    assert missed.startswith("take none: a with 80.0 % (75.8 to 83.6) is not told apart from raw pixels with 79.0 %")


def test_unpaired_shares_of_the_same_worth_are_called_different_in_at_most_five_of_a_hundred() -> None:
    rng = np.random.default_rng(0)
    drawn = [Difference.of_shares(*(rng.binomial(200, 0.6, 2) / 200), 200, 1).p < 0.05 for _ in range(2000)]
    assert 0.03 < np.mean(drawn) < 0.065
    assert Difference.of_shares(0.5, 0.5, 10, 3).p == 1.0 == Difference.of_shares(1.0, 1.0, 10, 1).p
    assert Difference.of_shares(1.0, 0.0, 10, 1).p == 0.0


@pytest.mark.parametrize(
    ("uniformity", "lead", "cases"),
    [(-0.5, GO_ON, "27 of 27"), (-1.4, GO_ON, "27 of 27"), (-2.0, UNDECIDED, "5 of 11"), (-3.5, LEAVE, "1 of 7")],
)
def test_whether_to_go_on_is_told_by_what_became_of_like_features(uniformity: float, lead: str, cases: str) -> None:
    told = Continuing(uniformity, is_vit=True, images=5000)
    assert told.lead == lead and f"{lead}: kNN rose in {cases} cases" in str(told) and "15 sets" in str(told)
    assert "fine-tuned accuracy fell" in str(told) and "diet" not in str(told)
    assert sum(precedent.cases for precedent in PRECEDENTS) == 45  # 15 sets by three networks


def test_of_other_networks_a_pilot_alone_tells_and_few_images_are_named() -> None:
    told = Continuing(-0.5, is_vit=False, images=900)
    assert told.lead == UNDECIDED and "before a pilot" in str(told) and "of 900 images, diet was the best" in str(told)


@pytest.mark.parametrize(
    ("ends", "has_labels", "lead"),
    [
        ({"kNN": (0.01, 0.03), "quick probe": (-0.01, 0.02)}, True, GO_ON),
        ({"kNN": (-0.01, 0.03)}, True, UNDECIDED),
        ({"kNN": (0.01, 0.03), "quick probe": (-0.04, -0.01)}, True, LEAVE),
        ({"other view found": (0.01, 0.03)}, False, UNDECIDED),
        ({"other view found": (-0.03, -0.01)}, False, LEAVE),
    ],
)
def test_a_pilot_decides_by_its_intervals(ends: dict, has_labels: bool, lead: str) -> None:
    gains = {name: Paired(sum(pair) / 2, *pair, 400, 400) for name, pair in ends.items()}
    told = Continuing(-0.5, True, 5000, gains, has_labels)
    assert told.lead == lead and all(f"{name} {gain}" in str(told) for name, gain in gains.items())
    assert (UNLABELLED in str(told)) == (not has_labels)


def _texts(tree: ast.AST) -> list[str]:
    """The strings of a file that are neither docstrings nor part of an error, whose remedy may say what to take."""
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and "Error" in ast.unparse(node.func)):
            left_out |= {id(inner) for inner in ast.walk(node)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node.value for node in strings if id(node) not in left_out]


def test_advice_stands_in_one_module() -> None:
    files = [file for folder in ("sslkit", "evaluation", "recipes") for file in (ROOT / folder).rglob("*.py")]
    advising = {
        str(file.relative_to(ROOT))
        for file in files
        if any(map(ADVISES.match, _texts(ast.parse(file.read_text(encoding="utf-8")))))
    }
    assert len(files) > 500 and advising == {"sslkit/decision.py"}
