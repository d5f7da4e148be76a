"""Ranges that arguments of objectives, regularisers and metrics declare; `members.check_options` reads them.

def __init__(self, backbone, *, temperature: Temperature = 0.2, hidden: Width | None = None) -> None: ...

The upper bounds are far above anything published and exclude models that no machine could hold.
"""

from typing import Annotated, Literal

from sslkit.options.settings import Limits

Width = Annotated[int, Limits(least=1, most=32_768)]  # units of a layer
Depth = Annotated[int, Limits(least=1, most=256)]  # number of layers, sets or iterations
Rows = Annotated[int, Limits(least=1, most=2**24)]  # embeddings of a queue, images of a sub-batch
OptionalRows = Annotated[int, Limits(least=0, most=2**24)]  # 0: no queue
Knots = Annotated[int, Limits(least=2, most=10_000)]  # points of an integral, both ends among them
Prototypes = Annotated[int, Limits(least=2, most=2**20)]
Count = Annotated[int, Limits(least=0, most=10**9)]  # epochs, steps
Natural = Annotated[int, Limits(least=1)]
Several = Annotated[int, Limits(least=2)]
Positive = Annotated[float, Limits(above=0)]
NotNegative = Annotated[float, Limits(least=0)]
Size = Annotated[int, Limits(least=1, most=4096)]  # pixels
Weight = Annotated[float, Limits(least=0, most=10**9)]  # of a term of the loss
Ratio = Annotated[float | None, Limits(above=0, most=10**6)]  # of two norms; None: any
ChosenRatio = Ratio | Literal["auto"]
Temperature = Annotated[float, Limits(above=0, most=10**6)]
Share = Annotated[float, Limits(least=0, most=1)]
ChosenShare = Annotated[float | None, Limits(least=0, most=1)]
PartialShare = Annotated[float, Limits(least=0, below=1)]
