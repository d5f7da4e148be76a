"""The word `tune=`, what of given weights is trained; `sslkit.backbones.tuning` does it.

| word | what learns |
|---|---|
| all | every weight |
| last:k | the last k blocks and what comes after them |
| norms | weights and biases of normalisation layers |
| lora(rank,alpha,blocks) | updates of that rank, see `layers.lora`; blocks: of the last ones alone; all are optional |

The means and variances of batch normalisation stay those of the given weights; WORD+statistics lets them move where the
norm learns. Moving them to new images cost efficientnet_lite0 more than training gained (benchmarks/LOG.md).
"""

import math
import re
from dataclasses import dataclass

from sslkit.errors import UserError

ALL, NORMS, LAST, LORA = "all", "norms", "last", "lora"
FORMS = (
    "all, norms, last:2, each with +statistics to move those of batch normalisation too, or lora, lora(8,16,blocks=4)"
)
_CALL = re.compile(r"lora(?:\((.*)\))?")


@dataclass(frozen=True)
class Tune:
    """A word, parsed. blocks: how many of the last ones learn; None: any. statistics: of batch norm move, too.

    rank, alpha: of LoRA: as NVIDIA TAO 7's for DINOv3; not tuned.
    """

    kind: str
    blocks: int | None = None
    statistics: bool = False
    rank: int = 8
    alpha: float = 16.0


def parse(word: str) -> Tune:
    """The meaning of `tune=word`. Raises UserError for another word."""
    text, plus, more = word.replace(" ", "").partition("+")
    kind, _, count = text.partition(":")
    if plus and more != "statistics":
        raise UserError(f"tune={word}: only +statistics can be added; give {FORMS}")
    if text in (ALL, NORMS):
        return Tune(text, statistics=bool(plus))
    if kind == LAST and count.isdecimal() and int(count) > 0:
        return Tune(LAST, blocks=int(count), statistics=bool(plus))
    if (call := _CALL.fullmatch(text)) and not plus:
        return _parse_lora(word, call[1] or "")
    raise UserError(f"tune={word} is not known: give {FORMS}")


def _parse_lora(word: str, given: str) -> Tune:
    """given: `8,16` or `rank=8,blocks=4`."""
    options = [piece.rpartition("=")[::2] for piece in given.split(",") if piece]
    named = {
        name or unnamed: value for (name, value), unnamed in zip(options, ("rank", "alpha", "blocks"), strict=False)
    }
    try:
        numbers = {name: (float if name == "alpha" else int)(value) for name, value in named.items()}
    except ValueError:
        numbers = {}
    fit = len(numbers) == len(options) and not set(numbers) - {"rank", "alpha", "blocks"}
    if not fit or not all(0 < number < math.inf for number in numbers.values()):
        raise UserError(
            f"tune={word}: LoRA takes rank, alpha and blocks, numbers above 0: lora(rank=8,alpha=16,blocks=4)"
        )
    return Tune(LORA, **numbers)
