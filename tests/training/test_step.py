"""Parameter groups by layer, learning rate and weight decay of a step, exact on resume; a loss that is not finite."""

import copy
import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from contract import build
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from unfolded import unfolded

import sslkit
from sslkit.errors import RunFailed, UserError
from sslkit.runtime.device import Late
from sslkit.runtime.loop import Loop
from sslkit.training.config import Config, OptimizerConfig
from sslkit.training.loading import to_device
from sslkit.training.monitor import History
from sslkit.training.optimizers import (
    layer_rates,
    make_optimizer,
    make_schedule,
    peak_lr,
    set_weight_decay,
    warmup_cosine,
)
from sslkit.training.step import Pretraining, Progress, Unchecked


def rates_of(method: sslkit.Method, config: OptimizerConfig) -> dict[str, float]:
    """The learning rate of each trained parameter as a share of the peak."""
    names = {p: name for name, p in method.named_parameters()}
    return {names[p]: g["lr"] / 0.5 for g in make_optimizer(method, config, 0.5).param_groups for p in g["params"]}


def test_the_learning_rate_falls_from_layer_to_layer_towards_the_input() -> None:
    """Two blocks: patches 0.5^3, block 0 0.5^2, block 1 0.5, norm and heads 1, as in BEiT."""
    method = build("dino", "vit")
    rates = rates_of(method, OptimizerConfig(layer_decay=0.5))
    net = "objective.backbone.net."
    expected = {"patch_embed": 0.125, "pos_embed": 0.125, "cls_token": 0.125}
    expected |= {"blocks.0": 0.25, "blocks.1": 0.5, "fc_norm": 1.0, "norm": 1.0}
    for name, rate in rates.items():
        part = name.removeprefix(net)
        known = next((rate for start, rate in expected.items() if part.startswith(start)), None)
        assert rate == (known if name.startswith(net) else 1.0), name
    assert set(rates) == {name for name, p in method.named_parameters() if p.requires_grad}
    assert {0.125, 0.25, 0.5, 1.0} == set(rates.values())


def test_the_first_group_has_the_peak_and_without_decay_nothing_changes() -> None:
    method = build("simsiam", "resnet")
    with_decay = make_optimizer(method, OptimizerConfig(layer_decay=0.7), 0.5).param_groups
    assert with_decay[0]["lr"] == 0.5 and not with_decay[0]["constant_lr"]
    plain = make_optimizer(method, OptimizerConfig(), 0.5).param_groups
    assert [g["lr"] for g in plain] == [0.5] * 4 and [g["constant_lr"] for g in plain] == [False, False, True, True]


def test_a_network_without_layers_is_refused(small_run, tmp_path) -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(784, 8))
    run = {**small_run, "method": "simclr", "optimizer": {"layer_decay": 0.7}}
    with pytest.raises(UserError, match=r"optimizer\.layer_decay=0\.7: backbone .* does not say what its layers are"):
        sslkit.pretrain(run, backbone=own)
    assert not (tmp_path / "zoo").exists()
    assert min(layer_rates(build("simclr", "resnet"), 0.7).values()) < 0.7


