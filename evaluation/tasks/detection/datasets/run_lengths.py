"""Masks as COCO's compressed run lengths, with faster-coco-eval's mask functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sslkit.errors import UserError


@dataclass(frozen=True)
class RunLengths:
    """`Outlines` of M objects: their run lengths in one block of bytes, object m from ends[m] to ends[m + 1].

    One block takes little memory and is pickled for workers in one piece.
    """

    block: bytes
    ends: np.ndarray

    @classmethod
    def from_bytes(cls, encoded: Sequence[bytes]) -> "RunLengths":
        return cls(b"".join(encoded), np.cumsum([0, *map(len, encoded)], dtype=np.int64))

    def masks(self, objects: np.ndarray, height: int, width: int) -> np.ndarray:
        if not len(objects):
            return np.zeros((0, height, width), np.uint8)
        coded = [{"size": [height, width], "counts": self._counts(row)} for row in objects]
        return np.ascontiguousarray(mask_functions().decode(coded).transpose(2, 0, 1))

    def extents(self, sizes: np.ndarray) -> np.ndarray:
        """(M, 4) float64 xyxy of all masks. sizes: (M, 2) height and width of each one's image."""
        coded = [{"size": size, "counts": self._counts(row)} for row, size in enumerate(sizes.tolist())]
        boxes = np.asarray(mask_functions().toBbox(coded), np.float64).reshape(-1, 4)
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)

    def take(self, objects: np.ndarray) -> "RunLengths":
        return RunLengths.from_bytes([self._counts(row) for row in objects])

    def update_digest(self, digest: Any) -> None:
        digest.update(self.ends.tobytes() + self.block)

    def _counts(self, row: int) -> bytes:
        return self.block[self.ends[row] : self.ends[row + 1]]


def encode(segmentation: Any, height: int, width: int) -> bytes:
    """Encode a "segmentation" of a COCO file as compressed run lengths.

    segmentation: polygons [[x, y, x, y, x, y, ...], ...], or run lengths {"size": [height, width], "counts": a list of
        numbers or COCO's string}. Polygons of fewer than three points cover nothing and are left out beside others.
    Raises UserError for anything else, without the annotation's id, and if faster-coco-eval is not installed.
    """
    if isinstance(segmentation, dict):
        return _of_run_lengths(segmentation, height, width)
    if not isinstance(segmentation, list) or not segmentation:
        raise UserError("segmentation must be a list of polygons or run lengths")
    for polygon in segmentation:
        if not isinstance(polygon, list) or len(polygon) % 2:
            raise UserError("a polygon of the segmentation is not a list of pairs of x and y")
        if not np.isfinite(np.asarray(polygon, dtype=np.float64)).all():
            raise UserError("a polygon of the segmentation has points that are not finite")
    polygons = [polygon for polygon in segmentation if len(polygon) >= 6]
    if not polygons:
        raise UserError("the segmentation has no polygon of at least three points")
    functions = mask_functions()
    return _bytes(functions.merge(functions.frPyObjects(polygons, height, width))["counts"])


def area(encoded: bytes, height: int, width: int) -> float:
    """Number of pixels of a mask."""
    return float(mask_functions().area({"size": [height, width], "counts": encoded}))


def compress(mask: np.ndarray) -> dict[str, Any]:
    """Encode a mask (H, W) of 0 and 1 for COCO's result files: {"size": [H, W], "counts": str}."""
    coded = mask_functions().encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": list(mask.shape), "counts": _bytes(coded["counts"]).decode("ascii")}


def _of_run_lengths(segmentation: dict[str, Any], height: int, width: int) -> bytes:
    if list(segmentation.get("size", ())) != [height, width]:
        raise UserError(f"the run lengths have size {segmentation.get('size')}, the image {[height, width]}")
    counts = segmentation.get("counts")
    if isinstance(counts, str):
        counts = counts.encode("ascii")
        mask_functions().decode({"size": [height, width], "counts": counts})  # raises ValueError for another size
    elif isinstance(counts, list):
        if any(type(count) is not int for count in counts):
            raise UserError("the run lengths must be integers")
        if sum(counts) != height * width or min(counts, default=0) < 0:
            raise UserError(f"the run lengths cover {sum(counts)} pixels, the image has {height * width}")
        return _bytes(mask_functions().frPyObjects(segmentation, height, width)["counts"])
    else:
        raise UserError('"counts" of the run lengths must be a list or a string')
    return counts


def _bytes(counts: bytes | str) -> bytes:
    return counts.encode("ascii") if isinstance(counts, str) else counts


def mask_functions() -> Any:
    """faster-coco-eval's mask module. Raises UserError if it is not installed."""
    try:
        from faster_coco_eval.core import mask
    except ImportError as error:
        raise UserError(f'masks need faster-coco-eval ({error}): pip install -e ".[detection]"') from error
    return mask
