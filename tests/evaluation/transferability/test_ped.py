"""PED against balls that are moved one pair at a time, with all images in hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import evaluation
from evaluation.ranking.inputs.samples import as_sample
from evaluation.transferability import ped
from evaluation.transferability.base import Score
from sslkit import open_images
from sslkit.errors import UserError


def task(n: int = 90, d: int = 6, c: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    return 0.8 * rng.normal(size=(c, d))[y] + rng.normal(size=(n, d)) * (0.5 + rng.random(d)), y


def reference(x: np.ndarray, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=x.shape[1]), 0.5 + rng.random(x.shape[1])


def one_step(z: np.ndarray, y: np.ndarray, lam: float, dt: float, k: float) -> tuple[np.ndarray, float]:
    """(C, D) net moves, and the potential energy before them."""
    classes = range(y.max() + 1)
    centres = [z[y == c].mean(0) for c in classes]
    radii = [lam * math.sqrt(z[y == c].var(0).sum()) for c in classes]
    moves, energy = np.zeros((len(centres), z.shape[1])), 0.0
    for i in classes:
        for j in classes:
            distance = math.sqrt(((centres[i] - centres[j]) ** 2).sum())
            if i == j or distance == 0:
                continue
            overlap = max(radii[i] + radii[j] - distance, 0)
            moves[i] += min(dt**2 / 2 * k * overlap, overlap) * (centres[i] - centres[j]) / distance
            energy += k / 2 * overlap**2
    return moves, energy


def loop(x, y, mean, std, lam=0.6, dt=0.1, k=1.0, exit_ratio=0.5, rule="code", max_steps=None):
    """The moved images, the energies and the steps."""
    z, steps, first, energies = (x - mean) / std, 0, None, []
    for _ in range({"code": 6, "paper": 5}[rule] if max_steps is None else max_steps):
        moves, energy = one_step(z, y, lam, dt, k)
        energies.append(energy)
        change = np.abs(moves).sum()
        first = change if first is None else first
        if first == 0 or (rule == "code" and not change / first > exit_ratio):
            break
        z, steps = z + moves[y], steps + 1
        if not change / first > exit_ratio:
            break
    return z * std + mean, energies, steps


def moved(x, y, ref, **options):
    """The features that the metric behind PED gets, and what PED says of itself."""
    seen = []

    def inner(sample) -> Score:
        seen.append(sample.features.numpy())
        return Score(1.0)

    found = ped.wrapped(as_sample(x, y, reference=ref), inner, **options)
    return seen[-1], found


@pytest.mark.parametrize("rule", ["code", "paper"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lam": 0.3},
        {"lam": 1.5, "dt": 0.5},
        {"dt": 0.4, "exit_ratio": 0.8},
        {"dt": 0.4, "exit_ratio": 0.99},
        {"dt": 3.0, "k": 2.0},
        {"max_steps": 2},
        {"max_steps": 0},
        {"max_steps": 30, "dt": 0.4},
        {"exit_ratio": 1.0},
    ],
)
def test_it_is_the_loop_over_all_pairs(rule: str, options: dict) -> None:
    x, y = task()
    ref = reference(x)
    expected, energies, steps = loop(x, y, *ref, rule=rule, **options)
    features, found = moved(x, y, ref, rule=rule, **options)
    assert np.allclose(features, expected, rtol=0, atol=1e-10)
    assert found.diagnostics["steps"] == steps
    assert len(found.diagnostics["potential_energy"]) == steps + 1
    known = found.diagnostics["potential_energy"][: len(energies)]
    assert np.allclose(known, energies[: len(known)], rtol=1e-9)


def test_the_two_rules_differ_where_the_last_step_fails() -> None:
    x, y = task()
    ref = reference(x)
    ends = {
        rule: moved(x, y, ref, dt=0.4, exit_ratio=0.8, rule=rule)[1].diagnostics["steps"] for rule in ped.MOST_STEPS
    }
    assert 0 < ends["code"] == ends["paper"] - 1
    assert [moved(x, y, ref, rule=rule)[1].diagnostics["steps"] for rule in ("code", "paper")] == [6, 5]


def test_the_energy_declines() -> None:
    x, y = task()
    energies = moved(x, y, reference(x))[1].diagnostics["potential_energy"]
    assert all(a > b > 0 for a, b in pairwise(energies))


def test_no_overlap_is_no_step() -> None:
    x, y = task()
    x = x + 100 * np.eye(6)[y]
    features, found = moved(x, y, reference(x))
    assert found.diagnostics["steps"] == 0 and found.diagnostics["potential_energy"] == (0.0,)
    assert (features == x).all()


def test_coincident_centroids_exert_no_force_on_each_other() -> None:
    rng = np.random.default_rng(0)
    cloud = rng.integers(-8, 8, size=(16, 4)) / 8.0
    x = np.concatenate([cloud, cloud, cloud + np.array([1.0, 0, 0, 0])])
    y = np.repeat(np.arange(3), 16)
    ref = np.zeros(4), np.ones(4)
    features, found = moved(x, y, ref)
    assert found.diagnostics["steps"] > 0
    assert np.allclose(features, loop(x, y, *ref)[0], atol=1e-12)
    assert np.allclose(features[:16], features[16:32], atol=1e-12)
    both, _ = moved(x[:32], y[:32], ref)
    assert (both == x[:32]).all()


def test_columns_that_are_constant_in_the_reference_stay_where_they_are() -> None:
    x, y = task()
    mean, std = reference(x)
    std[2] = 1e-5
    kept = [0, 1, 3, 4, 5]
    features, found = moved(x, y, (mean, std))
    assert found.diagnostics["masked_columns"] == 1
    assert (features[:, 2] == x[:, 2]).all()
    assert np.allclose(features[:, kept], loop(x[:, kept], y, mean[kept], std[kept])[0], atol=1e-10)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_the_moves_are_in_proportion_to_the_features(factor: float) -> None:
    """The authors' least std of 1e-3 would stop classes of small features from moving."""
    x, y = task()
    mean, std = reference(x)
    features, found = moved(x * factor, y, (mean * factor, std * factor))
    expected, plain = moved(x, y, (mean, std))
    assert np.allclose(features, factor * expected, rtol=1e-12, atol=0)
    assert found.diagnostics["steps"] == plain.diagnostics["steps"] > 0