@pytest.mark.parametrize(("scaling", "peak"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_peak_is_for_256_images_of_an_optimiser_step(scaling: str, peak: float, small_run, capsys) -> None:
    given = {"optimizer": {"lr": 0.1, "lr_scaling": scaling}, "batch_size": 512, "trainer": {"accumulate": 2}}
    assert peak_lr(Config.from_mapping(given)) == pytest.approx(peak)
    more = Config.from_mapping({**given, "trainer": {"accumulate": 8}})
    assert peak_lr(more, batches=2) == pytest.approx(peak)  # an epoch has no more


def test_the_first_lines_say_what_the_optimiser_does(small_run, capsys) -> None:
    optimizer = {
        "lr": 0.008,
        "lr_scaling": "linear",
        "layer_decay": 0.75,
        "weight_decay": 0.04,
        "weight_decay_end": 0.4,
    }
    sslkit.pretrain({**small_run, "epochs": 1, "optimizer": optimizer})
    said = unfolded(capsys.readouterr().out)
    assert (
        "adamw     lr 0.001 = 0.008 x 32/256, x 0.75 from each layer to the one before, weight decay 0.04 to 0.4"
        in said
    )


def test_registers_and_class_tokens_are_of_the_first_layer() -> None:
    """github.com/huggingface/pytorch-image-models/issues/2712: with the rate of the last one they were."""
    size = {"img_size": 32, "patch_size": 16, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 0}
    net = VisionTransformer(**size, reg_tokens=2)
    method = sslkit.method("simclr", backbone=net, image_size=32, objective={"dim": 8, "hidden": 16})
    rates = rates_of(method, OptimizerConfig(layer_decay=0.5))
    found = {name.removeprefix("objective.backbone.net."): rate for name, rate in rates.items()}
    first = ("cls_token", "reg_token", "pos_embed", "patch_embed.proj.weight")
    assert {found[name] for name in first} == {min(rates.values())} != {1.0}


def test_the_weight_decay_moves_along_a_cosine_and_never_on_biases() -> None:
    config = OptimizerConfig(weight_decay=0.04, weight_decay_end=0.4)
    optimizer = make_optimizer(build("simclr", "resnet"), config, 0.5)
    seen = []
    for step in (0, 5, 10):
        set_weight_decay(optimizer, config, step, 10)
        decays = {p.dim() > 1: g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
        assert decays[False] == 0.0
        seen.append(decays[True])
    assert seen == pytest.approx([0.04, 0.22, 0.4])  # numpy: 0.4 + 0.5 (0.04 - 0.4) (1 + cos(pi s / 10)), DINO's code


def test_killed_and_resumed_with_every_schedule_is_bitwise_the_unbroken_run(small_run, monkeypatch) -> None:
    optimizer = {"lr_scaling": "sqrt", "layer_decay": 0.6, "weight_decay": 0.1, "weight_decay_end": 20.0}
    run = {**small_run, "epochs": 3, "optimizer": optimizer}
    decays: dict[str, list[float]] = {"whole": [], "broken": []}
    before = Progress.before_step

    def seen(name: str, die: bool):
        def before_step(self, loop: Loop) -> None:
            if die and loop.step == 4:
                raise InterruptedError("killed")
            before(self, loop)
            decays[name].append(loop.optimizer.param_groups[0]["weight_decay"])

        return before_step

    monkeypatch.setattr(Progress, "before_step", seen("whole", die=False))
    whole = sslkit.pretrain({**run, "name": "whole"})
    monkeypatch.setattr(Progress, "before_step", seen("broken", die=True))
    with pytest.raises(UserError, match="resume=True"):
        sslkit.pretrain({**run, "name": "broken"})
    monkeypatch.setattr(Progress, "before_step", seen("broken", die=False))
    broken = sslkit.pretrain({**run, "name": "broken", "resume": True})
    assert decays["broken"] == decays["whole"][:4] + decays["whole"][3:] and decays["whole"][0] == 0.1
    one, other = whole.state_dict(), broken.state_dict()
    assert all(torch.equal(one[k], other[k]) for k in one)
    with pytest.raises(UserError, match=r"other settings.*optimizer"):
        sslkit.pretrain({**run, "name": "broken", "resume": True, "optimizer": {**optimizer, "layer_decay": 0.9}})


def test_warmup_then_cosine_to_zero() -> None:
    factors = [warmup_cosine(step, 100, 0.1) for step in range(101)]
    assert factors[0] == pytest.approx(0.1) and factors[9] == 1.0 and factors[100] == pytest.approx(0)
    assert factors[55] == pytest.approx((1 + math.cos(math.pi * 45 / 90)) / 2)


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5, 1.0])
def test_no_step_is_without_a_rate_and_none_jumps(steps: int, warmup: float) -> None:
    """github.com/lightly-ai/lightly/pull/1842 and kibok90/imix/issues/1: where the warmup ends, or is all there is."""
    factors = [warmup_cosine(step, steps, warmup) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors) and max(factors) == 1
    falling = factors[factors.index(1.0) :]
    assert falling == sorted(falling, reverse=True)
    rising = max(round(steps * warmup), 1)
    rise, fall = 1 / rising, math.pi / 2 / max(steps - rising, 1)
    assert all(abs(a - b) <= max(rise, fall) + 1e-12 for a, b in pairwise(factors))


def test_dsas_schedule_rises_for_steps_and_drops_before_the_end() -> None:
    """Song et al. 2024, VI-B, on 100 epochs of 20 steps: 500 steps of warm-up, times 0.2 at epochs 50 and 75."""
    optimizer = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "constant_lr": False}], lr=1.0)
    schedule = make_schedule(optimizer, OptimizerConfig(warmup=500, schedule="step"), steps=2000, epochs=100)
    (factor,) = schedule.lr_lambdas
    expected = [min((step + 1) / 500, 1) * (1 if step < 1000 else 0.2 if step < 1500 else 0.04) for step in range(2000)]
    assert [factor(step) for step in range(2000)] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["adamw", "sgd", "lars"])
