"""CLIP as a prior: files as open_clip and OpenAI write them give the features that open_clip's own networks give."""

import json
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sslkit.errors import UserError
from sslkit.priors import build
from sslkit.priors.base import resize_and_crop
from sslkit.runtime.kept_arrays import load_or_compute

open_clip = pytest.importorskip("open_clip")

TEXT = {"context_length": 8, "vocab_size": 32, "width": 64, "heads": 1, "layers": 1}
TIMM = {"timm_model_name": "resnet10t", "timm_model_pretrained": False, "timm_pool": "", "timm_proj": "linear"}
VIT = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8}
TOWERS = {
    "tiny-ViT": {"vision_cfg": VIT},
    "tiny-ViT-quickgelu": {"vision_cfg": VIT, "quick_gelu": True},
    "tiny-RN": {"vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}},
    "tiny-timm": {"vision_cfg": {**TIMM, "image_size": 64, "timm_pool": "avg"}, "custom_text": True},
    "as-timm": {"vision_cfg": {"image_size": 224, "layers": 10, "width": 256, "patch_size": 16}},
    "tiny-coca": {"vision_cfg": {**VIT, "attentional_pool": True, "attn_pooler_heads": 2}},
}
OF_LAION = ["tiny-ViT", "tiny-ViT-quickgelu", "tiny-RN", "tiny-timm"]
PUBLISHED = ["RN50", "RN101", "RN50x4", "ViT-B-32", "ViT-B-16", "ViT-L-14"]


@pytest.fixture(scope="module", autouse=True)
def small_models(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Small networks of the published kinds, under names of their own."""
    folder = tmp_path_factory.mktemp("configs")
    for name, tower in TOWERS.items():
        (folder / f"{name}.json").write_text(json.dumps({"embed_dim": 24, "text_cfg": TEXT, **tower}))
    open_clip.add_model_config(folder)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randint(0, 256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(1)).byte()


def model_of(name: str, **given: object) -> nn.Module:
    torch.manual_seed(0)
    return open_clip.create_model(name, **given).eval()


@torch.no_grad()
def own_features(model: nn.Module, images: Tensor) -> Tensor:
    """By open_clip's own preprocessing and network; pixels stay in [0, 1], as those of a file do."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    about = open_clip.get_model_preprocess_cfg(model)
    *resize, normalise = image_transform_v2(PreprocessCfg(**about), is_train=False).transforms
    x = images.float() / 255
    for step in resize:
        x = step(x) if not isinstance(x, Tensor) or x.dim() == 4 else x
    found = model.visual(normalise(x.clamp(0, 1)))
    return found[0] if isinstance(found, tuple) else found


def as_released(model: nn.Module, path: Path) -> None:
    torch.save(model.state_dict(), path)


def as_trained(model: nn.Module, path: Path) -> None:
    """Return it as open_clip's training on several GPUs writes it."""
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"epoch": 32, "name": "x", "state_dict": state, "optimizer": {"state": {}}}, path)


def as_safetensors(model: nn.Module, path: Path) -> None:
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)


def as_image_tower(model: nn.Module, path: Path) -> None:
    torch.save({name: value for name, value in model.state_dict().items() if name.startswith("visual.")}, path)


def as_tower_alone(model: nn.Module, path: Path) -> None:
    torch.save(model.visual.state_dict(), path)


@pytest.mark.parametrize("write", [as_released, as_trained, as_safetensors, as_image_tower, as_tower_alone])
@pytest.mark.parametrize("name", OF_LAION)
def test_a_file_gives_the_features_of_its_network(name: str, write, images: Tensor, tmp_path: Path) -> None:
    model = model_of(name)
    write(model, tmp_path / "w.pt")
    prior = build(f"clip:{name}:{tmp_path / 'w.pt'}")
    torch.testing.assert_close(prior(images), own_features(model, images), rtol=1e-5, atol=1e-5)
    assert prior(images).dtype == torch.float32 and prior(images).shape == (3, 24)


@pytest.mark.parametrize("name", OF_LAION)
def test_half_precision_files_are_computed_in_float32(name: str, images: Tensor, tmp_path: Path) -> None:
    model = model_of(name).half()
    as_released(model, tmp_path / "w.pt")
    got = build(f"clip:{name}:{tmp_path / 'w.pt'}")(images)
    torch.testing.assert_close(got, own_features(model.float(), images), rtol=1e-5, atol=1e-5)


def test_coca_gives_its_pooled_embedding(images: Tensor, tmp_path: Path) -> None:
    model = model_of("tiny-coca")
    model.visual.output_tokens = True
    as_released(model, tmp_path / "w.pt")
    prior = build(f"clip:tiny-coca:{tmp_path / 'w.pt'}")
    prior.network.visual.output_tokens = True  # as CoCa sets it
    torch.testing.assert_close(prior(images), own_features(model, images), rtol=1e-5, atol=1e-5)


