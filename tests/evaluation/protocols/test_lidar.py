"""LiDAR on true views of real images: groups, draws, and the formulas of sslkit.numerics.diagnostics."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from evaluation.datasets import Reading, open_split
from evaluation.datasets.base import Split
from evaluation.protocols.base import Subject
from evaluation.protocols.lidar import Options, alignment_by_image, lidar, open, run, view_features
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.numerics import diagnostics
from sslkit.runtime.context import Runtime

STILL = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": 0.0, "jitter": 0.0, "grayscale": 0.0, "blur": 0.0}


@pytest.fixture(scope="module")
def split() -> Split:
    return open_split("digits", "test")


@pytest.fixture(scope="module")
def model() -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 12))
    return load(net, image_size=8, in_chans=1)


def test_the_value_is_the_shared_formula_on_true_groups(model: Model, split: Split) -> None:
    views = view_features(model, split, Options(q=4).recipe, 60, Runtime())
    assert views.x.shape == (240, 12) and (views.groups == np.repeat(np.arange(60), 4)).all()
    found = lidar(model, split, q=4, n_images=60)
    x, groups = torch.from_numpy(views.x), torch.from_numpy(views.groups)
    assert found.value == pytest.approx(diagnostics.lidar(x, groups), rel=1e-9)
    assert found.interval[0] < found.value < found.interval[1] and found.n == 60
    assert found.details["view"]["scale"] == [0.08, 1.0] and found.unit == "rank"


def test_fewer_images_than_features_are_said_to_limit_the_rank(split: Split) -> None:
    wide = load(nn.Flatten(), image_size=8, in_chans=1)  # 64 features
    assert "limited by the images" in lidar(wide, split, q=2, n_images=64).recipe
    assert lidar(wide, split, q=2, n_images=65).recipe == "2 views of each of 65 images"


def test_alignment_is_the_mean_over_all_pairs_of_views() -> None:
    x = torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(0)).double()
    pairs = [diagnostics.alignment(x[:, i], x[:, j]) for i in range(3) for j in range(i)]
    assert alignment_by_image(x).mean().item() == pytest.approx(np.mean(pairs), rel=1e-10)


def test_views_that_change_nothing_are_the_clean_image(model: Model, split: Split) -> None:
    views = view_features(model, split, Options(q=2, view=STILL).recipe, 30, Runtime())
    rows = [list(split.ids).index(name) for name in views.ids]
    pixels = torch.from_numpy(split.images.pixels[rows]).float() / 255
    clean = model.backbone((pixels - model.mean[0]) / model.std[0]).detach().numpy()
    np.testing.assert_allclose(views.x[::2], clean, atol=1e-4)
    np.testing.assert_allclose(views.x[1::2], clean, atol=1e-4)
    assert lidar(model, split, q=2, n_images=30, view=STILL).others["alignment"].value == pytest.approx(0, abs=1e-6)


def test_the_same_images_and_views_whatever_the_order_of_the_listing(model: Model, split: Split) -> None:
    order = np.random.default_rng(0).permutation(len(split))
    images = type(split.images)(split.images.pixels[order], _identity(split, order), split.images.options)
    shuffled = replace(split, images=images, y=split.y[order], ids=split.ids[order])
    one, other = (view_features(model, s, Options(q=3).recipe, 40, Runtime(seed=5)) for s in (split, shuffled))
    assert (one.ids == other.ids).all() and (one.x == other.x).all()
    assert (view_features(model, split, Options(q=3).recipe, 40, Runtime(seed=6)).ids != one.ids).any()


def _identity(split: Split, order: np.ndarray):
    from sslkit.data.images import Identity

    return Identity("shuffled", None, ("test",), split.y[order], list(split.classes))


def test_views_of_one_image_are_nearer_than_images(model: Model, split: Split) -> None:
    gentle = {"scale": (0.8, 1.0), "flip": 0.0, "jitter": 0.0, "grayscale": 0.0, "blur": 0.0}
    x = (
        torch.from_numpy(view_features(model, split, Options(q=4, view=gentle).recipe, 50, Runtime()).x)
        .double()
        .unflatten(0, (50, 4))
    )
    across = alignment_by_image(x.transpose(0, 1)[:, :50].contiguous()).mean()
    assert alignment_by_image(x).mean() < 0.5 * across
    mild, wild = (lidar(model, split, q=4, n_images=50, view=v).others["alignment"] for v in (gentle, None))
    assert mild.interval[1] < wild.interval[0]


def test_another_split_is_measured_as_the_protocol_measures_it(model: Model) -> None:
    options, reading = Options(q=2, n_images=20, split="train"), Reading(mirror=True)
    subject = Subject(model, "digits", reading)
    [result] = run(open(subject, options), options, Runtime())
    assert result.value == lidar(model, "digits", q=2, n_images=20, split="train").value
    assert result.value != lidar(model, "digits", q=2, n_images=20).value
    with pytest.raises(UserError, match="digits has no split 'val'"):
        open(subject, replace(options, split="val"))


def test_the_global_generator_is_left_alone(model: Model, split: Split) -> None:
    before = torch.random.get_rng_state()
    lidar(model, split, q=2, n_images=30)
    assert (torch.random.get_rng_state() == before).all()


def forty(root: Path) -> Path:
    """40 files of two classes, one of them damaged."""
    rng = np.random.default_rng(0)
    for i in range(40):
        (root / f"c{i % 2}").mkdir(exist_ok=True, parents=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(root / f"c{i % 2}" / f"{i:02}.png")
    (root / "c0" / "04.png").write_bytes(b"no image")
    return root


def test_unreadable_images_are_left_out_and_named(model: Model, tmp_path: Path) -> None:
    found = view_features(
        model, open_split(str(forty(tmp_path)), "all", on_error="skip"), Options(q=2).recipe, 1000, Runtime()
    )
    assert [Path(name).name for name in found.unreadable] == ["04.png"]
    assert found.x.shape == (78, 12) and found.groups.max() == 38


def test_the_protocol_reads_as_extraction_does(model: Model, tmp_path: Path) -> None:
    forty(tmp_path / "test"), forty(tmp_path / "train")
    (result,) = run(Subject(model, tmp_path), Options(q=2), Runtime())
    assert [Path(name).name for name in result.details["unreadable"]] == ["04.png"] and result.n == 39
    with pytest.raises(UserError, match=r"04\.png"):
        run(Subject(model, tmp_path, Reading(on_error="raise")), Options(q=2), Runtime())


def test_the_protocol_opens_a_published_set_with_the_counts_asked_for(
    model: Model, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        "evaluation.datasets.split_of", lambda source, options, needs_labels: asked.append(options.counts) or split
    )
    for how in ({}, {"counts": "warn"}):
        run(Subject(model, "pets", Reading(**how)), Options(q=2, n_images=20), Runtime())
    assert asked == ["raise", "warn"]


def test_the_protocol_runs_where_it_is_told(model: Model, split: Split) -> None:
    if torch.cuda.is_available():
        run(Subject(model, split), Options(q=2, n_images=20), Runtime(device="cuda"))
        assert next(model.net.parameters()).is_cuda
    else:
        with pytest.raises(UserError, match="device=cuda, but torch sees no GPU"):
            run(Subject(model, split), Options(q=2, n_images=20), Runtime(device="cuda"))
    run(Subject(model, split), Options(q=2, n_images=20), Runtime(device="cpu"))
    assert not next(model.net.parameters()).is_cuda


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 1}, "q must be .*, at least 2 .*, got 1"),
        ({"n_images": 10}, "n_images must be .*, at least 20, got 10"),
        ({"view": {"scal": 1}}, "scal.*scale"),
        ({"view": {"jitter": 2}}, "jitter"),
        ({"view": "simclr"}, "view must be a mapping or null, got 'simclr'"),
    ],
)
def test_bad_input_is_refused(model: Model, split: Split, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        lidar(model, split, **options)


def test_features_that_are_not_finite_are_refused(split: Split) -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1).sqrt()  # of negative numbers, once normalised

    with pytest.raises(UserError, match="not finite"):
        lidar(load(Broken(), image_size=8, in_chans=1), split, q=2, n_images=30)


def test_a_flat_folder_without_labels_is_measured_as_a_whole(model: Model, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(30):
        Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(tmp_path / f"{i:02}.png")
    subject = Subject(model, tmp_path, Reading(mirror=True))
    [result] = run(open(subject, Options(q=2)), Options(q=2), Runtime())
    assert result.n == 30 and subject.with_notes(result).details["notes"] == "no image has a label: all are measured"
    assert subject.note == "", "no fifth is held out"
    with pytest.raises(UserError, match="lidar needs at least 20 images"):
        for path in sorted(tmp_path.glob("*.png"))[:15]:
            path.unlink()
        open(Subject(model, tmp_path), Options())


def test_views_of_another_size_are_scaled_for_the_network(model: Model, split: Split) -> None:
    own, scaled = (
        view_features(model, split, Options(q=2, view=STILL).recipe, 20, Runtime(), size=size).x for size in (8, 16)
    )
    assert own.shape == scaled.shape and not np.array_equal(own, scaled)
    assert np.corrcoef(own.ravel(), scaled.ravel())[0, 1] > 0.9, "the same images"
