"""The command that reproduces a number, from its card or result."""

from collections.abc import Container, Iterator, Mapping
from functools import cache
from typing import Any

from evaluation.ranking.ranking import Ranking
from evaluation.report.cells import dig
from evaluation.results.result import Result
from sslkit.errors import UserError
from sslkit.method import signature
from sslkit.settings import as_word
from sslkit.training.config import Config

RANKED_BY = ("max_images", "image_size", "bootstrap", "seed")
PLACES = ("method", "out", "name", "resume")  # written first, or about the location and not the run


def training(card: Mapping[str, Any]) -> str:
    """Return `python recipes/train.py ...` with the non-default options; "" if the card lacks them."""
    config, method = dig(card, "config"), dig(card, "method")
    if not isinstance(config, Mapping) or not method:
        return ""
    words = {"method": method, "data": dig(config, "data", "source")}
    usual = {path: value for path, value in _leaves(Config().to_dict()) if path != "data.source"}
    rest = {name: value for name, value in config.items() if name not in PLACES}
    words |= {path: value for path, value in _leaves(rest) if path in usual and value != usual[path]}
    known = _options(str(method))
    chosen = {name: value for name, value in (dig(card, "options") or {}).items() if name != "name"}
    words |= {
        f"method.{path}": value for path, value in _leaves(chosen) if path in known and value not in (None, known[path])
    }
    return " ".join(["python recipes/train.py", *(f"{key}={as_word(value)}" for key, value in words.items())])


def judging(result: Result, folder: Any) -> str:
    """Return `python recipes/evaluate.py ...` of a result. folder: of the zoo entry, None outside a zoo."""
    words = [f"checkpoint={result.model if folder is None else folder}", f"data={result.data}"]
    words += [f"protocols=[{result.protocol}]"]
    seeds = [f"seed={result.seeds[0]}"] if result.seeds and result.seeds[0] else []
    return " ".join(["python recipes/evaluate.py", *words, *seeds])


def ranking(found: Ranking, zoo: Any, entries: Container[str]) -> str:
    """Return `python recipes/rank.py ...` of a ranking, with its recorded settings.

    zoo: the folder. entries: the names of its entries.
    """
    others = [name for name in found.models if name not in entries]
    models = f"[{','.join(map(str, (zoo, *others)))}]" if others else zoo
    metrics = ",".join(f'"{name}"' if "=" in name else name for name in found.metrics)
    words = [f"zoo={models}", f"data={found.data}", f"metrics=[{metrics}]"]
    words += [f"{name}={as_word(found.made[name])}" for name in RANKED_BY if name in found.made]
    return " ".join(["python recipes/rank.py", *words])


@cache
def _options(method: str) -> dict[str, Any]:
    """Return the defaults of a method's options by their path; empty for an unknown method."""
    try:
        return dict(_leaves(signature(method)))
    except UserError:
        return {}


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(node, Mapping):
        yield path, node
        return
    for name, value in node.items():
        yield from _leaves(value, f"{path}.{name}".lstrip("."))
