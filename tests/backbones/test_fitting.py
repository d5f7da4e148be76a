"""Weights of a file in a network: by name wherever they stand, never by order; heads, other networks, other grids."""

from typing import Any

import pytest
import timm
import torch
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from sslkit.backbones import fitting
from sslkit.errors import UserError

TINY = {"embed_dim": 24, "depth": 1, "num_heads": 2, "patch_size": 4}


def fill(net: nn.Module, content: Any, head: tuple[str, ...] = ("fc",), part: str = "") -> fitting.Match:
    return fitting.fill(net, content, network="NET", head=head, part=part, file="FILE", remedy="REMEDY")


def resnet(**options: Any) -> nn.Module:
    return timm.create_model("resnet10t", **options)


def vit(**options: Any) -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", num_classes=0, **{"img_size": 16, **TINY, **options})


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {name: value + 1 for name, value in resnet(num_classes=0).state_dict().items()}


@pytest.fixture(scope="module")
def other(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value + 1 for name, value in state.items()}


def below(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in state.items()}


def is_loaded(net: nn.Module, state: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


FORMS = {  # of files with one network: what their projects put around its state dict
    "plain": lambda s: s,
    "model": lambda s: {"model": s, "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}, "epoch": 3},
    "teacher": lambda s: {"teacher": s},
    "nested": lambda s: {"model": {"state_dict": s}},
    "data parallel": lambda s: {"state_dict": below("module.", s)},
    "compiled": lambda s: below("_orig_mod.module.", s),
    "compiled layers": lambda s: {name.replace("layer1.", "layer1._orig_mod."): value for name, value in s.items()},
    "sharded": lambda s: {"model": below("_fsdp_wrapped_module.encoder.", s)},
    "lightning": lambda s: {"state_dict": below("model.", s), "callbacks": {}, "hyper_parameters": {"lr": 0.1}},
    "lightly": lambda s: {"state_dict": below("backbone.", s) | {"projection_head.0.weight": torch.ones(2)}},
    "moco v2 without module": lambda s: {"state_dict": below("encoder_q.", s) | {"queue": torch.ones(2, 4)}},
    "byol": lambda s: below("net.", s) | below("projector.net.", {"0.weight": torch.ones(2)}),
    "vissl": lambda s: {"classy_state_dict": {"base_model": {"model": {"trunk": below("_feature_blocks.", s)}}}},
    "open_clip's timm tower": lambda s: {
        "state_dict": below("module.visual.trunk.", s) | {"logit_scale": torch.ones(1)}
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_network_is_found_wherever_it_stands(form: str, state: dict[str, Tensor]) -> None:
    """timm 2003, lightly 1475, moco 84, open_clip 343, vissl 573, pytorch 101107 are reports of such files."""
    net = resnet(num_classes=0)
    assert fill(net, FORMS[form](state)).line.startswith(f"NET: {len(state)} of ")
    assert is_loaded(net, state)


def test_the_line_says_where_what_was_left_out_and_what_was_absent(state: dict[str, Tensor], other) -> None:
    moco = below("module.encoder_q.", state | {"fc.weight": torch.ones(2, 4), "fc.bias": torch.ones(2)})
    moco |= below("module.encoder_k.", other) | {"module.queue": torch.ones(4, 9), "module.queue_ptr": torch.ones(1)}
    match = fill(resnet(num_classes=0), {"state_dict": moco, "arch": "resnet10t"})
    assert match.line == (
        f"NET: {len(state)} of {2 * len(state) + 4} tensors from FILE (state_dict, prefix module.encoder_q.; "
        f"not state_dict.module.encoder_k); left out: fc.* (2), encoder_k.* ({len(state)}), queue (1), queue_ptr (1)"
    )
    assert not match.head  # the projector of a self-supervised file is no classifier
    old = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    net = resnet(num_classes=0)
    line = fill(net, old).line  # pytorch 8481: files of PyTorch before 0.4.1
    assert line == f"NET: {len(old)} of {len(old)} tensors from FILE; not in the file: num_batches_tracked (14)"
    averaged = state | {name: value.float() for name, value in state.items() if name not in old}
    fill(net, averaged)
    assert is_loaded(net, state)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"teacher": "backbone."}, {"student": "module.backbone."}),  # dino 217
        ({"model": "teacher.backbone."}, {"model": "student.backbone."}),  # dinov2 235
        ({"state_dict_ema": "module."}, {"state_dict": "module."}),  # OpenTAD 44
        ({"model_ema": ""}, {"model": ""}),
        ({"state_dict": "module.base_encoder."}, {"state_dict": "module.momentum_encoder."}),
        ({"state_dict": "backbone."}, {"state_dict": "momentum_backbone."}),
        ({"state_dict": "backbone."}, {"state_dict": "backbone_momentum."}),
        ({"model": "online_encoder.net."}, {"model": "target_encoder.net."}),
        ({"ema": "teacher."}, {"model": "teacher."}),
    ],
)
def test_of_two_networks_the_one_that_its_project_evaluates(first: dict, second: dict, state, other) -> None:
    content: dict[str, dict] = {}
    for where, tensors in ((second, other), (first, state)):
        ((key, prefix),) = where.items()
        content.setdefault(key, {}).update(below(prefix, tensors))
    net = resnet(num_classes=0)
    ((key, prefix),), ((key2, prefix2),) = first.items(), second.items()
    label, label2 = f"{key}.{prefix}".strip("."), f"{key2}.{prefix2}".strip(".")
    assert f"not {label2})" in fill(net, content).line and is_loaded(net, state)
    assert f"not {label})" in fill(net, content, part=label2).line and is_loaded(net, other)


