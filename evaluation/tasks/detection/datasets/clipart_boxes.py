"""A small generated detection set, always available: clip-art pasted on crops of two photographs, with masks.

The drawings are those of the embedded set `clipart`, without their white background; the photographs are
scikit-learn's. Train and test share no drawing, and test crops come from the right third of the photographs, train
crops from the rest. The images depend on the seed and on Pillow's resizing only. Drawings do not overlap.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image

from evaluation.results.statistics import generator
from evaluation.tasks.detection.datasets.boxes import Boxes, Instances
from sslkit.data.images import check_split
from sslkit.data.sources.named import open_images

CLASSES = ("animals", "food", "signs_and_symbols", "transportation")
COUNTS = {"train": 500, "test": 150}
SIZE = 128  # pixels, the side of an image: small, as an embedded set is tried on a CPU
LONG_SIDE = (32, 72)  # pixels, the longer side of a drawing: medium objects by COCO's areas
MOST = 3  # largest number of drawings in an image: more would cover each other
_WHITE = 240  # a background pixel has no channel below this
_INK = (0.1, 0.95)  # share of its 48 x 48 pixels that a drawing covers
_TRIES = 10  # positions tried for a drawing before it is left out


def open_clipart_boxes(split: str, seed: int) -> Boxes:
    """Generate 500 images of 128 x 128 ("train") or 150 ("test"), each with 1 to 3 drawings of four categories.

    The mask of a drawing holds its pixels that are at least half opaque; the box is that of the mask.
    Raises UserError for another split.
    """
    check_split("clipart_boxes", split, tuple(COUNTS))
    images, shown, labels = _draw_split(split, seed)
    counts, boxes, area = _measure(split, seed)
    number = np.concatenate([np.arange(count) + 1 for count in counts])
    outlines = _Shown(shown, np.repeat(np.arange(len(shown)), counts), number)
    return Boxes(
        name="clipart_boxes",
        split=split,
        classes=CLASSES,
        ids=[f"{split}/{row:04d}" for row in range(len(images))],
        image_ids=np.arange(len(images)),
        sizes=np.full((len(images), 2), SIZE),
        instances=Instances.from_counts(counts, boxes, labels, area=area),
        pixels=_Arrays(images),
        outlines=outlines,
        category_ids=tuple(range(1, len(CLASSES) + 1)),
        note="" if seed == 0 else f"generated from seed {seed}",
        licence="drawings: public domain (Open Clip Art Library); photographs: CC BY 2.0 (danielbuechele, vultilion)",
    )


@dataclass(frozen=True)
class _Arrays:
    """`Pixels` in memory: (N, 3, S, S) uint8."""

    images: np.ndarray

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.from_numpy(self.images[row].copy())

    def path(self, row: int) -> str:
        return f"image {row} of clipart_boxes"

    def take(self, rows: np.ndarray) -> "_Arrays":
        return _Arrays(self.images[rows])

    def update_digest(self, digest: Any) -> None:
        digest.update(self.images.tobytes())


@dataclass(frozen=True)
class _Shown:
    """`Outlines` of objects that do not overlap: the mask of object m is shown[image[m]] == number[m].

    shown: (N, S, S) uint8. image, number: (M,) int64, `number` from 1.
    """

    shown: np.ndarray
    image: np.ndarray
    number: np.ndarray

    def masks(self, objects: np.ndarray, height: int, width: int) -> np.ndarray:
        shown = self.shown[self.image[objects]].reshape(-1, height, width)
        return (shown == self.number[objects][:, None, None]).astype(np.uint8)

    def take(self, objects: np.ndarray) -> "_Shown":
        return _Shown(self.shown, self.image[objects], self.number[objects])

    def update_digest(self, digest: Any) -> None:
        digest.update(self.shown.tobytes() + self.image.tobytes() + self.number.tobytes())


@cache
def _draw_split(split: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, 3, S, S), the object number of each pixel (N, S, S), and labels (M,)."""
    rng = generator(seed, f"clipart_boxes {split}")
    drawings, grounds = _drawings(split), _grounds(split)
    images = np.empty((COUNTS[split], 3, SIZE, SIZE), np.uint8)
    shown = np.zeros((COUNTS[split], SIZE, SIZE), np.uint8)
    labels: list[int] = []
    for row in range(len(images)):
        ground = _crop(grounds[rng.integers(len(grounds))], rng)
        for _ in range(rng.integers(1, MOST + 1)):
            label = int(rng.integers(len(CLASSES)))
            drawing = _resize(drawings[label][rng.integers(len(drawings[label]))], rng)
            if _paste(drawing, ground, shown[row], rng):
                labels.append(label + 1)
        images[row] = ground.transpose(2, 0, 1)
    return images, shown, np.array(labels)


