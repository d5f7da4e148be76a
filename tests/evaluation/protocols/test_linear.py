"""The linear probe on digits, against scikit-learn's scaler and solver; what it chooses by, row order, bad input."""

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.preprocessing import StandardScaler, normalize

from evaluation import protocols
from evaluation.features import as_features
from evaluation.learners.linear_heads import Grid
from evaluation.learners.linear_parts import Part
from evaluation.protocols import _linear_options, linear
from evaluation.protocols.linear import STRENGTHS, linear_probe
from evaluation.results.measures import map11
from evaluation.results.result import Result, rows_digest
from sslkit.data.held_out import held_out
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.runtime.context import Runtime

X, Y = load_digits(return_X_y=True)
X = X.astype(np.float32)
TRAIN, TEST = (X[:500], Y[:500]), (X[500:1000], Y[500:1000])


def oracle(x: np.ndarray, y: np.ndarray, c: float) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it must converge
        return LogisticRegression(C=c, tol=1e-7, max_iter=20000).fit(x, y)


@pytest.fixture(scope="module")
def probed() -> Result:
    return linear_probe(TRAIN, TEST)


FEW = STRENGTHS[::4]  # from the first to the last


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the strengths, for what is the same of all of them."""
    monkeypatch.setattr(linear, "STRENGTHS", FEW)


@pytest.fixture(scope="module")
def probed_by_few() -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "STRENGTHS", FEW)
        return linear_probe(TRAIN, TEST)


def test_the_number_is_that_of_scikit_learn(probed) -> None:
    scaler = StandardScaler().fit(TRAIN[0])
    model = oracle(scaler.transform(TRAIN[0]), TRAIN[1], probed.details["c"])
    right = model.predict(scaler.transform(TEST[0])) == TEST[1]
    assert (probed.outcomes == right).mean() > 0.995
    assert probed.value == probed.outcomes.mean() and probed.converged is True
    assert probed.interval[0] < probed.value < probed.interval[1] and probed.kind == "wilson over images"
    others = {name: other.value for name, other in probed.others.items()}
    assert others["top5"] >= probed.value and others["mean_per_class"] == pytest.approx(probed.value, abs=0.02)


def test_the_strength_is_chosen_on_held_out_rows(probed) -> None:
    ids = as_features(TRAIN).ids
    mask = held_out(TRAIN[1], ids, 0.2, seed=0)
    scaler = StandardScaler().fit(TRAIN[0][~mask])
    tried = probed.details["tried"]
    assert [one["c"] for one in tried] == sorted(one["c"] for one in tried)
    at = {round(4 * np.log10(one["c"])): one for one in tried}  # quarters of a power of 10
    assert STRENGTHS[[0, -1]] == pytest.approx([1e-5, 1e6]) and set(range(-20, 1, 4)) <= at.keys()
    for quarter in (-12, -4, 0):
        model = oracle(scaler.transform(TRAIN[0][~mask]), TRAIN[1][~mask], at[quarter]["c"])
        want = model.score(scaler.transform(TRAIN[0][mask]), TRAIN[1][mask])
        assert at[quarter]["value"] == pytest.approx(want, abs=1.01 / mask.sum())
    best = max(one["value"] for one in tried)
    tied = [one for one in tried if one["value"] == best]
    assert len(tied) > 1 and probed.details["c"] == min(tied, key=lambda one: one["loss"])["c"] != tied[0]["c"]
    model = oracle(scaler.transform(TRAIN[0][~mask]), TRAIN[1][~mask], at[-4]["c"])
    want = log_loss(TRAIN[1][mask], model.predict_proba(scaler.transform(TRAIN[0][mask])))
    assert at[-4]["loss"] == pytest.approx(want, rel=1e-2)
    assert probed.details["chosen_by"] == "held-out train" and probed.seeds == [0] and not probed.leaky


def test_the_result_is_complete(probed) -> None:
    train, test = as_features(TRAIN), as_features(TEST)
    assert probed.protocol == "linear" and probed.recipe == "lbfgs on frozen features, standardized"
    assert probed.digests == {"train": train.digest, "test": test.digest}
    assert probed.paired_on == rows_digest(test.ids, test.y)
    assert Result.from_json(probed.to_json()).details == json.loads(json.dumps(probed.details))


def test_row_order_changes_nothing(few, probed_by_few) -> None:
    rng = np.random.default_rng(0)
    one, two = rng.permutation(500), rng.permutation(500)
    shuffled = linear_probe((TRAIN[0][one], TRAIN[1][one]), (TEST[0][two], TEST[1][two]))
    assert shuffled.value == probed_by_few.value and shuffled.details["objective"] == probed_by_few.details["objective"]
    assert np.array_equal(shuffled.outcomes, probed_by_few.outcomes[two])


def test_what_is_chosen_by(few, probed_by_few) -> None:
    val = (X[1000:1200], Y[1000:1200])
    by_val = linear_probe(TRAIN, TEST, val=val, seed=5)
    assert by_val.details["chosen_by"] == "val" and by_val.seeds == [] and not by_val.leaky
    assert by_val.details["rows"] == 700 and set(by_val.digests) == {"train", "test", "val"}
    by_test = linear_probe(TRAIN, TEST, select="test")
    assert by_test.leaky and by_test.details["chosen_by"] == "test"
    assert max(one["value"] for one in by_test.details["tried"]) >= probed_by_few.value
    given = linear_probe(TRAIN, TEST, c=probed_by_few.details["c"])
    assert np.array_equal(given.outcomes, probed_by_few.outcomes) and given.details["tried"] == [] and given.seeds == []
    assert linear_probe(TRAIN, TEST, val=TEST, c=1.0).leaky


def test_a_seed_changes_what_is_held_out_alone(few, probed_by_few) -> None:
    other = linear_probe(TRAIN, TEST, seed=1)
    assert [one["value"] for one in other.details["tried"]] != [one["value"] for one in probed_by_few.details["tried"]]
    assert linear_probe(TRAIN, TEST, seed=1, c=0.1).value == linear_probe(TRAIN, TEST, seed=0, c=0.1).value


def test_images_of_one_group_are_held_out_together(few) -> None:
    groups = np.arange(500) // 2  # two images of one thing, which a split of images would leak
    doubled = (np.repeat(X[:250], 2, axis=0) + np.arange(500)[:, None] % 2 * 1e-3, np.repeat(Y[:250], 2))
    apart = linear_probe(replace(as_features(doubled), groups=groups), TEST)
    together = linear_probe(as_features(doubled), TEST)
    assert together.details["tried"][-1]["value"] == 1.0 > apart.details["tried"][-1]["value"]


@pytest.mark.parametrize("scale", ["l2", "none"])
def test_scales(scale: str) -> None:
    result = linear_probe(TRAIN, TEST, scale=scale, c=0.5)
    learn, judged = (normalize(x) if scale == "l2" else x for x in (TRAIN[0], TEST[0]))
    right = oracle(learn.astype(np.float64), TRAIN[1], 0.5).predict(judged) == TEST[1]
    assert result.details["scale"] == scale and (result.outcomes == right).mean() > 0.995


def test_the_metric_is_the_test_sets() -> None:
    kept = (TEST[1] > 5) | (np.arange(500) % 4 == 0)
    test = replace(as_features((TEST[0][kept], TEST[1][kept])), metric="mean_per_class", model="m", data="d")
    result = linear_probe(TRAIN, test, c=0.1)
    recalls = [result.outcomes[test.y == k].mean() for k in range(10)]
    assert result.metric == "mean_per_class" and (result.model, result.data) == ("m", "d")
    assert result.value == pytest.approx(np.mean(recalls)) != result.others["top1"].value
    guess = np.where(result.outcomes, test.y, (test.y + 1) % 10)
    assert result.value == pytest.approx(balanced_accuracy_score(test.y, guess))


def test_several_labels_an_image(few) -> None:
    def labels(y: np.ndarray) -> np.ndarray:
        return np.stack([np.where(y % 2 == 0, 1, -1), np.where(y > 6, 1, -1), np.where(y == 3, 1, -1)], 1)

    some = labels(TRAIN[1])
    some[::7, 1] = 0
    result = linear_probe((TRAIN[0], some), (TEST[0], labels(TEST[1])))
    assert result.metric == "map11" and result.converged and result.outcomes is None and result.paired_on == ""
    scaler, scores = StandardScaler().fit(TRAIN[0]), []
    for k in range(3):
        rows = some[:, k] != 0
        model = oracle(scaler.transform(TRAIN[0][rows]), some[rows, k], result.details["c"])
        scores.append(model.decision_function(scaler.transform(TEST[0])))
    assert result.value == pytest.approx(map11(np.stack(scores, 1), labels(TEST[1])), abs=1e-3)
    assert linear_probe((TRAIN[0], some), (TEST[0], labels(TEST[1])), grid={"iterations": 60}).value > 0.8


def test_names_as_labels_and_classes_that_only_train_has() -> None:
    names = np.array([f"digit {y}" for y in Y])
    seen = np.flatnonzero(TEST[1] > 4) + 500
    result = linear_probe((X[:500], names[:500]), (X[seen], names[seen]), c=0.1)
    assert np.array_equal(result.outcomes, linear_probe(TRAIN, TEST, c=0.1).outcomes[seen - 500])
    gaps = linear_probe((X[:500], Y[:500] * 10 + 5), (X[seen], Y[seen] * 10 + 5), c=0.1)
    assert np.array_equal(gaps.outcomes, result.outcomes)


def test_as_a_protocol_of_a_subject(few, probed_by_few) -> None:
    pixels = SimpleNamespace(train=lambda runtime: as_features(TRAIN), test=lambda runtime: as_features(TEST))

    def run(**options):
        return protocol.run(pixels, protocol.Options(**options), Runtime())

    protocol = protocols.find("linear")
    assert np.array_equal(run()[0].outcomes, probed_by_few.outcomes)
    options = members.check_options(protocol.Options, {"c": 1, "scale": "l2"}, "linear")
    assert run(**options)[0].details["c"] == 1.0
    assert run(recipe="grid", grid={"iterations": 7})[0].details["iterations"] == 7
    for options, message in (
        ({"recipe": "simclr90", "c": 1.0}, "only epochs"),
        ({"epochs": 3}, "epochs=3 is an option of simclr90"),
    ):
        with pytest.raises(UserError, match=message):
            run(**options)


def test_the_grid(tmp_path) -> None:
    np.save(tmp_path / "x.npy", TRAIN[0])
    train = replace(as_features(TRAIN), x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    grid = {"learning_rates": (1e-4, 0.01, 0.1), "weight_decays": (0.0, 1e-3), "iterations": 150, "batch_size": 128}
    result = linear_probe(train, TEST, grid=grid)
    assert result.recipe == "grid on frozen features, standardized" and result.converged is None and result.value > 0.85
    tried, best = result.details["tried"], result.details
    assert len(tried) == 6 and best["rows"] == pytest.approx(450, abs=5) and result.seeds == [0]
    top = max(tried, key=lambda one: one["value"])
    assert top == {name: best[name] for name in ("lr", "weight_decay")} | {"value": top["value"]}
    order = np.random.default_rng(0).permutation(500)
    again = linear_probe((TRAIN[0][order], TRAIN[1][order]), TEST, grid=grid)
    assert np.array_equal(again.outcomes, result.outcomes)
    assert linear_probe(train, TEST, grid=grid, select="test").leaky


def test_auto_takes_the_grid_for_many_rows(few, monkeypatch) -> None:
    monkeypatch.setattr(_linear_options, "MANY", 500)
    monkeypatch.setattr(_linear_options, "Grid", lambda: Grid(iterations=5))
    assert linear_probe(TRAIN, TEST).recipe.startswith("grid")
    assert linear_probe(TRAIN, TEST, c=1.0).recipe.startswith("lbfgs")
    monkeypatch.setattr(_linear_options, "MANY", 501)
    assert linear_probe(TRAIN, TEST).recipe.startswith("lbfgs")


def test_converged_is_honest() -> None:
    result = linear_probe(TRAIN, TEST, c=1e3, max_iter=3)
    assert result.converged is False and result.details["n_iter"] == 3 and result.details["gap"] > 1e-6


def test_no_global_random_numbers() -> None:
    np.random.seed(3)
    torch.manual_seed(3)
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()
    linear_probe(TRAIN, TEST, c=1.0)
    linear_probe(TRAIN, TEST, grid={"iterations": 3})
    assert np.array_equal(before, np.random.get_state()[1]) and torch.equal(torch_before, torch.get_rng_state())


def test_bad_input(few) -> None:
    broken = TRAIN[0].copy()
    broken[3] = np.nan
    bad = [
        ((broken, TRAIN[1]), TEST, {}, "train: features are NaN"),
        ((np.ones((9, 4)), np.arange(9) % 3), TEST, {}, "all 9 rows of features are equal"),
        ((TRAIN[0], np.where(TRAIN[1] == 3, -1, TRAIN[1])), TEST, {}, "labels are -1"),
        ((X[Y == 1], Y[Y == 1]), (X[Y == 1], Y[Y == 1]), {}, "two classes.* 1 only"),
        ((X[:500][TRAIN[1] < 9], TRAIN[1][TRAIN[1] < 9]), TEST, {}, "train has no image of: 9"),
        ((X[:10], np.arange(10)), TEST, {}, "one of each class.*give val, or the strength c"),
        (TRAIN, TEST, {"recipe": "lbgfs"}, "recipe must be auto, .*, got 'lbgfs': did you mean 'lbfgs'"),
        (TRAIN, TEST, {"recipe": "simclr90"}, r"simclr90.*evaluation\.linear_on_views"),
        (TRAIN, TEST, {"select": "tset"}, "select must be held_out or test, got 'tset': did you mean 'test'"),
        (TRAIN, TEST, {"scale": "l1"}, "scale must be .*l2"),
        (TRAIN, TEST, {"c": 1.0, "recipe": "grid"}, "c=1: options of recipe=lbfgs"),
        (TRAIN, TEST, {"tol": 1e-3, "max_iter": 9, "grid": {}, "recipe": "grid"}, "tol=0.001 and max_iter=9: opt"),
        (TRAIN, TEST, {"grid": {}, "recipe": "lbfgs"}, "grid="),
        (TRAIN, TEST, {"grid": {"iteration": 3}}, "no setting 'grid.iteration': did you mean 'iterations'"),
        (TRAIN, TEST, {"grid": {"iterations": 0}}, "iterations=0 must be at least 1"),
        (TRAIN, TEST, {"c": 0}, "c must be a number, above 0"),
        (
            TRAIN,
            TEST,
            {"grid": {"learning_rates": [1e30], "weight_decays": [1.0], "iterations": 30}},
            "every head of the grid diverged",
        ),
        (TRAIN, TEST, {"device": "cuda"}, "no GPU"),
        (TRAIN, TEST, {"c": "x"}, "c must be"),
        (TRAIN, TEST, {"seed": 1.5}, "seed must be a whole number, .*, got 1.5"),
        (TRAIN, TEST, {"max_iter": "a"}, "max_iter must be a whole number, .*, got 'a'"),
    ]
    for train, test, options, message in bad:
        with pytest.raises(UserError, match=message):
            linear_probe(train, test, **options)
    lone = (np.concatenate([X[:500], X[1700:1701]]), np.append(Y[:500], 77))  # a class of one image stays in train
    assert linear_probe(lone, TEST).value > 0.85


def test_equal_strengths_of_a_small_separable_set_do_not_underfit() -> None:
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(3, 20)), np.repeat(np.arange(3), [20, 10, 6])
    train = centres[y] * 3 + rng.normal(size=(36, 20))
    tested = np.repeat(np.arange(3), 30)
    test = centres[tested] * 3 + rng.normal(size=(90, 20))
    chosen, given = linear_probe((train, y), (test, tested)), linear_probe((train, y), (test, tested), c=1.0)
    assert given.value == 1.0 and chosen.value == 1.0


def test_equal_heads_of_a_grid_are_told_apart_by_their_loss() -> None:
    x = np.repeat(np.eye(3, dtype=np.float32), 30, axis=0)
    x += np.random.default_rng(0).normal(size=x.shape).astype(np.float32) * 0.01
    y = np.repeat(np.arange(3), 30)
    grid = {"learning_rates": (1e-3, 1e-2, 1e-1), "iterations": 30, "batch_size": 32}
    found = linear_probe((x, y), (x + 0.001, y), grid=grid)
    assert [one["value"] for one in found.details["tried"]] == [1.0] * 3 and found.details["lr"] == 0.1


def test_the_loss_is_what_the_metric_weighs() -> None:
    scores, y = np.random.default_rng(0).normal(size=(30, 3)), np.repeat(np.arange(3), [20, 8, 2])
    own = -np.log(np.exp(scores) / np.exp(scores).sum(1, keepdims=True))[np.arange(30), y]
    part = Part(scores, np.arange(30), y)
    assert part.loss(scores, "top1") == pytest.approx(own.mean())
    assert part.loss(scores, "mean_per_class") == pytest.approx(np.mean([own[y == k].mean() for k in range(3)]))
    many = np.where(y[:, None] == np.arange(3), 1, -1).astype(np.int8)
    many[:5, 0] = 0
    binary = [np.log1p(np.exp(-s * label)) for s, label in zip(scores.ravel(), many.ravel(), strict=True) if label]
    assert Part(scores, np.arange(30), many).loss(scores, "map11") == pytest.approx(np.mean(binary))


def test_one_test_image_of_each_class_and_a_seed_of_numpy() -> None:
    rows = np.array([500 + np.flatnonzero(TEST[1] == k)[0] for k in range(10)])
    result = linear_probe(TRAIN, (X[rows], Y[rows]), grid={"iterations": 5}, seed=np.int64(3))
    assert result.others["mean_per_class"].interval == pytest.approx(result.interval, abs=0.03)
    assert json.loads(result.to_json())["seeds"] == [3]