def test_where_no_rule_says_which_the_places_are_named(state, other) -> None:
    """ijepa 51: its files hold `encoder` and `target_encoder`, and people differ on which to take."""
    content = {"encoder": below("module.", state), "target_encoder": below("module.", other)}
    net = resnet(num_classes=0)
    with pytest.raises(UserError, match=r"FILE holds several networks that fit, at encoder.module, target_encoder.mod"):
        fill(net, content)
    fill(net, content, part="target_encoder")
    assert is_loaded(net, other)
    with pytest.raises(UserError, match=r"FILE has no part techer: it holds encoder.module, target_encoder.module"):
        fill(net, content, part="techer")
    with pytest.raises(UserError, match=r"at ., copy: name one behind the file, FILE:\."):
        fill(net, state | below("copy.", other))
    fill(net, state | below("copy.", other), part=".")
    assert is_loaded(net, state)
    equal = {name: value.clone() for name, value in state.items()}
    fill(net, {"encoder": state, "target_encoder": equal})  # it does not matter which


def test_a_network_that_does_not_fit_is_no_candidate(state: dict[str, Tensor]) -> None:
    """A large teacher holds all names of a small student."""
    teacher = {name: torch.ones(*value.shape, 2) for name, value in state.items()}
    net = resnet(num_classes=0)
    assert "(student)" in fill(net, {"teacher": teacher, "student": state}).line and is_loaded(net, state)


def test_foreign_names_are_never_matched_by_order_or_shape() -> None:
    """Forty of resnet18's tensors can be swapped with others of their shape and kind."""
    given = timm.create_model("resnet18", num_classes=0).state_dict()
    net = timm.create_model("resnet18", num_classes=0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    renamed = {f"a{number}.{name.rpartition('.')[2]}": value for number, (name, value) in enumerate(given.items())}
    swapped = dict(sorted(renamed.items(), key=lambda item: (str(item[1].shape), item[0])))
    for content in (renamed, swapped, list(given.values())):
        with pytest.raises(UserError, match=r"0 of its 120 tensors are there by name|holds none by name"):
            fill(net, content)
    assert is_loaded(net, before)


def test_a_head_may_be_there_or_not_and_is_named() -> None:
    net = resnet(num_classes=0)
    for classes in (1000, 7):
        given = resnet(num_classes=classes).state_dict()
        match = fill(net, given)
        assert match.line == f"NET: {len(given) - 2} of {len(given)} tensors from FILE; left out: fc.* (2)"
        assert is_loaded(net, given) and match.head["fc.weight"] is given["fc.weight"]
    two = ("head", "head_dist")
    deit = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=3)
    match = fill(timm.create_model("deit_tiny_distilled_patch16_224", num_classes=0), deit.state_dict(), two)
    assert match.line.endswith("; left out: head.* (2), head_dist.* (2)") and len(match.head) == 4


