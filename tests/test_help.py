"""`help()` of the public names teaches: a purpose, the main arguments, and examples that are Python."""

import ast
import inspect
import textwrap
from types import ModuleType
from typing import Any

import pytest

import evaluation
import sslkit

PACKAGES = (sslkit, evaluation, sslkit.zoo)
SHOWN = [  # what a person types first, each with an example
    *("sslkit." + name for name in ("method", "Method", "pretrain", "ZooEntry", "open_images", "lightning_module")),
    *("sslkit.zoo." + name for name in ("export", "load", "open")),
    *("evaluation." + name for name in ("evaluate", "linear_probe", "knn", "few_shot", "rank", "score", "embed")),
    *("evaluation." + name for name in ("extract", "load_model", "open_split", "compare", "weighted_tau")),
]


def public() -> dict[str, Any]:
    """Every public class and function, by its full name."""
    found = {f"{package.__name__}.{name}": getattr(package, name) for package in PACKAGES for name in package.__all__}
    return {name: one for name, one in found.items() if callable(one) and not isinstance(one, ModuleType)}


PUBLIC = public()


def examples(doc: str) -> str:
    """The lines set in by four or more that follow the first paragraph."""
    after = inspect.cleandoc(doc).split("\n\n", 2)[1:2]
    return textwrap.dedent(after[0]) if after and after[0].startswith("    ") else ""


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_says_more_than_a_line_and_names_the_arguments(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name])
    assert doc and len(doc.splitlines()) >= 2
    if inspect.isclass(PUBLIC[name]) and issubclass(PUBLIC[name], Exception):
        return
    arguments = [one.name for one in inspect.signature(PUBLIC[name]).parameters.values() if one.default is one.empty]
    assert [word for word in arguments if word not in doc] == []


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_is_python_and_calls_the_name(name: str) -> None:
    shown = examples(PUBLIC[name].__doc__)
    ast.parse(shown)
    assert name.split(".")[-1].lower() in shown.lower()
