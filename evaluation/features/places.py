"""The places of a network's last map: a ViT's patches, or the positions of a convolutional network."""

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone, Recipe
from sslkit.errors import UserError, first_line
from sslkit.models.loading import with_backbone
from sslkit.models.model import Model
from sslkit.models.places import place_features


def check_network(model: Model, protocol: str) -> tuple[int, int]:
    """Rows and columns of the network's last map, of any image.

    Raises UserError for a network without a map, with a single place, and with places that differ between images.
    """
    if model.item.axes:
        raise UserError(f"{protocol} evaluates networks for images, and {model.name} takes {model.item.name}s")
    shape = model.backbone.input_shape()
    noise = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
    grid, other = (_grid(model, pixels, protocol) for pixels in (torch.zeros(1, *shape), noise))
    if grid != other:
        raise UserError(
            f"{protocol}: {model.name} has {grid[0]} x {grid[1]} places for one image and {other[0]} x {other[1]} for "
            "another of the same size: give a network that keeps all of them"
        )
    if grid[0] * grid[1] < 2:
        raise UserError(
            f"{protocol}: {model.name} has one place in its last map for images of {model.image_size} pixels: give a "
            "larger image_size, or a network that shrinks images less"
        )
    return grid


@torch.inference_mode()
def _grid(model: Model, pixels: Tensor, protocol: str) -> tuple[int, int]:
    weight = next(model.net.parameters(), pixels)
    try:
        places = place_features(model.backbone, pixels.to(weight), 1)
    except UserError:
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError) as error:  # of a network of one's own
        raise UserError(f"{protocol}: {model.name} gives no map of places: {first_line(error)}") from error
    if places.dim() != 4:
        raise UserError(f"{protocol}: {model.name} gives {tuple(places.shape)} in the place of a map")
    return tuple(places.shape[-2:])


class Places(nn.Module):
    """The places of a backbone's last map one after the other: (B, C, S, S) -> (B, T F)."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        return place_features(self.backbone, x, 1).flatten(2).transpose(1, 2).flatten(1)


def as_places(model: Model) -> Model:
    """The model with its T places of F numbers as its features: T F of them."""
    size = {"image_size": model.image_size, "in_chans": model.in_chans}
    backbone = Backbone(Places(model.backbone), Recipe(model.backbone.recipe.name), **size)
    return with_backbone(model, backbone.eval(), f"{model.name}@places")
