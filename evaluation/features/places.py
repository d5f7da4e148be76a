"""The places of a network's last map: a ViT's patches, or the positions of a convolutional network."""

from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.models.places import grid_of


def check_network(model: Model, protocol: str) -> tuple[int, int]:
    """Rows and columns of the network's last map. Raises UserError for one without a map, or with a single place."""
    if model.item.axes:
        raise UserError(f"{protocol} evaluates networks for images, and {model.name} takes {model.item.name}s")
    grid = grid_of(model)
    if grid[0] * grid[1] < 2:
        raise UserError(
            f"{protocol}: {model.name} has one place in its last map for images of {model.image_size} pixels: give a "
            "larger image_size, or a network that shrinks images less"
        )
    return grid
