"""Public reports about weights that other libraries loaded wrongly, or in part, without a word."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from sslkit.backbones.pretrained import load
from sslkit.errors import UserError

NAME = "vit_tiny_patch16_224"
State = dict[str, Tensor]


def network() -> nn.Module:
    return timm.create_model(NAME, img_size=32, depth=2, embed_dim=24, num_heads=2, num_classes=0)


@pytest.fixture(scope="module")
def state() -> State:
    torch.manual_seed(0)
    return {name: value.clone() for name, value in network().state_dict().items()}


def loaded(content: Any, folder: Path) -> tuple[nn.Module, str]:
    torch.save(content, folder / "w.pth")
    net = network()
    return net, load(net, str(folder / "w.pth"), network=NAME, where="init=x", remedy="REMEDY").line


def adapted(state: State) -> State:
    return state | {f"blocks.{k}.attn.qkv.lora_{part}.weight": torch.ones(4, 24) for k in (0, 1) for part in "AB"}


def pruned(state: State) -> State:
    name = "blocks.0.mlp.fc1.weight"
    rest = {key: value for key, value in state.items() if key != name}
    return rest | {f"{name}_orig": state[name], f"{name}_mask": torch.ones_like(state[name])}


def split_biases(state: State) -> State:
    rest = {key: value for key, value in state.items() if "qkv.bias" not in key}
    return rest | {f"blocks.{k}.attn.{part}_bias": torch.ones(24) for k in (0, 1) for part in "qv"}


NOT_THE_NETWORK: dict[str, tuple[Callable[[State], State], str]] = {
    "adapters beside their layers": (adapted, r"4 left over: blocks\.0\.attn\.qkv\.lora_A\.weight"),
    "adapters around their layers": (
        lambda s: {f"base_model.model.{key}".replace("qkv.", "qkv.base_layer."): value for key, value in s.items()},
        r"at base_model\.model: 4 missing: blocks\.0\.attn\.qkv\.weight",
    ),
    "a mask of pruning": (pruned, r"1 missing: blocks\.0\.mlp\.fc1\.weight; 2 left over"),
    "half of it below a prefix": (
        lambda s: {key if "blocks.1" in key else f"backbone.{key}": value for key, value in s.items()},
        r"at backbone: 12 missing: blocks\.1\.norm1\.weight",
    ),
    "a scale of layers": (
        lambda s: s | {f"blocks.{k}.ls1.gamma": torch.ones(24) for k in (0, 1)},
        r"2 left over: blocks\.0\.ls1\.gamma",
    ),
    "biases of queries and values alone": (split_biases, r"2 missing: blocks\.0\.attn\.qkv\.bias"),
    "a token of distillation": (
        lambda s: s | {"dist_token": s["cls_token"], "pos_embed": s["pos_embed"][:, [0, 0, 1, 2, 3, 4]]},
        r"1 left over: dist_token; 1 of another shape: pos_embed",
    ),
    "no class token": (
        lambda s: {k: v for k, v in s.items() if k != "cls_token"} | {"pos_embed": s["pos_embed"][:, 1:]},
        r"1 missing: cls_token; 1 of another shape: pos_embed",
    ),
    "the norm behind the pooling": (
        lambda s: {f"fc_{key}" if key.startswith("norm.") else key: value for key, value in s.items()},
        r"2 missing: norm\.weight, norm\.bias; 2 left over: fc_norm\.weight",
    ),
    "whole numbers": (lambda s: {key: (100 * v).to(torch.int8) for key, v in s.items()}, "of another kind of number"),
    "parts on several ranks": (lambda s: s | {"patch_embed.proj.weight": torch.empty(0)}, "1 of another shape"),
}


@pytest.mark.parametrize("what", NOT_THE_NETWORK)
def test_what_would_load_in_part_is_refused(what: str, state: State, tmp_path: Path) -> None:
    """With strict=False all of these load, and give other features than those of the file."""
    change, said = NOT_THE_NETWORK[what]
    with pytest.raises(UserError, match=rf"w\.pth does not fit the network.*{said}.*; REMEDY"):
        loaded(change(state), tmp_path)


@pytest.mark.parametrize(
    "around",
    [
        lambda s: {"module": {f"module.{key}": value for key, value in s.items()}, "ds_config": {"zero": 2}},
        lambda s: {f"module._orig_mod.{key}": value for key, value in s.items()},
        lambda s: {key: value.double() for key, value in s.items()},
        lambda s: {key: value.t().contiguous().t() if value.dim() == 2 else value for key, value in s.items()},
        lambda s: {key: nn.Parameter(value) for key, value in s.items()},
        lambda s: (
            {f"backbone.{k}": v for k, v in s.items()} | {f"ema_{k.replace('.', '_')}": v + 1 for k, v in s.items()}
        ),
    ],
    ids=["DeepSpeed", "compiled inside", "float64", "strides", "parameters", "flat averages"],
)
def test_what_is_the_network_is_loaded(around: Callable[[State], Any], state: State, tmp_path: Path) -> None:
    net, line = loaded(around(state), tmp_path)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert f"{len(state)} of " in line


@pytest.mark.parametrize(
    "content",
    [
        network,
        lambda: [torch.ones(2)],
        lambda: {"w": torch.ones(2).numpy()},
        lambda: (network().state_dict(), {"epoch": 1}),
        lambda: {"optimizer": {"state": {0: {"exp_avg": 1.0}}}},
    ],
    ids=["module", "list", "NumPy", "pair", "optimizer"],
)
def test_what_is_no_state_dict_says_how_to_write_one(content: Callable[[], Any], tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"w\.pth is no state dict of tensors: .*torch\.save\(model\.state_dict\(\), FILE\)"
    ):
        loaded(content(), tmp_path)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors", "w.bin"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 346284714\n", "git lfs pull"),
        (b"<!DOCTYPE html><html><head><title>Google Drive - Virus scan warning", "download it again"),
        (b"", "it is empty: copy it again"),
    ],
)
def test_what_stands_in_the_place_of_weights_is_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    """Other loaders say of such files: `invalid load key, 'v'`, `'<'`, `header too large`."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"init=x: .*{name} holds no weights: .*{said}"):
        load(network(), str(tmp_path / name), network=NAME, where="init=x", remedy="REMEDY")


