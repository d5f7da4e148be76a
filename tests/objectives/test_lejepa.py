"""LeJEPA against lightly's loss and loops over the paper's two algorithms; its directions, crops and recipe."""

import io
import math
from unittest import mock

import pytest
import torch
from contract import batch, build, step
from lightly.loss import lejepa_loss
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.layers.prototypes import Crops
from sslkit.objectives.lejepa import LeJEPA
from sslkit.runtime import draws


def directions(dim: int, slices: int, at: int) -> Tensor:
    """Algorithm 1's draws in step `at`, in fp64."""
    raw = draws.normal((dim, slices), at, torch.device("cpu")).double()
    return torch.stack([raw[:, m] / raw[:, m].norm() for m in range(slices)], 1)


def oracle(objective: LeJEPA, e: Crops) -> Tensor:
    """lightly's, on the directions of the objective's step; without local crops its two terms one by one."""
    slices = directions(e.z.shape[-1], objective.slices, objective.step)
    loss = lejepa_loss.LeJEPALoss(
        objective.weight,
        sigreg_knots=objective.knots,
        sigreg_t_max=objective.t_max,
        sigreg_num_vectors=objective.slices,
    )
    with mock.patch.object(loss.sigreg, "_generate_unit_vectors", lambda *_: slices.to(e.z.dtype)):
        if e.local is not None:
            return loss(local_proj=e.local, global_proj=e.z)
        invariance = lejepa_loss.lejepa_invariance_loss(all_proj=e.z, global_proj=e.z)
        return objective.weight * loss.sigreg(e.z) + (1 - objective.weight) * invariance


def lejepa(backbone: str = "narrow_resnet", **options) -> LeJEPA:
    torch.manual_seed(0)
    net = backbones.build(backbone, image_size=16, in_chans=1)
    return LeJEPA(net, **{"dim": 6, "hidden": 16, "slices": 21, **options})


def crops(n: int = 7, n_local: int = 3, dim: int = 6, v: int = 2, seed: int = 0) -> Crops:
    g = torch.Generator().manual_seed(seed)
    z, local = (torch.randn(k, n, dim, generator=g, dtype=torch.double).requires_grad_() for k in (v, n_local))
    return Crops(z=z, h=z, target=None, index=torch.arange(n), local=local if n_local else None)


def pixels(full: int, n_local: int, n: int = 4) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(n, 1, size, size, generator=g) for size in [16] * full + [8] * n_local]


@pytest.mark.parametrize(
    ("n", "n_local", "v", "options"),
    [
        (7, 3, 2, {}),
        (2, 0, 2, {"weight": 0.1}),
        (5, 6, 2, {"knots": 17, "t_max": 3.0, "weight": 0.02}),
        (4, 1, 3, {"slices": 2, "weight": 0.9}),
        (3, 2, 1, {}),
    ],
)
def test_align_plus_constrain_is_lightlys_loss(n: int, n_local: int, v: int, options: dict) -> None:
    objective, e = lejepa(**options), crops(n, n_local, v=v)
    for objective.step in (0, 5):
        ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)
        leaves = [x for x in (e.z, e.local) if x is not None]
        for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
            assert its.abs().max() > 1e-4
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-8)


def test_the_two_terms_are_the_papers_loops() -> None:
    """Algorithm 2 number by number; algorithm 1 with its 17 points, in plain Python."""
    objective, e = lejepa(slices=3, weight=0.3), crops(n=3, n_local=2, dim=4)
    objective.step = 2
    everything = torch.cat([e.z, e.local]).tolist()
    total = 0.0
    for crop in everything:
        for i in range(3):
            for d in range(4):
                centre = (everything[0][i][d] + everything[1][i][d]) / 2
                total += (crop[i][d] - centre) ** 2 / (4 * 3 * 4)
    assert objective.align(e).item() == pytest.approx(0.7 * total, rel=1e-9)
    slices, statistics = directions(4, 3, at=2).T.tolist(), []
    for crop in everything:
        for a in slices:
            projected = [sum(x * y for x, y in zip(row, a, strict=True)) for row in crop]
            errors = []
            for k in range(17):
                t = -5 + 10 * k / 16
                real = sum(math.cos(t * x) for x in projected) / 3
                imaginary = sum(math.sin(t * x) for x in projected) / 3
                normal = math.exp(-t * t / 2)
                errors.append(((real - normal) ** 2 + imaginary**2) * normal)
            statistics.append(3 * (sum(errors) - (errors[0] + errors[-1]) / 2) * 10 / 16)
    assert objective.constrain(e).item() == pytest.approx(0.3 * sum(statistics) / len(statistics), rel=1e-5)


