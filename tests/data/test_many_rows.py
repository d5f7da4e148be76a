"""Reading rows costs nothing per row of the data set: 64 of ten million take the steps and memory of 64 of 100.

Every class of the package that is a Dataset or a Sampler is found by its name in the files, and has an entry here.
"""

import ast
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from films import write_film
from photographs import write_jpegs
from PIL import Image
from tars import picture, tar
from torch.utils.data import Dataset
from torchvision.datasets import FakeData

import evaluation
import sslkit
from evaluation.datasets._picked import PickedImages
from evaluation.datasets.revisited import QueryParts
from evaluation.tasks.action.crops import Sizes
from evaluation.tasks.action.datasets.base import Films
from evaluation.tasks.action.films import SurveyedVideos
from evaluation.tasks.action.reading import ClipShape, EvalViews, FilmViews, Schedule, TrainingClips
from evaluation.tasks.detection.batches import Mirrored, StepBatches, _WithFlips
from evaluation.tasks.detection.datasets.boxes import Boxes, Instances
from evaluation.tasks.detection.prediction import _Images
from evaluation.tasks.segmentation.features import _Prepared
from evaluation.tasks.segmentation.label_maps import LabelMaps
from evaluation.tuning.pixels import Pixels, Pool
from sslkit.data.arrays import ArrayImages
from sslkit.data.cached_images import CachedImages
from sslkit.data.decode.scale import Scale
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.loader import EpochBatches, batches_in_order, make_loader
from sslkit.data.manifest.survey import _Measured
from sslkit.data.paged_images import PagedImages
from sslkit.data.published._listed import ListedImages
from sslkit.data.resizing import Resizing
from sslkit.data.sources.named import open_images
from sslkit.data.sources.npz import NpzImages
from sslkit.data.sources.objects import Files, Table
from sslkit.data.sources.own_arrays import Arrays, OwnArrays
from sslkit.data.sources.torchvision_sets import TorchvisionImages
from sslkit.data.video.clips import open_videos
from sslkit.data.video.index import VideoIndex
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.recipe import SIMCLR
from sslkit.data.whole_images import WholeImages
from sslkit.files.blocks import Blocks
from sslkit.models.places import prepare

FEW, MANY, READ = 100, 10_000_000, 64
MORE_BYTES = 5_000_000  # allowed for ten million rows: half a byte for each
MORE_LINES = 2_000
ORDER_BYTES = 40  # a row, for the order of an epoch and what it is made of
CPU = torch.device("cpu")
MODEL = SimpleNamespace(image_size=8, in_chans=3, resizing=Resizing.usual(8), mean=(0.5,) * 3, std=(0.5,) * 3)
OPTIONS = ImageOptions(image_size=8, channels=3, cache=None)
SHAPE = ClipShape(length=2, stride=1, sizes=Sizes(crop=16, short=(16, 20), test=16))
Read = Callable[[list[int]], object]
pytestmark = pytest.mark.filterwarnings("ignore")


