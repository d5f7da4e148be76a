"""Pixels as a network takes them: in [0, 1], less the mean and over the standard deviation of each channel."""

from collections.abc import Sequence

from torch import Tensor, uint8, uint16

from sslkit.errors import UserError

# Bicubic resizing overshoots by up to 0.24 at a corner (1 + 1/9 on each axis, squared); what is normalised already by
# 0.5 and 0.5, the least of the usual, reaches -1 where it is dark.
BEYOND = 0.25


def normalize_pixels(
    pixels: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    name: str,
    range: tuple[float, float] | None,
) -> Tensor:
    """Pixels (B, C, H, W) or (B, C, T, H, W) in [0, 1], less `mean` and over `std` of each channel.

    pixels: uint8, other integers, or floats in [0, 1]. Integers of more than 8 bits lie in `range`, and are clipped to
    it; without one those of uint16 have all 16 bits. name: of the network, for messages.
    Raises UserError for another number of channels, for other integers without a range, and for floats beyond what
    resizing adds to [0, 1], as those that are normalised already.
    """
    if pixels.dim() < 4 or pixels.shape[1] != len(mean):
        raise UserError(
            f"{name} takes batches of pixels (N, {len(mean)}, height, width), and these are {tuple(pixels.shape)}"
        )
    if pixels.is_floating_point():
        _check_share(pixels, name)
    else:
        whole = {uint8: (0.0, 255.0), uint16: range or (0.0, 65535.0)}
        low, high = whole.get(pixels.dtype) or range or (0.0, 0.0)
        if high == low:
            raise UserError(
                f"{name} was trained on pixels of 8 bits, and {pixels.dtype} may hold any: give pixels.byte() of "
                "0 to 255, or floats in [0, 1]"
            )
        pixels = ((pixels.float() - low) / (high - low)).clamp(0, 1)
    ones = [1] * (pixels.dim() - 2)
    centre, scale = (pixels.new_tensor(values).view(-1, *ones) for values in (mean, std))
    return (pixels - centre) / scale


def _check_share(pixels: Tensor, name: str) -> None:
    least, most = (pixels.amin().item(), pixels.amax().item()) if pixels.numel() else (0, 0)
    if not (least >= -BEYOND and most <= 1 + BEYOND):
        raise UserError(
            f"{name} takes floats in [0, 1], and these are from {least:.3g} to {most:.3g}: divide pixels up to 255 by "
            "255 or give them as pixels.byte(), and give what is normalised already to model.net"
        )