@cache
def _measure(split: str, seed: int) -> tuple[np.ndarray, list[tuple[int, int, int, int]], np.ndarray]:
    """Number of objects of each image, (N,), and the box and the mask's number of pixels, (M,), of every object."""
    from scipy import ndimage

    shown = _draw_split(split, seed)[1]
    slices_of = [ndimage.find_objects(numbers) for numbers in shown]
    boxes = [(x.start, y.start, x.stop, y.stop) for slices in slices_of for y, x in slices]
    counts = np.array([len(slices) for slices in slices_of])
    ink = [np.bincount(numbers.ravel(), minlength=count + 1)[1:] for numbers, count in zip(shown, counts, strict=True)]
    return counts, boxes, np.concatenate(ink)


@cache
def _drawings(split: str) -> list[list[Image.Image]]:
    """RGBA drawings of each category, cropped to their opaque pixels."""
    clipart = open_images("clipart", split=split)
    rows = np.flatnonzero(np.isin(clipart.labels, [clipart.classes.index(name) for name in CLASSES]))
    batch = clipart.__getitems__(rows.tolist())
    drawings: list[list[Image.Image]] = [[] for _ in CLASSES]
    for pixels, label in zip(batch["images"].numpy(), batch["label"].tolist(), strict=True):
        ink = ~_ground(pixels)
        if _INK[0] <= ink.mean() <= _INK[1]:
            rgba = np.dstack([pixels.transpose(1, 2, 0), 255 * ink.astype(np.uint8)])
            image = Image.fromarray(rgba)
            drawings[CLASSES.index(clipart.classes[label])].append(image.crop(image.getchannel("A").getbbox()))
    return drawings


def _ground(pixels: np.ndarray) -> np.ndarray:
    """(S, S) bool: nearly white pixels connected to the border. pixels: (3, S, S) uint8."""
    from scipy import ndimage

    areas, _ = ndimage.label(pixels.min(0) >= _WHITE)
    border = np.concatenate([areas[0], areas[-1], areas[:, 0], areas[:, -1]])
    return np.isin(areas, border[border > 0])


def _grounds(split: str) -> list[np.ndarray]:
    """The part of each photograph for a split, (H, W, 3) uint8: the right third for test, the rest for train."""
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    return [
        photo[:, photo.shape[1] * 2 // 3 :] if split == "test" else photo[:, : photo.shape[1] * 2 // 3]
        for photo in photos
    ]


def _crop(photo: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random square of the photograph, resized to (SIZE, SIZE, 3) uint8."""
    side = int(rng.integers(SIZE, min(photo.shape[:2]) + 1))
    top, left = (int(rng.integers(length - side + 1)) for length in photo.shape[:2])
    square = Image.fromarray(photo[top : top + side, left : left + side])
    return np.array(square.resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def _resize(drawing: Image.Image, rng: np.random.Generator) -> np.ndarray:
    """Resize the drawing to (h, w, 4) uint8, its longer side sampled from LONG_SIDE, and mirror it at random."""
    scale = rng.integers(*LONG_SIDE, endpoint=True) / max(drawing.size)
    drawing = drawing.resize([max(8, round(side * scale)) for side in drawing.size], Image.Resampling.LANCZOS)
    return np.asarray(drawing)[:, :: -1 if rng.random() < 0.5 else 1]


def _paste(drawing: np.ndarray, ground: np.ndarray, shown: np.ndarray, rng: np.random.Generator) -> bool:
    """Paste the drawing on `ground` and number it in `shown`; return False if no free position was found."""
    height, width = drawing.shape[:2]
    alpha = drawing[:, :, 3:] / 255
    solid = drawing[:, :, 3] >= 128
    for _ in range(_TRIES):
        top, left = int(rng.integers(SIZE - height + 1)), int(rng.integers(SIZE - width + 1))
        below, window = shown[top : top + height, left : left + width], np.s_[top : top + height, left : left + width]
        if not (below[drawing[:, :, 3] > 0]).any():
            ground[window] = np.rint(alpha * drawing[:, :, :3] + (1 - alpha) * ground[window]).astype(np.uint8)
            below[solid] = shown.max() + 1
            return True
    return False
