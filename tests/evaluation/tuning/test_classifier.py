"""The loop that tunes all weights, against the same steps written out by hand."""

import inspect
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evaluation.tuning.classifier import (
    Setting,
    classification_loss,
    predict,
    train_classifier,
    training_batches,
    with_head,
)
from evaluation.tuning.loop import Diverged
from evaluation.tuning.pixels import Pixels, Pool
from sslkit import open_images
from sslkit.data.images import Images
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.errors import UserError
from sslkit.models.loading import Loading, load
from sslkit.models.model import Model
from sslkit.numerics.schedules import cosine

CPU = torch.device("cpu")
DIGITS = open_images("digits")
ROWS = np.arange(50)


def network(dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(dropout)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())


def loaded(dropout: float = 0.0) -> Model:
    return load(network(dropout), image_size=8, in_chans=1)


def pixels(rows: np.ndarray = ROWS, images: Images = DIGITS, resident: bool | None = None) -> Pixels:
    return Pixels(Pool([images]), rows, CPU, resident)


def tuned(model: Model, setting: Setting, given: Pixels | None = None) -> dict[str, Tensor]:
    y = torch.from_numpy(DIGITS.labels[ROWS])
    return train_classifier(
        model, given or pixels(), y, setting, classes=10, progress=False, checkpoint=None
    ).state_dict()


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def views_by_hand(setting: Setting) -> list[tuple[Tensor, Tensor]]:
    """Each step's normalised views and labels, from the documented order and generators."""
    batches, epoch = [], 0
    while len(batches) < setting.steps:
        state = np.random.SeedSequence((setting.seed, epoch)).generate_state(1, np.uint64)
        order = torch.randperm(len(ROWS), generator=torch.Generator().manual_seed(int(state[0])))
        for step in range(len(ROWS) // setting.batch_size):
            rows = ROWS[order[step * setting.batch_size : (step + 1) * setting.batch_size].numpy()]
            images = torch.from_numpy(DIGITS.pixels[rows])
            generator = view_generator(setting.seed, epoch, step)
            (view,) = augment(images, setting.views(), 8, generator, aspect=torch.ones(len(rows)))
            batches.append(((view - 0.5) / 0.5, torch.from_numpy(DIGITS.labels[rows])))
        epoch += 1
    return batches[: setting.steps]


def test_sgd_is_nesterov_momentum_along_a_cosine_with_decay_of_all_weights() -> None:
    setting = Setting(lr=0.05, head_lr=0.2, weight_decay=0.01, steps=7, batch_size=16, crop=(0.3, 1.0), seed=3)
    model = loaded()
    net = with_head(model, 10).train()
    weights = list(net.named_parameters())
    velocity = {name: torch.zeros_like(w) for name, w in weights}
    for step, (view, y) in enumerate(views_by_hand(setting)):
        gradients = torch.autograd.grad(F.cross_entropy(net(view), y), [w for _, w in weights])
        factor = 0.5 * (1 + math.cos(math.pi * step / 7))
        with torch.no_grad():
            for (name, w), g in zip(weights, gradients, strict=True):
                g = g + 0.01 * w
                velocity[name] = 0.9 * velocity[name] + g
                w -= factor * (0.2 if name.startswith("head") else 0.05) * (g + 0.9 * velocity[name])
    found = tuned(model, setting)
    for name, w in net.state_dict().items():
        torch.testing.assert_close(found[name], w, rtol=1e-5, atol=1e-6, msg=name)
    assert not torch.equal(found["backbone.net.0.weight"], model.net.state_dict()["0.weight"])


def test_adamw_decays_apart_from_the_gradient() -> None:
    setting = Setting(lr=0.01, weight_decay=0.5, steps=4, batch_size=25, optimizer="adamw", mirror=False)
    model = loaded()
    net = with_head(model, 10).train()
    weights = list(net.parameters())
    first, second = [torch.zeros_like(w) for w in weights], [torch.zeros_like(w) for w in weights]
    for step, (view, y) in enumerate(views_by_hand(setting)):
        gradients = torch.autograd.grad(F.cross_entropy(net(view), y), weights)
        rate = 0.01 * 0.5 * (1 + math.cos(math.pi * step / 4))
        with torch.no_grad():
            for w, g, m, v in zip(weights, gradients, first, second, strict=True):
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                mean, square = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
                w.sub_(rate * 0.5 * w).sub_(rate * mean / (square.sqrt() + 1e-8))
    found = tuned(model, setting)
    for name, w in net.state_dict().items():
        torch.testing.assert_close(found[name], w, rtol=1e-4, atol=1e-5, msg=name)


def test_the_rate_follows_pytorchs_cosine() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    for step in range(20):
        assert cosine(step, 20) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        schedule.step()
    assert cosine(20, 20) == 0


def test_one_seed_one_network_to_the_last_bit_and_the_global_generator_stays() -> None:
    setting = Setting(lr=0.1, steps=5, batch_size=16, seed=1)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = tuned(loaded(dropout=0.5), setting)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    assert same(first, tuned(loaded(dropout=0.5), setting))
    other = Setting(lr=0.1, steps=5, batch_size=16, seed=2)
    assert not same(first, tuned(loaded(dropout=0.5), other))


def test_the_given_network_is_left_as_it_was() -> None:
    model = loaded()
    before = {name: value.clone() for name, value in model.net.state_dict().items()}
    model.net.requires_grad_(False)
    after = tuned(model, Setting(lr=0.1, steps=4, batch_size=16))
    assert same(before, model.net.state_dict()) and not model.net.training
    for name in ("0.weight", "1.weight", "1.running_mean"):  # all weights, and statistics of training batches
        assert not torch.equal(after[f"backbone.net.{name}"], before[name])


def test_pixels_read_again_train_as_those_that_are_kept() -> None:
    setting = Setting(lr=0.1, steps=8, batch_size=16)
    kept, read = pixels(resident=True), pixels(resident=False)
    assert same(tuned(loaded(), setting, kept), tuned(loaded(), setting, read))
    assert kept.images.shape == (50, 1, 8, 8) and kept.images.dtype == torch.uint8 and read.images is None


def test_fewer_images_than_a_batch_are_one_batch() -> None:
    batches = list(training_batches(loaded(), pixels(np.arange(7)), Setting(lr=0.1, steps=3, batch_size=64)))
    assert [len(view) for view, _ in batches] == [7, 7, 7]
    assert all(sorted(at.tolist()) == list(range(7)) for _, at in batches)
    assert not torch.equal(batches[0][1], batches[1][1])


@pytest.mark.parametrize("mirror", [False, True])
def test_images_are_mirrored_only_if_asked_for(mirror: bool) -> None:
    from sslkit.data.arrays import ArrayImages
    from sslkit.data.images import Identity, ImageOptions

    bright_right = np.zeros((40, 1, 8, 8), np.uint8)
    bright_right[..., 4:] = 255
    images = ArrayImages(bright_right, Identity("half", labels=np.zeros(40)), ImageOptions())
    setting = Setting(lr=0.1, steps=1, batch_size=40, mirror=mirror, crop=(1.0, 1.0))
    ((view, _),) = training_batches(loaded(), pixels(np.arange(40), images), setting)
    mirrored = (view[..., :4].mean((1, 2, 3)) > view[..., 4:].mean((1, 2, 3))).float().mean().item()
    assert (0.2 < mirrored < 0.8) if mirror else mirrored == 0


def test_scores_are_those_of_centre_crops_in_eval_mode() -> None:
    model = inspect.unwrap(load)(network(), loading=Loading(image_size=6, in_chans=1))
    net = train_classifier(
        model,
        pixels(),
        torch.from_numpy(DIGITS.labels[ROWS]),
        Setting(lr=0.1, steps=4, batch_size=16),
        classes=10,
        checkpoint=None,
        progress=True,
    )
    images = DIGITS.at(image_size=6, channels=1, fit="crop", resize=8)
    scores = predict(net, model, pixels(np.arange(300), images), precision="float32")
    middle = torch.from_numpy(DIGITS.pixels[:300, :, 1:7, 1:7]).float() / 255
    with torch.no_grad():
        expected = net.eval()((middle - 0.5) / 0.5)
    assert scores.shape == (300, 10)
    torch.testing.assert_close(scores, expected)


def test_unknown_labels_do_not_count_in_the_loss() -> None:
    scores = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]], requires_grad=True)
    target = torch.tensor([[1, 0, -1], [-1, 1, 0]], dtype=torch.int8)
    loss = classification_loss(scores, target)
    log = math.log1p
    expected = (log(math.exp(-2.0)) + log(math.exp(0.5)) + log(math.exp(0.0)) + log(math.exp(-3.0))) / 4
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient[0, 1] == 0 and gradient[1, 2] == 0 and (gradient != 0).sum() == 4


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    with pytest.raises(Diverged, match="by step 20"):  # checked every 20 steps
        tuned(loaded(), Setting(lr=1e30, steps=120, batch_size=16))


