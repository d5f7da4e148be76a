"""Every image of a split is opened once: its size, depth, a thumbnail and what cannot be read, kept in the cache."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset
from tqdm import tqdm

from sslkit.data.decode.opacity import Opacity, declares_opacity, opacity_of
from sslkit.data.decode.opening import Picture
from sslkit.data.decode.pixels import is_deep, square, upright_size, values_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.file_contents import bar_is_off
from sslkit.data.images import Images
from sslkit.data.likeness import KEY as LIKENESS
from sslkit.data.likeness import WORDS, hash_images
from sslkit.data.loader import FEWEST, load_batches, plain_errors, workers_for
from sslkit.data.pixel_digest import KEY
from sslkit.data.sources.folder import FolderImages
from sslkit.files.blocks import Blocks, Parts, create_npy
from sslkit.files.store import Codec, Store, key_of
from sslkit.runtime.context import Runtime
from sslkit.runtime.kept_arrays import compute_in_blocks
from sslkit.runtime.waiting import Others
from sslkit.terminal.say import printable

DECODED = 64  # pixels of a side that are read of each file: twice those that likeness is told by
SIDE = 16  # pixels of a thumbnail: 768 bytes an image, and enough to tell pictures apart
BLOCK = 64  # images that are kept together: a stop loses a second
_FORM = 7  # of what is kept: raised when it changes
_REASON = "S160"  # letters of why an image cannot be read
DIGEST, THUMBNAIL, LIGHT, ENDS, OPACITY, REASON = "digest", "thumbnail", "light", "ends", "opacity", "reason"
_STORED = ("shape", DIGEST, THUMBNAIL, LIGHT, LIKENESS, ENDS, OPACITY, REASON)

# of N images, memory-mapped. shape: (N, 4) int32 width, height (upright), channels as stored, bits; zeros of one that
# cannot be read. bytes: (N,) int64, -1 where the image is no file. digest: (N, 8) uint8, of a file's bytes, else of the
# pixels. thumbnail: (N, 3, SIDE, SIDE) uint8. light: (N, 2) float32, mean of its pixels, and their standard deviation
# in the channel where it is largest. ends: (N, 2) float64, the least and the greatest value of more than 8 bits, else
# NaN. likeness: (N, 4) int64, see `data.likeness`. opacity: (N,) float32, see `Opacity.share`, where a file calls a
# plane so and the data set's was decided; else NaN. reason: (N,) bytes, why it cannot be read, or b"".
Measures = Mapping[str, np.ndarray]


def measure(images: Images, runtime: Runtime) -> Measures:
    """Open every image of a split once, and return what it is.

    It is kept in the cache by blocks, so that a stopped call goes on. A JPEG is decoded at a reduced scale.
    """
    # Of every size the same, and told by nothing else than names and content, so that every command shares it.
    images = images.at(image_size=DECODED, channels=images.channels, fit="squash")
    if runtime.cache is not None:
        about = (_FORM, images.content_digest, images.channels, images.options.max_pixels, images.scale)
        arrays = _compute_once(images, runtime, Path(runtime.cache) / f"look-{key_of(*about)}")
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            arrays = _compute_once(images, runtime, Path(scratch) / "look")
    return {**arrays, **_contents(images, arrays)}


class _Measured(Dataset):
    """The measures of rows, as a data set that worker processes read."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def __getitems__(self, rows: list[int]) -> dict[str, np.ndarray]:
        if isinstance(self.images, DecodedImages):
            each = [_of_file(self.images, row) for row in rows]
            measures = {name: np.stack([measures[name] for measures in each]) for name in each[0]}
        else:
            measures = _of_arrays(self.images, rows)
        return {**measures, LIGHT: _brightness(measures[THUMBNAIL])}


def _of_file(images: DecodedImages, row: int) -> dict[str, Any]:
    shape, digest, reason = np.zeros(4, np.int32), np.zeros(8, np.uint8), b""
    thumbnail, likeness = np.zeros((3, SIDE, SIDE), np.uint8), np.zeros(WORDS, np.int64)
    ends, opacity = np.full(2, np.nan), np.nan
    try:
        with images.open_row(row) as image:
            height, width = upright_size(image)
            shape[:] = width, height, *_planes(image)
            if not isinstance(images, FolderImages):
                digest = _digest(images, row)
            ends[:] = _ends(image, images.channels)
            opacity = _opacity(images, row) if shape[2] in (2, 4) else np.nan
            pixels, _ = square(image, DECODED, images.channels, "squash", "bilinear", scale=images.range, resize=None)
            pixels = _three(pixels)
            thumbnail[:], likeness[:] = _thumbnails(pixels[None])[0], hash_images(pixels[None])[0]
    except UnreadableImage as error:
        reason = str(error).encode(errors="replace") or b"unreadable"
        shape[:] = 0
    told = {"shape": shape, DIGEST: digest, THUMBNAIL: thumbnail, LIKENESS: likeness, ENDS: ends}
    return {**told, OPACITY: np.array(opacity, np.float32), REASON: np.array(reason, _REASON)}


def _digest(images: Images, row: int) -> np.ndarray:
    return images.with_digests().__getitems__([row])[KEY].numpy().view(np.uint8)


