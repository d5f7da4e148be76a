"""torchvision's data sets by class name, from files on disk. Nothing is downloaded."""

import inspect
import os
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.arrays import ArrayImages, to_nchw
from sslkit.data.decode.opening import open_image
from sslkit.data.decode.unreadable import UnreadableImage, unreadable
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.file_contents import FileContents
from sslkit.data.images import Identity, ImageOptions, Images, check_split
from sslkit.data.path_list import PathList
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.options.members import nearest

PREFIX = "torchvision:"

# Pairs of images, films, and classes that only read a folder, which has its own source.
_NOT_SETS_OF_IMAGES = ("ImageFolder", "LFWPairs", "LSUN", "LSUNClass", "MovingMNIST", "VisionDataset")
_FIXED: dict[str, dict[str, Any]] = {"EMNIST": {"split": "balanced"}, "ImageNet": {"loader": open_image}}
_FETCHED_BY_HAND = ("ImageNet", "LFWPeople", "StanfordCars")  # torchvision refuses to download them
_SPLIT_ARGUMENTS = ("train", "split", "image_set", "version", "background")

_THREE = {"train": "train", "val": "val", "test": "test"}
_VALIDATED = {"train": "train", "val": "valid", "test": "test"}
_NO_TEST_LABELS = {"train": "train", "test": "val"}
_VOC = {"train": "train", "test": "val", "trainval": "trainval"}
_SPLITS: dict[str, dict[str, Any]] = {  # our name -> torchvision's, for sets with other splits than train and test
    "CLEVRClassification": _THREE,
    "CelebA": _VALIDATED,
    "Cityscapes": _THREE,
    "Country211": _VALIDATED,
    "DTD": _THREE,
    "FGVCAircraft": {**_THREE, "trainval": "trainval"},
    "Flowers102": _THREE,
    "INaturalist": {"train": "2021_train", "test": "2021_valid"},
    "ImageNet": _NO_TEST_LABELS,
    "Imagenette": _NO_TEST_LABELS,
    "LFWPeople": {"train": "train", "novel_test": "test"},  # other people than in train
    "Omniglot": {"train": True, "novel_test": False},  # other alphabets
    "OxfordIIITPet": {"train": "trainval", "test": "test"},
    "PCAM": _THREE,
    "Places365": {"train": "train-standard", "test": "val", "train-challenge": "train-challenge"},
    "RenderedSST2": _THREE,
    "SBDataset": _NO_TEST_LABELS,
    "STL10": {"train": "train", "test": "test", "unlabeled": "unlabeled", "train+unlabeled": "train+unlabeled"},
    "SVHN": {"train": "train", "test": "test", "extra": "extra"},
    "VOCDetection": _VOC,
    "VOCSegmentation": _VOC,
    "WIDERFace": _THREE,
}


class TorchvisionImages(DecodedImages):
    """A torchvision data set whose images are files, or are made one by one."""

    def __init__(self, dataset: Any, identity: Identity, options: ImageOptions) -> None:
        self.dataset = dataset
        self._files = _files(dataset)
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self.dataset)

    def path(self, row: int) -> str:
        return str(self._files[row]) if self._files else f"{self.name}[{row}]"

    def image_name(self, row: int) -> str:
        return os.path.relpath(self.path(row), self.dataset.root).replace(os.sep, "/")

    def names(self) -> PathList | None:
        return PathList(list(map(str, self._files))) if self._files else None

    def _open(self, row: int) -> Image.Image:
        try:
            if self._files:
                regular(Path(self._files[row]))
            image = self.dataset[row][0]
        except Exception as error:
            raise unreadable(error) from error
        if not isinstance(image, Image.Image):
            raise UnreadableImage(f"{type(image).__name__} instead of an image")
        return image

    @cached_property
    def _contents(self) -> FileContents:
        """The files of the rows, or all below the root if there are none of each row."""
        root = Path(self.dataset.root)
        paths = map(Path, self._files) if self._files else sorted(root.rglob("*"))
        inside = [os.path.relpath(path, root) for path in paths if path.is_file()]
        return FileContents(root, PathList(inside), self.options.cache)

    def _update_listing(self, digest: Any) -> None:
        digest.update(f"{self.name} {self.split} {len(self)}\n".encode())
        self._contents.update_listing(digest)

    def _update_digest(self, digest: Any) -> None:
        digest.update(f"{self.name} {self.split} {len(self)}\n".encode())
        self._contents.update_content(digest)


@cache
def names() -> dict[str, str]:
    """Lower-case name -> class name, for each torchvision set of images that needs only a root."""
    from torchvision import datasets

    class_names = {}
    for name in datasets.__all__:
        member = getattr(datasets, name)
        if not inspect.isclass(member) or name in _NOT_SETS_OF_IMAGES:
            continue
        if {base.__name__ for base in inspect.getmro(member)} & {"FlowDataset", "StereoMatchingDataset"}:
            continue
        arguments = list(inspect.signature(member).parameters.values())
        required = {a.name for a in arguments if a.default is a.empty and a.kind is not a.VAR_KEYWORD}
        if "root" in required and required <= {"root", *_FIXED.get(name, ())}:
            class_names[name.lower()] = name
    return class_names


def parse(source: str) -> tuple[str, Path] | None:
    """`torchvision:NAME`, `torchvision:NAME:ROOT` or NAME -> class name and root; None for anything else.

    NAME in any case; ROOT is `data` unless given. Raises UserError for `torchvision:` and an unknown name.
    """
    explicit = source.lower().startswith(PREFIX)
    name, _, root = source[len(PREFIX) if explicit else 0 :].partition(":" if explicit else "\0")
    if name.lower() in names():
        return names()[name.lower()], Path(root or "data").expanduser()
    if explicit:
        raise UserError(f"torchvision has no set of images {name!r}: {nearest(name, names().values())}")
    return None