def test_simsiams_predictor_keeps_its_learning_rate(name: str) -> None:
    method = sslkit.method("simsiam", image_size=16, objective={"dim": 8})
    optimizer = make_optimizer(method, OptimizerConfig(name=name), 0.5)
    schedule = make_schedule(optimizer, OptimizerConfig(name=name, warmup=0.2), steps=10, epochs=2)
    apart = {id(p) for p in method.objective.predictor.parameters()}
    seen = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert seen == {id(p) for p in method.parameters() if p.requires_grad}
    for step in range(10):
        for group in optimizer.param_groups:
            constant = {id(p) in apart for p in group["params"]}
            assert len(constant) == 1
            expected = 0.5 if constant == {True} else 0.5 * warmup_cosine(step, 10, 0.2)
            assert group["lr"] == pytest.approx(expected)
        optimizer.step()
        schedule.step()


def test_norms_and_biases_do_not_decay() -> None:
    method = sslkit.method("simclr", image_size=16)
    optimizer = make_optimizer(method, OptimizerConfig(weight_decay=0.3), 1e-3)
    for group in optimizer.param_groups:
        assert group["weight_decay"] == (0.3 if all(p.dim() > 1 for p in group["params"]) else 0.0)
        assert len({p.dim() > 1 for p in group["params"]}) == 1


