"""Small pictures of images, for sheets and maps."""

from collections.abc import Sequence

import numpy as np

from evaluation.embedding.sources import Part, locate
from sslkit.data.thumbnails import small, thumbnail


def thumbnails(parts: Sequence[Part], paths: Sequence[str], rows: Sequence[int], side: int) -> list[np.ndarray]:
    """Return the whole images of these rows as (h, w, 3) uint8, with a longer side of `side` pixels.

    parts, paths: of an `Embedding`. An image that cannot be read any more is grey.
    """
    where = list(locate(parts, paths))
    of_part = {id(opened): small(opened.split.images, side) for opened in parts}
    return [thumbnail(of_part[id(opened)], part_row, side) for opened, part_row in (where[row] for row in rows)]
