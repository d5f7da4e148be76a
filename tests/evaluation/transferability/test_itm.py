import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss, one_hot

import evaluation
import sslkit
from evaluation.ranking.inputs.samples import as_sample
from evaluation.transferability import _implicit, itm
from sslkit.errors import UserError


def clusters(n=200, d=12, c=4, seed=0, noise=1.0):
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % c
    return torch.randn(c, d, generator=rng)[y] + noise * torch.randn(n, d, generator=rng), y


def digits(n=600):
    images = sslkit.open_images("digits", split="train")
    rows = [images[i] for i in range(n)]
    return np.stack([row["images"].numpy().ravel() for row in rows]), np.array([int(row["label"]) for row in rows])


def oracle_loss(theta, x, y, update, d, c, prototypes=None):
    """The loss by autograd, the kernel as a whole B x B matrix and a constant."""
    sizes = [c * d, c, c * c, c]
    weight, bias, head, head_bias = theta.split(sizes)
    u = x @ weight.view(c, d).T + bias
    e = u / u.norm(dim=1, keepdim=True)
    p = one_hot(y, c).to(x.dtype) if prototypes is None else prototypes[y]
    kernel = update.eta / len(x) * (e.detach() @ e.detach().T)
    moved = e
    for _ in range(update.times):
        moved = moved - kernel @ (moved - p)
    loss = cross_entropy(moved @ head.view(c, c).T + head_bias, y)
    return loss + update.centre_weight * mse_loss(moved, p)


