"""SIGReg beside another objective: its term, its weight and balance, and directions that go on after a resume."""

import io

import pytest
import torch
from contract import batch, build, step
from lightly.loss import lejepa_loss
from torch import Tensor

from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.regularizers.sigreg import SIGReg
from sslkit.runtime import draws


def embeddings(v: int = 2, n: int = 6, dim: int = 4, seed: int = 0) -> Embeddings:
    z = torch.randn(v, n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.double).requires_grad_()
    return Embeddings(z=z, h=z.detach(), target=None, index=torch.arange(n))


def term(plugin: SIGReg, e: Embeddings) -> Tensor:
    terms = plugin.terms(e, None)
    assert list(terms) == ["sigreg"]
    return terms["sigreg"]


def expected(z: Tensor, at: int, slices: int, monkeypatch: pytest.MonkeyPatch, **options: float) -> Tensor:
    """lightly's, on the directions that algorithm 1 draws in step `at`."""
    raw = draws.normal((z.shape[-1], slices), at, torch.device("cpu")).double()
    unit = torch.stack([raw[:, m] / raw[:, m].norm() for m in range(slices)], 1)
    monkeypatch.setattr(lejepa_loss.SIGReg, "_generate_unit_vectors", lambda *_: unit)
    return lejepa_loss.SIGReg(num_vectors=slices, **options)(z)


@pytest.mark.parametrize("v", [1, 2, 5])
@pytest.mark.parametrize(("knots", "t_max"), [(9, 5.0), (17, 3.0)])
def test_the_term_is_the_weight_times_lightlys_in_every_step(v: int, knots: int, t_max: float, monkeypatch) -> None:
    plugin = SIGReg(4, weight=0.3, slices=19, knots=knots, t_max=t_max)
    for at in range(3):
        e = embeddings(v, seed=at)
        ours = term(plugin, e)
        theirs = 0.3 * expected(e.z, at, 19, monkeypatch, knots=knots, t_max=t_max)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)
        mine, its = (torch.autograd.grad(value, e.z)[0] for value in (ours, theirs))
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-8)


def test_the_defaults_are_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, e = SIGReg(4), embeddings()
    torch.testing.assert_close(term(plugin, e), 0.05 * expected(e.z, 0, 256, monkeypatch, knots=9, t_max=5.0))
    assert plugin.weights() == {"sigreg": 0.05} and plugin.reads == "z"
    assert not plugin.needs_images


def test_images_are_compared_within_a_view() -> None:
    """Views at another place are not pooled: their mean is that of each alone."""
    e = embeddings(seed=1)
    shifted = Embeddings(z=e.z.detach() + torch.tensor([[[-3.0]], [[3.0]]]), h=e.h, target=None, index=e.index)
    each = [Embeddings(z=view[None], h=e.h, target=None, index=e.index) for view in shifted.z]
    values = [term(SIGReg(4), one).item() for one in each]
    assert term(SIGReg(4), shifted).item() == pytest.approx(sum(values) / 2, rel=1e-9)


def test_every_training_step_has_other_directions_and_evaluation_moves_nothing() -> None:
    plugin, e = SIGReg(4, slices=3), embeddings()
    first, second = term(plugin, e).item(), term(plugin, e).item()
    assert first != pytest.approx(second, rel=1e-3)
    plugin.eval()
    third, again = term(plugin, e).item(), term(plugin, e).item()
    assert third == again and third not in (first, second)
    plugin.train()
    assert term(plugin, e).item() == third


def test_directions_are_saved_and_restored_with_the_state_dict() -> None:
    plugin, e = SIGReg(4, slices=3), embeddings()
    values = [term(plugin, e).item() for _ in range(2)]
    file = io.BytesIO()
    torch.save(plugin.state_dict(), file)
    file.seek(0)
    values += [term(plugin, e).item() for _ in range(2)]
    resumed = SIGReg(4, slices=3)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert [term(resumed, e).item() for _ in range(2)] == values[2:]
    assert term(SIGReg(4, slices=3), e).item() == values[0] != values[2]


def test_the_global_seed_changes_nothing_and_is_not_changed() -> None:
    e = embeddings()
    torch.manual_seed(1)
    first = term(SIGReg(4), e)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(first, term(SIGReg(4), e)) and torch.equal(state, torch.get_rng_state())