def test_scores_that_are_not_finite_are_refused() -> None:
    net = with_head(loaded(), 10).eval()
    nn.init.constant_(net.head.bias, math.nan)
    with pytest.raises(Diverged):
        predict(net, loaded(), pixels(), precision="float32")


def test_bfloat16_is_used_where_it_is_asked_for() -> None:
    seen = []
    model = loaded()
    model.net[0].register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    tuned(model, Setting(lr=0.1, steps=2, batch_size=16, precision="bfloat16"))
    tuned(model, Setting(lr=0.1, steps=2, batch_size=16))
    assert seen == [torch.bfloat16] * 2 + [torch.float32] * 2


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": 0},
        {"lr": -0.1},
        {"lr": math.nan},
        {"lr": "0.1"},
        {"head_lr": 0.0},
        {"weight_decay": -1e-4},
        {"steps": 0},
        {"steps": 2.5},
        {"batch_size": 1},
        {"seed": -1},
        {"optimizer": "sdg"},
        {"precision": "bf16"},
        {"crop": (0.5, 1.5)},
    ],
)
def test_a_setting_out_of_range_is_one_clear_error(bad: dict) -> None:
    (name,) = bad
    with pytest.raises(UserError, match="scale" if name == "crop" else name):
        Setting(**{"lr": 0.1, **bad})


