"""Which images have the same content, byte by byte."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from evaluation.datasets._content import Content, content_of
from evaluation.embedding.sources import Part, located


def same_content(sources: Sequence[tuple[Sequence[Part], Sequence[str]]]) -> np.ndarray:
    """Return (N,) int64 the first row with the same content: the row itself where no earlier one has it.

    sources: parts and paths of an `Embedding` each; their rows are counted on.
    Files, and images in shards and Hugging Face data sets, are compared by their bytes, and only files of one size are
    read; arrays are compared by their pixels. Raises UserError for a file that has gone.
    """
    first: dict[Hashable, int] = {}
    images = [one for parts, paths in sources for one in _images(parts, paths)]
    sizes = Counter(one.size for one in images if isinstance(one, Content))
    found = np.arange(len(images))
    for row, one in enumerate(images):
        if isinstance(one, Content) and sizes[one.size] == 1:
            continue
        key: Hashable = hashlib.sha256(one.read()).digest() if isinstance(one, Content) else one
        found[row] = first.setdefault(key, row)
    return found


def _images(parts: Sequence[Part], paths: Sequence[str]) -> Iterator[Content | str]:
    """Yield the content of each image; a hash of the pixels of one in an array."""
    for part, row in located(parts, paths):
        content = content_of(part.split.images, row)
        yield str(part.split.ids[row]).partition("-")[0] if content is None else content  # numbered where equal
