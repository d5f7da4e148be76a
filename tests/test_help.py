"""`help()` of the public names teaches: a purpose, the main arguments, and examples that are Python."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from types import ModuleType
from typing import Any

import pytest

import evaluation
import sslkit

PACKAGES = (sslkit, evaluation, sslkit.zoo)
SHOWN = [  # what a person types first, each with an example
    *("sslkit." + name for name in ("method", "Method", "pretrain", "load", "ZooEntry", "open_images")),
    "sslkit.lightning_module",
    *("sslkit.zoo." + name for name in ("export", "open")),
    *("evaluation." + name for name in ("evaluate", "linear_probe", "knn", "few_shot", "rank", "score", "embed")),
    *("evaluation." + name for name in ("extract", "open_split", "compare", "weighted_tau")),
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


@pytest.mark.nightly
def test_names_in_docstrings_are_found_after_the_import_alone() -> None:
    docs = [inspect.getdoc(one) or "" for one in (sslkit, evaluation, *PUBLIC.values())]
    names = sorted({name for doc in docs for name in re.findall(r"\b(?:sslkit|evaluation)(?:\.\w+)+", doc)})
    assert {"sslkit.zoo.start", "sslkit.training.config"} <= set(names)
    wanted = [name for name in names if not name.endswith((".py", ".md", ".png", ".say"))]  # the last is a logger
    code = "import sys, evaluation, sslkit\nfor name in sys.argv[1:]: eval(name)"
    done = subprocess.run([sys.executable, "-c", code, *wanted], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_of_evaluation_are_told_where_they_are_looked_for() -> None:
    for name in ("evaluate", "rank", "score", "load_model", "train"):
        with pytest.raises(AttributeError, match=rf"^module 'sslkit' has no attribute '{name}': it is ") as error:
            getattr(sslkit, name)
        package, *path = str(error.value).rpartition(" ")[2].split(".")
        found = {"sslkit": sslkit, "evaluation": evaluation}[package]
        for part in path:
            found = getattr(found, part)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = sslkit.nothing


def test_help_begins_with_what_a_person_needs() -> None:
    for word in ("sslkit.pretrain(", "sslkit.load(", "evaluation.evaluate(", "evaluation.rank(", "training.config"):
        assert word in sslkit.__doc__
    ast.parse(examples(sslkit.__doc__))