def test_a_folder_of_weights_is_no_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder: name the file of weights in it"):
        load(network(), str(tmp_path), network=NAME, where="init=x", remedy="REMEDY")


@pytest.mark.filterwarnings("ignore:.*TorchScript")
def test_a_traced_network_is_refused_in_one_line(tmp_path: Path) -> None:
    torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)).save(tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"no state dict of tensors: .*TorchScript.*torch\.save\(model\.state_dict"):
        load(network(), str(tmp_path / "w.pt"), network=NAME, where="init=x", remedy="REMEDY")


def around_moco(state: State) -> State:
    """open-mmlab/mmselfsup 74: an encoder in a Sequential with its neck, the slow copy, the queue."""
    found = {f"encoder_q.0.{name}": value for name, value in state.items()}
    found |= {f"encoder_k.0.{name}": value + 1 for name, value in state.items()}
    return found | {"encoder_q.1.mlp.0.weight": torch.ones(2, 2), "queue": torch.ones(2, 4), "queue_ptr": torch.ones(1)}


def around_dino(state: State) -> dict[str, Any]:
    """facebookresearch/dino 66: student and teacher with their heads, of which one is wrapped for several processes."""
    student = {f"module.backbone.{name}": value + 1 for name, value in state.items()}
    teacher = {f"backbone.{name}": value for name, value in state.items()} | {"head.mlp.0.weight": torch.ones(2, 2)}
    return {"student": student, "teacher": teacher, "dino_loss": {"center": torch.ones(1, 3)}, "epoch": 3}


@pytest.mark.parametrize(("around", "left_out"), [(around_moco, "encoder_k"), (around_dino, "student")])
def test_of_two_copies_the_evaluated_one_is_loaded_and_the_other_named(
    around: Callable, left_out: str, state: State, tmp_path: Path
) -> None:
    net, line = loaded({"state_dict": around(state)} if around is around_moco else around(state), tmp_path)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert f"not state_dict.{left_out}" in line or f"not {left_out}" in line


def test_registers_and_scales_of_another_vit_are_no_plain_vit(state: State, tmp_path: Path) -> None:
    """facebookresearch/dinov3 100: `unexpected_keys`, and a network that computes something else."""
    more = {"storage_tokens": torch.ones(1, 4, 24)}
    more |= {f"blocks.{k}.attn.qkv.bias_mask": torch.ones(72) for k in (0, 1)}
    with pytest.raises(UserError, match=r"3 left over: storage_tokens, blocks\.0\.attn\.qkv\.bias_mask"):
        loaded(state | more, tmp_path)


def test_positions_of_a_larger_grid_are_resampled_and_said(state: State, tmp_path: Path) -> None:
    """facebookresearch/dinov2 218, 316: `size mismatch for pos_embed` with weights of images of 518 pixels."""
    sides = {"img_size": 64, "depth": 2, "embed_dim": 24, "num_heads": 2, "num_classes": 0}
    larger = state | {"pos_embed": timm.create_model(NAME, **sides).state_dict()["pos_embed"]}
    net, line = loaded(larger | {"mask_token": torch.ones(1, 24)}, tmp_path)
    assert "left out: mask_token (1); resampled: pos_embed 4x4 -> 2x2" in line
    assert torch.equal(net.pos_embed[:, 0], larger["pos_embed"][:, 0]), "the class token's stays"


def test_a_download_that_was_cut_off_says_so(state: State, tmp_path: Path) -> None:
    """facebookresearch/dinov3 1, xinyu1205/recognize-anything 105: `failed finding central directory`."""
    torch.save(state, tmp_path / "w.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "w.pth").read_bytes()[:-2000])
    with pytest.raises(UserError, match=r"cut\.pth .*its end is missing, as of a download that was cut off: copy it"):
        load(network(), str(tmp_path / "cut.pth"), network=NAME, where="init=x", remedy="REMEDY")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("__0_0.distcp", r"dcp_to_torch_save\(FOLDER, FILE\)"),
        ("model.safetensors.index.json", r"model\.state_dict\(\)"),
    ],
)
def test_a_part_of_a_checkpoint_says_how_it_becomes_one_file(name: str, said: str, tmp_path: Path) -> None:
    """Checkpoints of torch.distributed and of transformers, of which people give one file."""
    (tmp_path / name).write_bytes(b'{"weight_map": {}}')
    with pytest.raises(UserError, match=rf"is a part of a checkpoint in several files: .*{said}"):
        load(network(), str(tmp_path / name), network=NAME, where="init=x", remedy="REMEDY")
