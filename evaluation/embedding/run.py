"""What recipes/embed.py does: features of every image of a source in a file, and what is made of them beside it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.embedding.file import check_out, write
from evaluation.embedding.sources import open_parts
from evaluation.embedding.table import Embedding, described, embed_parts
from evaluation.features.extraction import check_extraction
from evaluation.features.models import load_model
from sslkit import say
from sslkit.errors import UserError

SHOWN = 5  # unreadable images that are named


def run(
    checkpoint: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    *,
    split: str | None = None,
    trust: str | Sequence[str] | None = (),
    root: str | Path = "data",
    counts: str = "raise",
    image_size: int | None = None,
    **how: Any,
) -> Embedding:
    """Write the features of every image of a source to `out`, print a summary, and return them.

    checkpoint, image_size, trust: see `evaluation.load_model`. data, root, counts: see `evaluation.open_split`.
    split: None for all splits. how: cache, precision, batch_size, device, workers of `evaluation.extract`.
    Raises UserError before anything is computed where an argument, the model, the data or `out` cannot be used.
    """
    for name, value, such in (
        ("checkpoint", checkpoint, "runs/zoo/NAME"),
        ("data", data, "path/to/images"),
        ("out", out, "features.npz"),
    ):
        if not value:
            raise UserError(f"name the {name}: {name}={such}")
    out = Path(out)
    check_extraction(**how)
    model = load_model(checkpoint, image_size=image_size, trust=trust)
    parts = open_parts(data, split, root=root, counts=counts)
    about = described(model, parts, how.get("precision", "float32"))
    check_out(out, about)
    _tell("model", f"{model.name}: {model.width} features, images of {model.image_size} px")
    _tell("data", f"{about['data']}: {sum(len(one.split) for one in parts):,} images")
    start = time.perf_counter()
    embedding = embed_parts(model, parts, **how)
    write(embedding, out)
    _tell_written(embedding, out, time.perf_counter() - start)
    return embedding


def _tell_written(embedding: Embedding, out: Path, seconds: float) -> None:
    n, width = embedding.x.shape
    _tell("features", f"{n:,} x {width} float32 in {seconds:.1f} s")
    if lost := embedding.unreadable:
        more = f" and {len(lost) - SHOWN} more, all in {out}" if len(lost) > SHOWN else ""
        _tell("left out", f"{len(lost)} unreadable: {', '.join(lost[:SHOWN])}{more}")
    _tell("written", f"{out}, {out.stat().st_size / 1e6:.1f} MB")


def _tell(label: str, text: str) -> None:
    say.line(f"{label:<10}{text}")
