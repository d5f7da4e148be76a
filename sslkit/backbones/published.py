"""Published self-supervised ResNet-50 checkpoints: the twelve of the PED paper, as timm's `resnet50`.

They are those of Ericsson et al., How Well Do Self-Supervised Models Transfer? (CVPR 2021), whose project lists the
source of each. Nothing is downloaded. Each project names its tensors differently; `LAYOUTS` says which belong to the
backbone and which are dropped (projector, momentum encoder, queue, classifier). A tensor that is neither is an error,
as is a tensor of timm's that is missing or has another shape.

The layouts are taken from the code of the projects: none of the twelve files was available, so each layout is tested
on files of the same form with random weights and has never been tried on a real file.
The form written by ssl-transfer's preparation (torchvision's names, no classifier) is accepted as well.

Not all of the preprocessing is in the weights. SimCLR takes pixels in [0, 1] without mean and std, see `normalize`.
BYOL's padding ("SAME") puts one pixel more on the right and the bottom of its strided layers, where timm's is the
same on all sides; published comparisons of these twelve ignore that, and so does this module.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.backbones.weight_files import check_dense, kind, read_content
from sslkit.errors import UserError, nearest
from sslkit.terminal.say import and_so_on

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and deviation, as timm and torchvision have them
PIXELS = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # pixels in [0, 1] as they are
HOLDERS = ("state_dict", "model", "resnet")  # keys that may hold the state dict of a file
SHOWN = 4  # tensor names in a message


def _of_simclr_v2(name: str) -> str:
    """`1.blocks.0.net.3.0.bias` -> `layer1.0.bn2.bias`: stage, block, then convolutions at even places, norms at odd"""
    if stem := re.fullmatch(r"0\.(?:0|1\.0)\.(\w+)", name):
        return f"{'conv1' if name.startswith('0.0.') else 'bn1'}.{stem[1]}"
    if inner := re.fullmatch(r"(\d)\.blocks\.(\d+)\.net\.(\d)(\.0)?\.(\w+)", name):
        stage, block, number, norm, what = inner.groups()
        return f"layer{stage}.{block}.{'bn' if norm else 'conv'}{int(number) // 2 + 1}.{what}"
    short = re.fullmatch(r"(\d)\.blocks\.(\d+)\.projection\.(shortcut|bn\.0)\.(\w+)", name)
    if short is None:
        return name
    stage, block, kind, what = short.groups()
    return f"layer{stage}.{block}.downsample.{0 if kind == 'shortcut' else 1}.{what}"


@dataclass(frozen=True)
class Layout:
    """Names of the tensors in a project's files.

    prefix: of the backbone's tensor names. rename: the rest of the name -> timm's name.
    dropped: prefixes of the names that do not belong to the backbone; checked before `prefix`.
    Optimizers, options and counters beside the state dict are ignored.
    """

    prefix: str
    dropped: tuple[str, ...]
    rename: Callable[[str], str] = str  # unchanged


LAYOUTS = {
    "moco": Layout("module.encoder_q.", ("module.encoder_q.fc.", "module.encoder_k.", "module.queue")),
    "swav": Layout("module.", ("module.projection_head.", "module.prototypes.")),
    "pycontrast": Layout("module.encoder.", ("module.head.", "module.head_jig.")),
    "simclr-v2": Layout("net.", ("fc.",), _of_simclr_v2),
    "torchvision": Layout("", ("fc.",)),
}


@dataclass(frozen=True)
class Checkpoint:
    """One published file. title: in tables. file: its published name. source: the project. layout: see `LAYOUTS`.
    normalize: mean and std of its pixels. remedy: advice for a file that cannot be read as published.
    """

    name: str
    title: str
    file: str
    source: str
    layout: str
    normalize: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET
    remedy: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The accepted file names: the published one, and ssl-transfer's after its preparation."""
        return tuple(dict.fromkeys((self.file, f"{self.name}.pth", f"{self.name}.safetensors")))


