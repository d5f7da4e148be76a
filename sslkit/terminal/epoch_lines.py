"""The lines of an epoch: what the network has learned, then its loss and the speed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sslkit.terminal.say import columns, hung


@dataclass(frozen=True)
class Epoch:
    """One epoch. number, of: its place. noted: the measurements by the column of metrics.csv. loss: mean of the last
    steps; terms: its terms, which sum to it. k: neighbours of the vote. unit: images or videos."""

    number: int
    of: int
    noted: Mapping[str, float]
    loss: float
    terms: Mapping[str, float]
    k: int
    unit: str


def epoch_lines(epoch: Epoch, weights: Mapping[str, float], width: int | None = None) -> str:
    """Return the lines, at most `width` wide (None: of the terminal). weights: see `Method.weights`.

    `epoch 3/6  20-NN 78.1 %  online probe 81.0 %  rank of z 40.5  std 0.84`
    `  loss 1.23 = align 0.980 + 0.1 x dsa/arrange 2.5  998 images/s`
    """
    width = width or columns()
    noted = epoch.noted
    words = [f"epoch {epoch.number}/{epoch.of}"]
    ends = [f"{100 * noted[key]:.1f}" for key in ("gain_low", "gain_high") if key in noted]
    gain = f" ({100 * noted['gain']:+.1f} points on its start, {ends[0]} to {ends[1]})" if ends else ""
    for key, label in (("knn", f"{epoch.k}-NN"), ("found", "other view found"), ("probe", "online probe")):
        words += [f"  {label} {100 * noted[key]:.1f} %{'' if key == 'probe' else gain}"] if key in noted else []
    words += [f"  patches (DSE) {noted['dse']:.3f}"] if "dse" in noted else []
    if "rankme" in noted:
        words += [f"  rank of z {noted['rankme']:.1f}", f"  std {noted['std']:.2f}"]
    speed = f"  {noted['images_per_second']:,.0f} {epoch.unit}/s"
    if noted["waiting"] >= 0.005:  # 1 % when rounded
        speed += f"  waiting for data {100 * noted['waiting']:.0f} %"
    return "\n".join(hung(words, "", 2, width) + hung([*_sum(epoch, weights), speed], "  ", 4, width))


def _sum(epoch: Epoch, weights: Mapping[str, float]) -> list[str]:
    """`loss 341.8 = align 1.71`, ` + 100 x dsa/consistency 3.392`: right to the last digit that the loss shows."""
    power = math.floor(math.log10(abs(epoch.loss))) if epoch.loss else 0
    last = 10 ** (power - 3)  # four digits
    shown = f"{epoch.loss:.{max(0, 3 - power)}f}"
    parts = []
    for name, value in epoch.terms.items():
        weight = float(f"{weights.get(name, 1):.3g}")  # a balanced one has any number of digits
        times = "" if weight == 1 else f"{weight:g} x "
        parts.append(f"{times}{name} {_round(value / weight if weight else value, last / (weight or 1))}")
    first, *others = parts
    return [f"loss {shown} = {first}", *(f" + {term}" for term in others)]


def _round(value: float, step: float) -> str:
    """A value to the digits of `step`, but at least to two significant ones."""
    if not value:
        return "0"
    least = 2 - 1 - math.floor(math.log10(abs(value)))
    digits = max(least, -math.floor(math.log10(step)))
    return f"{value:.{max(0, digits)}f}"
