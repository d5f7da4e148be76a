"""Weights of a file in a network: by name, by position, with or without a head, positions of another grid."""

import pytest
import timm
import torch
from timm.layers import resample_abs_pos_embed

from sslkit.backbones import fitting
from sslkit.errors import UserError

TINY = {"embed_dim": 24, "depth": 1, "num_heads": 2, "patch_size": 4}


def fill(net, state, head=("fc",)) -> list[str]:
    return fitting.fill(net, state, head=head, file="FILE", remedy="REMEDY")


def resnet(**options):
    return timm.create_model("resnet10t", **options)


def test_a_head_may_be_there_or_not_and_is_named() -> None:
    net = resnet(num_classes=0)
    for classes in (1000, 7):
        given = resnet(num_classes=classes)
        assert fill(net, given.state_dict()) == ["left out the classification head (fc.weight, fc.bias)"]
        assert all(torch.equal(value, given.state_dict()[name]) for name, value in net.state_dict().items())
    assert fill(net, resnet(num_classes=0).state_dict()) == ["without a classification head (fc.weight, fc.bias)"]
    two = ("head", "head_dist")
    deit = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=3)
    (note,) = fill(timm.create_model("deit_tiny_distilled_patch16_224", num_classes=0), deit.state_dict(), two)
    assert "head.weight" in note and "head_dist.bias" in note


def test_other_names_are_matched_by_position_if_shapes_and_kinds_agree() -> None:
    given = resnet(num_classes=5).state_dict()
    renamed = {f"a{number}.{name.rpartition('.')[2]}": value for number, (name, value) in enumerate(given.items())}
    net = resnet(num_classes=0)
    notes, (*_, weight, bias) = fill(net, renamed), renamed
    assert "by position" in notes[0] and notes[1] == f"left out the classification head ({weight}, {bias})"
    assert all(torch.equal(value, given[name]) for name, value in net.state_dict().items())
    swapped = {name.replace("weight", "bias"): value for name, value in renamed.items()}
    with pytest.raises(UserError, match=r"missing.*left over.*REMEDY"):
        fill(net, swapped)


def test_what_does_not_fit_is_named_with_the_remedy() -> None:
    net = resnet(num_classes=0)
    given = resnet().state_dict()
    with pytest.raises(
        UserError, match=r"1 of another shape: conv1.0.weight \(24, 1, 3, 3\) instead of \(24, 3, 3, 3\)"
    ):
        fill(net, given | {"conv1.0.weight": torch.zeros(24, 1, 3, 3)})
    with pytest.raises(UserError, match="FILE does not fit the network: 1 left over: extra; REMEDY"):
        fill(net, given | {"extra": torch.zeros(1)})
    with pytest.raises(UserError, match=r"of another kind of number: bn1.weight"):
        fill(net, given | {"bn1.weight": torch.zeros(given["bn1.weight"].shape, dtype=torch.int64)})
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(UserError, match=r"1 missing: bn1\.weight"):
        fill(net, {name: value for name, value in given.items() if name != "bn1.weight"})
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())  # nothing was loaded


@pytest.mark.parametrize("options", [{}, {"no_embed_class": True}, {"reg_tokens": 2}, {"class_token": False}])
def test_positions_of_another_grid_are_those_of_timm(options: dict) -> None:
    more = {"global_pool": "avg"} if options.get("class_token") is False else {}
    given = timm.create_model("vit_tiny_patch16_224", img_size=24, num_classes=0, **TINY, **options, **more)
    net = timm.create_model("vit_tiny_patch16_224", img_size=(16, 32), num_classes=0, **TINY, **options, **more)
    state = given.state_dict()
    notes = fill(net, state, ())
    assert notes == ["positions resampled from 6 x 6 to 4 x 8 patches"]
    given.set_input_size(img_size=(16, 32))  # timm's own change of a network's size
    assert torch.equal(net.pos_embed, given.pos_embed)
    assert torch.equal(net.cls_token, given.cls_token) if net.cls_token is not None else True
    prefix = 0 if options.get("no_embed_class") else net.num_prefix_tokens
    theirs = resample_abs_pos_embed(state["pos_embed"], [4, 8], [6, 6], num_prefix_tokens=prefix)
    assert torch.equal(net.pos_embed, theirs)


def test_positions_of_no_square_are_refused() -> None:
    given = timm.create_model("vit_tiny_patch16_224", img_size=(8, 16), num_classes=0, **TINY)
    net = timm.create_model("vit_tiny_patch16_224", img_size=16, num_classes=0, **TINY)
    with pytest.raises(UserError, match="not one for a square grid"):
        fill(net, given.state_dict(), ())
