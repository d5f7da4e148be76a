"""Some rows of other images."""

from typing import Any

import numpy as np
import torch

from sslkit.data.decode.scale import Scale
from sslkit.data.images import Identity, Images


class PickedImages(Images):
    """The rows `rows` (n,) int64 of `images`, in the given order; no new listing or decoding."""

    def __init__(self, images: Images, rows: np.ndarray) -> None:
        kinds = {name: getattr(images, name) for name in ("labels", "multi_labels", "numbers")}
        about = {name: None if values is None else values[rows] for name, values in kinds.items()}
        about |= {name: getattr(images, name) for name in ("classes", "licence", "mirror")}
        identity = Identity(images.name, images.source, images.splits, **about)
        sizes = {"channels": images.channels, "image_size": images.image_size, "native_size": images.native_size}
        super().__init__(identity, images.options, **sizes)
        self.images, self.rows = images, np.asarray(rows, dtype=np.int64)
        self.decodes = images.decodes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        asked = self.rows[rows]
        batch = self.images.__getitems__(asked.tolist())
        same = batch["index"].numpy() == asked  # an unreadable image is replaced by another, also from outside `rows`
        batch["index"] = torch.from_numpy(np.where(same, rows, -1))
        return batch

    def at(self, **options: Any) -> "PickedImages":
        other = super().at(**options)
        other.images = self.images.at(**options)
        return other

    def with_digests(self) -> "PickedImages":
        other = super().with_digests()
        other.images = self.images.with_digests()
        return other

    @property
    def scale(self) -> Scale:
        return self.images.scale

    def rescale(self, scale: Scale) -> None:
        """Nothing to do: `at` does it to the images."""

    def _check_channels(self, channels: int) -> None:
        self.images._check_channels(channels)

    def _update_digest(self, digest: Any) -> None:
        digest.update(self.images.digest.encode())
        digest.update(self.rows.tobytes())

    def _update_listing(self, digest: Any) -> None:
        digest.update(self.images.listing.encode())
        digest.update(self.rows.tobytes())