def test_a_whole_number_and_the_same_fraction_are_one_setting() -> None:
    a, b = Setting(lr=1, weight_decay=0), Setting(lr=np.float64(1.0), weight_decay=0.0)
    assert repr(a) == repr(b) and a == b


def test_it_learns_digits() -> None:
    setting = Setting(lr=0.2, steps=150, batch_size=64, mirror=False, crop=(0.6, 1.0))
    train, test = DIGITS, open_images("digits", split="test")
    given = pixels(np.arange(len(train)))
    net = train_classifier(
        loaded(), given, torch.from_numpy(train.labels), setting, classes=10, progress=False, checkpoint=None
    )
    scores = predict(net, loaded(), pixels(np.arange(len(test)), test), precision="float32")
    assert (scores.argmax(1).numpy() == test.labels).mean() > 0.6


def test_whole_numbers_of_any_kind_are_kept_as_ints() -> None:
    setting = Setting(0.1, steps=np.int64(3), batch_size=np.int32(8), seed=np.uint8(1))
    assert setting == Setting(0.1, steps=3, batch_size=8, seed=1)
    assert {type(value) for value in (setting.steps, setting.batch_size, setting.seed)} == {int}
    for given in (np.float64(3), True, "3", 0):
        with pytest.raises(UserError, match=r"steps=.* must be a whole number from 1"):
            Setting(0.1, steps=given)
    with pytest.raises(UserError, match="batch_size=0"):
        Setting(0.0, batch_size=0)  # the rate is often in proportion to it
