"""Types of the protocols' options, with their ranges, by which `sslkit.options.members.check_options` checks them."""

from collections.abc import Sequence
from typing import Annotated

from sslkit.data.decode.fill import WORDS, Fill
from sslkit.options.settings import MOST_SEED, Limits

MOST = 10**9  # far above anything that is run: it stops what no machine can count
Count = Annotated[int, Limits(least=1, most=MOST)]
CountOrNone = Annotated[int | None, Limits(least=1, most=MOST)]
Counts = Annotated[int | Sequence[int], Limits(least=1, most=MOST)]
CountsOrNone = Annotated[int | Sequence[int] | None, Limits(least=1, most=MOST)]
Neighbours = Annotated[int, Limits(least=1, most=10_000)]  # each takes memory, for thousands of images at a time
AtLeastTwo = Annotated[int, Limits(least=2, most=MOST)]
Positive = Annotated[float, Limits(above=0)]
PositiveOrNone = Annotated[float | None, Limits(above=0)]
Seconds = Annotated[float, Limits(least=0)]
DecayOrNone = Annotated[float | None, Limits(least=0)]
Seed = Annotated[int, Limits(least=0, most=MOST_SEED)]
Seeds = Annotated[int | Sequence[int], Limits(least=0, most=MOST_SEED)]
Crop = Annotated[Sequence[float], Limits(above=0, most=1)]  # minimum and maximum share of the image's area
Folds = Annotated[int, Limits(least=1, most=5)]
Precision = Annotated[str, Limits(choices=("float32", "bfloat16"))]
CountsRule = Annotated[str, Limits(choices=("raise", "warn"))]  # of a published set of another size
RangeOrNone = Annotated[Sequence[float] | str | None, Limits(choices=("auto",))]  # of pixels of more than 8 bits
FillOrAuto = Annotated[Fill, Limits(choices=WORDS)]  # of pixels of more than 8 bits
OnError = Annotated[str, Limits(choices=("skip", "raise"))]
Workers = Annotated[int, Limits(least=1, most=256)]
Readers = Annotated[int, Limits(least=0, most=256)]
ReadersOrAuto = Annotated[int | str, Limits(least=0, most=256, choices=("auto",))]
SizeOrNone = Annotated[int | None, Limits(least=1, most=4096)]  # pixels, or frames
Fraction = Annotated[int | float, Limits(above=0)]  # a share, or a whole number of images
TrialsOrNone = Annotated[int | None, Limits(least=1, most=1000)]