def test_the_same_file_serves_a_tower_of_timm(images: Tensor, tmp_path: Path) -> None:
    """Its features are those before CLIP's projection, which timm's networks leave out with the classifier."""
    model = model_of("as-timm")
    as_trained(model, tmp_path / "w.pt")
    prior = build(f"timm:vit_xsmall_patch16_clip_224:{tmp_path / 'w.pt'}")
    model.visual.proj = None
    assert prior.mean == open_clip.OPENAI_DATASET_MEAN and prior.size == 224
    torch.testing.assert_close(prior(images[:1]), own_features(model, images[:1]), rtol=1e-5, atol=2e-5)


def archive(name: str, path: Path) -> None:
    """A file as OpenAI's: a TorchScript module, half precision, with numbers beside the weights."""
    from open_clip.model import convert_weights_to_fp16

    model = model_of(name, force_quick_gelu=True)
    convert_weights_to_fp16(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(scripted(model), path)


def scripted(model: nn.Module) -> torch.jit.ScriptModule:
    """A traced module with the same tensors under the same names."""

    class Holder(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.logit_scale

    holder = Holder()
    for name, child in model.named_children():
        holder.add_module(name, child)
    for name, value in model.named_parameters(recurse=False):
        holder.register_parameter(name, value)
    for number in ("input_resolution", "context_length", "vocab_size"):
        holder.register_buffer(number, torch.tensor(8))
    return torch.jit.trace(holder, torch.zeros(1))


@pytest.mark.parametrize("name", ["tiny-ViT", "tiny-RN"])
def test_openais_archive_is_read_without_its_code(name: str, images: Tensor, tmp_path: Path, monkeypatch) -> None:
    archive(name, tmp_path / "w.pt")
    theirs = open_clip.load_openai_model(str(tmp_path / "w.pt"), precision="fp32", device="cpu").eval()
    state = torch.jit.load(tmp_path / "w.pt").state_dict()
    torch.save(state, tmp_path / "tensors.pt")
    monkeypatch.setattr(torch.jit, "load", None)
    for file in ("w.pt", "tensors.pt"):
        prior = build(f"clip:{name}:{tmp_path / file}")
        with torch.no_grad():
            size = prior.size
            x = resize_and_crop(images.float() / 255, size, "bicubic")
            want = theirs.visual((x - torch.tensor(prior.mean)[:, None, None]) / torch.tensor(prior.std)[:, None, None])
        torch.testing.assert_close(prior(images), want, rtol=1e-5, atol=1e-5)


def test_a_damaged_archive_is_one_line(tmp_path: Path) -> None:
    archive("tiny-ViT", tmp_path / "w.pt")
    content = (tmp_path / "w.pt").read_bytes()
    rng = np.random.default_rng(0)
    for draw in range(40):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 1 + 30 * (draw % 2)):
            damaged[place] ^= 1 << rng.integers(8)
        cut = damaged if draw % 3 else damaged[: rng.integers(len(damaged))]
        (tmp_path / "w.pt").write_bytes(cut)
        try:
            build(f"clip:tiny-ViT:{tmp_path / 'w.pt'}")
        except UserError as error:
            assert "\n" not in str(error) and "w.pt" in str(error)


@pytest.fixture
def tags(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict]:
    """Weights in open_clip's list for tiny-ViT: OpenAI's settings and LAION's of ViT-L-14."""
    listed = {name: dict(about) for name, about in open_clip.pretrained._PRETRAINED["ViT-L-14"].items()}
    listed = {name: listed[name] for name in ("openai", "laion2b_s32b_b82k")}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-ViT", listed)
    return listed


def test_a_tag_says_activation_mean_and_std_of_a_file(tags: dict, images: Tensor, tmp_path: Path, capsys) -> None:
    model = model_of("tiny-ViT")
    as_released(model, tmp_path / "w.pt")
    quick = model_of("tiny-ViT", force_quick_gelu=True)
    quick.load_state_dict(model.state_dict())
    laion = build(f"clip:tiny-ViT:laion2b_s32b_b82k:{tmp_path / 'w.pt'}")
    openai = build(f"clip:tiny-ViT:openai:{tmp_path / 'w.pt'}")
    assert "differ" not in capsys.readouterr().out
    alone = build(f"clip:tiny-ViT:{tmp_path / 'w.pt'}")
    assert "TAG:FILE takes those of a tag (openai, laion2b_s32b_b82k, ...)" in " ".join(capsys.readouterr().out.split())
    assert laion.mean == laion.std == (0.5, 0.5, 0.5) and openai.mean == open_clip.OPENAI_DATASET_MEAN == alone.mean
    torch.testing.assert_close(alone(images), own_features(model, images), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(openai(images), own_features(quick, images), rtol=1e-5, atol=1e-5)
    open_clip.set_model_preprocess_cfg(model, {**open_clip.get_model_preprocess_cfg(model), **as_half()})
    torch.testing.assert_close(laion(images), own_features(model, images), rtol=1e-5, atol=1e-5)
    assert len({laion.identity, openai.identity, alone.identity}) == 3


def as_half() -> dict:
    return {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def test_settings_that_all_tags_share_need_no_tag(tags: dict, images: Tensor, tmp_path: Path) -> None:
    del tags["laion2b_s32b_b82k"]
    quick = model_of("tiny-ViT", force_quick_gelu=True)
    as_released(quick, tmp_path / "w.pt")
    got = build(f"clip:tiny-ViT:{tmp_path / 'w.pt'}")(images)
    torch.testing.assert_close(got, own_features(quick, images), rtol=1e-5, atol=1e-5)


def test_downloaded_weights_of_openai_have_quickgelu(tags: dict, images: Tensor, tmp_path: Path, monkeypatch) -> None:
    quick = model_of("tiny-ViT", force_quick_gelu=True)
    as_released(quick, tmp_path / "w.pt")
    monkeypatch.setattr(open_clip.factory, "download_pretrained", lambda *args, **kwargs: str(tmp_path / "w.pt"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # open_clip warns of the other activation
        got = build("clip:tiny-ViT:openai")(images)
    torch.testing.assert_close(got, own_features(quick, images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("{}/none.pt", "is no file, and no weights of tiny-ViT in open_clip's list: .*openai"),
        ("opena", "did you mean 'openai'"),
        ("openai:{}/none.pt", "there is no file"),
        ("{}/other.pt", "does not fit the network.*name the model of these weights"),
        ("{}/text.pt", "no state dict"),
    ],
)
def test_what_is_wrong_is_one_line(weights: str, said: str, tags: dict, tmp_path: Path) -> None:
    as_released(model_of("tiny-RN"), tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("text")
    with pytest.raises(UserError, match=said) as caught:
        build(f"clip:tiny-ViT:{weights.format(tmp_path)}")
    assert "\n" not in str(caught.value)


def test_the_page_says_how_to_get_a_file_and_names_priors_that_are_read(monkeypatch, capsys) -> None:
    page = (Path(__file__).parents[2] / "recipes" / "README.md").read_text(encoding="utf-8")
    code = re.search(r'python -c "(import open_clip.*)"', page)[1]
    monkeypatch.setattr(
        open_clip, "download_pretrained", lambda about: about["hf_hub"] + " quick" * about["quick_gelu"]
    )
    exec(code, {})
    assert capsys.readouterr().out == "timm/vit_base_patch32_clip_224.openai/ quick\n"
    for name in re.findall(r"timm:(\w+):FILE", page[page.index("### CLIP as a prior") :][:2500]):
        assert timm.is_model(name)


def test_a_cache_of_imagenets_size_is_written_in_blocks(tmp_path: Path) -> None:
    """The bytes that growth/README.md states, by a file that is written in blocks and never held."""
    page = (Path(__file__).parents[2] / "recipes" / "benchmarks" / "growth" / "README.md").read_text(encoding="utf-8")
    images = 1_281_167
    for name, size in {"ViT-B-32": "2.62", "RN50": "5.25", "ViT-L-14": "3.94"}.items():
        width = open_clip.get_model_config(name)["embed_dim"]
        assert f"{images * width * 4 / 1e9:.2f}" == size and f"{size} GB" in page
    blocks = iter([np.zeros((128, 4), np.float32)] * 3)
    table = load_or_compute(
        tmp_path / "x.npy", 384, lambda parts: islice(blocks, len(parts)), what="features", unit=128
    )
    assert isinstance(table, np.memmap) and (tmp_path / "x.npy").stat().st_size == 128 + 384 * 4 * 4


@pytest.mark.nightly
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_architectures(name: str, tmp_path: Path) -> None:
    """Random weights of the published shapes and names, in open_clip's and in OpenAI's form."""
    images = torch.randint(0, 256, (1, 3, 64, 64), generator=torch.Generator().manual_seed(1)).byte()
    tag = open_clip.list_pretrained_tags_by_model(name)[-1]
    model = model_of(name, force_quick_gelu=bool(open_clip.get_pretrained_cfg(name, tag).get("quick_gelu")))
    as_released(model, tmp_path / "released.pt")
    prior = build(f"clip:{name}:{tag}:{tmp_path / 'released.pt'}")
    config = {**open_clip.get_model_preprocess_cfg(model), "mean": prior.mean, "std": prior.std}
    open_clip.set_model_preprocess_cfg(model, config)
    torch.testing.assert_close(prior(images), own_features(model, images), rtol=1e-5, atol=1e-5)
    archive(name, tmp_path / "openai.pt")
    theirs = open_clip.load_openai_model(str(tmp_path / "openai.pt"), precision="fp32", device="cpu").eval()
    prior = build(f"clip:{name}:{tmp_path / 'openai.pt'}")
    open_clip.set_model_preprocess_cfg(theirs, {"size": prior.size, "mean": prior.mean, "std": prior.std})
    torch.testing.assert_close(prior(images), own_features(theirs, images), rtol=1e-5, atol=1e-5)