def test_the_centre_is_of_the_full_size_views_alone_and_learns_too() -> None:
    objective, e = lejepa(weight=0.0), crops(n_local=3)
    (grad,) = torch.autograd.grad(objective.align(e), e.z)
    moved = crops(n_local=3)
    moved.local.data += 100.0
    held = torch.autograd.grad(((e.z.mean(0).detach() - e.z) ** 2).mean() * 2 / 5, e.z)[0]
    assert (grad - held).abs().max() > 1e-3  # no stop-gradient: local crops pull the centre
    centre = e.z.mean(0)
    expected = torch.cat([e.z, moved.local]).sub(centre).square().mean()
    assert objective.align(moved).item() == pytest.approx(expected.item(), rel=1e-9)


def test_weight_goes_from_one_term_to_the_other() -> None:
    e = crops()
    ends = [(o.align(e).item(), o.constrain(e).item()) for o in (lejepa(weight=0.0), lejepa(weight=1.0))]
    middle = lejepa(weight=0.25)
    assert ends[0][1] == 0 and ends[1][0] == 0 and ends[0][0] > 0 and ends[1][1] > 0
    assert middle.align(e).item() == pytest.approx(0.75 * ends[0][0], rel=1e-9)
    assert middle.constrain(e).item() == pytest.approx(0.25 * ends[1][1], rel=1e-9)


def test_identical_embeddings_cost_nothing_but_the_statistic() -> None:
    objective = lejepa()
    z = torch.ones(2, 5, 6, dtype=torch.double)
    e = Crops(z=z, h=z, target=None, index=torch.arange(5), local=z)
    assert objective.align(e).item() == 0 and objective.constrain(e).item() > 0


class TestDirections:
    def test_they_are_those_of_the_step_and_observe_takes_the_next(self) -> None:
        objective, e = lejepa(), crops()
        values = []
        for at in range(3):
            assert objective.step == at
            values.append(objective.constrain(e).item())
            assert objective.constrain(e).item() == values[-1]  # pure
            objective.observe(e)
        assert len(set(values)) == 3

    def test_evaluation_keeps_them(self) -> None:
        m = build("lejepa")
        step(m, *batch(6))
        assert m.objective.step == 1
        m.eval()
        step(m, *batch(6))
        assert m.objective.step == 1

    def test_they_are_saved_and_restored_with_the_state_dict(self) -> None:
        objective, e = lejepa(), crops()
        for _ in range(3):
            objective.observe(e)
        file = io.BytesIO()
        torch.save(objective.state_dict(), file)
        file.seek(0)
        resumed = lejepa()
        assert resumed.constrain(e).item() != objective.constrain(e).item()
        resumed.load_state_dict(torch.load(file, weights_only=True))
        assert resumed.step == 3 and resumed.constrain(e).item() == objective.constrain(e).item()

    def test_the_global_seed_changes_nothing_and_is_not_changed(self) -> None:
        objective, e = lejepa(), crops()
        torch.manual_seed(1)
        first = objective.constrain(e)
        torch.manual_seed(2)
        state = torch.get_rng_state()
        assert torch.equal(first, objective.constrain(e)) and torch.equal(state, torch.get_rng_state())