def splits_of_torchvision(name: str) -> tuple[str, ...]:
    return tuple(_splits(name))


def open_torchvision(name: str, root: Path, options: ImageOptions) -> Images:
    """The split of the class `name` with files below `root`.

    Splits have torchvision's names, except that "train" and "test" are always the ones to train and test on: if the
    labels of the test part are not public, "test" is the validation part. Labels are those of classification, None if
    the set has others. Raises UserError when files are missing or damaged.
    """
    splits = _splits(name)
    check_split(name, options.split, tuple(splits))
    dataset = _construct(name, root, splits[options.split])
    refuse(
        options.columns, name, "has the splits and labels of torchvision: give the object, whose attributes they name"
    )
    labels = _labels(dataset)
    source = f"{PREFIX}{name}:{root}"
    identity = Identity(name, source, tuple(splits), labels, _classes(dataset, labels))
    pixels = _pixels(dataset)
    if pixels is None:
        return TorchvisionImages(dataset, identity, options)
    return ArrayImages(to_nchw(pixels, name), identity, options)


def _class(name: str) -> type:
    from torchvision import datasets

    return getattr(datasets, name)


def _split_argument(name: str) -> str | None:
    if name == "EMNIST":  # its own `split` is the choice of letters; `train` is one of **kwargs
        return "train"
    parameters = inspect.signature(_class(name)).parameters
    return next((argument for argument in _SPLIT_ARGUMENTS if argument in parameters), None)


def _splits(name: str) -> dict[str, Any]:
    if name in _SPLITS:
        return _SPLITS[name]
    argument = _split_argument(name)
    if argument == "train":
        return {"train": True, "test": False}
    return {"train": "train", "test": "test"} if argument else {"train": None}


def _construct(name: str, root: Path, split: Any) -> Any:
    member = _class(name)
    arguments = dict(_FIXED.get(name, {}))
    if (argument := _split_argument(name)) is not None:
        arguments[argument] = split
    parameters = inspect.signature(member).parameters
    if "loader" in parameters:
        arguments["loader"] = open_image
    downloads = {"download": False} if "download" in parameters else {}
    try:
        return member(root, **arguments, **downloads)
    except (RuntimeError, OSError, ValueError, ImportError, KeyError) as error:
        raise UserError(_missing(name, root, arguments, error)) from error


def _missing(name: str, root: Path, arguments: dict[str, Any], error: Exception) -> str:
    reason = " ".join(str(error).split()).rstrip(".")
    message = f"torchvision's {name} cannot be opened from {root.absolute()}: {reason}."
    if files := _files_of(_class(name)):
        message += f" Its files there: {', '.join(files)}."
    parameters = inspect.signature(_class(name)).parameters
    if name in _FETCHED_BY_HAND or not {"download", "kwargs"} & set(parameters):
        message += " torchvision cannot fetch it: get it from its authors and unpack it there."
    else:
        shown = "".join(f", {key}={value!r}" for key, value in arguments.items() if key != "loader")
        call = f"{name}('{root}'{shown}, download=True)"
        message += f' To fetch it: python -c "from torchvision.datasets import {name}; {call}".'
    return f"{message} If it is elsewhere: data={PREFIX}{name}:ROOT"


def _files_of(member: type) -> list[str]:
    """The files that the class lists, relative to the root; empty if it lists none."""
    if member.__name__ in ("FashionMNIST", "KMNIST", "MNIST"):
        unpacked = [entry[0].removesuffix(".gz") for entry in member.resources]
        return [f"{member.__name__}/raw/{file}" for file in unpacked]
    if stated := [*getattr(member, "train_list", ()), *getattr(member, "test_list", ())]:
        return list(dict.fromkeys(f"{member.base_folder}/{file}" for file, _ in stated))
    if isinstance(per_split := getattr(member, "split_list", None), dict):
        return [f"{entry[1]}" for entry in per_split.values() if entry[1]]
    return []


def _pixels(dataset: Any) -> np.ndarray | None:
    data = getattr(dataset, "data", None)
    data = data.numpy() if hasattr(data, "numpy") else data
    usable = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim in (3, 4)
    return data if usable and len(data) == len(dataset) else None


def _files(dataset: Any) -> list[Any] | None:
    for key in ("_image_files", "samples", "_samples", "_images", "images", "imgs"):
        entries = getattr(dataset, key, None)
        if isinstance(entries, list) and len(entries) == len(dataset) and entries:
            paths = [entry[0] if isinstance(entry, tuple) else entry for entry in entries]
            if isinstance(paths[0], (str, Path)):
                return paths
    return None


def _labels(dataset: Any) -> np.ndarray | None:
    for key in ("targets", "labels", "_labels", "y", "_samples", "_flat_character_images"):
        entries = getattr(dataset, key, None)
        if entries is None or len(entries) != len(dataset) or not len(entries) or isinstance(entries[0], list):
            continue
        if isinstance(entries[0], tuple):
            entries = [entry[1] for entry in entries]
        labels = np.asarray(entries)
        if labels.ndim == 1 and labels.dtype.kind in "iu":
            return labels.astype(np.int64)
    return None


def _classes(dataset: Any, labels: np.ndarray | None) -> list[str] | None:
    if labels is None:
        return None
    count = int(labels.max(initial=-1)) + 1
    for key in ("classes", "categories"):
        names = getattr(dataset, key, None)
        if isinstance(names, (list, tuple)) and len(names) >= count:
            return [name if isinstance(name, str) else ", ".join(map(str, name)) for name in names]
    return [str(label) for label in range(count)]
