"""A method under a Lightning Trainer of one's own: the weights of our own loop, and a checkpoint that resumes."""

import pytest
import pytorch_lightning as pl
import torch

import sslkit
from sslkit.data.loader import make_loader
from sslkit.errors import RunFailed, UserError
from sslkit.runtime.device import Late
from sslkit.training.step import Unchecked

OPTIMIZER = {"name": "adamw", "lr": 0.01, "weight_decay": 0.05, "weight_decay_end": 0.2, "warmup": 0.2}
VIEWS = {"scale": [0.2, 1.0]}
SETTINGS = {
    "method": {"name": "byol+koleo", "objective": {"momentum": 0.9}, "views": VIEWS},
    "data": "digits",
    "epochs": 2,
}
SETTINGS |= {
    "batch_size": 128,
    "backbone": "narrow_resnet",
    "seed": 3,
    "eval.tsne": 0,
    "optimizer.lr_scaling": "none",
}
SETTINGS |= {f"optimizer.{name}": value for name, value in OPTIMIZER.items()}
HOW = {"accelerator": "cpu", "precision": "32-true"}
pytestmark = pytest.mark.filterwarnings("ignore")


def fitted(epochs: int, folder, resume: object = None) -> pl.LightningModule:
    images = sslkit.open_images("digits")
    module = sslkit.lightning_module(
        "byol+koleo",
        backbone="narrow_resnet",
        image_size=images.image_size,
        in_chans=1,
        objective={"momentum": 0.9},
        views=VIEWS,
        normalize=normalize(folder),
        seed=3,
        optimizer=OPTIMIZER,
    )
    trainer = pl.Trainer(
        max_epochs=2,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        limit_train_batches=None,
        callbacks=[
            pl.callbacks.LambdaCallback(on_train_epoch_end=lambda t, m: setattr(t, "should_stop", epochs == 1)),
            pl.callbacks.ModelCheckpoint(folder / "inside", "{step}", every_n_train_steps=4, save_top_k=-1),
        ],
        min_epochs=epochs,
        **HOW,
    )
    loader = make_loader(images, batch_size=128, seed=3)
    trainer.fit(module, loader, ckpt_path=resume)
    trainer.save_checkpoint(folder / "own.ckpt")
    return module


def normalize(folder) -> tuple:
    entry = sslkit.ZooEntry.load(next((folder / "zoo").glob("*/card.json")).parent)
    own = entry.card["normalize"]
    return tuple(own["mean"]), tuple(own["std"])


def test_a_trainer_of_ones_own_ends_with_the_weights_of_ours(tmp_path) -> None:
    quiet = {"device": "cpu", "precision": "float32", "progress": False}
    entry = sslkit.pretrain({**SETTINGS, **quiet, "out": str(tmp_path / "zoo")})
    module = fitted(2, tmp_path)
    ours = entry.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in module.method.backbone.export().items())
    fitted(1, tmp_path)
    for place in ("own.ckpt", "inside/step=4.ckpt", "inside/step=12.ckpt"):  # 11 steps an epoch
        resumed = fitted(2, tmp_path, resume=tmp_path / place)
        assert all(torch.equal(value, ours[name]) for name, value in resumed.method.backbone.export().items()), place


def test_no_checkpoint_is_written_of_a_step_whose_loss_is_not_finite() -> None:
    """One within an epoch: on a GPU the loss is read in the next step."""
    module = sslkit.lightning_module("simclr", backbone="narrow_resnet", image_size=16, in_chans=1)
    module.on_save_checkpoint({})
    module.pretraining._unchecked = Unchecked(Late(torch.tensor([torch.nan])), ("loss",), epoch=1, steps_done=3)
    with pytest.raises(RunFailed, match="not finite at epoch 1, step 3"):
        module.on_save_checkpoint({})


def test_gradients_of_frozen_prototypes_are_dropped_before_the_step() -> None:
    module = sslkit.lightning_module("swav", backbone="narrow_resnet", image_size=16, in_chans=1)
    weight = module.method.objective.prototypes.weight
    weight.grad = torch.zeros_like(weight)  # of several processes
    module.on_before_optimizer_step(None)
    assert weight.grad is None


def test_weights_that_are_not_finite_are_not_kept() -> None:
    module = sslkit.lightning_module("simclr", backbone="narrow_resnet", image_size=16, in_chans=1)
    with torch.no_grad():
        next(module.method.backbone.parameters())[0] = torch.nan
    with pytest.raises(RunFailed, match="weights are not finite"):
        module.on_save_checkpoint({})


@pytest.mark.parametrize(
    ("length", "optimizer", "said"),
    [
        ({"max_epochs": -1, "max_time": "00:00:01:00"}, {}, "give the Trainer max_epochs or max_steps"),
        ({"max_steps": 4}, {"schedule": "step"}, "schedule=step counts epochs: give the Trainer max_epochs"),
        ({"max_epochs": 3}, {"schedule": "step"}, "and the run has 3: the learning rate would fall before its first"),
    ],
)
def test_a_run_whose_length_the_schedule_cannot_use_is_refused(length: dict, optimizer: dict, said: str) -> None:
    images = sslkit.open_images("digits")
    module = sslkit.lightning_module(
        "simclr", backbone="narrow_resnet", image_size=images.image_size, in_chans=1, optimizer=optimizer
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    with pytest.raises(UserError, match=said):
        pl.Trainer(**length, **HOW, **quiet, use_distributed_sampler=False).fit(
            module, make_loader(images, batch_size=128, seed=3)
        )


def test_without_settings_it_has_a_rate() -> None:
    module = sslkit.lightning_module("simclr", backbone="narrow_resnet", image_size=16, in_chans=1)
    assert module.optimizer.name == "adamw" and module.optimizer.lr == 0.002
    with pytest.raises(UserError, match=r"lars needs optimizer\.lr"):
        sslkit.lightning_module("simclr", backbone="narrow_resnet", image_size=16, optimizer={"name": "lars"})


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'lr'"):
        sslkit.lightning_module("byol", optimizer={"lrr": 1})
    with pytest.raises(UserError, match="did you mean 'byol'"):
        sslkit.lightning_module("byoll")