def _ends(image: Picture, channels: int) -> tuple[float, float]:
    """The least and the greatest value of an image of more than 8 bits, of the pixels that have one; else NaN."""
    if not is_deep(image):
        return np.nan, np.nan
    if isinstance(image, Planes):
        image.hold()  # for the picture, too
    values = [plane for plane in values_of(image, channels) if plane.size]
    if not values:
        return np.nan, np.nan
    return float(min(plane.min() for plane in values)), float(max(plane.max() for plane in values))


def _opacity(images: DecodedImages, row: int) -> float:
    """See `Measures`; of the file as it is, whatever was decided."""
    if images.scale.opacity is None:
        return np.nan
    with images._open(row) as image:
        if not declares_opacity(image):
            return np.nan
        opacity = Opacity()
        opacity.add(opacity_of(image))
    return opacity.share


def _planes(image: Picture) -> tuple[int, int]:
    """Channels as stored, and bits of each."""
    if isinstance(image, Planes):
        return image.count, 8 * image.itemsize if is_deep(image) else 8
    deep = {"I;": 16, "I": 16 if image.format in ("PNG", "PPM") else 32, "F": 32}
    bits = next((bits for mode, bits in deep.items() if image.mode.startswith(mode)), 8)
    return len(image.getbands()) if image.mode != "P" else 3, 1 if image.mode == "1" else bits


def _three(pixels: np.ndarray) -> np.ndarray:
    """Three channels of pixels (C, H, W): gray three times, or the first ones."""
    return np.repeat(pixels[:1], 3, 0) if len(pixels) < 3 else pixels[:3]


def _of_arrays(images: Images, rows: list[int]) -> dict[str, np.ndarray]:
    batch = images.with_digests().__getitems__(rows)
    pixels = np.stack([_three(some) for some in batch["images"].numpy()])
    height, width = images.native_size or batch["images"].shape[-2:]
    return {
        "shape": np.tile(np.array([width, height, images.channels, 8], np.int32), (len(rows), 1)),
        DIGEST: batch[KEY].numpy().view(np.uint8).reshape(len(rows), 8),
        THUMBNAIL: _thumbnails(pixels),
        LIKENESS: batch[LIKENESS].numpy(),
        ENDS: np.full((len(rows), 2), np.nan),
        OPACITY: np.full(len(rows), np.nan, np.float32),
        REASON: np.zeros(len(rows), _REASON),
    }


def _thumbnails(pixels: np.ndarray) -> np.ndarray:
    """(N, 3, SIDE, SIDE) uint8 of pixels (N, 3, S, S)."""
    pictures = (Image.fromarray(np.ascontiguousarray(some.transpose(1, 2, 0))) for some in pixels)
    small = [picture.resize((SIDE, SIDE), Image.Resampling.BOX) for picture in pictures]
    return np.stack([np.asarray(picture).transpose(2, 0, 1) for picture in small])


def _contents(images: Images, arrays: Measures) -> dict[str, np.ndarray]:
    """Size and digest of the files."""
    if not isinstance(images, FolderImages):
        return {"bytes": np.full(len(images), -1)}
    sizes, contents = images.file_contents()
    return {"bytes": sizes, DIGEST: contents[:, : arrays[DIGEST].shape[1]]}


def _batches(images: Images, parts: Parts, runtime: Runtime) -> Iterator[tuple[Sequence[int], dict[str, np.ndarray]]]:
    count = sum(map(len, parts))
    workers = workers_for(images, runtime.workers, 1, "cpu") if count >= FEWEST and images.decodes else 0
    workers += workers > 0 and runtime.workers == "auto"  # this process only waits, and leaves its core to another
    is_off = bar_is_off() if runtime.progress else True
    with tqdm(total=count, desc=printable(f"look {images.split}"), unit="image", disable=is_off) as bar:
        loader = load_batches(_Measured(images), parts, min(workers, len(parts)), device="cpu", seed=0)
        for rows, arrays in zip(parts, plain_errors(loader), strict=True):
            yield rows, arrays
            bar.update(len(rows))


def _compute_once(images: Images, runtime: Runtime, path: Path) -> Measures:
    def fill(blocks: Blocks, others: Others) -> None:
        for rows, arrays in _batches(images, blocks.left, runtime):
            blocks.write(rows, **arrays)
            others.check()

    def publish(blocks: Blocks, whole: Path) -> None:
        block = next(iter(blocks.read_done()))
        whole.mkdir()
        for name in sorted(block.keys() - {"index"}):
            shape, dtype = (len(images), *block[name].shape[1:]), block[name].dtype
            blocks.join(name, create_npy(whole / f"{name}.npy", shape, dtype))

    def read(folder: Path) -> Measures:
        arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in folder.iterdir()}
        if any(len(array) != len(images) for array in arrays.values()):
            raise ValueError("its arrays have other lengths")
        return {name: arrays[name] for name in _STORED}

    store = Store(path, f"the survey of {images.name}", Codec(read))
    return compute_in_blocks(store, len(images), BLOCK, fill, publish)


def _brightness(thumbnails: np.ndarray) -> np.ndarray:
    """See `Measures`."""
    pixels = thumbnails.reshape(len(thumbnails), 3, -1)
    mean, deviation = pixels.mean((1, 2), dtype=np.float64), pixels.std(2, dtype=np.float64).max(1)
    return np.stack([mean, deviation], 1).astype(np.float32)


def standardize(thumbnails: np.ndarray) -> np.ndarray:
    """(N, D) float32 of thumbnails, each with mean 0, so that brightness alone makes none alike."""
    flat = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    flat -= flat.mean(1, keepdims=True)
    return flat
