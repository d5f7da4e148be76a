"""Read the studies that are declared as data: a YAML file for each paper, its tables and figures by name.

    title: Song et al. 2024, arXiv 2407.13541
    words:                     # for recipes/train.py, at each scale; OBJECTIVE and other capitals: words of a row
      image: {small: method=OBJECTIVE experiment=OBJECTIVE, paper: method=OBJECTIVE data=ROOT/imagenet}
    studies:
      table1:
        kind: training         # of KINDS; the other keys are the fields of its class
        rows: {SimCLR: [image simclr, 1.17, 70.15]}       # template, objective, further words; the paper's numbers
        claims: [{text: DSA raises it, column: top-1, pairs: ["* + DSA | *"]}]      # for every row that fits

A key that begins with a dot holds what others refer to.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from evaluation.studies.maps import MovedMaps, TunedMaps
from evaluation.studies.moments import Moments
from evaluation.studies.options import SCALES
from evaluation.studies.pictured import Bounds, ClassMaps, Swept
from evaluation.studies.rankings import Accuracies, Ranked, Shifts
from evaluation.studies.sources import Sources
from evaluation.studies.stages import Curves, Stages
from evaluation.studies.study import Absent, Study
from evaluation.studies.subsets import Convergence, Subsets
from evaluation.studies.training import Training
from sslkit.errors import UserError, nearest

KINDS: dict[str, type] = {
    "absent": Absent,
    "accuracies": Accuracies,
    "bounds": Bounds,
    "convergence": Convergence,
    "curves": Curves,
    "maps": ClassMaps,
    "moments": Moments,
    "moved maps": MovedMaps,
    "ranking": Ranked,
    "shifts": Shifts,
    "sources": Sources,
    "stages": Stages,
    "subsets": Subsets,
    "swept": Swept,
    "training": Training,
    "tuned maps": TunedMaps,
}
PAPERS = ("dsa", "adc", "resa", "ped", "itm", "leep")  # in the order of the list; others follow
VARIABLE = re.compile(r"[A-Z]+=")


@dataclass(frozen=True)
class Paper:
    """title: authors, year and name. studies: by `what`, in the paper's order."""

    title: str
    studies: Mapping[str, Study | Absent]


def paper_names(folder: Path) -> list[str]:
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    return sorted(names, key=lambda name: PAPERS.index(name) if name in PAPERS else len(PAPERS))


@cache
def load_paper(file: Path) -> Paper:
    """Return the studies of a file. Raises UserError for an unknown kind or key, a missing one, or a wrong type."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    studies = {
        what: _study(spec, content.get("words", {}), f"{file.name}, {what}")
        for what, spec in content["studies"].items()
    }
    return Paper(content["title"], studies)


def _study(spec: Mapping[str, Any], words: Mapping[str, Any], where: str) -> Study | Absent:
    spec = dict(spec)
    kind = spec.pop("kind")
    if kind not in KINDS:
        raise UserError(f"{where}: kind {kind} is unknown: {nearest(kind, KINDS)}")
    if "rows" in spec:
        columns = spec.get("columns", ())
        spec["rows"] = {name: _row(row, columns, words) for name, row in spec["rows"].items()}
        measured = spec.pop("measured", spec["rows"])
        spec["rows"] = {name: row if name in measured else row | {"small": ()} for name, row in spec["rows"].items()}
    if "metrics" in spec:
        spec["metrics"] = _metrics(spec["metrics"])
    if kind in ("ranking", "shifts") and "published" in spec:
        spec["published"] = {
            name: dict(zip(spec["needs"], row, strict=True)) for name, row in spec["published"].items()
        }
    if "claims" in spec:
        spec["claims"] = [claim for declared in spec["claims"] for claim in _claims(declared, spec.get("rows", ()))]
    return build(KINDS[kind], spec, where)


def _row(row: Sequence[Any], columns: Sequence[str], templates: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The fields of `Row`, from [words, numbers ...] or [numbers ...]; `paper TEMPLATE ...`: words at that scale."""
    words, numbers = (row[0].split(), row[1:]) if row and isinstance(row[0], str) else ([], row)
    row_fields: dict[str, Any] = {"published": dict(zip(columns, numbers, strict=False))}
    if words:
        scales = [words.pop(0)] if words[0] in SCALES else SCALES
        name, objective, *more = words
        variables = dict(word.split("=", 1) for word in more if VARIABLE.match(word))
        further = " ".join(word for word in more if not VARIABLE.match(word))
        for scale in scales:
            text = templates[name].get(scale, "")
            text = text.replace("WORDS", further) if "WORDS" in text else f"{text} {further}" if text else ""
            for variable, value in {"OBJECTIVE": objective, **variables}.items():
                text = text.replace(variable, value)
            row_fields[scale] = tuple(text.split())
    return row_fields


