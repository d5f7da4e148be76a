"""VISReg beside another objective: its terms, its weights, and directions that go on after a resume."""

from unittest import mock

import pytest
import torch
from contract import batch, build, step
from lightly.loss import visreg_loss

from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.layers.sigreg import draw_slices
from sslkit.regularizers.visreg import VISReg


def embeddings(n: int = 6, seed: int = 0) -> Embeddings:
    z = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.double).requires_grad_()
    return Embeddings(z=z, h=z.detach(), target=None, index=torch.arange(n))


def test_the_terms_are_lightlys_times_their_weights_in_every_step() -> None:
    plugin = VISReg(4, scale=0.3, shape=2.0, centre=0.7, slices=19)
    for at in range(3):
        e = embeddings(seed=at)
        ours = plugin.terms(e, None)
        drawn = draw_slices(4, 19, at, like=e.z)
        with mock.patch.object(visreg_loss.torch, "randn", lambda *_, drawn=drawn, **__: drawn):
            shape = visreg_loss.visreg_shape_loss(e.z, 19)
        theirs = {
            "visreg/scale": 0.3 * visreg_loss.visreg_scale_loss(e.z),
            "visreg/shape": 2.0 * shape,
            "visreg/centre": 0.7 * visreg_loss.visreg_center_loss(e.z),
        }
        assert list(ours) == list(theirs) == list(plugin.weights())
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name], rtol=1e-5, atol=1e-8)
            mine, its = (torch.autograd.grad(one, e.z, retain_graph=True)[0] for one in (value, theirs[name]))
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-8)


def test_a_resumed_run_goes_on_with_the_next_directions_and_evaluation_moves_nothing() -> None:
    m, images = build("byol+visreg"), batch(8)
    for _ in range(3):
        step(m, *images)
    state = {k: v.clone() for k, v in m.state_dict().items()}
    after = step(m, *images)["visreg/shape"].item()
    resumed = build("byol+visreg", seed=0)
    resumed.load_state_dict(state)
    assert resumed.regularizers["visreg"].step == 3 and step(resumed, *images)["visreg/shape"].item() == after
    resumed.eval()
    step(resumed, *images)
    assert resumed.regularizers["visreg"].step == 4


def test_bad_options_are_named_in_one_line() -> None:
    with pytest.raises(UserError, match=r"visreg option slices must be .* got 0") as caught:
        build("byol+visreg", visreg={"slices": 0})
    assert "\n" not in str(caught.value)
