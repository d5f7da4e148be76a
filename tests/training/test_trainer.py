"""Lightning Fabric with the settings of a run."""

import pytest
import torch

import sslkit
from sslkit.errors import UserError
from sslkit.training import train


def test_deterministic_kernels_are_asked_for_during_the_run_only(small_run, tmp_path, monkeypatch) -> None:
    plain = sslkit.pretrain(small_run)
    seen = []
    fit = train.Loop.run

    def watched(self, *options, **more):
        seen.append(
            (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
        )
        return fit(self, *options, **more)

    monkeypatch.setattr(train.Loop, "run", watched)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    own = {
        **small_run,
        "out": str(tmp_path / "other"),
        "trainer": {**small_run.get("trainer", {}), "deterministic": True},
    }
    entry = sslkit.pretrain(own)
    assert seen == [(True, True)] and not torch.are_deterministic_algorithms_enabled()
    for name, value in plain.state_dict().items():  # on a CPU it changes nothing
        assert torch.equal(entry.state_dict()[name], value)


def test_a_missing_gpu_says_how_to_go_on(small_run) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UserError, match="PyTorch finds no GPU here: install a build of it for yours"):
        sslkit.pretrain({**small_run, "trainer": {**small_run["trainer"], "accelerator": "gpu"}})
