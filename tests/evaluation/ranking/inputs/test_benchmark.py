"""A published benchmark opens when all of its files are there, and else says which are not."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch

import sslkit
from evaluation import datasets
from evaluation.ranking.inputs.benchmark import BENCHMARKS, open_benchmark, with_one_label
from evaluation.ranking.truth import published
from sslkit.backbones.published import CHECKPOINTS
from sslkit.errors import UserError


def test_images_of_several_classes_have_the_first_as_in_the_authors_code() -> None:
    split = datasets.open_split("digits", "test").take(np.arange(3))
    assert with_one_label(split) == (split, "")
    several = replace(split, y=np.array([[-1, 1, 1], [1, -1, 0], [-1, -1, 0]], np.int8), classes=["a", "b", "c"])
    one, said = with_one_label(several)
    assert one.y.tolist() == [1, 0, 2] and one.y.dtype == np.int64 and "the first of its classes" in said


def set_folder(root: Path, name: str) -> Path:
    """A folder of its own for the sets that have none."""
    folders = datasets.find(name).folders
    return root / folders[0] if folders else root


def lay_out(root: Path, name: str) -> None:
    """Every file that the set asks for, empty."""
    for files in datasets.find(name).files.values():
        for file in files:
            path = set_folder(root, name) / file
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with empty files for both benchmarks; nothing that timm may have downloaded counts."""
    monkeypatch.setattr("evaluation.ranking.inputs.benchmark._is_cached", lambda name: False)
    (tmp_path / "models").mkdir()
    for members, sets in BENCHMARKS.values():
        for member in members:
            (tmp_path / "models" / member.files[0]).touch()
        for name in sets:
            lay_out(tmp_path / "data", name)
    return tmp_path


@pytest.mark.parametrize("name", ["ped", "itm"])
def test_models_and_sets_are_those_of_the_published_accuracies(name: str) -> None:
    members, sets = BENCHMARKS[name]
    truth = published.truth(name)
    assert set(truth) == set(sets) <= set(datasets.names())
    assert all(set(known) == {member.title for member in members} for known in truth.values())


@pytest.mark.parametrize("name", ["ped", "itm"])
def test_a_whole_benchmark_opens(name: str, whole: Path) -> None:
    found = open_benchmark(name, checkpoints=whole / "models", root=whole / "data", download=False)
    members, sets = BENCHMARKS[name]
    assert found.name == name and found.root == whole / "data" and found.datasets == list(sets) and len(sets) == 10
    assert list(found.zoo) == [member.title for member in members]
    for member in members:
        assert found.zoo[member.title] == f"{member.kind}:{whole / 'models' / member.files[0]}"


def test_the_models_of_ped_are_the_published_checkpoints(whole: Path) -> None:
    found = open_benchmark("ped", checkpoints=whole / "models", root=whole / "data", download=False)
    assert [model.split(":")[:2] for model in found.zoo.values()] == [["published", name] for name in CHECKPOINTS]


def test_the_models_of_itm_are_known_to_timm() -> None:
    members, _ = BENCHMARKS["itm"]
    assert len(members) == 10 and len({file for member in members for file in member.files}) == 40
    for member in members:
        assert timm.is_model(member.kind.removeprefix("timm:"))
        assert not member.timm or member.timm in timm.list_pretrained(f"{member.kind.removeprefix('timm:')}*")


def test_exactly_what_is_missing_is_listed(whole: Path) -> None:
    (whole / "models" / CHECKPOINTS["moco-v2"].file).unlink()
    (set_folder(whole / "data", "dtd") / "labels" / "val1.txt").unlink()
    (set_folder(whole / "data", "pets") / "oxford-iiit-pet" / "annotations" / "test.txt").unlink()
    with pytest.raises(UserError) as error:
        open_benchmark("ped", checkpoints=whole / "models", root=whole / "data", download=False)
    first, models, moco, sets, *rest = str(error.value).splitlines()
    assert first == "the benchmark ped needs 12 models and 10 data sets."
    assert models == f"1 model is missing in {whole / 'models'}:"
    assert moco.strip() == (
        "MoCov2: moco_v2_800ep_pretrain.pth.tar or moco-v2.pth or moco-v2.safetensors, from facebookresearch/moco"
    )
    assert sets == f"2 data sets are missing in {whole / 'data'}:" and len(rest) == 2
    assert rest[0].startswith("  pets: ") and "annotations/test.txt is missing" in rest[0]
    assert rest[1].startswith("  dtd: ") and "labels/val1.txt is missing" in rest[1]


def test_nothing_at_hand_lists_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.ranking.inputs.benchmark._is_cached", lambda name: False)
    for name, (members, sets) in BENCHMARKS.items():
        with pytest.raises(UserError) as error:
            open_benchmark(name, checkpoints=tmp_path / "no", root=tmp_path / "none", download=False)
        lines = [line.split(":")[0] for line in str(error.value).splitlines() if line.startswith("  ")]
        assert lines == [f"  {title}" for title in [*(member.title for member in members), *sets]]


def test_timms_own_weights_stand_in_for_files(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (whole / "models").iterdir():
        file.unlink()
    where = {"checkpoints": whole / "models", "root": whole / "data", "download": False}
    with pytest.raises(UserError, match="10 models are missing") as error:
        open_benchmark("itm", **where)
    assert str(error.value).count("download=True") == 8
    for file in ("mocov3-b16.pth", "simmim-b16.pth"):
        (whole / "models" / file).touch()
    found = open_benchmark("itm", **{**where, "download": True})
    assert (
        found.zoo["ResNet-18"] == "timm:resnet18.tv_in1k" and found.zoo["MAE-L16"] == "timm:vit_large_patch16_224.mae"
    )
    assert found.zoo["SimMIM-B16"] == f"timm:beit_base_patch16_224:{whole / 'models' / 'simmim-b16.pth'}"
    monkeypatch.setattr("evaluation.ranking.inputs.benchmark._is_cached", lambda name: name != "resnet18.tv_in1k")
    with pytest.raises(UserError, match=r"1 model is missing.*\n  ResNet-18: resnet-18\.safetensors or"):
        open_benchmark("itm", **where)


def test_weights_count_as_cached_only_where_a_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    from evaluation.ranking.inputs.benchmark import _is_cached

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False)
    assert not _is_cached("resnet18.tv_in1k")
    folder = tmp_path / "models--timm--resnet18.tv_in1k"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    assert not _is_cached("resnet18.tv_in1k")
    (folder / "snapshots" / "abc" / "model.safetensors").touch()
    assert _is_cached("resnet18.tv_in1k")


def test_a_model_of_the_zoo_loads(whole: Path) -> None:
    resnet = timm.create_model("resnet18", pretrained=False)
    (whole / "models" / "resnet-18.safetensors").unlink()
    torch.save(resnet.state_dict(), whole / "models" / "resnet-18.pth")
    zoo = open_benchmark("itm", checkpoints=whole / "models", root=whole / "data", download=False).zoo
    model = sslkit.load(zoo["ResNet-18"])
    assert model.width == 512 and model.source_head is not None
    torch.testing.assert_close(model.source_head.weight, resnet.fc.weight)


def test_an_unknown_benchmark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape("there is no benchmark 'pet': did you mean 'ped'?")):
        open_benchmark("pet", checkpoints=tmp_path, root="data", download=False)
