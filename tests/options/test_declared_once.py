"""One line of one file has an option's default, text and range: everything else that a person meets follows it.

The proof is a copy of the product in which every declaration has another default, text and range; nothing but these
lines is changed. A default, a text or a range that is written a second time anywhere would stay as it was.
"""

import ast
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from changed_declarations import MOST, WRONG, copy, text_of
from commands import COMMANDS, PROTOCOLS, WRITES

ONE = {("few_shot", "k_shot")}  # a function of features gives one result: one number, not the two of a command


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> tuple[dict, dict[str, Any]]:
    """The changed declarations, and what a person meets of them."""
    place = tmp_path_factory.mktemp("copy")
    declarations = copy(pytestconfig.rootpath, place)
    tests = pytestconfig.rootpath / "tests"
    environment = {**os.environ, "PYTHONPATH": f"{place}{os.pathsep}{tests}", "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-W", "ignore", str(tests / "changed_declarations.py")]
    done = subprocess.run(program, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return declarations, json.loads(done.stdout.splitlines()[-1])


def same(default: str, other: str) -> bool:
    """Return whether two defaults are equal; YAML has lists for tuples."""
    first, second = map(ast.literal_eval, (default, other))
    return (list(first) if isinstance(first, tuple) else first) == second


def test_every_text_is_that_of_its_declaration(changed: tuple[dict, dict]) -> None:
    declarations, met = changed
    declared = {task: options for task, options in met["declared"].items() if not task.startswith("objective")}
    texts = {text for options in declared.values() for _, text, _ in options.values()}
    texts |= {text.split(". ")[0].rstrip(".") for call in met["calls"].values() for text in call["texts"].values()}
    assert texts == set(map(text_of, declarations)), "a text is written elsewhere, or an option is nowhere to be met"


def test_python_has_the_default_of_the_command(changed: tuple[dict, dict]) -> None:
    met = changed[1]
    for recipe, paths in COMMANDS.items():
        for path in paths:
            for name, default in met["calls"][path]["defaults"].items():
                if name in met["declared"][recipe] and name not in WRITES:
                    assert default == met["declared"][recipe][name][0], (path, name)
    for task, options in met["declared"].items():
        for name, (default, text, _) in options.items() if task.startswith("protocol") else ():
            call = met["calls"][task]
            assert call["defaults"][name] == default and call["texts"][name].startswith(text), (task, name)
    for protocol, path in PROTOCOLS.items():
        declared, call = met["declared"][f"protocol {protocol}"], met["calls"][path]
        unlike = {name for name in declared if call["defaults"].get(name) != declared[name][0]}
        assert {(protocol, name) for name in unlike} <= ONE, (path, unlike)


def test_the_help_shows_each_default_and_text(changed: tuple[dict, dict]) -> None:
    met = changed[1]
    for task, options in met["declared"].items():
        kind, _, name = task.rpartition(" ")
        command = {"protocol": "evaluate", "objective": "train"}.get(kind, task)
        before = {"protocol": f"{name}.", "objective": "method.objective."}.get(kind, "")
        for path, (default, text, _) in options.items():
            word = next(iter(met["help"][command].split(f" {before}{path}=")[1:]), "")
            assert text.replace("None", "null") in word, (command, path)
            if default.isdigit():
                assert word.startswith(f"{default} "), (command, path)


def test_the_yaml_and_hydra_have_each_default(changed: tuple[dict, dict]) -> None:
    met = changed[1]
    for path, (default, *_) in met["declared"]["train"].items():
        assert same(default, met["yaml"][path]), path
        assert path == "method" or same(default, met["node"][path]), path


def test_each_range_is_that_of_its_declaration(changed: tuple[dict, dict]) -> None:
    declarations, met = changed
    most = f"at most {MOST:,}"
    limited = {text_of(option) for option, call in declarations.items() if f"most={MOST}" in call}
    for options in met["declared"].values():
        for path, (_, text, values) in options.items():
            assert (text in limited) == (most in values) or path == "temperature", (path, values)
    assert met["refused"].keys() == WRONG.keys()
    for kind, error in met["refused"].items():
        assert most in error and "got 1000000000000" in error, (kind, error)


def test_an_objective_declares_its_options_in_its_file(changed: tuple[dict, dict]) -> None:
    met = changed[1]
    about = met["declared"]["objective moco"]["temperature"]
    assert about == ["0.31", "changed text of MoCo.temperature", f"a number, above 0 and at most {MOST:,}"]
    assert met["node"]["method.objective.temperature"] == "0.31"
    assert "method.objective.temperature=0.31 changed text of MoCo.temperature" in met["help"]["train"]
