"""Redrawn scores: their spread is that of other images."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch

from evaluation.features import as_features
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.resampling import Column, half, of_terms, replicates
from evaluation.ranking.scoring import Spec, compute_score, parse
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError


def column(spec: Spec, sample: Sample, number: int = 0) -> Column:
    return Column(spec, (number,), (compute_score(spec, sample),))


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    return np.eye(4, 6)[y] * 1.5 + rng.normal(size=(n, 6)), y


@pytest.mark.parametrize(("name", "n"), [("logme", 200), ("h_score", 200), ("logme", 2000)])
def test_halves_spread_as_new_images_do(name: str, n: int) -> None:
    spec = parse(name)
    fresh = [compute_score(spec, as_sample(*drawn(n, seed))).value for seed in range(60)]
    sample = as_sample(*drawn(n, 0))
    (found,) = replicates([column(spec, sample)], [sample], 200, seed=0)
    assert found.shape == (200, 1)
    assert found.mean() == pytest.approx(compute_score(spec, sample).value)
    assert 0.6 < found.std() / np.std(fresh) < 1.6


def test_a_mean_over_images_is_an_ordinary_bootstrap() -> None:
    terms = np.random.default_rng(0).normal(size=(300, 2))
    found = of_terms(terms, 4000, seed=0)
    assert found.mean(0) == pytest.approx(terms.mean(0), abs=0.01)
    assert found.std(0) == pytest.approx(terms.std(0) / np.sqrt(300), rel=0.05)
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(np.corrcoef(terms.T)[0, 1], abs=0.06)  # the same images


def test_halves_are_of_every_class_and_differ() -> None:
    x, y = drawn(101, 0)
    y[100] = 9
    sample = as_sample(x, y)
    first, second = half(sample, 0, 0), half(sample, 0, 1)
    for rows in (first, second):
        assert torch.bincount(sample.y[rows], minlength=5).tolist() == [12, 12, 12, 12, 1]
        assert len(rows.unique()) == len(rows) and (rows.diff() > 0).all()
    assert first.tolist() != second.tolist() and half(sample, 0, 0).tolist() == first.tolist()


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        sample = as_sample(*drawn(20, 0))
        replicates([column(parse("logme"), sample)], [sample], 3, 0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_none_are_drawn_for_zero() -> None:
    sample = as_sample(*drawn(20, 0))
    (found,) = replicates([column(parse("logme"), sample)], [sample], 0, 0)
    assert found.shape == (0, 1)


def test_what_is_computed_together_is_what_is_computed_alone() -> None:
    x, y = drawn(60, 0)
    samples = [as_sample(x, y), as_sample(x[:, :3], y)]
    specs = [parse("logme"), parse("itm(iterations=5)"), parse("gbc")]
    columns = [Column(spec, (0, 1), tuple(compute_score(spec, sample) for sample in samples)) for spec in specs]
    columns[2] = column(specs[2], samples[1], 1)  # of one model alone
    together = replicates(columns, samples, 7, seed=3)
    for one, found in zip(columns, together, strict=True):
        assert found.shape == (7, len(one.models))
        assert np.array_equal(replicates([one], samples, 7, seed=3)[0], found)
    assert replicates([Column(specs[0], (), ())], samples, 7, seed=3)[0].shape == (0, 0)


def test_halves_that_say_nothing_give_no_interval() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    sample = as_sample(np.eye(3, 60)[y] + rng.normal(size=(90, 60)), y)  # 45 images of 60 features: always C - 1
    (found,) = replicates([column(parse("h_score"), sample)], [sample], 9, 0)
    assert np.isnan(found).all()
    alone = as_sample(rng.normal(size=(5, 3)), list("abcde"))  # of classes of one each, half is all
    (found,) = replicates([column(parse("logme"), alone)], [alone], 9, 0)
    assert np.isnan(found).all()


def test_pairs_are_halved() -> None:
    sample = as_sample(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) // 2)
    assert len(half(sample, 0, 0)) == 10
    (found,) = replicates([column(parse("logme"), sample)], [sample], 9, 0)
    assert found.std() > 0


def test_what_metrics_set_for_the_process_is_set_back() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def state() -> tuple[dict[str, int], list]:
        return {one["filepath"]: one["num_threads"] for one in threadpool_info()}, list(warnings.filters)

    sample = as_sample(*drawn(40, 0))
    columns = [column(parse("gbc"), sample), column(parse("ped(lam=both)+nleep"), sample)]  # loads their libraries
    with threadpool_limits(2), warnings.catch_warnings():
        before = state()
        replicates(columns, [sample], 12, 0)
        assert state() == before


def test_halves_that_a_metric_refuses_give_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = as_sample(*drawn(40, 0))
    columns = [column(parse("gbc"), sample), column(parse("logme"), sample)]

    def refusing(spec: Spec, part: Sample) -> Score:
        if spec.name == "gbc":
            raise UserError("too few images")
        return compute_score(spec, part)

    monkeypatch.setattr("evaluation.ranking.resampling.compute_score", refusing)
    refused, other = replicates(columns, [sample], 5, 0)
    assert np.isnan(refused).all() and np.isfinite(other).all()


def test_a_zoo_s_metric_is_of_the_models_that_it_does_not_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half that one model's metric refuses ends neither the ranking nor the others' intervals."""
    samples = [as_sample(*drawn(40, seed)) for seed in range(3)]
    spec = parse("etran")
    columns = [Column(spec, (0, 1, 2), tuple(compute_score(spec, sample) for sample in samples))]
    refused = []

    def refusing(spec: Spec, part: Sample) -> Score:
        if part.x[0, 0] in samples[1].x[:, 0]:
            refused.append(part)
            raise UserError("too few images")
        return compute_score(spec, part)

    monkeypatch.setattr("evaluation.ranking.resampling.compute_score", refusing)
    (found,) = replicates(columns, samples, 5, 0)
    assert len(refused) == 5 and np.isnan(found[:, 1]).all() and np.isfinite(found[:, [0, 2]]).all()


def test_images_of_one_group_are_drawn_together() -> None:
    """Each image three times, as one group, varies as the images alone do."""
    x, y = drawn(90, 0)
    given = dataclasses.replace(as_features((np.repeat(x, 3, 0), np.repeat(y, 3))), groups=np.repeat(np.arange(90), 3))
    terms = np.random.default_rng(0).normal(size=(90, 2))
    groups = torch.arange(90).repeat_interleave(3)
    assert np.allclose(of_terms(np.repeat(terms, 3, 0), 50, 1, groups), of_terms(terms, 50, 1))
    rows, alone = half(as_sample(given), 0, 0), half(as_sample(x, y), 0, 0)
    assert rows.tolist() == [3 * row + k for row in alone.tolist() for k in range(3)]
