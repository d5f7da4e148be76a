"""Images of a source at their own sizes, for networks that answer for places of a picture."""

from typing import Any

from torch.utils.data import Dataset

from sslkit.data.images import Images

CHANNELS = 3  # from which a network of gray images makes its own, as in its training


class WholeImages(Dataset):
    """Batches of `Images.read_whole`, in colour; what else a loader asks is as that of the images."""

    def __init__(self, images: Images) -> None:
        self.images = images.at(image_size=images.image_size, channels=CHANNELS, fit=images.fit)
        self.decodes, self.workers = images.decodes, images.workers

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        return self.images.read_whole(rows)
