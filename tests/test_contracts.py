"""What every objective and every regulariser must do, whichever files there are: found by listing the folders."""

import itertools

import pytest
import torch

import sslkit
from sslkit import objectives, regularizers

PLUGINS = [*regularizers.names(), "+".join(regularizers.names())]
PAIRS = [*objectives.names(), *(f"{o}+{r}" for o, r in itertools.product(objectives.names(), PLUGINS))]


def build(name: str, in_chans: int = 3, **options) -> sslkit.Method:
    return sslkit.method(name, backbone="narrow_resnet", image_size=16, in_chans=in_chans, **options)


def batch(n: int = 6, in_chans: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (n, in_chans, 16, 16), dtype=torch.uint8, generator=g), torch.arange(n)


@pytest.mark.filterwarnings("ignore:.*no data set.*", "ignore:.*eta.*", "ignore:.*dead.*")
@pytest.mark.parametrize("name", PAIRS)
class TestEveryPair:
    @pytest.mark.parametrize("n", [2, 6])
    @pytest.mark.parametrize("in_chans", [1, 3])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_gradient_reaches_every_trained_parameter(self, name: str, n: int, in_chans: int, dtype) -> None:
        m = build(name, in_chans)
        with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
            terms = m(*batch(n, in_chans))
        terms["loss"].backward()
        assert all(v.dtype is torch.float32 and v.dim() == 0 and v.isfinite() for v in terms.values()), terms
        without = [k for k, p in m.named_parameters() if p.requires_grad and p.grad is None]
        assert not without, f"no gradient in {without}"
        assert all(p.grad.isfinite().all() for p in m.parameters() if p.grad is not None)

    def test_loss_is_the_sum_of_the_named_terms(self, name: str) -> None:
        terms = build(name)(*batch())
        assert terms["loss"].item() == pytest.approx(sum(v.item() for k, v in terms.items() if k != "loss"), rel=1e-6)

    def test_uint8_and_float_batches_agree(self, name: str) -> None:
        images, index = batch()
        from_bytes = build(name)(images, index)["loss"]
        torch.testing.assert_close(build(name)(images.float() / 255, index)["loss"], from_bytes, rtol=1e-4, atol=1e-5)

    def test_state_dict_round_trip_continues_alike(self, name: str) -> None:
        m = build(name)
        images, index = batch()
        step(m, images, index)
        other = build(name, seed=0)
        other.load_state_dict(m.state_dict())
        torch.testing.assert_close(other(images, index)["loss"], m(images, index)["loss"], rtol=0, atol=0)

    def test_the_seed_fixes_weights_and_views(self, name: str) -> None:
        torch.manual_seed(1)
        first = build(name, seed=5)(*batch())["loss"]
        torch.manual_seed(2)
        again = build(name, seed=5)(*batch())["loss"]
        other = build(name, seed=6)(*batch())["loss"]
        assert first.item() == again.item() != other.item()

    def test_a_few_steps_lower_the_loss(self, name: str) -> None:
        m = build(name)
        images, index = batch(16)
        losses = []
        optimizer = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 3e-3)
        for _ in range(20):
            m.batch = 0  # the same views each time
            losses.append(step(m, images, index, optimizer))
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", objectives.names())
def test_losses_are_pure_in_their_argument(name: str) -> None:
    m = build(name)
    images, index = batch()
    _, e = m.step(images, index)
    before = {k: v.clone() for k, v in vars(e).items() if isinstance(v, torch.Tensor)}
    first, second = (m.objective.align(e) for _ in range(2))
    m.objective.constrain(e)
    assert first.item() == second.item()
    assert all(torch.equal(getattr(e, k), v) for k, v in before.items())


@pytest.mark.parametrize("name", regularizers.names())
def test_a_regulariser_takes_any_number_of_views(name: str) -> None:
    from sslkit.objectives.base import Embeddings

    images, index = batch(8)
    plugin = regularizers.find(name)(12)
    for v in (1, 2, 4):
        z = torch.randn(v, 8, 12, requires_grad=True)
        terms = plugin.terms(Embeddings(z=z, h=z.detach(), target=None, index=index), images)
        sum(terms.values()).backward()
        assert z.grad.isfinite().all() and z.grad.abs().sum() > 0


def step(m, images, index, optimizer=None) -> float:
    optimizer = optimizer or torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.01)
    loss = m(images, index)["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    m.after_step(0.1)
    return loss.item()