def test_what_is_beside_a_backbone_in_a_file_is_left_out_and_said() -> None:
    """dino 66: heads of three layers; mae 156, MIMDet 11: decoders."""
    net, given = vit(), vit().state_dict()
    more = {f"head.mlp.{i}.weight": torch.ones(2) for i in (0, 2, 4)} | {"head.last_layer.weight_g": torch.ones(1)}
    more |= {
        "mask_token": torch.ones(1),
        "decoder_blocks.0.norm1.weight": torch.ones(3),
        "decoder_pred.bias": torch.ones(1),
    }
    line = fill(net, {"model": given | more}, ("head",)).line
    assert line.endswith("left out: head.* (4), mask_token (1), decoder_blocks.* (1), decoder_pred.* (1)")
    assert is_loaded(net, given)


def test_a_deeper_network_is_another_one() -> None:
    given = vit(depth=2).state_dict()
    assert vit(depth=1).state_dict().keys() < given.keys()
    with pytest.raises(UserError, match=r"FILE does not fit the network: 12 left over: blocks\.1\.norm1"):
        fill(vit(depth=1), given, ())
    with pytest.raises(UserError, match=r"FILE does not fit the network at model.net: 12 missing: blocks\.1\.norm1"):
        fill(vit(depth=2), {"model": below("net.", vit(depth=1).state_dict())}, ())


def test_what_does_not_fit_is_named_with_the_remedy() -> None:
    net = resnet(num_classes=0)
    given = resnet().state_dict()
    with pytest.raises(
        UserError, match=r"1 of another shape: conv1.0.weight \(24, 1, 3, 3\) instead of \(24, 3, 3, 3\)"
    ):
        fill(net, given | {"conv1.0.weight": torch.zeros(24, 1, 3, 3)})
    with pytest.raises(UserError, match="FILE does not fit the network: 1 left over: extra; REMEDY"):
        fill(net, given | {"extra": torch.zeros(1)})
    shape = given["bn1.weight"].shape
    for dtype in (torch.int64, torch.bool, torch.complex64):
        with pytest.raises(UserError, match=r"1 of another kind of number: bn1.weight"):
            fill(net, given | {"bn1.weight": torch.zeros(shape, dtype=dtype)})
    with pytest.raises(UserError, match=r"FILE holds bn1.weight, which is sparse"):
        fill(net, given | {"bn1.weight": torch.zeros(1).expand(shape)})
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(UserError, match=r"1 missing: bn1\.weight"):
        fill(net, {name: value for name, value in given.items() if name != "bn1.weight"})
    for empty in ({}, {"epoch": 3}, [1, 2], None):
        with pytest.raises(UserError, match=r"FILE is no state dict of tensors: it holds none by name, .*; REMEDY"):
            fill(net, empty)
    assert is_loaded(net, before)  # nothing was loaded


def test_a_content_that_holds_itself_ends(state: dict[str, Tensor]) -> None:
    content: dict[str, Any] = {"model": state}
    content["itself"] = content
    net = resnet(num_classes=0)
    fill(net, content)
    assert is_loaded(net, state)


@pytest.mark.parametrize("options", [{}, {"no_embed_class": True}, {"reg_tokens": 2}, {"class_token": False}])
def test_positions_of_another_grid_are_those_of_timm(options: dict) -> None:
    more = {"global_pool": "avg"} if options.get("class_token") is False else {}
    given, net = vit(img_size=24, **options, **more), vit(img_size=(16, 32), **options, **more)
    state = given.state_dict()
    line = fill(net, {"teacher": below("backbone.", state)}, ()).line
    assert line.endswith("(teacher, prefix backbone.); resampled: pos_embed 6x6 -> 4x8")
    given.set_input_size(img_size=(16, 32))  # timm's own change of a network's size
    assert torch.equal(net.pos_embed, given.pos_embed)
    assert torch.equal(net.cls_token, given.cls_token) if net.cls_token is not None else True
    prefix = 0 if options.get("no_embed_class") else net.num_prefix_tokens
    theirs = resample_abs_pos_embed(state["pos_embed"], [4, 8], [6, 6], num_prefix_tokens=prefix)
    assert torch.equal(net.pos_embed, theirs)


def test_positions_of_no_square_and_patches_of_another_size_are_refused() -> None:
    with pytest.raises(UserError, match=r"1 of another shape: pos_embed \(1, 9, 24\) instead of \(1, 17, 24\)"):
        fill(vit(), vit(img_size=(8, 16)).state_dict(), ())
    with pytest.raises(UserError, match=r"1 for patches of another size: patch_embed\.proj\.weight"):
        fill(vit(), vit(patch_size=8).state_dict(), ())