class Blank(Dataset):
    """Pictures of the caller."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> np.ndarray:
        return np.zeros((8, 8, 3), np.uint8)


class Features(Blank):
    """A table, as far as `Table` looks at it."""

    features: ClassVar = {}


class Same:
    """A picture, or its label map, in place of every row of a data set."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __getitem__(self, row: int) -> Any:
        return torch.zeros(self.shape, dtype=torch.uint8) if len(self.shape) == 3 else np.zeros(self.shape, np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("rows")
    write_jpegs(root / "files")
    tar(root / "all.tar", [(f"{row}.png", picture(row)) for row in range(4)])
    write_film(root / "film.mp4", 4, size=(16, 32))
    return root


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.broadcast_to(np.zeros((1, *shape), np.uint8), (count, *shape))


def repeated(images: Any, count: int) -> Any:
    return images.part(np.arange(count) % len(images), "train")


def files(folder: Path, count: int) -> Any:
    return repeated(open_images(folder / "files", image_size=8, cache=None), count)


def listed(folder: Path, count: int) -> Any:
    names = [path.name for path in sorted((folder / "files").iterdir())]
    images = ListedImages(folder / "files", names, Identity("a", labels=np.zeros(len(names), np.int64)), OPTIONS)
    return repeated(images, count)


def hub(folder: Path, count: int) -> Any:
    datasets = pytest.importorskip("datasets")
    rows = {"image": [{"bytes": picture(row), "path": None} for row in range(4)]}
    table = datasets.Dataset.from_dict(rows, datasets.Features({"image": datasets.Image()}))
    table.save_to_disk(folder / f"hf{count}")
    return repeated(open_images(f"hf:{folder / f'hf{count}'}", image_size=8, cache=None), count)


def paged(folder: Path, count: int) -> Any:
    rows = np.arange(count) % 4
    images = open_images(f"shards:{folder}/all.tar", image_size=8, cache=None)
    return PagedImages(images, rows, np.full(count, -1), np.zeros(count, np.int64))


def frames(folder: Path, count: int) -> Any:
    """The first frames of one film."""
    opened = open_images(f"frames:{_with_one_film(folder)}", image_size=8, cache=None)
    opened.rows = np.zeros(count, np.int64)
    opened.frame_numbers = np.arange(count) % 4
    return opened


def videos(folder: Path, count: int) -> Any:
    """One film, in the place of all."""
    opened = open_videos(_with_one_film(folder), frames=2, clips=1, image_size=16, cache=None)
    opened.index = _stretched(opened.index, count)
    return opened


def _with_one_film(folder: Path) -> Path:
    inside = folder / "films"
    inside.mkdir(exist_ok=True)
    if not (inside / "film.mp4").exists():
        (inside / "film.mp4").hardlink_to(folder / "film.mp4")
    return inside


def _stretched(index: VideoIndex, count: int) -> VideoIndex:
    rows = np.zeros(count, np.int64)
    keys = index.key_ends[1]
    return VideoIndex(
        index.paths.take(rows),
        index.reasons.take(rows),
        {name: values[rows] for name, values in index.numbers.items()},
        np.arange(count + 1) * keys,
        np.broadcast_to(index.key_pts[:1], (count * keys,)),
        np.broadcast_to(index.key_numbers[:1], (count * keys,)),
    )


def films(folder: Path, count: int) -> SurveyedVideos:
    opened = open_videos(_with_one_film(folder), frames=2, clips=1, image_size=16, cache=None)
    zeros = np.zeros(count, np.int64)
    listing = Films(_with_one_film(folder), ("film.mp4",) * count, zeros, ("a",), "films", "train", zeros)
    return SurveyedVideos(listing, opened.index, zeros, opened.reader)


def boxes(count: int) -> Boxes:
    box = np.broadcast_to(np.array([[0.0, 0.0, 4.0, 4.0]], np.float32), (count, 4))
    no = np.broadcast_to(np.zeros(1, bool), (count,))
    ones = np.broadcast_to(np.ones(1, np.int64), (count,))
    objects = Instances(np.arange(count + 1), box, ones, no, no, ones.astype(np.float32))
    sizes = np.broadcast_to(np.array([[8, 8]]), (count, 2))
    return Boxes("b", "train", ("a",), range(count), np.arange(count), sizes, objects, Same(3, 8, 8))


def maps(count: int) -> LabelMaps:
    return LabelMaps("m", "train", ("a", "b"), range(count), Same(3, 8, 8), Same(8, 8))


def one_by_one(dataset: Any) -> Read:
    return lambda rows: [dataset[row] for row in rows]


def by_keys(read: Callable[[list[tuple[int, int]]], object], epoch: int) -> Read:
    return lambda rows: read([(epoch, row) for row in rows])


class Flipped(Mirrored):
    """All of them mirrored."""

    def __getitem__(self, row: int) -> object:
        return super().__getitem__((row, True))


def paths_of(folder: Path, count: int) -> Files:
    found = Files([folder / "files" / "00.jpg"])
    found.paths = [str(next((folder / "files").iterdir()))] * count
    return found


SETS: dict[str, Callable[[Path, int], Read]] = {
    "ArrayImages": lambda _, n: ArrayImages(pixels(n, 3, 2, 2), Identity("a"), ImageOptions()).__getitems__,
    "NpzImages": lambda _, n: (
        NpzImages(pixels(n, 1, 2, 2), "x", Scale(), Identity("a"), ImageOptions(image_size=2)).__getitems__
    ),
    "OwnArrays": lambda _, n: OwnArrays(pixels(n, 3, 2, 2), Scale(), Identity("a"), ImageOptions()).__getitems__,
    "Arrays": lambda _, n: one_by_one(Arrays(pixels(n, 3, 2, 2))),
    "Files": lambda folder, n: one_by_one(paths_of(folder, n)),
    "Table": lambda _, n: one_by_one(Table(Features(n))),
    "FolderImages": lambda folder, n: files(folder, n).__getitems__,
    "ListedImages": lambda folder, n: listed(folder, n).__getitems__,
    "PickedImages": lambda folder, n: PickedImages(files(folder, FEW), np.arange(n) % FEW).__getitems__,
    "ShardImages": lambda folder, n: (
        repeated(open_images(f"shards:{folder}/all.tar", image_size=8, cache=None), n).__getitems__
    ),
    "HfImages": lambda folder, n: hub(folder, n).__getitems__,
    "OwnImages": lambda _, n: repeated(open_images(Blank(n), image_size=8, cache=None), n).__getitems__,
    "PagedImages": lambda folder, n: paged(folder, n).__getitems__,
    "FrameImages": lambda folder, n: frames(folder, n).__getitems__,
    "TorchvisionImages": lambda _, n: TorchvisionImages(FakeData(n, (3, 8, 8), 2), Identity("a"), OPTIONS).__getitems__,
    "Videos": lambda folder, n: videos(folder, n).__getitems__,
    "WholeImages": lambda folder, n: WholeImages(files(folder, n)).__getitems__,
    "_Measured": lambda folder, n: _Measured(files(folder, n)).__getitems__,
    "CroppedImages": lambda folder, n: CroppedImages(files(folder, n), SIMCLR, 8).__getitems__,
    "Pool": lambda _, n: (
        Pool([ArrayImages(pixels(n, 3, 2, 2), Identity("a"), ImageOptions()) for _ in range(2)]).__getitems__
    ),
    "TrainingClips": lambda folder, n: by_keys(TrainingClips(films(folder, n), SHAPE, 0).__getitems__, 0),
    "FilmViews": lambda folder, n: one_by_one(FilmViews(films(folder, n), SHAPE, EvalViews(2, 1))),
    "Boxes": lambda _, n: boxes(n).__getitems__,
    "Mirrored": lambda _, n: one_by_one(Flipped(boxes(n), 3)),
    "_Images": lambda _, n: one_by_one(_Images(Same(3, 8, 8), n)),
    "LabelMaps": lambda _, n: one_by_one(maps(n)),
    "QueryParts": lambda folder, n: one_by_one(
        QueryParts([next((folder / "files").iterdir())] * n, [(0, 0, 8, 8)] * n)
    ),
    "_Prepared": lambda _, n: one_by_one(_Prepared(maps(n), partial(prepare, model=MODEL))),
}

SAMPLERS: dict[str, Callable[[int], Iterable[Any]]] = {
    "EpochBatches": lambda n: EpochBatches(n, READ, 0),
    "Schedule": lambda n: Schedule(n, READ, 3, 0, first=n // READ + 1),
    "StepBatches": lambda n: StepBatches(np.arange(n) % 2 == 0, READ, 0, 0, 10 * n, 0, 1),
    "_WithFlips": lambda n: _WithFlips(StepBatches(np.arange(n) % 2 == 0, READ, 0, 0, 10 * n, 0, 1), 0, 0, True),
}


def arrays(count: int) -> ArrayImages:
    return ArrayImages(pixels(count, 3, 2, 2), Identity("a"), ImageOptions())


READERS: dict[str, Callable[[Path, int], Callable[[], Iterable[Any]]]] = {
    "batches_in_order": lambda _, n: partial(batches_in_order, arrays(n), range(n), READ),
    "batches_in_order of files": lambda folder, n: partial(
        batches_in_order, files(folder, n), range(n), READ, workers=0
    ),
    "CachedImages": lambda _, n: partial(CachedImages(arrays(n), np.arange(n)).batches, READ),
    "make_loader": lambda _, n: partial(iter, make_loader(arrays(n), batch_size=READ, seed=0)),
    "Blocks": lambda folder, n: Blocks(folder / f"{n}.part", n, READ, "a").open,
    "Pixels": lambda _, n: partial(
        Pixels(Pool([arrays(n)]), np.arange(n), CPU, resident=False).batches,
        torch.arange(n)[: n // READ * READ].view(-1, READ),
    ),
}


def classes_below(*roots: str) -> Iterator[tuple[str, set[str]]]:
    """The classes in all files, each with the names of those that it is derived from."""
    for root in roots:
        for file in Path(root).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
                    yield node.name, {getattr(base, "attr", getattr(base, "id", "")) for base in bases}


def test_every_kind_of_data_set_and_sampler_is_here() -> None:
    known = list(classes_below(*sslkit.__path__, *evaluation.__path__))
    kinds = {"Dataset", "Sampler"}
    while more := {name for name, bases in known if bases & kinds} - kinds:
        kinds |= more
    abstract = {"Dataset", "Sampler", "Images", "DecodedImages"}
    assert kinds - abstract == {*SETS, *SAMPLERS}


def cost(read: Callable[[], object]) -> tuple[int, int]:
    """The lines of Python that are run, and the most bytes that are taken at a time; once to warm up."""
    read()
    lines = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        read()
    finally:
        sys.settrace(before)
    tracemalloc.start()
    try:
        read()
        return lines, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def first_of(parts: Iterable[Any]) -> Any:
    return next(iter(parts))


def check(few: tuple[int, int], many: tuple[int, int]) -> None:
    assert many[0] <= 2 * few[0] + MORE_LINES, f"{many[0]:,} lines of Python, of {FEW} rows {few[0]:,}"
    assert many[1] <= few[1] + MORE_BYTES, f"{many[1]:,} bytes, of {FEW} rows {few[1]:,}"


@pytest.mark.parametrize("name", SETS)
def test_rows_of_ten_million(name: str, folder: Path) -> None:
    few, many = ((SETS[name](folder, count), count) for count in (FEW, MANY))
    of_few, of_many = (
        cost(lambda read=read, count=count: read(np.linspace(0, count - 1, READ, dtype=int).tolist()))
        for read, count in (few, many)
    )
    check(of_few, of_many)


@pytest.mark.parametrize("name", READERS)
def test_readers_of_ten_million_rows(name: str, folder: Path) -> None:
    few, many = (READERS[name](folder, count) for count in (FEW, MANY))
    check(*(cost(lambda read=read: first_of(read())) for read in (few, many)))


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_of_ten_million_rows_hold_numbers_and_no_objects(name: str) -> None:
    """An epoch's order is drawn at once, in arrays: a Python number in a list takes 40 bytes, in a dictionary 140."""
    few, many = (cost(partial(first_of, SAMPLERS[name](count))) for count in (FEW, MANY))
    assert many[0] <= 2 * few[0] + MORE_LINES and many[1] <= few[1] + ORDER_BYTES * MANY


def test_a_long_run_of_damaged_rows_is_passed_in_few_steps() -> None:
    """Of 20,000 files nearly all are damaged: after they are known each is asked for without a look at the others."""
    damaged, opened = 20_000, []

    class Damaged(DecodedImages):
        def __len__(self) -> int:
            return damaged + 1

        def path(self, row: int) -> str:
            return f"{row}.png"

        def _open(self, row: int) -> Image.Image:
            opened.append(row)
            if row < damaged:
                raise UnreadableImage("damaged")
            return Image.new("L", (8, 8))

    images = Damaged(Identity("damaged"), OPTIONS)
    assert len(opened) < 2 * damaged
    batch = images.__getitems__([5])
    assert batch["index"].tolist() == [damaged] and batch["bad"][0] == "5.png"
    rows = list(range(0, damaged, damaged // READ))
    lines, most = cost(lambda: images.__getitems__(rows))
    assert lines < 1_000 * len(rows) and most < MORE_BYTES
    assert set(images.__getitems__(rows)["bad"]) == {f"{row}.png" for row in rows}, "those that were asked for"