@pytest.mark.parametrize(
    "update", [_implicit.Update(), _implicit.Update(0.9, 3), _implicit.Update(0.3, 2, 1.5), _implicit.Update(0.0)]
)
@pytest.mark.parametrize(("d", "c"), [(7, 5), (300, 5), (7, 60)])  # also more classes than rows
def test_gradients_by_hand_are_those_of_autograd(update, d, c, generator):
    x, y = torch.randn(40, d, generator=generator, dtype=torch.float64), torch.arange(40) % c
    probe = _implicit.Probe(d, c, generator, torch.empty(0, dtype=torch.float64))
    theta = probe.vector.clone().requires_grad_()
    oracle_loss(theta, x, y, update, d, c).backward()
    probe.differentiate(x, one_hot(y, c).double(), update)
    torch.testing.assert_close(probe.vector.grad, theta.grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", ["random", "pca", "laplacian"])
def test_gradients_towards_other_prototypes_are_those_of_autograd(kind, generator):
    x, y = torch.randn(40, 7, generator=generator, dtype=torch.float64), torch.arange(40) % 5
    update, drawn = _implicit.Update(0.3, 2, 1.5), _implicit.prototypes(kind, 5, generator)
    probe = _implicit.Probe(7, 5, generator, torch.empty(0, dtype=torch.float64))
    theta = probe.vector.clone().requires_grad_()
    oracle_loss(theta, x, y, update, 7, 5, drawn).backward()
    probe.differentiate(x, one_hot(y, 5).double(), update, drawn[y])
    torch.testing.assert_close(probe.vector.grad, theta.grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("classes", [2, 5, 40])
def test_prototypes_are_unit_vectors_and_orthogonal_where_they_say_so(classes, generator):
    for kind in ("random", "pca", "laplacian"):
        products = (drawn := _implicit.prototypes(kind, classes, generator)) @ drawn.T
        torch.testing.assert_close(products.diagonal(), torch.ones(classes, dtype=torch.float64))
        orthogonal = torch.allclose(products, torch.eye(classes, dtype=torch.float64), atol=1e-9)
        assert orthogonal == (kind != "random")
    assert _implicit.prototypes("one_hot", classes, generator) is None


def test_variants_are_their_settings_and_each_option_counts():
    x, y = clusters(noise=3.0)

    def curve_of(**options):
        found = evaluation.evaluate_metric("itm", x, y, iterations=100, **options)
        return found.diagnostics["cross_entropy_curve"]

    usual = curve_of()
    assert curve_of(variant="code") == curve_of(eta=0.5, centre_weight=0.0) == usual
    assert curve_of(variant="paper") == curve_of(eta="adaptive", centre_weight=1.0) != usual
    for options in ({"standardise": False}, {"batch_size": 64}, {"centres": "pca"}, {"centres": "random"}):
        assert curve_of(**options) != usual, options


def test_training_is_plain_adamw(generator):
    x, y = (part for part in clusters(60, 6, 3))
    parts = _implicit.Parts(x.double(), y, x.double(), y, 3)
    found = None
    for _, probe in _implicit.train(parts, _implicit.Update(), 40, torch.Generator().manual_seed(3), _implicit.BATCH):
        found = probe.vector.clone()
    rng = torch.Generator().manual_seed(3)
    theta = _implicit.Probe(6, 3, rng, torch.empty(0, dtype=torch.float64)).vector.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theta], lr=5e-3, weight_decay=1e-2)
    for step in range(40):
        optimizer.param_groups[0]["lr"] = 5e-3 * (1 - step / 10_000)
        optimizer.zero_grad()
        oracle_loss(theta, x.double(), y, _implicit.Update(), 6, 3).backward()  # one batch: its order does not matter
        optimizer.step()
    torch.testing.assert_close(found, theta.detach(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("times", [1, 3])
def test_held_out_images_move_as_the_training_kernel_says(times, generator):
    x, y = clusters(50, 6, 3)
    x = x.double()
    parts = _implicit.Parts(x[:40], y[:40], x[40:], y[40:], 3)
    probe = _implicit.Probe(6, 3, generator, torch.empty(0, dtype=torch.float64))
    (held, _), (known, _) = probe.embed(x[40:]), probe.embed(x[:40])
    expected, moved = held.clone(), known.clone()
    for _ in range(times):
        residual = moved - one_hot(y[:40], 3)
        expected = expected - 0.5 / 40 * held @ known.T @ residual
        moved = moved - 0.5 / 40 * known @ known.T @ residual
    found = _implicit.held_embedding(probe, parts, _implicit.Update(times=times), "train_kernel", _implicit.BATCH)
    torch.testing.assert_close(found, expected)


def test_only_the_published_check_reads_held_out_labels(generator):
    x, y = clusters(50, 6, 3)
    parts = _implicit.Parts(x[:40], y[:40], x[40:], y[40:], 3)
    changed = _implicit.Parts(parts.x, parts.y, parts.held_x, (parts.held_y + 1) % 3, 3)
    probe = _implicit.Probe(6, 3, generator, torch.empty(0, dtype=torch.float32))
    for way in ("train_kernel", "transductive", "none"):
        found = [
            _implicit.held_embedding(probe, these, _implicit.Update(), way, _implicit.BATCH)
            for these in (parts, changed)
        ]
        assert torch.equal(*found) == (way != "transductive")


def test_training_rows_among_the_held_out_move_as_in_training(generator):
    x, y = clusters(40, 6, 3)
    parts = _implicit.Parts(x, y, x[:10], y[:10], 3)
    probe = _implicit.Probe(6, 3, generator, torch.empty(0, dtype=torch.float32))
    update = _implicit.Update(0.7, 3)
    embedding, _ = probe.embed(x)
    targets = one_hot(y, 3).float()
    expected = targets + update(embedding - targets, embedding)
    found = _implicit.held_embedding(probe, parts, update, "train_kernel", _implicit.BATCH)
    torch.testing.assert_close(found, expected[:10], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("counts", [[10, 10, 10], [5, 1, 40], [2, 2, 2, 2, 2], [3] * 20, [1, 1, 2], [1000, 3, 7]])
def test_the_split_is_stratified(counts, generator):
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    known, held = itm.split(y, generator)
    assert sorted(torch.cat([known, held]).tolist()) == list(range(len(y)))
    assert len(held) == max(round(len(y) / 5), 1)
    left = torch.bincount(y[known], minlength=len(counts))
    assert (left >= 1).all()
    out = torch.tensor(counts) - left
    assert ((out - torch.tensor(counts) / 5).abs() <= 1).all()


def test_only_single_images_cannot_be_divided():
    with pytest.raises(UserError, match="a class with at least 2 images"):
        evaluation.score("itm", torch.randn(3, 4), [0, 1, 2])


def test_tails_join_the_batch_before():
    assert [len(part) for part in _implicit.batches(torch.arange(512 + 31))] == [256, 287]
    assert [len(part) for part in _implicit.batches(torch.arange(512 + 32))] == [256, 256, 32]
    assert [len(part) for part in _implicit.batches(torch.arange(10))] == [10]


def test_score_is_the_mean_of_its_terms_and_the_best_check():
    x, y = clusters(noise=2.0)
    found = evaluation.evaluate_metric("itm", x, y, iterations=250)
    curve = found.diagnostics["accuracy_curve"]
    assert len(curve) == 3
    assert found.score == max(curve) == float(found.details.terms.mean())
    assert len(found.details.terms) == found.diagnostics["held_out"] == 40
    last = evaluation.evaluate_metric("itm", x, y, iterations=250, last=True)
    assert last.score == curve[-1]
    assert last.diagnostics["best_iteration"] == 250


def test_it_orders_features_by_how_well_they_separate():
    scores = [evaluation.score("itm", *clusters(noise=noise), iterations=200) for noise in (0.3, 2.0, 20.0)]
    assert scores[0] == 1.0
    assert scores[0] > scores[1] > scores[2]


def test_digits_are_learnt_and_shuffled_labels_are_not():
    x, y = digits()
    assert evaluation.score("itm", x, y, iterations=200) > 0.85
    shuffled = np.random.default_rng(0).permutation(y)
    assert evaluation.score("itm", x, shuffled, iterations=200) < 0.25


def test_the_seed_gives_the_bits_and_the_input_stays():
    x, y = clusters(noise=2.0)
    before = x.clone()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    runs = [evaluation.evaluate_metric("itm", x, y, seed=seed, iterations=120).diagnostics for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


def curve(x, y, **options):
    return evaluation.evaluate_metric("itm", x, y, iterations=100, **options).diagnostics["cross_entropy"]


def test_invariances():
    x, y = clusters(noise=2.0)
    expected = curve(x, y)
    assert curve(x.double() * 1e-7, y) == pytest.approx(expected, rel=1e-4)
    assert curve(x.double() + 1e3, y) == pytest.approx(expected, rel=1e-4)
    assert curve(torch.cat([x, torch.zeros(len(x), 5), torch.full((len(x), 2), 7.0)], 1), y) == expected
    assert curve(x, [f"class {label}" for label in y.tolist()]) == expected
    assert curve(x, y * 10 - 3) == expected


def test_float32_at_a_large_offset():
    x, y = clusters(noise=2.0)
    assert curve(x + 1e3, y) == pytest.approx(curve(x, y), rel=1e-2)


def test_wide_narrow_and_constant_features():
    x, y = clusters(60, 300, 3)
    assert evaluation.score("itm", x, y, iterations=100) > 0.9
    x, y = clusters(60, 2, 12, noise=0.1)
    assert 0 < evaluation.score("itm", x, y, iterations=100) <= 1
    collapsed = evaluation.score("itm", torch.ones(40, 3), [0] * 30 + [1] * 10, iterations=100)
    assert collapsed == pytest.approx(0.75)


def test_few_held_out_images_are_said():
    x, y = clusters(30, 5, 10)
    assert any("coarse" in said for said in evaluation.evaluate_metric("itm", x, y, iterations=10).warnings)
    assert evaluation.evaluate_metric("itm", *clusters(), iterations=10).warnings == ()


def test_adaptive_eta_follows_the_spread():
    assert itm.adaptive_eta(0.9) == pytest.approx(0.5)
    assert itm.adaptive_eta(0.6) == pytest.approx(0.25)
    assert (itm.adaptive_eta(0.1), itm.adaptive_eta(100.0), itm.adaptive_eta(0.0)) == (0.05, 0.95, 0.05)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3000, 5)), np.arange(3000) % 3
    by_loop = np.mean([np.linalg.norm(row - x[y == label].mean(0)) for row, label in zip(x, y, strict=True)]) / 5**0.5
    assert itm.spread(torch.from_numpy(x), torch.from_numpy(y)) == pytest.approx(by_loop)
    tight, loose = (
        evaluation.evaluate_metric("itm", *clusters(noise=noise), eta="adaptive", iterations=10).diagnostics["eta"]
        for noise in (0.3, 3.0)
    )
    assert tight < loose


def test_the_published_check_knows_the_answers():
    x, y = clusters(noise=4.0)
    ways = {
        way: evaluation.score("itm", x, y, evaluate=way, eta=1.0, iterations=200)
        for way in ("train_kernel", "transductive", "none")
    }
    assert ways["transductive"] >= ways["none"]


def test_repeats_are_averaged():
    x, y = clusters(noise=2.0)
    one = evaluation.evaluate_metric("itm", x, y, iterations=100)
    two = evaluation.evaluate_metric("itm", x, y, iterations=100, repeats=2)
    assert two.details.terms is None
    assert two.diagnostics["held_out"] == 40
    parts = [itm._parts(as_sample(x, y), as_sample(x, y).generator(f"itm {k}")) for k in (0, 1)]
    assert not torch.equal(parts[0].held_x, parts[1].held_x)
    other = 2 * two.score - one.score
    assert other * 40 == pytest.approx(round(other * 40))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"evaluate": "labels"}, "evaluate must be train_kernel, transductive or none, got 'labels'"),
        ({"variant": "press"}, "variant must be code or paper, got 'press'"),
        ({"centres": "cube"}, "centres must be one_hot, random, pca or laplacian, got 'cube'"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"eta": "auto"}, "eta must be a number, at least 0 and at most 1, adaptive, or null, got 'auto'"),
        ({"eta": 1.5}, "at most 1, adaptive, or null, got 1.5"),
        ({"base_spread": -1.0}, "base_spread must be a number, above 0, got -1.0"),
        ({"base_spread": float("nan")}, "base_spread must be a number, above 0, got nan"),
        ({"centre_weight": float("nan")}, "centre_weight must be a number, at least 0, or null, got nan"),
        ({"centre_weight": -0.1}, "centre_weight must be a number, at least 0, or null, got -0.1"),
        ({"iterations": 0}, "iterations must be a whole number, at least 1 and at most 10,000, got 0"),
        ({"iterations": 20_000}, "at least 1 and at most 10,000, got 20000"),
        ({"repeats": 0}, "repeats must be a whole number, at least 1, got 0"),
    ],
)
def test_unsound_options(options, said):
    with pytest.raises(UserError, match=said):
        evaluation.score("itm", *clusters(), **options)


def test_features_too_large_for_its_precision_are_refused_where_they_are_not_standardised() -> None:
    x, y = clusters(noise=0.3)
    with pytest.raises(UserError, match=r"itm\(standardise=false\) takes features below 1e\+15"):
        evaluation.score("itm(standardise=false)", x * 1e20, y)
