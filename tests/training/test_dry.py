"""The memory and the least time of a run that is not started."""

import pytest
import torch
from torch import nn

import sslkit
from sslkit import objectives, regularizers
from sslkit.data.items import IMAGE
from sslkit.runtime.pretended import DEVICE, Work, counting, place_on_device
from sslkit.training import dry
from sslkit.training.config import OptimizerConfig

MIB = 2**20


def test_a_layer_is_counted_by_hand() -> None:
    """(64, 1024) x (1024, 2048): input and gradient are there with the output's, the weights and theirs."""
    with counting() as counter:
        layer = place_on_device(nn.Linear(1024, 2048, bias=False))
        assert counter.live == 8 * MIB
        x = torch.empty(64, 1024, device=DEVICE)
        counter.restart()
        loss = layer(x).sum()
        assert counter.peak - counter.live == 64 * 2048 * 4 and counter.live == (8 + 0.25) * MIB + 512
        loss.backward()
        assert counter.live == (16 + 0.25) * MIB + 512
    assert [one.flops for one in counter.work if one.flops] == 2 * [2 * 64 * 1024 * 2048]
    product = next(one for one in counter.work if one.flops)
    assert product.bytes == 4 * (64 * 1024 + 1024 * 2048 + 64 * 2048)


def test_numbers_of_the_host_decide_shapes() -> None:
    with counting() as counter:
        mask = torch.tensor([True, False, True]).to(DEVICE)
        assert mask.nonzero().shape == (2, 1) and (~mask).sum().item() == 1
        unknown = torch.empty(3, device=DEVICE)
        assert counter.guesses == 0 and unknown.sum().item() == 1.0 and counter.guesses == 1
        mask.fill_(True)
        with pytest.raises(RuntimeError):
            mask.nonzero()


def test_half_precision_is_as_on_a_gpu() -> None:
    """CUDA's autocast normalises in float32, and attention saves no matrix of tokens by tokens."""
    with counting() as counter, torch.autocast("cpu", torch.bfloat16):
        x = torch.empty(2, 4, 512, 64, device=DEVICE, requires_grad=True)
        assert nn.functional.layer_norm(x.bfloat16(), (64,)).dtype is torch.float32
        counter.restart()
        out = nn.functional.scaled_dot_product_attention(x, x, x)
        assert out.dtype is torch.bfloat16 and counter.peak - counter.live < 2 * 4 * 512 * 512


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*objectives.names(), *(f"byol+{name}" for name in regularizers.names())])
def test_a_step_of_each_member_is_counted(name: str) -> None:
    network = "narrow_vit" if objectives.find(name.split("+")[0]).families[0] == "vit" else "narrow_resnet"
    few, many = (dry.predict_memory(name, network, 32, batch) for batch in (256, 512))
    assert many > few > 0


def test_what_is_saved_is_what_a_real_step_saves() -> None:
    """The storages that autograd keeps in a real step of 16 images, and the bytes after a counted forward."""
    built = sslkit.method("simclr", backbone="narrow_resnet", image_size=32)
    kept: dict[int, int] = {}

    def note(x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, nn.Parameter):
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        built(torch.zeros(16, 3, 32, 32, dtype=torch.uint8), torch.arange(16))["loss"]
    with counting() as counter:
        own = dry._copy(built, IMAGE)
        images, rows = torch.empty(16, 3, 32, 32, dtype=torch.uint8, device=DEVICE), torch.arange(16).to(DEVICE)
        before = counter.live
        loss = own(images, rows)["loss"]
        held = counter.live - before
    assert loss.requires_grad and held == pytest.approx(sum(kept.values()), rel=0.02)


def test_recomputed_activations_need_less() -> None:
    built = sslkit.method("simclr", backbone="narrow_vit", image_size=32)
    kept = dry.count_step(built, 64, "bfloat16", OptimizerConfig())
    built.backbone.net.set_grad_checkpointing(True)
    again = dry.count_step(built, 64, "bfloat16", OptimizerConfig())
    assert again.peak < 0.7 * kept.peak and sum(w.flops for w in again.work) > sum(w.flops for w in kept.work)


def test_nothing_of_the_method_is_changed() -> None:
    built = sslkit.method("byol+koleo", backbone="narrow_resnet", image_size=32)
    before, random = {name: x.clone() for name, x in built.state_dict().items()}, torch.get_rng_state()
    step = dry.count_step(built, 64, "float32", OptimizerConfig())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(x, before[name]) for name, x in built.state_dict().items())
    assert all(p.grad is None for p in built.parameters())
    slow, fast = (
        step.seconds(next(card for card in dry.CARDS if card.name == name)) for name in ("RTX 3090", "H100 80 GB")
    )
    assert 0 < fast < slow


def test_a_dry_run_prints_its_tables_and_leaves_nothing(tmp_path, capsys, monkeypatch) -> None:
    """A GiB, and an eighth of one for each image; a step of a TFLOP and a GB, in half precision."""
    kernels = [Work(10**12, 0, torch.bfloat16), Work(0, 10**9, torch.float32)]
    monkeypatch.setattr(dry, "count_step", lambda _, images, *__: dry.Step(dry.GIB + images * dry.GIB // 8, kernels))
    settings = {"batch_size": 128, "device": "cuda", "out": str(tmp_path / "runs")}
    found = sslkit.pretrain(method="simsiam", data="digits", backbone="narrow_resnet", epochs=2, dry=True, **settings)
    said = " ".join(capsys.readouterr().out.split())
    assert found is None and not (tmp_path / "runs").exists()
    assert "dry run simsiam, narrow_resnet, 8 px, bfloat16, adamw, 1 card" in said
    assert "128 17.0 fits fits fits 256 33.0 - fits fits 512 65.0 - - fits at most 168 280 576" in said
    seconds = 1 / 989 + 1 / 3350
    assert f"H100 80 GB 989 3,350 {128 / seconds:,.0f}" in said


def test_processes_share_the_batch(tmp_path, capsys, monkeypatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(dry, "count_step", lambda _, images, *__: asked.append(images) or dry.Step(2**30, []))
    settings = {"batch_size": 128, "device": "cpu", "trainer.devices": 4, "out": str(tmp_path)}
    sslkit.pretrain(method="simsiam", data="digits", backbone="narrow_resnet", dry=True, **settings)
    assert asked == [32, 64, 128] and "4 cards" in capsys.readouterr().out


def test_several_processes_need_buckets_or_hold_shares() -> None:
    held = dry.Held(trained=8, frozen=4, state=16, gathered=2, frozen_gathered=1)
    assert held.of_several(1, "fsdp") == 0 and held.of_several(2, "auto") == 8
    assert held.of_several(2, "fsdp") == 36 / 2 + 2 * 2 + 1 - 36
    built = sslkit.method("byol", backbone="narrow_vit", image_size=32)
    held = dry.Held.measure(built, "sgd")
    blocks = sum(p.numel() * 4 for block in built.backbone.net.blocks[:2] for p in block.parameters())
    assert held.trained - held.gathered == held.frozen - held.frozen_gathered == blocks and held.state == held.trained
