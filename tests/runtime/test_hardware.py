"""Number format, recomputed activations and deterministic kernels, from the setting to the network."""

import pytest
import torch
from contract import batch, build, step
from torch import nn

import sslkit
from sslkit.errors import UserError
from sslkit.runtime.hardware import fuses, one_float32, precision, recompute
from sslkit.runtime.processes import make_fabric
from sslkit.training import pretrain
from sslkit.training.config import Config
from sslkit.training.machine import check_trainer


@pytest.mark.parametrize(
    ("name", "family"), [("simclr", "resnet"), ("moco_v3", "vit"), ("mae", "vit"), ("vicregl", "resnet")]
)
def test_the_gradients_are_the_same_and_the_network_runs_once_more(name: str, family: str) -> None:
    found = []
    for recomputed in (False, True):
        m = build(name, family)
        if recomputed:
            recompute(m.backbone.net, m.backbone.recipe.name)
        ran = []
        layers = [part for part in m.backbone.net.modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
        layers[-2].register_forward_hook(lambda *_, ran=ran: ran.append(1))
        loss = step(m, *batch(6))["loss"]
        loss.backward()
        found.append((len(ran), loss, [p.grad for p in m.parameters() if p.grad is not None]))
    (plain, loss, gradients), (again, same, others) = found
    assert again == 2 * plain and torch.equal(loss, same)
    assert len(gradients) == len(others)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other)


def test_a_run_ends_with_the_same_weights_and_running_statistics(small_run, capsys) -> None:
    states = []
    for on in (False, True):
        entry = sslkit.pretrain(
            {**small_run, "epochs": 1, "trainer": {**small_run["trainer"], "checkpoint_activations": on}}
        )
        states.append(torch.load(entry.folder / "checkpoints" / "last.ckpt", weights_only=True)["module"])
    one, other = states
    assert any("num_batches_tracked" in name for name in one)
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one if not k.endswith("_state"))
    assert "float32, activations recomputed" in capsys.readouterr().out


def test_a_network_that_cannot_is_refused_before_a_folder_is_made(small_run, tmp_path) -> None:
    class Own(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Flatten(), nn.Linear(784, 8))

    trainer = {**small_run["trainer"], "checkpoint_activations": True}
    with pytest.raises(UserError, match=r"trainer\.checkpoint_activations=true: backbone .* cannot recompute"):
        sslkit.pretrain({**small_run, "method": "simclr", "trainer": trainer}, backbone=Own())
    assert not (tmp_path / "zoo").exists()


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize(("precision", "kind"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
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
        entry = sslkit.pretrain({**run, "precision": precision})
    assert seen == {kind} and steps == {torch.float32}
    assert all(value.dtype is torch.float32 for value in entry.state_dict().values() if value.is_floating_point())
    assert entry.card["config"]["precision"] == precision


@pytest.mark.parametrize("number", ["bfloat16", "float32"])
def test_a_step_gets_what_the_loader_gives(number: str) -> None:
    """Autocast rounds what its operations need, and not the boxes and aspects that views are cut by."""

    class Seen(nn.Module):
        def forward(self, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            self.weight = nn.Parameter(torch.ones(2, 2))
            return {"kinds": {name: x.dtype for name, x in given.items()}, "made": given["boxes"] @ self.weight}

    fabric = make_fabric("cpu", 1, 1, "auto", number)
    given = {"boxes": torch.rand(2, 2), "images": torch.zeros(2, dtype=torch.uint8)}
    found = fabric.setup(Seen())(given)
    assert found["kinds"] == {"boxes": torch.float32, "images": torch.uint8}
    rounded = (found["made"] - given["boxes"] @ torch.ones(2, 2)).abs().max() > 1e-4
    assert rounded == (number == "bfloat16"), "the product is autocast's"


@pytest.mark.parametrize(("asked", "tf32"), [("highest", False), ("high", True)])
def test_convolutions_are_as_exact_as_matrix_products(asked: str, tf32: bool) -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision(asked)
        with one_float32():
            assert torch.backends.cudnn.allow_tf32 == tf32
        assert torch.backends.cudnn.allow_tf32 == before[1]
    finally:
        torch.set_float32_matmul_precision(before[0])


def test_precision_auto_is_bf16_on_a_gpu_that_has_it(beside_gpus, monkeypatch) -> None:
    for has, found in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has: has)
        assert [precision("auto", kind) for kind in ("auto", "cuda", "cuda:1", "cpu")] == [*[found] * 3, "float32"]


def test_one_kernel_of_adamw_is_for_gpus_and_leaves_no_gradient_to_clip() -> None:
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert all(fuses(gpu, number, 1.0) for number in ("bfloat16", "float32")) and fuses(gpu, "float16", None)
    assert not fuses(gpu, "float16", 1.0) and not fuses(cpu, "auto", None)


@pytest.mark.gpu
@pytest.mark.parametrize("first", ["cpu", "cuda"])
def test_a_run_goes_on_where_it_was_not_begun(first: str, small_run, monkeypatch) -> None:
    """AdamW in one kernel keeps the count of its steps on the GPU, and reads a checkpoint without that."""
    save = pretrain.Saving.epoch_end

    def stop(self, *given: object) -> None:
        save(self, *given)
        raise KeyboardInterrupt

    def on(accelerator: str) -> dict:
        return {
            **small_run,
            "method": "byol",
            "device": accelerator,
            "trainer": {**small_run["trainer"], "devices": 1},
        }

    with monkeypatch.context() as patch:
        patch.setattr(pretrain.Saving, "epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain(on(first))
    entry = sslkit.pretrain({**on("cuda" if first == "cpu" else "cpu"), "resume": True})
    assert all(value.isfinite().all() for value in entry.state_dict().values())


@pytest.mark.gpu
def test_a_run_on_the_cpu_does_not_touch_the_gpu(small_run) -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    entry = sslkit.pretrain({**small_run, "device": "cpu"})
    assert entry.card["computed"]["device"] == "cpu" and torch.cuda.max_memory_allocated() == before


def test_half_precision_needs_a_gpu() -> None:
    with pytest.raises(UserError, match=r"precision=float16 needs a GPU; on a CPU use bfloat16 or float32"):
        check_trainer(Config.from_mapping({"precision": "float16", "device": "cpu"}))


def test_deterministic_kernels_are_asked_for_during_the_run_only(small_run, tmp_path, monkeypatch) -> None:
    plain = sslkit.pretrain(small_run)
    seen = []
    fit = pretrain.Loop.run

    def watched(self, *options, **more):
        seen.append(
            (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
        )
        return fit(self, *options, **more)

    monkeypatch.setattr(pretrain.Loop, "run", watched)
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
