"""Letters for the kinds of source heads, and groups of models that LEEP and NCE rank apart.

Both depend on the number of source classes: scores by heads of other numbers say little about the backbones.
"""

import itertools
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from evaluation.ranking.inputs.source_heads import OWN, SourceHead
from sslkit.zoo.heads import CLUSTERS, LABELS, PROTOTYPES

OF = {PROTOTYPES: "prototypes", LABELS: "labels", CLUSTERS: "clusters", OWN: "labels"}
Recorded = Mapping[str, Mapping[str, Any]]


def to_record(head: SourceHead) -> dict[str, Any]:
    """Return the fields of a head for a ranking's file."""
    return {"kind": head.kind, "classes": head.classes, "data": head.data, "made": head.made}


def letters(sources: Recorded) -> dict[str, str]:
    """Return the letter of each model's head, the same for heads of one kind, data set and number of classes.

    sources: {model: the fields of its head}. Empty if all are of one letter.
    """
    kinds = list(dict.fromkeys(_kind(head) for head in sources.values()))
    if len(kinds) < 2:
        return {}
    letters = (letter * times for times in itertools.count(1) for letter in ascii_lowercase)
    letter_of = dict(zip(kinds, letters, strict=False))
    return {name: letter_of[_kind(head)] for name, head in sources.items()}


def groups(sources: Recorded, models: Sequence[str]) -> np.ndarray:
    """Return the group (M,) int64 of each model: those of different groups are ranked apart.

    Data sets are in one group where heads of the same kind have the same numbers of classes.
    """
    counts: dict[str, dict[str, set[int]]] = {}
    for head in sources.values():
        counts.setdefault(_data(head), {}).setdefault(head["kind"], set()).add(head["classes"])
    joined: list[list[str]] = []
    for data in counts:
        home = next(
            (members for members in joined if all(_alike(counts[data], counts[other]) for other in members)), None
        )
        joined.append([data]) if home is None else home.append(data)
    number = {data: number for number, members in enumerate(joined) for data in members}
    if len(joined) < 2:
        return np.zeros(len(models), dtype=np.int64)
    return np.array([number[_data(sources[name])] if name in sources else -1 for name in models])


def _alike(first: Mapping[str, set[int]], second: Mapping[str, set[int]]) -> bool:
    shared = first.keys() & second.keys()
    return bool(shared) and all(first[kind] == second[kind] for kind in shared)


def lines(sources: Recorded, metrics: Sequence[str]) -> list[str]:
    """Return the notes of a ranking: each head with its models, and what does not compare. metrics: that read them."""
    if not sources:
        return []
    marks = letters(sources)
    by_text: dict[str, list[str]] = {}
    for name, head in sources.items():
        mark = f"{marks[name]}, " if marks else ""
        about = f"source head {mark}{head['classes']:,} {OF[head['kind']]} of {head['data']}: {head['made']}"
        by_text.setdefault(about, []).append(name)
    notes = [f"{text} ({', '.join(names)})" for text, names in by_text.items()]
    named, apart = ", ".join(metrics), groups(sources, list(sources))
    if apart.any():
        notes.append(
            f"{named}: models of other pretraining data are ranked apart: their heads' numbers of classes differ"
        )
    unlike = {
        group: {_size(head) for head, group_of in zip(sources.values(), apart, strict=True) if group_of == group}
        for group in apart
    }
    if max(map(len, unlike.values())) > 1:
        fitted = all(head["kind"] != OWN for head in sources.values())
        notes.append(
            f"{named}: heads of several kinds are ranked together, and the scores depend on the kind and its number of "
            f"classes: compare models of one letter{', or give source=clusters' if fitted else ''}"
        )
    return notes


def _size(one: Mapping[str, Any]) -> tuple[str, int]:
    return one["kind"], one["classes"]


def _kind(one: Mapping[str, Any]) -> tuple[str, str, int]:
    return one["kind"], _data(one), one["classes"]


def _data(one: Mapping[str, Any]) -> str:
    """Return the pretraining data; of models from outside a zoo it is not known, and their number of classes counts."""
    return f"{one['data']}, {one['classes']}" if one["kind"] == OWN else one["data"]
