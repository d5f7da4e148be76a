"""Two SimCLR views of 224 pixels from JPEG files: images per CPU second, and how much detail the views have.

    python recipes/benchmarks/speed/run.py files
    python recipes/benchmarks/speed/run.py files --start 200000

Files of 500 x 375, cut from scikit-learn's two photographs. Speed: one thread, from the file to two float batches
without normalisation; ours cut from files, and from copies, lightly's SimCLRTransform, and torchvision's v2 transforms
with its own decoder. Repeats alternate, so that other load slows all equally. Detail: mean power above half of
Nyquist's frequency of crops without flip, colours and blur, over that of torchvision's crops of the decoded files in
the same boxes (fast: in other boxes of the same distribution).
--start: how long so many files in 1,000 folders take until a run knows their names, sizes and classes, beside
torchvision's ImageFolder, which asks for no size; the files are links to the same pieces.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import cli
import torch
from lightly.transforms import SimCLRTransform
from PIL import Image
from results import about, path_of, write
from sklearn.datasets import load_sample_images
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.io import decode_image
from torchvision.transforms import v2
from turns import format_times, summary, take_turns

from sslkit.data.loader import EpochRows
from sslkit.data.sources.named import open_images
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.crops import draw_boxes, finish
from sslkit.data.views.recipe import SIMCLR, View, ViewRecipe

COUNT, WIDTH, HEIGHT, SIDE = 32, 500, 375, 224
FOLDERS = 1000  # of the files whose opening is measured: ImageNet's classes
PLAIN = ViewRecipe((View(flip=0.0, jitter=0.0, grayscale=0.0, blur=0.0),) * 2)
ROWS = list(range(COUNT))


def write_files(folder: Path) -> list[Path]:
    """COUNT pieces of the photographs as JPEG files of quality 92."""
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    paths = []
    for number in ROWS:
        left, top = 7 * number % 140, 5 * number % 52
        paths.append(folder / f"{number:02}.jpg")
        photos[number % 2].crop((left, top, left + WIDTH, top + HEIGHT)).save(paths[-1], quality=92)
    return paths


def full(folder: Path, recipe: ViewRecipe) -> Callable[[int], list[Tensor]]:
    files = CroppedImages(open_images(folder), recipe, SIDE)

    def make(step: int) -> list[Tensor]:
        crops = files.__getitems__(EpochRows(ROWS, 0, step))["images"]
        return finish(crops, recipe, view_generator(0, step, 0))

    return make


def fast(folder: Path, recipe: ViewRecipe) -> Callable[[int], list[Tensor]]:
    files = open_images(folder, image_size=round(SIDE * 8 / 7))

    def make(step: int) -> list[Tensor]:
        batch = files.__getitems__(ROWS)
        return augment(batch["images"], recipe, SIDE, view_generator(0, step, 0), aspect=batch["aspect"])

    return make


def lightlys(paths: list[Path]) -> Callable[[int], list[Tensor]]:
    transform = SimCLRTransform(SIDE, normalize=None)

    def views(path: Path) -> list[Tensor]:
        with Image.open(path) as image:
            return transform(image.convert("RGB"))

    return lambda _: [torch.stack(view) for view in zip(*map(views, paths), strict=True)]


def torchvisions(paths: list[Path]) -> Callable[[int], list[Tensor]]:
    view = v2.Compose(
        [
            v2.RandomResizedCrop(SIDE, (0.08, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(23, (0.1, 2.0))], 0.5),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )

    def pair(path: Path) -> tuple[Tensor, Tensor]:
        image = decode_image(str(path))
        return view(image), view(image)

    return lambda _: [torch.stack(view) for view in zip(*map(pair, paths), strict=True)]


def speed(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, dict[str, float]]:
    """Images per CPU second of each, and the ratio of each to lightly's in the same repeat."""
    times = take_turns(contenders, repeats, clock=time.process_time)
    rates = {name: [COUNT / seconds for seconds in samples] for name, samples in times.items()}
    ratios = {k: [a / b for a, b in zip(v, rates["lightly"], strict=True)] for k, v in rates.items()}
    return {
        k: {"median": median(v), "min": min(v), "max": max(v), "over_lightly": median(ratios[k])}
        for k, v in rates.items()
    }


