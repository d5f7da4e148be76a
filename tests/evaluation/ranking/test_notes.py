"""Notes on a ranking: what could not be compared or has no interval."""

import numpy as np

import evaluation


def made_up(images: int, classes: int, models: int = 3) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {f"m{k}": (rng.normal(size=(images, 6)), np.arange(images) % classes) for k in range(models)}


def test_a_truth_of_one_accuracy_is_no_comparison() -> None:
    ranking = evaluation.rank(made_up(40, 4), metrics=["logme"], truth=[0.7, 0.7, 0.7], bootstrap=0)
    assert ranking.agreement == {}
    assert "logme: no agreement with the truth: all models have the same accuracy" in ranking.notes


def test_a_metric_without_a_score_on_half_of_the_images_has_a_note() -> None:
    few, enough = made_up(20, 4), made_up(200, 4)
    note = "tmi: no intervals and no ties, as it has no score on half of the images"
    ranking = evaluation.rank(few, metrics=["tmi"], bootstrap=4)
    assert np.isfinite(ranking.scores).all() and note in ranking.notes
    assert note not in evaluation.rank(few, metrics=["tmi"], bootstrap=0).notes
    assert note not in evaluation.rank(enough, metrics=["tmi"], bootstrap=4).notes
