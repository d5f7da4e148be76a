"""The queue against a deque: order, sizes that do not fit, resume, ranks, and what backward still needs."""

from collections import deque

import pytest
import torch

from sslkit.errors import UserError
from sslkit.layers.queue import Queue
from sslkit.runtime import distributed


def batches(*sizes: int, dim: int = 3) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return [torch.randn(n, dim, generator=g) for n in sizes]


def oldest_first(queue: Queue) -> torch.Tensor:
    return queue.rows.roll(-queue.position, 0)


@pytest.mark.parametrize(
    "sizes", [(4, 4, 4), (3, 3, 3, 3), (2, 2, 2, 2, 2, 2), (7, 5, 20, 1), (8, 8), (1,) * 11, (9, 16)]
)
def test_it_is_a_deque_whatever_the_batches(sizes: tuple[int, ...]) -> None:
    queue = Queue(8, 3)
    expected = deque(queue.rows.clone(), maxlen=8)
    for i, x in enumerate(batches(*sizes)):
        queue.push(x)
        expected.extend(x)
        assert torch.equal(oldest_first(queue), torch.stack(list(expected)))
        assert queue.filled == min(sum(sizes[: i + 1]), 8) and len(queue) == 8


def test_a_queue_of_one_holds_the_last() -> None:
    queue = Queue(1, 3)
    for x in batches(2, 1, 5):
        queue.push(x)
        assert torch.equal(queue.rows, x[-1:])


def test_it_starts_with_random_unit_vectors() -> None:
    torch.manual_seed(4)
    first, second = Queue(50, 6).rows, Queue(50, 6).rows
    torch.testing.assert_close(first.norm(dim=1), torch.ones(50))
    assert not torch.equal(first, second) and Queue(2, 2).filled == 0


def test_a_restored_queue_goes_on_where_the_old_one_stood() -> None:
    x = batches(3, 3, 4)
    queue, restored = Queue(5, 3), Queue(5, 3)
    queue.push(x[0])
    queue.push(x[1])
    restored.load_state_dict(queue.state_dict())
    for q in (queue, restored):
        q.push(x[2])
    assert torch.equal(queue.rows, restored.rows)
    assert (queue.position, queue.filled) == (restored.position, restored.filled) == (0, 5)


def test_backward_sees_the_rows_that_the_loss_saw() -> None:
    queue = Queue(6, 3)
    z, new = batches(4, 4)
    z.requires_grad_()
    old = queue.rows.clone()
    loss = (z @ queue.rows.T).square().sum()
    queue.push(new)
    loss.backward()
    torch.testing.assert_close(z.grad, 2 * z.detach() @ old.T @ old)


def test_what_is_pushed_leaves_its_graph_and_takes_the_queues_type() -> None:
    queue = Queue(6, 3).double()
    (x,) = batches(4)
    queue.push((x.requires_grad_() * 2).half())
    assert queue.rows.dtype is torch.float64 and not queue.rows.requires_grad
    torch.testing.assert_close(queue.rows[:4], (x.detach() * 2).half().double())


def test_the_rows_of_two_ranks_stand_in_the_order_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    queue = Queue(4, 1)
    queue.push(torch.tensor([0.0, 2, 4, 1, 3, 5])[:, None])  # rank 0 has the images 0, 2, 4
    assert queue.rows[:, 0].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("size", [0, -3, 2.5, "many"])
def test_a_size_that_cannot_be(size: object) -> None:
    with pytest.raises(UserError, match="queue_size"):
        Queue(size, 3)
