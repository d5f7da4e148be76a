"""MoCo against lightly's NT-Xent with a memory bank and loops over its eq. 1; its queue, teacher and shuffled norm."""

import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from forks import WORLD, start_ranks
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.objectives.moco import MoCo
from sslkit.runtime import distributed


def oracle(objective: MoCo, e: Embeddings) -> Tensor:
    from lightly.loss import NTXentLoss  # here, because the two processes below need not wait for it

    loss = NTXentLoss(temperature=objective.temperature, memory_bank_size=tuple(objective.queue.rows.shape))
    loss.memory_bank.bank = objective.queue.rows.clone()
    return loss(e.z[0], e.target[0])


def moco(**options) -> MoCo:
    torch.manual_seed(0)
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    return MoCo(backbone, **{"dim": 6, "queue_size": 20, **options})


def drawn(n: int, dim: int = 6, scale: float = 1.0) -> Embeddings:
    g = torch.Generator().manual_seed(n)
    z, target = torch.randn(2, 1, n, dim, generator=g, dtype=torch.double) * scale
    return Embeddings(z=z.requires_grad_(), h=z, target=target, index=torch.arange(n))


def views(n: int = 4) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(n, 1, 16, 16, generator=g) for _ in range(2)]


def total(objective: MoCo, e: Embeddings) -> Tensor:
    return objective.align(e) + objective.constrain(e)


@pytest.mark.parametrize("n", [2, 9])
@pytest.mark.parametrize("queue_size", [1, 7, 300])
@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_align_plus_constrain_is_lightlys_memory_bank(n: int, queue_size: int, temperature: float) -> None:
    objective = moco(queue_size=queue_size, temperature=temperature).double()
    e = drawn(n)
    ours, theirs = total(objective, e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(v, e.z)[0] for v in (ours, theirs)))


def test_align_plus_constrain_is_the_papers_loop() -> None:
    objective = moco(queue_size=3, temperature=0.3).double()
    e = drawn(4)
    loss = 0.0
    for q, k in zip(e.z[0], e.target[0], strict=True):
        q, k = q / q.norm(), k / k.norm()
        logits = [(q @ x).item() / 0.3 for x in (k, *objective.queue.rows)]
        loss -= math.log(math.exp(logits[0]) / sum(map(math.exp, logits)))
    assert total(objective, e).item() == pytest.approx(loss / 4, rel=1e-10)


def test_large_logits_stay_finite() -> None:
    objective = moco(temperature=0.005)
    z = torch.ones(1, 4, 6).mul(1e4).requires_grad_()
    loss = total(objective, Embeddings(z=z, h=z, target=z.detach(), index=torch.arange(4)))
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()


def test_the_first_view_asks_the_student_and_the_second_the_teacher() -> None:
    objective = moco()
    with torch.no_grad():
        objective.teacher[1][0].weight.mul_(2)
    query, key = views()
    e = objective.embed([query, key], torch.arange(4))
    assert e.z.shape == e.target.shape == (1, 4, 6) and e.h.shape == (1, 4, 128)
    torch.testing.assert_close(e.z[0], objective.projector(objective.backbone(query)))
    torch.testing.assert_close(e.target[0], objective.teacher(key))
    assert e.z.requires_grad and not e.target.requires_grad


def test_one_process_draws_no_permutation() -> None:
    g = torch.Generator().manual_seed(0)
    moco().embed(views(), torch.arange(4), g)
    assert torch.equal(g.get_state(), torch.Generator().manual_seed(0).get_state())


