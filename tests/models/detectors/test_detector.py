"""Detectors on loaded models: their parameters, strides, gradients, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from detectors import SMALL, images, narrow
from PIL import Image

import sslkit
from evaluation.tasks.detection.batches import training_batches
from evaluation.tasks.detection.precision import set_precision
from sslkit.errors import UserError
from sslkit.models.detectors.body import as_input, resnet_body
from sslkit.models.detectors.c4 import SingleMapRoIAlign
from sslkit.models.detectors.detector import build_detector
from sslkit.models.detectors.sizes import Sizes
from sslkit.models.digest import weights_digest
from sslkit.runtime.context import Runtime


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


def a_batch(in_chans: int = 3, n: int = 2):
    how = {"batch_size": n, "seed": 0, "first": 0, "last": 1}
    return next(training_batches(images(n), in_chans, Runtime(device=torch.device("cpu")), **how))


@pytest.fixture(scope="module")
def resnet50():
    return sslkit.load("random:resnet50", image_size=224)


def test_a_c4_resnet50_has_the_parameters_that_are_stated(resnet50) -> None:
    box, mask = (build_detector(resnet50, 20, masks=masks, tune="all", seed=0) for masks in (False, True))
    assert count(box) == 33_242_356 and count(mask) == 35_345_161
    stated = 23_508_032 + 4_096 + 9_515_083 + 215_145
    assert count(box) == stated and count(resnet50.net) == 23_508_032 and count(mask) - count(box) == 2_102_805
    assert count(box.rpn) == 9_515_083 and count(box.roi_heads.box_predictor) == 215_145
    assert mask.roi_heads.mask_head is mask.roi_heads.box_head.res5


@pytest.mark.parametrize(
    ("name", "size", "strides"),
    [
        ("resnet18", 28, (1, 2, 4, 8)),
        ("narrow_resnet", 28, (2, 4, 8, 16)),
        ("resnet26d", 128, (4, 8, 16, 32)),
    ],
)
def test_strides_are_measured(name: str, size: int, strides: tuple[int, ...]) -> None:
    body = resnet_body(sslkit.load(f"random:{name}", image_size=size))
    assert body.strides == strides
    features = body.net.forward_features(torch.zeros(1, 3, 128, 128))
    assert features.shape[1:] == (body.channels[3], 128 // strides[3], 128 // strides[3])


def test_a_region_is_pooled_where_it_lies_on_the_map() -> None:
    ramp = torch.arange(9.0).expand(1, 1, 7, 9) * 8 + 4  # cell j covers columns 8 j to 8 j + 8 of the image
    box = torch.tensor([[10.0, 8.0, 38.0, 48.0]])
    pooled = SingleMapRoIAlign(14, stride=8)({"0": ramp}, [box], [(50, 66)])
    expected = 10 + 28 * (torch.arange(14) + 0.5) / 14
    assert torch.allclose(pooled[0, 0, 3], expected, atol=1e-4)


@pytest.mark.parametrize(("arch", "candidates"), [("c4", (12000, 6000)), ("fpn", (2000, 1000))])
def test_a_level_of_a_pyramid_keeps_fewer_candidates_than_the_one_map(arch: str, candidates: tuple[int, int]) -> None:
    kept = build_detector(narrow(), 4, arch=arch, tune="all", seed=0).rpn._pre_nms_top_n
    assert (kept["training"], kept["testing"]) == candidates


def test_tests_take_the_last_side_and_give_boxes_in_the_images_own_pixels() -> None:
    sizes = replace(SMALL, sides=(96, 128), longest=400)
    detector = build_detector(narrow(), 4, sizes=sizes, tune="all", seed=0).eval()
    seen = []
    detector.backbone.register_forward_hook(lambda _m, given, _out: seen.append(tuple(given[0].shape[-2:])))
    detector.roi_heads.score_thresh = 0.0
    [found] = detector([torch.rand(3, 64, 96)])
    assert seen == [(128, 192)]
    assert found["boxes"][:, 2].max() <= 96 and found["boxes"][:, 3].max() <= 64 and found["boxes"].max() > 48


@pytest.mark.parametrize("arch", ["c4", "fpn"])
@pytest.mark.parametrize("in_chans", [1, 3])
def test_gradient_reaches_the_first_layer_and_the_model_stays_as_it_is(arch: str, in_chans: int) -> None:
    model = narrow(in_chans)
    before = weights_digest(model.net)
    detector = build_detector(model, 4, arch=arch, masks=True, sizes=SMALL, tune="all", seed=0)
    losses = detector(*a_batch(in_chans))
    assert set(losses) == {
        "loss_classifier",
        "loss_box_reg",
        "loss_mask",
        "loss_objectness",
        "loss_rpn_box_reg",
    }
    sum(losses.values()).backward()
    without = [name for name, p in detector.named_parameters() if p.grad is None]
    first = next(p for name, p in detector.named_parameters() if name.endswith("conv1.weight"))
    assert not without and first.shape[1] == in_chans and first.grad.abs().sum() > 0
    assert weights_digest(model.net) == before


@pytest.mark.parametrize("arch", ["c4", "fpn"])
def test_a_frozen_backbone_keeps_weights_and_statistics(arch: str) -> None:
    detector = build_detector(narrow(), 4, arch=arch, tune="none", sizes=SMALL, seed=0).train()
    frozen = {name for name, p in detector.named_parameters() if not p.requires_grad}
    assert sum("conv1" in name for name in frozen) == 1 + 4, "the stem and a block of each stage"
    assert all("fpn" in n or "rpn" in n or "head" in n for n, p in detector.named_parameters() if p.requires_grad)
    before = {name: value.clone() for name, value in detector.state_dict().items()}
    sum(detector(*a_batch()).values()).backward()
    changed = {name for name, value in detector.state_dict().items() if not value.equal(before[name])}
    assert all(".res5.norm." in name for name in changed) and bool(changed) == (arch == "c4")
    assert all(p.grad is None for name, p in detector.named_parameters() if name in frozen)


def test_a_plain_vit_gets_a_pyramid_at_any_size() -> None:
    model = sslkit.load("random:narrow_vit", image_size=28, in_chans=1)
    detector = build_detector(model, 4, arch="vit_pyramid", sizes=SMALL, tune="all", seed=0)
    maps = detector.backbone(torch.zeros(1, 1, 96, 128))
    assert [tuple(m.shape[1:]) for m in maps.values()] == [(256, 96 // s, 128 // s) for s in (4, 8, 16, 32)] + [
        (256, 2, 2)
    ]
    sum(detector(*a_batch(1)).values()).backward()
    assert [name for name, p in detector.named_parameters() if p.grad is None] == []
    assert detector.backbone.body.net.patch_embed.proj.weight.grad.abs().sum() > 0


def test_a_vit_on_its_own_size_gives_the_tokens_that_it_gave() -> None:
    model = sslkit.load("random:narrow_vit", image_size=28)
    detector = build_detector(model, 4, arch="vit_pyramid", sizes=SMALL, tune="all", seed=0).eval()
    x = torch.rand(2, 3, 28, 28)
    with torch.no_grad():
        tokens = model.net.forward_features(x)[:, model.net.num_prefix_tokens :]
        assert torch.equal(detector.backbone.body(x).flatten(2).transpose(1, 2), tokens)


def test_gray_networks_see_the_luma_of_pillow() -> None:
    image, _ = images(1)[0]
    gray = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
    assert np.abs(as_input(image, 1)[0].numpy() * 255 - np.asarray(gray)).max() <= 0.51
    assert torch.equal(as_input(image, 3), image / 255)


def test_predictions_have_the_stated_form_and_none_is_allowed() -> None:
    detector = build_detector(narrow(), 4, masks=True, sizes=SMALL, tune="all", seed=0).eval()
    image = as_input(images(1)[0][0], 3)
    with torch.no_grad():
        [found] = detector([image])
        detector.roi_heads.score_thresh = 2.0
        [none] = detector([image])
    n = len(found["labels"])
    assert 0 < n <= 100 and found["masks"].shape == (n, 1, 128, 128) and found["labels"].min() >= 1
    assert none["boxes"].shape == (0, 4) and none["masks"].shape == (0, 1, 128, 128)


def test_the_same_seed_gives_the_same_new_layers_and_leaves_the_generator_alone() -> None:
    state = torch.random.get_rng_state()
    one, same, other = (build_detector(narrow(), 4, sizes=SMALL, seed=seed, tune="all") for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    layers = [d.roi_heads.box_predictor.cls_score.weight for d in (one, same, other)]
    assert torch.equal(layers[0], layers[1]) and not torch.equal(layers[0], layers[2])


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("random:narrow_vit", {}, "a C4 or FPN detector takes a ResNet"),
        ("random:narrow_resnet", {"arch": "vit_pyramid"}, "takes timm's VisionTransformer"),
        ("random:narrow_resnet", {"arch": "c5"}, "did you mean 'c4'"),
        ("random:narrow_resnet", {"tune": "some"}, "must be all or none"),
        ("random:narrow_resnet", {"classes": 0}, "classes, the number of object classes, must be"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(model: str, options: dict, said: str) -> None:
    options = {"classes": 3, "tune": "all", "seed": 0, **options}
    with pytest.raises(UserError, match=said):
        build_detector(sslkit.load(model, image_size=28), options.pop("classes"), **options)


def test_other_channels_than_gray_and_colour_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 channels; detection needs 3 \(RGB\) or 1"):
        build_detector(sslkit.load("random:narrow_resnet", image_size=28, in_chans=2), 3, tune="all", seed=0)


def test_sizes_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="at least 96"):
        Sizes(sides=(64,))
    with pytest.raises(UserError, match="must be five sides"):
        Sizes(anchors=(8, 16))


@pytest.mark.parametrize("masks", [False, True])
def test_a_training_step_takes_its_regions_through_layer4_once(masks: bool) -> None:
    detector = build_detector(narrow(), 4, masks=masks, sizes=SMALL, tune="all", seed=0)
    regions = []
    detector.roi_heads.box_head.res5.norm.register_forward_hook(lambda _m, given, _out: regions.append(len(given[0])))
    detector(*a_batch())
    assert regions == [2 * SMALL.rois]


def test_masks_are_learned_from_the_maps_of_regions_with_objects() -> None:
    detector = build_detector(narrow(), 4, masks=True, sizes=SMALL, tune="all", seed=0)
    heads, seen = detector.roi_heads, {}
    heads.box_head.res5.register_forward_hook(lambda _m, _i, out: seen.update(maps=out))
    heads.mask_predictor.register_forward_hook(lambda _m, given, _out: seen.update(masked=given[0]))
    select = heads.select_training_samples

    def sampled(*given):
        found = select(*given)
        seen["labels"] = torch.cat(found[2])
        return found

    heads.select_training_samples = sampled
    detector(*a_batch())
    objects = seen["labels"] > 0
    assert 0 < objects.sum() < len(objects) and torch.equal(seen["masked"], seen["maps"][objects])


@pytest.mark.parametrize("arch", ["c4", "fpn", "vit_pyramid"])
def test_images_are_normalised_as_the_model_was_pretrained(arch: str) -> None:
    name = "random:narrow_vit" if arch == "vit_pyramid" else "random:narrow_resnet"
    model = replace(sslkit.load(name, image_size=28), mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    detector = build_detector(model, 4, arch=arch, sizes=SMALL, tune="all", seed=0)
    images, _ = detector.transform([torch.tensor([0.5, 0.7, 0.9])[:, None, None].expand(3, 128, 128)])
    assert images.tensors[0].mean((1, 2)).tolist() == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize("masks", [False, True])
def test_bfloat16_computes_layers_and_leaves_boxes_exact(masks: bool) -> None:
    model = narrow()
    detector = set_precision(build_detector(model, 4, masks=masks, sizes=SMALL, tune="all", seed=0), "bfloat16")
    kinds = []
    for layer in (detector.backbone.conv1, detector.roi_heads.box_head.res5.layer4[0].conv1):
        layer.register_forward_hook(lambda _m, _i, out: kinds.append(out.dtype))
    losses = detector(*a_batch())
    sum(losses.values()).backward()
    assert kinds == [torch.bfloat16] * 2 and all(loss.dtype == torch.float32 for loss in losses.values())
    assert all(p.grad is not None for p in detector.parameters())
    with torch.no_grad():
        [found] = detector.eval()([as_input(images(1)[0][0], 3)])
        [exact] = build_detector(model, 4, masks=masks, sizes=SMALL, tune="all", seed=0).eval()(
            [as_input(images(1)[0][0], 3)]
        )
    assert (found["boxes"] != found["boxes"].bfloat16().float()).float().mean() > 0.3
    assert found.keys() == exact.keys() and all(found[key].dtype == exact[key].dtype for key in exact)