def test_all_crops_go_through_one_network_one_forward_per_size() -> None:
    objective, seen = lejepa(), []
    objective.backbone.register_forward_pre_hook(lambda _, x: seen.append(tuple(x[0].shape)))
    e = objective.embed(pixels(2, 6), torch.arange(4))
    assert seen == [(8, 1, 16, 16), (24, 1, 8, 8)]
    assert e.z.shape == (2, 4, 6) and e.local.shape == (6, 4, 6) and e.h.shape == (2, 4, 128) and e.target is None
    objective.eval()
    e, views = objective.embed(pixels(2, 6), torch.arange(4)), pixels(2, 6)
    for k, z in enumerate([*e.z, *e.local]):
        torch.testing.assert_close(z, objective.projector(objective.backbone(views[k])), rtol=1e-4, atol=1e-5)


def test_every_parameter_is_trained_there_is_no_teacher() -> None:
    objective = lejepa()
    e = objective.embed(pixels(2, 2), torch.arange(4))
    (objective.align(e) + objective.constrain(e)).backward()
    assert all(p.requires_grad and p.grad is not None for p in objective.parameters())
    names = {name.partition(".")[0] for name, _ in objective.named_parameters()}
    assert names == {"backbone", "projector"}


def test_without_local_crops_there_is_no_field_of_them() -> None:
    e = lejepa().embed(pixels(2, 0), torch.arange(4))
    assert e.local is None and e.z.shape == (2, 4, 6)


def test_local_crops_as_large_as_the_image_are_local_all_the_same() -> None:
    """As in DINO and SwAV: the centre is of the two full-size views, whatever the side of the local crops."""
    small = {"dim": 6, "hidden": 16, "slices": 8}
    m = sslkit.method("lejepa", image_size=16, objective=small, views={"local_size": 16, "n_local": 3})
    _, e = m.step(*batch(6))
    assert len(e.z) == 2 and e.local is not None and len(e.local) == 3


@pytest.mark.parametrize("clips", [2, 3])
def test_every_clip_is_a_full_size_view(clips: int) -> None:
    m = sslkit.method(
        "lejepa", backbone="narrow_slow", image_size=16, frames=4, objective={"dim": 6, "hidden": 16, "slices": 8}
    )
    g = torch.Generator().manual_seed(0)
    films = torch.randint(0, 256, (3, clips, 3, 4, 16, 16), dtype=torch.uint8, generator=g)
    _, e = m.step(films, torch.arange(3))
    assert e.z.shape == (clips, 3, 6) and e.local is None


def test_the_recipe_is_the_published_one() -> None:
    first, second, *local = LeJEPA.views.at(224).each()
    assert first == second and (first.scale, first.size) == ((0.3, 1.0), None)
    assert len(local) == 6 and {(v.scale, v.size) for v in local} == {((0.05, 0.3), 98)}
    for view in (first, *local):
        assert (view.brightness, view.contrast, view.saturation, view.hue) == (0.4, 0.4, 0.2, 0.1)
        assert (view.flip, view.jitter, view.grayscale, view.blur, view.solarize) == (0.5, 0.8, 0.2, 0.5, 0.2)


def test_the_projector_has_three_layers_and_the_defaults_are_the_papers() -> None:
    torch.manual_seed(0)
    objective = LeJEPA(backbones.build("narrow_resnet", image_size=16, in_chans=1))
    layers = [one for one in objective.projector if isinstance(one, nn.Linear)]
    assert [(one.in_features, one.out_features) for one in layers] == [(128, 2048), (2048, 2048), (2048, 64)]
    assert sum(isinstance(one, nn.BatchNorm1d) for one in objective.projector) == 2
    assert (objective.weight, objective.slices, objective.knots, objective.t_max) == (0.05, 1024, 9, 5.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"knots": 1}, "knots must be .*at least 2.*got 1"),
        ({"weight": 1.5}, "objective option weight must be .* got 1.5"),
        ({"weight": -0.1}, "objective option weight must be .* got -0.1"),
        ({"slices": 0}, "objective option slices must be .* got 0"),
        ({"t_max": 0.0}, "objective option t_max must be .* got 0"),
        ({"lambda": 0.1}, "objective has no option 'lambda'"),
    ],
)
def test_bad_options_are_named_in_one_line(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        sslkit.method("lejepa", image_size=16, objective=options)
    assert "\n" not in str(caught.value)