def _metrics(spec: Sequence[Any]) -> dict[str, str]:
    """Metrics by name: NAME, {NAME: METRIC}, or {name, metric, over: {key: values}} for each combination."""
    metrics: dict[str, str] = {}
    for entry in spec:
        if isinstance(entry, str):
            metrics[entry] = entry
        elif "over" in entry:
            for values in itertools.product(*entry["over"].values()):
                chosen = dict(zip(entry["over"], values, strict=True))
                metrics[entry["name"].format(**chosen)] = entry["metric"].format(**chosen)
        else:
            metrics |= entry
    return metrics


def _claims(spec: Mapping[str, Any], rows: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A claim for each of its columns and each value of `over`, with its pairs written out.

    A pair "ROW | BASE" with a * stands for every row that fits and has such a base, or for the names in `of`.
    """
    spec = dict(spec)
    over, names = spec.pop("over", [""]), spec.pop("of", None)
    columns = spec["column"] if isinstance(spec["column"], list) else [spec["column"]]
    for column, value in itertools.product(columns, over):
        pairs = [pair.replace("{}", str(value)).split(" | ") for pair in spec["pairs"]]
        written = [pair for row, base in pairs for pair in _pairs(row, base, rows, names)]
        text = spec["text"].replace("{column}", column).replace("{}", str(value))
        yield {**spec, "text": text, "column": column, "pairs": written}


def _pairs(row: str, base: str, rows: Sequence[str], names: Sequence[str] | None) -> list[tuple[str, str]]:
    if "*" not in row + base:
        return [(row, base)]
    if names is None:
        pattern = re.compile(re.escape(row).replace(r"\*", "(.+)"))
        names = [
            match[1] for name in rows if (match := pattern.fullmatch(name)) and base.replace("*", match[1]) in rows
        ]
    return [(row.replace("*", name), base.replace("*", name)) for name in names]


def build(hint: Any, value: Any, where: str) -> Any:
    """Return a value of YAML as the type that a field has: dataclasses from mappings, tuples from lists.

    Raises UserError for an unknown or missing key, or for a value of another type.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return hint(**_arguments(hint, value, where))
    if origin is tuple and isinstance(value, list | tuple):
        each = itertools.repeat(parts[0]) if parts[1:] == (...,) else parts
        return tuple(
            build(member_hint, member, where) for member_hint, member in zip(each, value, strict=parts[1:] != (...,))
        )
    if origin is Mapping and isinstance(value, Mapping):
        return {key: build(parts[1], member, f"{where}, {key}") for key, member in value.items()}
    if hint is Any:
        return tuple(value) if isinstance(value, list) else value
    kinds = (origin,) if origin else parts or ((int, float) if hint is float else (hint,))
    if not isinstance(value, kinds):
        raise UserError(f"{where}: {value!r} is no {getattr(hint, '__name__', hint)}")
    return value


def _arguments(hint: type, value: Any, where: str) -> dict[str, Any]:
    """The arguments of a dataclass, each of its field's type."""
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: {value!r} is not a mapping of {hint.__name__}'s fields")
    hints = get_type_hints(hint)
    if unknown := next((key for key in value if key not in hints), None):
        raise UserError(f"{where}: {unknown} is unknown: {nearest(unknown, hints)}")
    needed = [field.name for field in fields(hint) if field.default is MISSING and field.default_factory is MISSING]
    if missing := next((name for name in needed if name not in value), None):
        raise UserError(f"{where}: {missing} is missing")
    return {key: build(hints[key], member, f"{where}, {key}") for key, member in value.items()}
