"""All processes of a run must number the same images: row 7 of a batch is one image, whoever reads it."""

import hashlib

from sslkit import distributed
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.waiting import from_all


def check(images: Images) -> None:
    """Raises UserError, on every process, if some see other images than the first: another number, name or label.

    Files are not compared by content or time, so that each machine may have a copy of its own.
    """
    if distributed.world_size() == 1:
        return
    found = from_all("the comparison of the data", [len(images), fingerprint(images)])
    others = [rank for rank, one in enumerate(found) if one != found[0]]
    if others:
        counts = f"{found[others[0]][0]:,} images, process 0 {found[0][0]:,}"
        how = "" if found[others[0]][0] != found[0][0] else ", with other names or labels"
        raise UserError(
            f"the processes see different images in {images.name}: process {others[0]} has {counts}{how}; give every "
            "machine the same data"
        )


def fingerprint(images: Images) -> str:
    """sha256 (hex) of the names and labels of all rows; of arrays the content."""
    if isinstance(images, ArrayImages):
        return images.digest
    digest = hashlib.sha256(repr(images.classes).encode())
    for labels in (images.labels, images.multi_labels):
        digest.update(b"" if labels is None else labels.tobytes())
    for row in range(len(images)):
        digest.update(images.image_name(row).encode(errors="surrogateescape") + b"\n")
    return digest.hexdigest()
