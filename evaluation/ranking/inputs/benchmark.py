"""open_benchmark: the files of a published ranking benchmark, or one error that lists all missing files.

"ped": the twelve self-supervised ResNet-50 of `sslkit.backbones.published` on ten data sets (PED, Table 4).
"itm": four supervised and six self-supervised architectures on ten data sets (ITM, Table 3). The paper names
architectures and methods, not files; the mapping to timm is ours. timm has no weights of MoCo-v3 and SimMIM, so these
two come from local files with timm's names of tensors: SimMIM's ViT, with its relative positions and its scaled
layers, is timm's `beit_base_patch16_224`.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evaluation import datasets
from evaluation.datasets.base import Split
from sslkit.backbones.published import CHECKPOINTS
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.terminal.say import counted

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
PED_SETS = ("aircraft", "caltech101", "cars", "cifar10", "cifar100", "flowers102", "voc07", "pets", "food101", "dtd")
ITM_SETS = ("caltech101", "cars", "cifar100", "cifar10", "dtd", "aircraft", "flowers102", "food101", "pets", "sun397")


@dataclass(frozen=True)
class Member:
    """One model of a benchmark.

    title: name in `evaluation.published`. kind: prefix of the file for `sslkit.load`. files: possible file
    names in the folder of checkpoints. origin: source of the file. timm: weights that timm can download, or "".
    """

    title: str
    kind: str
    files: tuple[str, ...]
    origin: str
    timm: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark with all of its files.

    zoo: title of each model -> argument of `sslkit.load`. datasets: names in `evaluation.datasets`, to be
    opened below `root`.
    """

    name: str
    zoo: dict[str, str]
    datasets: list[str]
    root: Path


def _of_timm(title: str, architecture: str, tag: str = "", origin: str = "") -> Member:
    files = tuple(f"{title.lower()}{suffix}" for suffix in SUFFIXES)
    where = origin or f"timm's weights {architecture}.{tag}"
    return Member(title, f"timm:{architecture}", files, where, f"{architecture}.{tag}" if tag else "")


def _member_of(title: str, name: str) -> Member:
    checkpoint = CHECKPOINTS[name]
    return Member(title, f"published:{name}", checkpoint.files, checkpoint.source)


_PED = (
    _member_of("BYOL", "byol"),
    _member_of("Deepclusterv2", "deepcluster-v2"),
    _member_of("Infomin", "infomin"),
    _member_of("InsDis", "insdis"),
    _member_of("MoCov1", "moco-v1"),
    _member_of("MoCov2", "moco-v2"),
    _member_of("PCLv1", "pcl-v1"),
    _member_of("PCLv2", "pcl-v2"),
    _member_of("Sela-v2", "sela-v2"),
    _member_of("SimCLRv1", "simclr-v1"),
    _member_of("SimCLRv2", "simclr-v2"),
    _member_of("Swav", "swav"),
)
_ITM = (
    _of_timm("DenseNet-121", "densenet121", "tv_in1k"),
    _of_timm("EfficientNet-B0", "efficientnet_b0", "ra_in1k"),
    _of_timm("MobileNetv2", "mobilenetv2_100", "ra_in1k"),
    _of_timm("ResNet-18", "resnet18", "tv_in1k"),
    _of_timm("DINO-B16", "vit_base_patch16_224", "dino"),
    _of_timm("DINO-S8", "vit_small_patch8_224", "dino"),
    _of_timm(
        "MoCov3-B16",
        "vit_base_patch16_224",
        origin="facebookresearch/moco-v3, ViT-Base, 300 epochs: the base encoder under timm's names, without its head",
    ),
    _of_timm("MAE-B16", "vit_base_patch16_224", "mae"),
    _of_timm("MAE-L16", "vit_large_patch16_224", "mae"),
    _of_timm(
        "SimMIM-B16",
        "beit_base_patch16_224",
        origin="microsoft/SimMIM, ViT-Base, 800 epochs: the encoder under the names of timm's beit_base_patch16_224",
    ),
)
BENCHMARKS = {"ped": (_PED, PED_SETS), "itm": (_ITM, ITM_SETS)}


def open_benchmark(name: str, *, checkpoints: str | Path, root: str | Path, download: bool) -> Benchmark:
    """Return the models and data sets of a published benchmark after checking that all files exist.

    name: "ped" or "itm". checkpoints: the folder of the model files; the error lists their names. Weights in timm's
        cache also count. root: the folder of the data sets (see `evaluation.datasets`).
    download: let timm download its weights when they are loaded.
    Raises UserError that lists every missing file, of models and of data sets, with its origin.
    """
    if name not in BENCHMARKS:
        raise UserError(f"there is no benchmark {name!r}: {nearest(name, BENCHMARKS)}")
    members, sets = BENCHMARKS[name]
    folder, root = Path(checkpoints).expanduser(), Path(root).expanduser()
    models = {member.title: _model(member, folder, download) for member in members}
    absent = [_describe(member) for member in members if models[member.title] is None]
    unopened = [fault for source in sets if (fault := _missing(source, root))]
    if absent or unopened:
        raise UserError(
            f"the benchmark {name} needs {len(members)} models and {len(sets)} data sets.",
            [*_list_missing("model", folder, absent), *_list_missing("data set", root, unopened)],
        )
    return Benchmark(name, {title: model for title, model in models.items() if model}, list(sets), root)


def with_one_label(split: Split) -> tuple[Split, str]:
    """Return a split with one class an image, for metrics of classes, and a line that says so; others as they are, "".

    The authors of PED (forward_feature.py) give every metric the first class, in the set's order, of an image of
    VOC 2007, which has several. An image of none, only of difficult objects, is of the first of these.
    """
    if split.y.ndim == 1:
        return split, ""
    line = f"{split.name}: each image has the first of its classes, as in the authors' code; the accuracies count all"
    return replace(split, y=split.y.argmax(1).astype(np.int64)), line


def _model(member: Member, folder: Path, download: bool) -> str | None:
    for file in member.files:
        if (folder / file).is_file():
            return f"{member.kind}:{folder / file}"
    return f"timm:{member.timm}" if member.timm and (download or _is_cached(member.timm)) else None


def _is_cached(name: str) -> bool:
    """Return True if these weights are in timm's cache."""
    import timm
    from huggingface_hub import try_to_load_from_cache

    config = timm.get_pretrained_cfg(name)
    files = ("model.safetensors", "pytorch_model.bin")
    return bool(config and config.hf_hub_id) and any(
        isinstance(try_to_load_from_cache(config.hf_hub_id, file), str) for file in files
    )


def _describe(member: Member) -> str:
    fetched = "; or download=True, which lets timm get it" if member.timm else ""
    return f"{member.title}: {' or '.join(member.files)}, from {member.origin}{fetched}"


def _missing(name: str, root: Path) -> str:
    """Return the data set's message about missing files, "" if there are none."""
    entry = datasets.find(name)
    try:
        for split in (entry.train, "test"):
            entry.locate(root, split)
    except UserError as error:
        return f"{name}: {error}"
    return ""


def _list_missing(kind: str, folder: Path, lines: list[str]) -> list[str]:
    verb = "is" if len(lines) == 1 else "are"
    title = f"{counted(len(lines), kind)} {verb} missing in {folder.absolute()}:"
    return [title, *(f"  {line}" for line in lines)] if lines else []