def test_without_a_reference_the_features_are_their_own_and_it_says_so() -> None:
    x, y = task()
    features, found = moved(x, y, None)
    assert np.allclose(features, loop(x, y, x.mean(0), x.std(0))[0], atol=1e-10)
    assert any("no reference" in said for said in found.warnings)
    assert not moved(x, y, reference(x))[1].warnings
    with pytest.raises(UserError, match="0 in each column"):
        moved(np.ones_like(x), y, None)


@pytest.mark.parametrize("d", [6, 150])
@pytest.mark.parametrize("name", ["sfda", "gbc", "h_score", "etran_energy"])
def test_before_another_metric_it_is_that_metric_of_the_moved_images(name: str, d: int) -> None:
    x, y = task(d=d)
    ref = reference(x)
    expected = evaluation.score(name, loop(x, y, *ref)[0], y)
    assert np.isclose(evaluation.score(f"ped+{name}", x, y, reference=ref), expected, rtol=1e-7)


def test_known_scatter_is_not_what_it_sees() -> None:
    """A sample whose scatter another metric has already asked for gives the same score."""
    x, y = task()
    fresh, used = (as_sample(x, y, reference=reference(x)) for _ in range(2))
    assert used.scatter.values.shape == (6,) and used.moments.n == 90
    assert np.isclose(ped.score(fresh).value, ped.score(used).value, rtol=1e-12)


def test_alone_it_is_before_sfda() -> None:
    x, y = task()
    ref = reference(x)
    assert evaluation.score("ped", x, y, reference=ref) == evaluation.score("ped+sfda", x, y, reference=ref)
    assert evaluation.score("ped", x, y, reference=ref) > evaluation.score("sfda", x, y)


def test_both_lams_are_parts_and_a_zoo_gets_the_mean_of_the_ranks() -> None:
    x, y = task()
    ref = reference(x)
    found = evaluation.evaluate_metric("ped+gbc", x, y, reference=ref, lam="both")
    assert math.isnan(found.score)
    for lam in (0.3, 0.6):
        alone = evaluation.score("ped+gbc", x, y, reference=ref, lam=lam)
        assert np.isclose(found.parts[f"lam={lam}"], alone, rtol=1e-12)
        assert found.diagnostics[f"steps (lam={lam})"] >= 0
    parts = [{"lam=0.3": a, "lam=0.6": b} for a, b in [(0.5, 3.0), (0.9, 3.0), (0.7, 1.0)]]
    assert ped.over_zoo(parts) == [-(3 + 1.5) / 2, -(1 + 1.5) / 2, -(2 + 3) / 2]
    with pytest.raises(UserError, match="each model by itself"):
        evaluation.evaluate_metric("ped(lam=both)+etran", x, y, reference=ref)
    close = [{"lam=0.3": value, "lam=0.6": value} for value in (0.5, 0.5 * (1 + 1e-14), 0.7, 0.1)]
    assert ped.over_zoo(close) == [-2.5, -2.5, -1.0, -4.0]  # rounding parts the first two


def test_etran_after_it_keeps_its_parts() -> None:
    x, y = task()
    found = evaluation.evaluate_metric("ped+etran", x, y, reference=reference(x))
    assert set(found.parts) == {"classification", "energy", "energy_weight"}
    assert found.diagnostics["steps"] == 6


