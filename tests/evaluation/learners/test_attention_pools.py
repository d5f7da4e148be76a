"""Pools of all settings together are plain float64 loops of the published modules, one by one, trained by torch."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from evaluation.learners.attention_pools import Stack, Tokens, losses, queries_of, scores_of, train_pools
from evaluation.learners.linear_heads import Grid
from sslkit.data.loader import EpochBatches
from sslkit.runtime.context import Runtime

QUIET = Runtime(device="cpu", progress=False, seed=2)
N, T, D, K = 40, 7, 128, 5
X = np.random.default_rng(0).standard_normal((N, T * D)).astype(np.float32)
Y = np.arange(N) % K
SEVERAL = np.where(np.random.default_rng(1).random((N, K)) < 0.4, 1, -1).astype(np.int8)
SEVERAL[::3, 1] = 0
LIKE = torch.empty(0, dtype=torch.float64)
KINDS = ("efficient", "attention")


class Efficient(nn.Module):
    """Efficient probing as written in its paper: every token is projected to values, then attended by 32 queries."""

    def __init__(self, start: Stack) -> None:
        super().__init__()
        values = {name: value[0].clone() for name, value in start.values.items()}
        self.query = nn.Parameter(values["query"])
        self.v = nn.Parameter(values["value"].flatten(0, 1))
        self.weight, self.bias = nn.Parameter(values["weight"]), nn.Parameter(values["bias"])
        self.norm = nn.BatchNorm1d(D, affine=False, eps=1e-6, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        pooled = []
        for image in x:
            v, parts = image @ self.v.T, []
            for m, query in enumerate(self.query):
                attention = torch.softmax(image @ query / D**0.5, 0)
                share = D // len(self.query)
                parts.append(attention @ v[:, m * share : (m + 1) * share])
            pooled.append(torch.cat(parts))
        return self.norm(torch.stack(pooled)) @ self.weight.T + self.bias


class OneQuery(nn.Module):
    """CAPI's pool as published: keys and values of every token, heads of 64, attention by torch."""

    def __init__(self, start: Stack) -> None:
        super().__init__()
        values = {name: value[0].clone() for name, value in start.values.items()}
        self.query = nn.Parameter(values["query"].flatten())
        self.key, self.v = (nn.Parameter(values[name].flatten(0, 1)) for name in ("key", "value"))
        self.key_bias = nn.Parameter(torch.zeros(D, dtype=torch.float64))
        self.value_bias = nn.Parameter(values["value_bias"].flatten())
        self.weight, self.bias = nn.Parameter(values["weight"]), nn.Parameter(values["bias"])

    def forward(self, x: Tensor) -> Tensor:
        heads = D // 64
        k, v = (
            (x @ weight.T + bias).unflatten(2, (heads, 64)).transpose(1, 2)
            for weight, bias in ((self.key, self.key_bias), (self.v, self.value_bias))
        )
        q = self.query.view(1, heads, 1, 64).expand(len(x), -1, -1, -1)
        return F.scaled_dot_product_attention(q, k, v).flatten(1) @ self.weight.T + self.bias


MODULES = {"efficient": Efficient, "attention": OneQuery}


def loss_of(scores: Tensor, y: Tensor) -> Tensor:
    if y.dim() == 1:
        return F.cross_entropy(scores, y)
    each = F.binary_cross_entropy_with_logits(scores, (y > 0).to(scores), reduction="none")
    return (each * (y != 0)).sum(1).mean()


@pytest.mark.parametrize("labels", [Y, SEVERAL], ids=["one", "several"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_setting_is_a_plain_float64_loop(kind: str, labels: np.ndarray) -> None:
    grid = Grid((0.01, 0.1), (0.0, 0.5), iterations=20, batch_size=16)
    rows = np.arange(N)
    tokens = Tokens(X, T).scale_by(rows)
    assert tokens.scale == pytest.approx(X.std(), rel=1e-6)
    stack = train_pools(kind, tokens, rows, labels, K, grid, QUIET, dtype=torch.float64)
    start = Stack.create(kind, 1, K, D, QUIET.seed, LIKE)
    x, y = torch.from_numpy(X).double().view(N, T, D) / tokens.scale, torch.from_numpy(labels)
    batches, order = EpochBatches(N, 16, QUIET.seed), []
    for epoch in range(10):
        batches.set_epoch(epoch)
        order += list(batches)
    torch.testing.assert_close(
        start.scores(x)[:, 0], MODULES[kind](start).eval()(x), rtol=1e-9, atol=1e-9, msg="before any step"
    )
    judged = torch.cat([*scores_of(stack, tokens, rows)], 1)
    for head, (lr, decay) in enumerate(grid.heads()):
        net = MODULES[kind](start)
        plain = [value for name, value in net.named_parameters() if "bias" not in name]
        rest = [value for name, value in net.named_parameters() if "bias" in name]
        groups = [{"params": plain, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))
        for step in range(20):
            factor = (step + 1) / 3 if step < 2 else (1 + np.cos(np.pi * (step - 2) / 18)) / 2
            for group in optimizer.param_groups:
                group["lr"] = lr * 16 / 256 * factor
            optimizer.zero_grad()
            loss_of(net(x[order[step]]), y[order[step]]).backward()
            optimizer.step()
        expected = net.eval()(x)
        torch.testing.assert_close(judged[head], expected, rtol=1e-6, atol=1e-6)
        alone = torch.cat([*scores_of(stack.take(head), tokens, rows)], 1)[0]
        torch.testing.assert_close(alone, judged[head])


@pytest.mark.parametrize("labels", [Y, SEVERAL], ids=["one", "several"])
def test_losses_are_torchs(labels: np.ndarray) -> None:
    scores, y = torch.randn(N, 3, K, dtype=torch.float64), torch.from_numpy(labels)
    expected = torch.stack([loss_of(scores[:, head], y) for head in range(3)])
    torch.testing.assert_close(losses(scores, y), expected)


def test_queries_divide_the_width() -> None:
    assert [queries_of("efficient", width) for width in (768, 384, 1280, 100, 13)] == [32, 32, 32, 25, 13]
    assert [queries_of("attention", width) for width in (768, 384, 128, 96, 32)] == [12, 6, 2, 1, 1]


def test_efficient_probing_of_a_base_vit_on_imagenet_has_fewer_than_1_4_million_parameters() -> None:
    efficient, attention = (Stack.create(kind, 1, 1000, 768, 0, torch.empty(0)) for kind in KINDS)
    assert efficient.size() == 768 * 768 + 32 * 768 + 768_000 + 1000 < 1_400_000 < attention.size()


def test_rows_are_read_a_batch_at_a_time_in_half_precision() -> None:
    """Tokens never stand in float32 all together: no read has more rows than a batch, or a block of 256."""
    asked, half = [], np.random.default_rng(0).standard_normal((600, T * D)).astype(np.float16)

    class Rows(np.ndarray):
        def __getitem__(self, rows):
            asked.append(len(rows))
            return np.asarray(self)[rows]

    rows, watched = np.arange(600), half.view(Rows)
    tokens = Tokens(watched, T).scale_by(rows)
    grid = Grid((0.01,), iterations=4, batch_size=32)
    stack = train_pools("efficient", tokens, rows, rows % K, K, grid, QUIET)
    scores = torch.cat([*scores_of(stack, tokens, rows)], 1)
    assert max(asked) == 256 and asked.count(32) == 4 and scores.shape == (1, 600, K) and scores.dtype == torch.float32