_DEEPMIND = "google-deepmind/deepmind-research (byol), converted with linusericsson/ssl-transfer"
_CONVERT = "convert it once with download_and_prepare_models.py of linusericsson/ssl-transfer, where you trust the file"
_SIMCLR = "google-research/simclr, converted with"
_SWAV, _MOCO = "facebookresearch/swav", "facebookresearch/moco"
_ALL = (
    Checkpoint("byol", "BYOL", "byol.pth", _DEEPMIND, "torchvision", remedy=_CONVERT),
    Checkpoint("deepcluster-v2", "DeepCluster-v2", "deepclusterv2_800ep_pretrain.pth.tar", _SWAV, "swav"),
    Checkpoint("infomin", "InfoMin", "InfoMin_800.pth", "HobbitLong/PyContrast", "pycontrast"),
    Checkpoint("insdis", "InsDis", "InsDis.pth", "HobbitLong/PyContrast", "pycontrast"),
    Checkpoint("moco-v1", "MoCo-v1", "moco_v1_200ep_pretrain.pth.tar", _MOCO, "moco"),
    Checkpoint("moco-v2", "MoCo-v2", "moco_v2_800ep_pretrain.pth.tar", _MOCO, "moco"),
    Checkpoint("pcl-v1", "PCL-v1", "PCL_v1_epoch200.pth.tar", "salesforce/PCL", "moco"),
    Checkpoint("pcl-v2", "PCL-v2", "PCL_v2_epoch200.pth.tar", "salesforce/PCL", "moco"),
    Checkpoint("sela-v2", "SeLa-v2", "selav2_400ep_pretrain.pth.tar", _SWAV, "swav"),
    Checkpoint(
        "simclr-v1", "SimCLR-v1", "resnet50-1x.pth", f"{_SIMCLR} tonylins/simclr-converter", "torchvision", PIXELS
    ),
    Checkpoint("simclr-v2", "SimCLR-v2", "r50_1x_sk0.pth", f"{_SIMCLR} Separius/SimCLRv2-Pytorch", "simclr-v2", PIXELS),
    Checkpoint("swav", "SwAV", "swav_800ep_pretrain.pth.tar", _SWAV, "swav"),
)
CHECKPOINTS = {checkpoint.name: checkpoint for checkpoint in _ALL}


def find(name: str) -> Checkpoint:
    """A published checkpoint by its name. Raises UserError for an unknown one, with the nearest."""
    if name not in CHECKPOINTS:
        raise UserError(f"there is no published checkpoint {name!r}: {nearest(name, CHECKPOINTS)}")
    return CHECKPOINTS[name]


def network(name: str, path: str | Path) -> nn.Module:
    """timm's `resnet50` without classifier, with the weights of a published checkpoint, in eval mode.

    name: one of `CHECKPOINTS`. path: the file as published, or as written by ssl-transfer's preparation (torch or
        .safetensors).
    Raises UserError for a file that cannot be read without running its code, and for a file that does not fit.
    """
    import timm

    checkpoint = find(name)
    with torch.random.fork_rng(devices=[]):
        net = timm.create_model("resnet50", pretrained=False, num_classes=0)
    net.load_state_dict(
        _match_names(checkpoint, _state_dict(checkpoint, Path(path)), net.state_dict(), path), strict=True
    )
    return net.eval()


def _state_dict(checkpoint: Checkpoint, path: Path) -> Mapping[str, Any]:
    where = f"published checkpoint {checkpoint.name}"
    try:
        content = read_content(path, where)
    except UserError as error:
        if not (checkpoint.remedy and path.is_file()):
            raise
        raise UserError(f"{error}; {checkpoint.remedy}") from error
    if isinstance(content, Mapping):
        content = next((content[key] for key in HOLDERS if isinstance(content.get(key), Mapping)), content)
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{where}: {path} holds no state dict but {type(content).__name__}")
    return content


def _match_names(
    checkpoint: Checkpoint, given: Mapping[str, Any], wanted: Mapping[str, Tensor], path: str | Path
) -> dict[str, Tensor]:
    """The file's tensors by timm's names. Raises UserError unless they are exactly those of timm's model."""
    layout = LAYOUTS["torchvision" if "conv1.weight" in given else checkpoint.layout]
    matched, left = {}, []
    for key, value in given.items():
        if key.startswith(layout.dropped):
            continue
        name = layout.rename(key.removeprefix(layout.prefix)) if key.startswith(layout.prefix) else ""
        if name in wanted and name not in matched and isinstance(value, Tensor):
            matched[name] = value
        else:
            left.append(key)
    wrong = [
        f"{name} {tuple(value.shape)} instead of {tuple(wanted[name].shape)}"
        for name, value in matched.items()
        if value.shape != wanted[name].shape
    ]
    faults = {
        "missing": [name for name in wanted if name not in matched],
        "left over": left,
        "of another shape": wrong,
        "of another kind of number": [name for name, value in matched.items() if kind(value) != kind(wanted[name])],
    }
    if any(faults.values()):
        faults_text = "; ".join(
            f"{len(names)} {what}: {and_so_on(names, SHOWN)}" for what, names in faults.items() if names
        )
        raise UserError(
            f"{path} is not the published {checkpoint.title} ({checkpoint.file} of {checkpoint.source}) on a "
            f"ResNet-50 of {len(wanted)} tensors: {faults_text}"
        )
    check_dense(matched, path, f"published checkpoint {checkpoint.name}")
    return matched
