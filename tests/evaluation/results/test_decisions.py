"""Decisions on results: paired with nulls on the same images, Holm over all, and coins are above no null."""

import numpy as np
import pytest

import evaluation
from evaluation.results.comparison import compare
from evaluation.results.decisions import GUESS, LARGEST, decide, deciding, largest_class
from evaluation.results.measures import right_by_largest
from evaluation.results.p_values import holm
from evaluation.results.result import Result
from evaluation.results.statistics import over_episodes, share
from sslkit.errors import UserError


def result(model: str, right: np.ndarray, largest: np.ndarray | None = None, **more) -> Result:
    about = {"protocol": "linear", "recipe": "", "metric": "top1", "data": "d", "paired_on": "rows"}
    return Result.from_estimate(share(right), model=model, outcomes=right, largest=largest, **about | more)


def first(count: int, n: int = 200) -> np.ndarray:
    return np.arange(n) < count


def test_every_model_is_compared_with_every_null_and_p_is_after_holm_over_all() -> None:
    models, nulls = [result("a", first(90), first(20)), result("b", first(100))], [result("pixels", first(60))]
    decision, pairs = decide([*models, *nulls])
    assert [(pair.a, pair.b) for pair in pairs] == [
        ("a", "b"), ("a", "pixels"), ("a", LARGEST), ("b", "pixels"), ("b", LARGEST)
    ]  # fmt: skip
    always = largest_class(models[0])
    alone = [compare(*two).p for two in ((models[0], models[1]), (models[0], nulls[0]), (models[0], *always))]
    alone += [compare(*two).p for two in ((models[1], nulls[0]), (models[1], *always))]
    assert np.allclose([pair.p_adjusted for pair in pairs], holm(alone))
    assert decision.taken == "b" and str(decision).endswith("and the largest class with 10.0 %")


def test_a_first_that_is_leaky_says_so() -> None:
    leaky = result("a", first(90), first(20), leaky=True)
    assert str(decide([leaky, result("pixels", first(60))])[0]).endswith(
        "; beware: test images were trained on, or chose it"
    )
    assert "beware" not in str(decide([result("a", first(90), first(20))])[0])


def test_nulls_alone_are_compared_with_the_largest_class() -> None:
    decision, _ = decide([result("pixels", first(60), first(20)), result("random:x", first(58))])
    assert decision.taken == "raw pixels" and [other.name for other in decision.tied] == ["random:x"]
    assert evaluation.decide([result("pixels", first(60))])[0].above == []
    with pytest.raises(UserError, match="no result to decide on"):
        decide([])


def test_a_guess_in_episodes_and_the_largest_class_over_seeds_are_nulls() -> None:
    accuracy = np.array([0.5, 0.6, 0.55, 0.65, 0.6, 0.58])
    about = {"recipe": "", "model": "a", "data": "d", "outcomes": accuracy, "paired_on": "rows"}
    episodes = {"protocol": "few_shot", "metric": "episode_accuracy", "details": {"n_way": 5}}
    decision, _ = decide([Result.from_estimate(over_episodes(accuracy), **about, **episodes)])
    assert decision.taken == "a" and [null.name for null in decision.above] == [GUESS]
    seeds = {"protocol": "fine_tune", "metric": "top1", "details": {"largest_class": 0.6}}
    decision, _ = decide([Result.from_estimate(over_episodes(accuracy), **about, **seeds)])
    assert decision.taken == "" and decision.missed[0][0].name == LARGEST


def test_the_largest_class_is_that_of_the_judged_images() -> None:
    assert right_by_largest(np.array([2, 0, 0, 1, -1, -1, -1])).tolist() == [False, True, True, *[False] * 4]


def test_the_best_protocol_of_each_data_set_decides() -> None:
    compared = [("d", "knn"), ("d", "linear"), ("e", "few_shot"), ("e", "knn")]
    assert deciding(compared) == {("d", "linear"), ("e", "knn")}


@pytest.mark.parametrize("models", [1, 3])
def test_models_at_chance_are_called_above_a_null_in_at_most_five_of_a_hundred(models: int) -> None:
    """Labels by coin: models, pixels and the largest class are right of each image with a probability of one half."""
    rng, taken, draws = np.random.default_rng(0), 0, 400
    for _ in range(draws):
        coins = rng.random((models + 2, 150)) < 0.5
        results = [result(f"m{k}", right, coins[-1]) for k, right in enumerate(coins[:models])]
        decision, _ = decide([*results, result("pixels", coins[-2])])
        taken += bool(decision.taken)
    # a model must be above both nulls, so that far fewer than 5 % are; 5 % and three standard errors are 8 %
    assert taken / draws < 0.05
