"""Mixed precision, from the setting to the network; test_contracts.py runs every objective in it."""

import pytest
import torch

import sslkit
from sslkit.errors import UserError
from sslkit.training import trainer
from sslkit.training.config import Config


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize(("precision", "kind"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_the_network_computes_in_it_and_the_losses_in_float32(small_run, precision: str, kind, monkeypatch) -> None:
    """Without oneDNN, as in test_contracts.py."""
    seen, steps, run_step = set(), set(), sslkit.Method.step

    def step(self: sslkit.Method, *given: object, **more: object) -> tuple:
        hook = self.backbone.net.conv1.register_forward_hook(lambda _, __, out: seen.add(out.dtype))
        terms, e = run_step(self, *given, **more)
        hook.remove()
        steps.update(value.dtype for value in terms.values())
        assert all(value.isfinite() for value in terms.values())
        return terms, e

    monkeypatch.setattr(sslkit.Method, "step", step)
    run = {**small_run, "method": "vicreg", "epochs": 1}
    with torch.backends.mkldnn.flags(enabled=False):
        entry = sslkit.pretrain({**run, "trainer": {**run["trainer"], "precision": precision}})
    assert seen == {kind} and steps == {torch.float32}
    assert all(value.dtype is torch.float32 for value in entry.state_dict().values() if value.is_floating_point())
    assert entry.card["config"]["trainer"]["precision"] == precision


def test_half_precision_needs_a_gpu() -> None:
    with pytest.raises(UserError, match=r"precision=16-mixed needs a GPU; on a CPU use bf16-mixed or 32-true"):
        trainer.check_trainer(Config.from_mapping({"trainer.precision": "16-mixed", "trainer.accelerator": "cpu"}))