def test_a_frozen_parameter_is_in_no_group() -> None:
    method = sslkit.method("moco_v3", image_size=16, objective={"hidden": 16})
    optimizer = make_optimizer(method, OptimizerConfig(), 1e-3)
    frozen = {id(p) for p in method.parameters() if not p.requires_grad}
    assert frozen and not frozen & {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert isinstance(optimizer, torch.optim.AdamW)


class LateOnCPU(Late):
    """As on a GPU: to be read in the next step."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(x.clone())
        self.is_late = True

    def read(self) -> Tensor:
        return self._here


@pytest.mark.parametrize("bad", [2, 3])
def test_a_loss_read_late_stops_the_run_before_anything_of_its_step_is_written(
    bad: int, small_run, tmp_path, monkeypatch
) -> None:
    """Of three steps in the second epoch the second, whose row is begun, or the last, before the checkpoint."""
    step, add, rows = sslkit.Method.step, History._add, []

    def broken(self, *given: object, **more: object) -> tuple[dict, object]:
        terms, e = step(self, *given, **more)
        is_bad = self.training and (self.epoch, self.batch) == (1, bad)
        return {**terms, "loss": terms["loss"] * torch.inf} if is_bad else terms, e

    monkeypatch.setattr(sslkit.Method, "step", broken)
    monkeypatch.setattr("sslkit.training.step.Late", LateOnCPU)
    monkeypatch.setattr("sslkit.training.monitor.Late", LateOnCPU)
    monkeypatch.setattr(History, "_add", lambda self, row, loop, **how: rows.append(row) or add(self, row, loop, **how))
    with pytest.raises(RunFailed, match=f"the loss is not finite at epoch 1, step {2 + bad}: loss = inf"):
        sslkit.pretrain({**small_run, "name": "broken"})
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert max(row["step"] for row in rows) == 3 + bad - 1
    state = torch.load(tmp_path / "zoo" / "broken" / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["epoch"] == 1 and all(value.isfinite().all() for value in state["module"].values())


def test_the_last_step_of_an_epoch_is_checked_before_a_checkpoint() -> None:
    module = Pretraining(sslkit.method("simclr", backbone="narrow_resnet", image_size=16, in_chans=1))
    hook = Progress(module, OptimizerConfig(), steps=1)
    hook.epoch_end(None)  # nothing waits to be checked
    terms = Late(torch.tensor([1.0, torch.inf, torch.inf]))
    module._unchecked = Unchecked(terms, ("align", "constrain", "loss"), epoch=2, steps_done=7)
    with pytest.raises(RunFailed, match="the loss is not finite at epoch 2, step 7: constrain = inf"):
        hook.epoch_end(None)
    hook.epoch_end(None)


def test_weights_that_are_not_finite_are_not_kept(small_run, tmp_path, monkeypatch) -> None:
    """A NaN in a gradient of the last step, whose loss is finite: the checkpoint before stays, and no entry is made."""
    before_step = Progress.before_step

    def broken(self: Progress, loop: Loop) -> None:
        before_step(self, loop)
        if loop.step + 1 == self.steps:
            next(loop.module.method.backbone.parameters()).grad.fill_(torch.nan)

    with (
        monkeypatch.context() as patch,
        pytest.raises(RunFailed, match=r"not finite after step 6: objective\.backbone"),
    ):
        patch.setattr(Progress, "before_step", broken)
        sslkit.pretrain({**small_run, "name": "broken", "epochs": 2})
    assert not (tmp_path / "zoo" / "broken" / "card.json").exists()
    entry = sslkit.pretrain({**small_run, "name": "broken", "epochs": 2, "resume": True})
    assert all(value.isfinite().all() for value in entry.state_dict().values())


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (
            {"schedule": "step"},
            r"drops=\[50, 25\] are epochs before the end, and the run has 25: .* before its first step",
        ),
        ({"name": "lars"}, r"optimizer\.name=lars needs optimizer\.lr"),
    ],
)
def test_a_schedule_or_optimiser_that_would_hardly_train_is_refused(optimizer: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Config.from_mapping({"method": "simclr", "epochs": 25, "optimizer": optimizer})
    Config.from_mapping({"method": "simclr", "epochs": 51, "optimizer": {**optimizer, "lr": 0.3}})


def test_gradients_of_frozen_prototypes_are_dropped_before_the_step() -> None:
    module = Pretraining(build("dino"))
    weight = module.method.objective.prototypes.weight
    weight.grad = torch.zeros_like(weight)  # of several processes
    optimizer = make_optimizer(module.method, OptimizerConfig(), 0.1)
    Progress(module, OptimizerConfig(), steps=9).before_step(SimpleNamespace(optimizer=optimizer, step=0))
    assert weight.grad is None


def test_ddp_finds_no_aspect_to_move() -> None:
    """DDP moves the tensors that it is given, in sequences and mappings too, and views are drawn on the CPU."""
    batch = {"images": torch.zeros(2, 1, 16, 16), "index": torch.arange(2), "aspect": torch.tensor([0.5, 2.0])}
    given = to_device(batch, torch.device("cpu"))
    assert [name for name, value in given.items() if isinstance(value, Tensor)] == ["images", "index"]
    method = sslkit.method("simclr", backbone="narrow_resnet", image_size=16, in_chans=1)
    alike = [Pretraining(copy.deepcopy(method))({**one, "label": None}, 0)["loss"] for one in (batch, given)]
    assert torch.equal(*alike)
