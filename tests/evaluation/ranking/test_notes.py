"""Notes on a ranking: what could not be compared or has no interval."""

import numpy as np

import evaluation
from evaluation.features.zoo_members import unlike_sizes


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


def test_few_images_and_few_models_have_no_interval_but_how_many_it_takes() -> None:
    truth = [0.5, 0.6, 0.7]
    few = evaluation.rank(made_up(40, 4), metrics=["logme"], truth=truth, bootstrap=4)
    assert "no intervals of scores and ranks, 40 images: it takes about 100" in few.notes
    assert np.isnan(few.intervals).all() and np.isnan(few.rank_intervals).all()
    assert any(note.endswith("Spearman: no interval, 3 models: it takes about 8") for note in few.notes)
    enough = evaluation.rank(made_up(200, 4), metrics=["logme"], bootstrap=4)
    assert np.isfinite(enough.intervals).all() and not any("interval" in note for note in enough.notes)


def test_exact_copies_are_counted_and_their_votes_not() -> None:
    zoo = made_up(40, 4)
    again = {name: (np.concatenate([x, x[:8]]), np.concatenate([y, y[:8]])) for name, (x, y) in zoo.items()}
    (note,) = [note for note in evaluation.rank(again, metrics=["knn"], bootstrap=0).notes if "copies" in note]
    assert note.startswith("8 of the 48 images are exact copies of others")
    assert not any("copies" in note for note in evaluation.rank(zoo, metrics=["knn"], bootstrap=0).notes)
    ranking = evaluation.rank(again, metrics=["knn"], bootstrap=0)
    assert any("leave-one-out 20-NN on the 48 images of this ranking" in line for line in ranking.explanation)


def test_models_that_see_other_sizes_are_named() -> None:
    assert unlike_sizes({"a": 96, "b": 96}) == ""
    assert unlike_sizes({"a": 224, "b": 96, "c": 224}).endswith("at different sizes: 96 px (b); 224 px (a, c)")