def test_alone_it_whitens_what_a_linear_layer_gives() -> None:
    g = torch.Generator().manual_seed(0)
    mixed = torch.tensor([[1.5, 0.8, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.6]])
    x = torch.randn(256, 3, generator=g) @ mixed + 1
    torch.manual_seed(0)
    layer, plugin = torch.nn.Linear(3, 3), SIGReg(3, weight=1.0, slices=64)
    optimizer = torch.optim.Adam(layer.parameters(), 0.02)
    for _ in range(300):
        optimizer.zero_grad()
        z = layer(x)
        term(plugin, Embeddings(z=z[None], h=z, target=None, index=torch.arange(256))).backward()
        optimizer.step()
    torch.testing.assert_close(z.mean(0), torch.zeros(3), rtol=0, atol=0.1)
    torch.testing.assert_close(z.T.cov(), torch.eye(3), rtol=0, atol=0.15)


class TestBesideByol:
    def test_its_gradient_reaches_z_and_the_backbone(self) -> None:
        m = build("byol+sigreg")
        terms, e = m.step(*batch(8))
        e.z.retain_grad()
        (grad,) = torch.autograd.grad(terms["sigreg"], e.z, retain_graph=True)
        assert grad.shape == e.z.shape and (grad.abs().sum((1, 2)) > 0).all()  # of every view
        terms["sigreg"].backward()
        assert any(p.grad is not None and p.grad.abs().max() > 0 for p in m.backbone.parameters())
        assert all(p.grad is None for p in m.objective.predictor.parameters())  # z lies before it

    def test_the_term_is_that_of_its_z_and_part_of_the_loss(self, monkeypatch: pytest.MonkeyPatch) -> None:
        m = build("byol+sigreg", sigreg={"weight": 0.7, "slices": 11}).double()
        for at in range(2):
            terms, e = m.step(*batch(8))
            theirs = 0.7 * expected(e.z, at, 11, monkeypatch, knots=9, t_max=5.0)
            torch.testing.assert_close(terms["sigreg"], theirs, rtol=1e-5, atol=1e-8)
            assert terms["loss"].item() == pytest.approx(terms["align"].item() + terms["sigreg"].item(), rel=1e-6)

    def test_weight_multiplies_the_term_and_nothing_else(self) -> None:
        one, three, none = (step(build("byol+sigreg", sigreg={"weight": w}), *batch(8)) for w in (0.1, 0.3, 0.0))
        assert three["sigreg"].item() == pytest.approx(3 * one["sigreg"].item(), rel=1e-5)
        assert none["sigreg"].item() == 0 and one["align"].item() == three["align"].item() == none["align"].item()

    def test_balance_gives_the_asked_share_of_the_gradient(self) -> None:
        m, plain = (build("byol+sigreg", sigreg={"balance": r, "weight": 0.2}) for r in (0.3, None))
        terms, unscaled = (step(one, *batch(8)) for one in (m, plain))
        assert m.watched()["sigreg/share"].item() == pytest.approx(0.3, rel=1e-5)
        factor = 0.3 / plain.watched()["sigreg/share"].item()
        assert (terms["sigreg"] / unscaled["sigreg"]).item() == pytest.approx(factor, rel=1e-5)
        assert m.weights()["sigreg"] == pytest.approx(0.2 * factor, rel=1e-5)

    def test_a_run_goes_on_with_the_directions_it_had(self) -> None:
        m, images = build("byol+sigreg"), batch(8)
        for _ in range(3):
            step(m, *images)
        state = {k: v.clone() for k, v in m.state_dict().items()}
        after = step(m, *images)
        resumed = build("byol+sigreg", seed=0)
        resumed.load_state_dict(state)
        assert step(resumed, *images)["sigreg"].item() == after["sigreg"].item()
        other = build("byol+sigreg", seed=0)
        other.load_state_dict(state)
        other.regularizers["sigreg"].step = 0
        assert step(other, *images)["sigreg"].item() != after["sigreg"].item()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slices": 0}, "sigreg option slices must be .* got 0"),
        ({"knots": 0}, "sigreg option knots must be .* got 0"),
        ({"knots": 1}, "knots must be .*at least 2.*got 1"),  # its integral over a single point is 0
        ({"t_max": 0.0}, "sigreg option t_max must be .* got 0"),
        ({"weight": -1.0}, "sigreg option weight must be .* got -1"),
        ({"balance": 0.0}, "sigreg option balance must be .* got 0"),
        ({"slice": 3}, "sigreg has no option 'slice'.*slices"),
    ],
)
def test_bad_options_are_named_in_one_line(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        build("byol+sigreg", sigreg=options)
    assert "\n" not in str(caught.value)
