"""Gradients of several batches for one optimiser step: their mean, also where an epoch ends in the middle."""

import csv
from types import SimpleNamespace

import pytest
import torch
from contract import build
from torch import Tensor, nn
from torch.utils.data import DataLoader

import sslkit
from sslkit.composition.method import Method
from sslkit.runtime.loop import Hook, Loop
from sslkit.training.config import Config
from sslkit.training.pretrain import make_loop
from sslkit.training.step import Pretraining, Progress

ROWS = 8  # of a batch
GROUPS = {(4, 2): [2, 2], (3, 4): [3, 1, 3, 1], (2, 4): [2, 2, 2, 2], (8, 1): [1, 1], (1, 3): [1] * 6}


class Linear(nn.Module):
    """The mean of w'x over a batch: its gradient is the mean of the rows, whatever w is."""

    seed = 0

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5))
        self.objective = SimpleNamespace(constant_lr=lambda: ())
        self.backbone = SimpleNamespace(recipe=SimpleNamespace(origin=None), parameters=list)

    def step(self, images: Tensor, index: Tensor, **_: object) -> tuple[dict[str, Tensor], SimpleNamespace]:
        return {"loss": (images @ self.weight).mean()}, SimpleNamespace(z=[images])

    def before_step(self) -> None:
        pass

    def after_step(self, progress: float) -> None:
        self.progress = [*getattr(self, "progress", ()), progress]


def gradients(
    method: nn.Module, rows: Tensor, accumulate: int, folder, clip: float | None = None, **of_rows: Tensor
) -> list[list[Tensor]]:
    """The gradients of every optimiser step of two epochs over `rows`, in their order, as the optimiser has them."""
    seen = []

    class Watched(Hook):
        def after_step(self, loop: Loop) -> None:
            seen.append([p.grad.clone() for p in method.parameters() if p.grad is not None])

    given = {"method": "supervised", "data": "digits", "epochs": 2, "trainer": {"accumulate": accumulate}}
    given |= {"device": "cpu", "precision": "float32", "progress": False}
    given |= {"optimizer": {"name": "sgd", "weight_decay": 0.0, "clip": clip}}
    config = Config.from_mapping(given)
    n = len(rows)
    kept = {"images": rows, "index": torch.arange(n), "aspect": torch.ones(n), **of_rows}
    items = [{name: values[i] for name, values in kept.items()} for i in range(n)]
    module = Pretraining(method)
    loader = DataLoader(items, batch_size=ROWS)
    loader.sampler.set_epoch = lambda epoch: None
    make_loop(config, module, lambda loop: loader, 0.0, 8, [Progress(module, config.optimizer, 8), Watched()]).run(None)
    return seen


@pytest.mark.parametrize(("accumulate", "batches"), GROUPS)
def test_a_linear_loss_has_the_mean_of_the_group_s_rows(accumulate: int, batches: int, tmp_path) -> None:
    rows = torch.randn(batches * ROWS, 5, generator=torch.Generator().manual_seed(0))
    found = gradients(Linear(), rows, accumulate, tmp_path, label=torch.zeros(len(rows)))
    groups = GROUPS[accumulate, batches]
    starts = [sum(groups[:k]) % batches * ROWS for k in range(len(groups))]
    expected = [rows[start : start + many * ROWS].mean(0) for start, many in zip(starts, groups, strict=True)]
    assert len(found) == len(expected)
    for (gradient,), mean in zip(found, expected, strict=True):
        assert torch.allclose(gradient, mean, atol=1e-6)


def test_the_mean_is_clipped_once_and_not_each_batch(tmp_path) -> None:
    """github.com/facebookresearch/lingua/pull/59: clip(clip(a) + b) is not clip(a + b)."""
    rows = torch.randn(5 * ROWS, 5, generator=torch.Generator().manual_seed(0))
    found = gradients(Linear(), rows, 3, tmp_path, clip=0.1, label=torch.zeros(len(rows)))
    for (gradient,), group in zip(found, (rows[: 3 * ROWS], rows[3 * ROWS :]) * 2, strict=True):
        mean = group.mean(0)
        assert mean.norm() > 0.1 and torch.allclose(gradient, 0.1 * mean / mean.norm(), rtol=1e-4)


def test_a_teacher_moves_once_in_an_optimiser_step(tmp_path) -> None:
    """github.com/SWivid/F5-TTS/issues/631: not in every batch, and no step waits for the next epoch."""
    method = Linear()
    gradients(method, torch.randn(4 * ROWS, 5), 3, tmp_path, label=torch.zeros(4 * ROWS))
    assert method.progress == [k / 8 for k in (1, 2, 3, 4)]  # of the 8 steps that were announced


@pytest.mark.parametrize(("accumulate", "batches"), [(4, 2), (3, 4)])
def test_an_objective_has_the_gradient_of_one_large_batch(accumulate: int, batches: int, tmp_path, monkeypatch) -> None:
    """Of a classifier on a transformer, which has no statistics of a batch; the views are the images themselves."""
    augmented = Method.make_views

    def plain(self: Method, images: Tensor, aspect: Tensor | None, generator: torch.Generator) -> object:
        views = augmented(self, images, aspect, generator)
        views[:] = [images.float() / 255 for _ in views]
        return views

    monkeypatch.setattr(Method, "make_views", plain)
    method = build("supervised", "vit", in_chans=1).train()
    digits = sslkit.open_images("digits").__getitems__(list(range(batches * ROWS)))
    small = nn.functional.interpolate(digits["images"].float(), (16, 16)).byte()[:, :1]
    labels = digits["label"] % 5
    found = gradients(method, small, accumulate, tmp_path, label=labels)
    start = 0
    for many, step in zip(GROUPS[accumulate, batches], found, strict=True):
        group = slice(start, start + many * ROWS)
        method.zero_grad()
        method.step(small[group], torch.arange(many * ROWS), labels=labels[group])[0]["loss"].backward()
        for p, gradient in zip([p for p in method.parameters() if p.grad is not None], step, strict=True):
            assert torch.allclose(p.grad, gradient, rtol=1e-3, atol=1e-6 * float(p.grad.abs().max()) + 1e-8)
        start = (start + many * ROWS) % len(small)


def test_the_recorded_loss_is_that_of_the_batches(small_run) -> None:
    """github.com/huggingface/transformers/issues/38837: the factor of the gradient is in no line of metrics.csv."""
    trainer = {**small_run["trainer"], "accumulate": 2}
    run = {**small_run, "epochs": 1, "optimizer": {"name": "sgd", "lr": 1e-12}}
    plain, accumulated = (
        list(csv.DictReader((sslkit.pretrain({**run, "trainer": how}).folder / "metrics.csv").open()))
        for how in (small_run["trainer"], trainer)
    )
    each, again = ([float(row["loss"]) for row in rows if row["loss"]] for rows in (plain, accumulated))
    assert len(each) == 3 and again == pytest.approx(each, rel=1e-3)