def test_the_losses_see_the_old_queue_and_observe_appends_the_keys() -> None:
    m = sslkit.method(
        "moco", backbone="narrow_resnet", image_size=16, in_chans=1, objective={"queue_size": 10, "dim": 6}
    )
    images = torch.randint(0, 256, (4, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    expected = m.objective.queue.rows.clone()
    for step in range(4):  # 16 keys into 10 places
        before = m.objective.queue.rows.clone()
        terms, e = m.step(images, torch.arange(4))
        assert torch.equal(before, expected)
        after, m.objective.queue.rows = m.objective.queue.rows, before
        torch.testing.assert_close(terms["loss"], oracle(m.objective, e))
        m.objective.queue.rows = after
        terms["loss"].backward()
        for i, key in enumerate(F.normalize(e.target[0], dim=1)):
            expected[(4 * step + i) % 10] = key
        torch.testing.assert_close(after, expected)
        expected = after.clone()
    m.eval()
    m.step(images, torch.arange(4))
    assert torch.equal(m.objective.queue.rows, expected)


@pytest.mark.parametrize("queue_size", [1, 3, 5, 64])
def test_two_images_and_any_queue(queue_size: int) -> None:
    m = sslkit.method("moco", backbone="narrow_resnet", image_size=16, in_chans=1, objective={"queue_size": queue_size})
    images = torch.randint(0, 256, (2, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        loss = m(images, torch.arange(2))["loss"]
        loss.backward()
        m.after_step(0.5)
        assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in m.parameters() if p.requires_grad)


def test_the_teacher_follows_with_a_constant_momentum() -> None:
    objective = moco(momentum=0.9)
    slow = {k: v.clone() for k, v in objective.teacher.state_dict().items()}
    for progress in (0.1, 1.0):
        objective.embed(views(), torch.arange(4))
        slow |= {k: v.clone() for k, v in objective.teacher.state_dict().items() if "running" in k}
        with torch.no_grad():
            for p in objective.parameters():
                p.add_(0 if not p.requires_grad else 1)
        objective.after_step(progress)
        fast = torch.nn.Sequential(objective.backbone, objective.projector).state_dict()
        for k, v in objective.teacher.state_dict().items():
            slow[k] = 0.9 * slow[k] + 0.1 * fast[k] if v.is_floating_point() else fast[k]
            torch.testing.assert_close(v, slow[k], msg=lambda m, k=k: f"{k}: {m}")


def test_the_head_is_two_layers_without_batch_norm_and_as_wide_as_the_backbone() -> None:
    head = moco().projector
    assert [type(m).__name__ for m in head] == ["Linear", "ReLU", "Linear"]
    assert head[0].weight.shape == (128, 128) and moco(hidden=5).projector[2].weight.shape == (6, 5)


@pytest.mark.parametrize(("option", "value"), [("temperature", 0.0), ("momentum", 1.5), ("queue_size", 0)])
def test_numbers_that_cannot_be_are_refused_by_name(option: str, value: float) -> None:
    with pytest.raises(UserError, match=option):
        moco(**{option: value})


class Small(nn.Sequential):
    """A backbone that is there at once in a new process."""

    width = 5

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def small() -> MoCo:
    torch.manual_seed(0)
    return MoCo(Small(), dim=6, queue_size=20).double()


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    query, key = (v.double()[rank::WORLD] for v in views(6))
    objective = small()
    found = {"shuffled": objective.embed([query, key], torch.arange(3), generator(7)).target[0]}
    try:
        objective.embed([query, key], torch.arange(3))
    except ValueError as error:
        found["without generator"] = str(error)
    objective.eval()
    drawn_from = generator(7)
    objective.embed([query, key], torch.arange(3), drawn_from)
    objective = distributed.synchronize_batch_norm(objective.train(), "cpu")
    found["synchronised"] = objective.embed([query, key], torch.arange(3), drawn_from).target[0]
    found["drawn"] = not torch.equal(drawn_from.get_state(), generator(7).get_state())
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(work, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@pytest.mark.nightly
def test_local_batch_norm_sees_the_keys_in_the_drawn_order(ranks: list[dict]) -> None:
    objective = small()
    key = views(6)[1].double()
    rank_by_rank = key[[0, 2, 4, 1, 3, 5]]
    order = torch.randperm(6, generator=generator(7)).tolist()
    expected = torch.empty(6, 6, dtype=torch.double)
    for share in (order[:3], order[3:]):
        expected[share] = objective.teacher(rank_by_rank[share])
    own = [objective.teacher(key[rank::WORLD]) for rank in range(WORLD)]
    for rank, found in enumerate(ranks):
        torch.testing.assert_close(found["shuffled"], expected[3 * rank : 3 * rank + 3])
        assert (found["shuffled"] - own[rank]).abs().max() > 1e-3  # the statistics are those of other neighbours


@pytest.mark.nightly
def test_without_a_common_generator_there_is_no_common_permutation(ranks: list[dict]) -> None:
    assert all("one permutation" in found["without generator"] for found in ranks)


@pytest.mark.nightly
def test_synchronised_or_evaluated_batch_norm_needs_no_shuffling(ranks: list[dict]) -> None:
    expected = small().teacher(views(6)[1].double())
    for rank, found in enumerate(ranks):
        torch.testing.assert_close(found["synchronised"], expected[rank::WORLD])
        assert not found["drawn"]
