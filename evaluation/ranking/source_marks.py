"""Which scores of LEEP and NCE compare: a letter for each kind of source head, and data sets that are ranked apart.

LEEP rises with the number of source classes: scores of two heads of other numbers say little about their backbones.
"""

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from evaluation.ranking.source_heads import OF, SourceHead

Recorded = Mapping[str, Mapping[str, Any]]


def recorded(head: SourceHead) -> dict[str, Any]:
    """Return the fields of a head for a ranking's file."""
    return {"kind": head.kind, "classes": head.classes, "data": head.data, "made": head.made}


def letters(sources: Recorded) -> dict[str, str]:
    """Return the letter of each model's head, the same for heads of one kind, data set and number of classes.

    sources: {model: the fields of its head}. Empty if all are of one letter.
    """
    kinds = list(dict.fromkeys(_kind(one) for one in sources.values()))
    if len(kinds) < 2:
        return {}
    return {name: _letter(kinds.index(_kind(one))) for name, one in sources.items()}


def groups(sources: Recorded, models: Sequence[str]) -> np.ndarray:
    """Return the group (M,) int64 of each model: those of different groups are ranked apart.

    A group for each data set, if heads of several have other numbers of classes; else one for all.
    """
    counts: dict[str, set[int]] = {}
    for one in sources.values():
        counts.setdefault(_data(one), set()).add(one["classes"])
    if len(set(map(frozenset, counts.values()))) < 2:
        return np.zeros(len(models), dtype=np.int64)
    number = {data: place for place, data in enumerate(counts)}
    return np.array([number[_data(sources[name])] if name in sources else -1 for name in models])


def lines(sources: Recorded, metrics: Sequence[str]) -> list[str]:
    """Return the notes of a ranking: each head with its models, and what does not compare. metrics: that read them."""
    if not sources:
        return []
    marks = letters(sources)
    told: dict[str, list[str]] = {}
    for name, one in sources.items():
        mark = f"{marks[name]}, " if marks else ""
        about = f"source head {mark}{one['classes']:,} {OF[one['kind']]} of {one['data']}: {one['made']}"
        told.setdefault(about, []).append(name)
    said = [f"{text} ({', '.join(names)})" for text, names in told.items()]
    named = ", ".join(metrics)
    if groups(sources, list(sources)).any():
        said.append(
            f"{named}: models of other pretraining data are ranked apart: their heads' numbers of classes differ"
        )
    if marks:
        kinds = ", ".join(dict.fromkeys(marks.values()))
        said.append(
            f"{named}: heads of several kinds ({kinds}), on whose numbers of classes the scores depend: compare models "
            "of one letter, or give source=clusters"
        )
    return said


def _kind(one: Mapping[str, Any]) -> tuple[str, str, int]:
    return one["kind"], _data(one), one["classes"]


def _data(one: Mapping[str, Any]) -> str:
    """The pretraining data; of models from outside a zoo, which is not known, the number of classes stands for it."""
    return (
        f"{one['data']}, {one['classes']}" if one["kind"] not in ("prototypes", "labels", "clusters") else one["data"]
    )


def _letter(number: int) -> str:
    more, place = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[place] * (more + 1)