def energy(view: Tensor) -> Tensor:
    """(N,) power above half of Nyquist's frequency. view: (N, 3, S, S) in [0, 1]."""
    size = view.shape[-1]
    window = torch.hann_window(size)[:, None] * torch.hann_window(size)
    power = torch.fft.fft2((view.mean(1) - view.mean((1, 2, 3))[:, None, None]) * window).abs().square()
    frequency = torch.fft.fftfreq(size)
    return power[:, (frequency[:, None].square() + frequency.square()).sqrt() > 0.25].sum(1)


def detail(folder: Path, paths: list[Path], epochs: int) -> dict[str, float]:
    """Energy of each way over that of torchvision's crops."""
    ways = {"full": full(folder, PLAIN), "fast": fast(folder, PLAIN)}
    energies = {name: torch.cat([energy(v) for step in range(epochs) for v in way(step)]) for name, way in ways.items()}
    images = [decode_image(str(path)) / 255 for path in paths]
    crops = [
        v2.functional.resized_crop(image, *box, [SIDE, SIDE], antialias=True)
        for step in range(epochs)
        for row, image in enumerate(images)
        for box in draw_boxes(PLAIN.views, 0, step, row, HEIGHT, WIDTH).int().tolist()
    ]
    reference = torch.cat([energy(crop[None]) for crop in crops]).mean()
    return {name: float(values.mean() / reference) for name, values in energies.items()}


def by_epoch(make: Callable[[int], object]) -> Callable[[], object]:
    """Each call makes the views of another epoch."""
    steps = itertools.count()
    return lambda: make(next(steps))


def start_up(count: int, repeats: int) -> dict[str, dict[str, float]]:
    """CPU seconds of each until `count` files are open."""
    with TemporaryDirectory() as folder:
        Path(folder, "pieces").mkdir()
        paths = write_files(Path(folder, "pieces"))
        for number in range(count):
            name = Path(folder, "images", f"class_{number % FOLDERS:04}", f"image_{number:08}.jpg")
            if number < FOLDERS:
                name.parent.mkdir(parents=True)
            name.hardlink_to(paths[number % COUNT])
        contenders = {
            "sslkit": lambda: open_images(Path(folder, "images"), cache=None).listing,
            "torchvision's ImageFolder": lambda: ImageFolder(str(Path(folder, "images"))),
        }
        times = take_turns(contenders, repeats, clock=time.process_time)
    return {name: summary(some) for name, some in times.items()}


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--start", type=int, default=0, help="measure only how long so many files take to open")
    parser.add_argument("--repeats", type=int, default=7, help="measured repeats, which alternate")
    parser.add_argument("--epochs", type=int, default=4, help="times that each file is cropped to measure the detail")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.start:
        seconds = start_up(args.start, args.repeats)
        for name, row in seconds.items():
            print(f"{name:26}{format_times(row, 2):>24} CPU s for {args.start:,} files")
        write(path_of("speed/start_up"), {**about(), "files": args.start, "folders": FOLDERS, "cpu_seconds": seconds})
        return
    with TemporaryDirectory() as folder:
        paths = write_files(Path(folder))
        contenders = {
            "sslkit, cut from files": full(Path(folder), SIMCLR),
            "sslkit, cut from copies": fast(Path(folder), SIMCLR),
            "lightly": lightlys(paths),
            "torchvision v2": torchvisions(paths),
        }
        rates = speed({name: by_epoch(make) for name, make in contenders.items()}, args.repeats)
        energies = detail(Path(folder), paths, args.epochs)
    for name, row in rates.items():
        print(f"{name:24}{format_times(row, 0):>24} images per CPU second{row['over_lightly']:8.2f} x lightly")
    for name, value in energies.items():
        print(f"detail={name:24}{value:8.3f} of torchvision's energy above half of Nyquist's frequency")
    write(path_of("speed/files"), {**about(), "threads": 1, "images_per_cpu_second": rates, "energy": energies})