@pytest.mark.parametrize("name", ["ped", "ped+gbc"])
def test_what_does_not_change_it(name: str) -> None:
    x, y = task()
    mean, std = reference(x)
    value = evaluation.score(name, x, y, reference=(mean, std))
    order = np.random.default_rng(1).permutation(len(y))
    assert np.isclose(evaluation.score(name, x[order], y[order], reference=(mean, std)), value, rtol=1e-9)
    labels = [f"class {9 - label}" for label in y]
    assert np.isclose(evaluation.score(name, x, labels, reference=(mean, std)), value, rtol=1e-9)
    assert np.isclose(evaluation.score(name, x + 1e3, y, reference=(mean + 1e3, std)), value, rtol=1e-7)


def test_appended_zero_columns_do_not_change_it() -> None:
    x, y = task()
    mean, std = reference(x)
    dead = np.concatenate([x, np.zeros((len(x), 4))], 1)
    padded = np.concatenate([mean, np.zeros(4)]), np.concatenate([std, np.zeros(4)])
    value = evaluation.score("ped", x, y, reference=(mean, std))
    assert np.isclose(evaluation.score("ped", dead, y, reference=padded), value, rtol=1e-7)


def test_many_classes_of_one_or_two_images() -> None:
    x, y = task(n=70, d=3, c=40)
    ref = reference(x)
    features, _ = moved(x, y, ref)
    assert np.allclose(features, loop(x, y, *ref)[0], atol=1e-10)
    alone = np.arange(5)  # no spread, no radius
    assert moved(x[:5], alone, ref)[1].diagnostics["steps"] == 0


def test_on_digits_the_input_stays_and_the_bits_repeat() -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float32(255), np.asarray(images.labels[:300])
    before, ref = x.copy(), (x.mean(0), x.std(0))
    found = [evaluation.evaluate_metric("ped", x, y, reference=ref) for _ in range(2)]
    assert found[0].score == found[1].score and (x == before).all()
    assert found[0].diagnostics["steps"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "text"}, "code or paper"),
        ({"lam": "each"}, "lam must be a number, at least 0, or both, got 'each'"),
        ({"lam": -1.0}, "lam must be a number, at least 0, or both, got -1"),
        ({"dt": -1.0}, "dt must be a number, at least 0"),
        ({"max_steps": -1}, "max_steps"),
        ({"k": math.inf}, "k must be a number, at least 0, got inf"),
        ({"exit_ratio": math.nan}, "exit_ratio"),
    ],
)
def test_options_that_make_no_sense_are_errors(options: dict, said: str) -> None:
    x, y = task()
    with pytest.raises(UserError, match=said):
        evaluation.evaluate_metric("ped+gbc", x, y, reference=reference(x), **options)


def test_the_trajectory_alone() -> None:
    """Two balls on a line, by hand."""
    means = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    path = ped.displacements(means, torch.tensor([1.0, 0.5], dtype=torch.float64), max_steps=1, dt=1.0)
    assert path.steps == 1 and path.changes == (1.0,)
    assert torch.allclose(path.shift, torch.tensor([[-0.25, 0.0], [0.25, 0.0]], dtype=torch.float64))
    assert np.allclose(path.energies, (0.25, 0.0))


def test_metrics_after_the_same_moves_share_what_they_need() -> None:
    x, y = task()
    sample = as_sample(x, y, reference=reference(x))
    seen = []
    for _ in range(2):
        ped.wrapped(sample, lambda moved: seen.append(moved) or Score(0.0), lam=0.9)
    ped.wrapped(sample, lambda moved: seen.append(moved) or Score(0.0), lam=0.4)
    assert seen[0] is seen[1] and seen[0] is not sample and seen[2] is not seen[0]


def test_balls_that_only_rounding_parts_neither_push_nor_touch() -> None:
    rng = np.random.default_rng(0)
    same = torch.from_numpy(5 + rng.normal(size=(1, 2048)) + 1e-9 * rng.normal(size=(3, 2048)))
    overlap, inverse = ped.overlaps(same, torch.ones(3, dtype=torch.float64))
    assert not overlap.any() and not inverse.any()
    line = torch.arange(5, dtype=torch.float64)[:, None] * (torch.ones(1, 300, dtype=torch.float64) / 300**0.5)
    touching, inverse = ped.overlaps(line * 0.3, torch.full((5,), 0.15, dtype=torch.float64))
    assert not touching.any() and (inverse.count_nonzero(1) == 4).all()


def test_without_normalisation_the_reference_has_no_influence() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)) * [1, 1, 1, 9], np.arange(60) % 3
    references = [(np.zeros(4), np.array(std)) for std in ([1.0, 1, 1, 1], [1.0, 1, 1, 9])]
    plain = [evaluation.score("ped(normalise=false)+logme", x, y, reference=one) for one in references]
    normal = [evaluation.score("ped+logme", x, y, reference=one) for one in references]
    assert plain[0] == plain[1] == normal[0] != normal[1]
