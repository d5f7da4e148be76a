"""Lightning's Trainer with the settings of a run."""

import torch

import sslkit
from sslkit.training import train


def test_deterministic_kernels_are_asked_for_during_the_run_only(small_run, tmp_path, monkeypatch) -> None:
    plain = sslkit.pretrain(small_run)
    seen = []
    fit = train.pl.Trainer.fit

    def watched(self, *options, **more):
        seen.append(
            (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
        )
        return fit(self, *options, **more)

    monkeypatch.setattr(train.pl.Trainer, "fit", watched)
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
