"""A loss that is not finite ends a run, on a GPU one step late, and in the last step of an epoch as well."""

import pytest
import torch

import sslkit
from sslkit.errors import RunFailed
from sslkit.training.config import OptimizerConfig
from sslkit.training.module import Pretraining, Progress


def test_the_last_step_of_an_epoch_is_checked_before_a_checkpoint() -> None:
    module = Pretraining(sslkit.method("simclr", backbone="narrow_resnet", image_size=16, in_chans=1))
    hook = Progress(module, OptimizerConfig(), steps=1)
    hook.epoch_end(None)  # nothing waits to be checked
    infinite = torch.tensor(torch.inf)
    module._pending = {"align": torch.tensor(1.0), "constrain": infinite, "loss": infinite}
    with pytest.raises(RunFailed, match="the loss is not finite at epoch 0, step 0: constrain = inf"):
        hook.epoch_end(None)
    hook.epoch_end(None)
