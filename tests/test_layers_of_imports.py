"""Which file imports which: no circles, and no folder uses what stands below it in the list of floors."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOPS = ("sslkit", "evaluation", "recipes")
# A file uses what is on its own floor or above it in this list. A package's `__init__.py` at the root offers all of the
# package by name, so it stands last and no file of the package imports it. Those names are strings and no imports.
FLOORS = (
    "sslkit/errors.py",
    "sslkit/lazy.py",
    "sslkit/terminal/",
    "sslkit/files/",
    "sslkit/numerics/",
    "sslkit/options/",
    "sslkit/runtime/",
    "sslkit/embeddings.py",
    "sslkit/decision.py",
    "sslkit/layers/",
    "sslkit/data/",
    "sslkit/backbones/",
    "sslkit/zoo/",
    "sslkit/priors/",
    "sslkit/objectives/",
    "sslkit/regularizers/",
    "sslkit/composition/",
    "sslkit/models/",
    "sslkit/training/",
    "sslkit/cli/",
    "sslkit/__init__.py",
    "evaluation/datasets/",
    "evaluation/results/",
    "evaluation/features/",
    "evaluation/learners/",
    "evaluation/embedding/",
    "evaluation/tuning/",
    "evaluation/tasks/__init__.py",
    "evaluation/protocols/",
    "evaluation/tasks/detection/",
    "evaluation/tasks/segmentation/",
    "evaluation/tasks/action/",
    "evaluation/finetuning/",
    "evaluation/transferability/",
    "evaluation/ranking/inputs/",
    "evaluation/ranking/truth/",
    "evaluation/ranking/",
    "evaluation/ranking/choice/",
    "evaluation/ranking/summary.py",
    "evaluation/ranking/published_ranking.py",
    "evaluation/judging/",
    "evaluation/solving/",
    "evaluation/report/",
    "evaluation/studies/",
    "evaluation/__init__.py",
    "recipes/",
    "recipes/benchmarks/",
)
Graph = Mapping[str, frozenset[str]]


def drawn(root: Path) -> Graph:
    """Every Python file and the files that it imports, also inside functions and for type checkers alone."""
    files = {path.relative_to(root).as_posix() for top in TOPS for path in sorted((root / top).rglob("*.py"))}
    return {file: frozenset(imported(root, file, files)) - {file} for file in sorted(files)}


def imported(root: Path, file: str, files: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse((root / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = ".".join([*package_of(file, node.level), *([node.module] if node.module else [])])
            names = [(module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            for place in places(file):
                if found := file_of([*place, *module.split(".")], name, files):
                    yield found
                    break


def package_of(file: str, level: int) -> list[str]:
    """What the dots of a relative import stand for; nothing without dots."""
    return list(Path(file).parts[:-level]) if level else []


def places(file: str) -> list[list[str]]:
    """Where names begin: at the root, and for a script in its own folder too."""
    folders = Path(file).parent.parts
    return [[], *([list(folders[:length]) for length in range(len(folders), 0, -1)] if folders[0] == "recipes" else [])]


def file_of(module: list[str], name: str | None, files: set[str]) -> str | None:
    """The file of `import module` or `from module import name`, where the name may be a module."""
    tries = [[*module, name]] if name else []
    for parts in [*tries, module]:
        path = "/".join(parts)
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if file in files:
                return file
    return None


def circles(graph: Graph) -> list[tuple[str, ...]]:
    """Sets of files that import each other, directly or over others."""
    reached = {file: reachable(graph, file) for file in graph}
    found = {tuple(sorted(other for other in reached[file] if file in reached[other])) for file in graph}
    return sorted(circle for circle in found if circle)


def reachable(graph: Graph, start: str) -> set[str]:
    found, ahead = set(), [start]
    while ahead:
        for file in graph[ahead.pop()] - found:
            found.add(file)
            ahead.append(file)
    return found


def floor(file: str, floors: Sequence[str]) -> int | None:
    """The place of a file in the list, by the longest entry that is the file or a folder that it is in."""
    fitting = [entry for entry in floors if file == entry or (entry.endswith("/") and file.startswith(entry))]
    return floors.index(max(fitting, key=len)) if fitting else None


def unlisted(graph: Graph, floors: Sequence[str]) -> list[str]:
    return [file for file in graph if floor(file, floors) is None]


def upside_down(graph: Graph, floors: Sequence[str]) -> list[str]:
    """Imports of what stands below."""
    known = {file: place for file in graph if (place := floor(file, floors)) is not None}
    return [
        f"{file} imports {other}"
        for file, others in graph.items()
        for other in sorted(others)
        if file in known and other in known and known[other] > known[file]
    ]


def strays(root: Path) -> list[str]:
    """Files at evaluation's root that belong into one of its folders."""
    files = (path.name for path in (root / "evaluation").iterdir() if path.is_file())
    return sorted(set(files) - {"__init__.py", "README.md"})


@pytest.fixture(scope="module")
def graph() -> Graph:
    return drawn(ROOT)


def test_every_file_has_a_floor_and_every_floor_a_file(graph: Graph) -> None:
    assert unlisted(graph, FLOORS) == []
    assert {floor(file, FLOORS) for file in graph} == set(range(len(FLOORS)))


def test_nothing_imports_what_stands_below_it(graph: Graph) -> None:
    assert upside_down(graph, FLOORS) == []


def test_no_files_import_each_other(graph: Graph) -> None:
    assert circles(graph) == []


def test_sslkit_imports_neither_evaluation_nor_recipes(graph: Graph) -> None:
    own = [other for file, others in graph.items() if file.startswith("sslkit/") for other in others]
    assert len(own) > 100 and all(other.startswith("sslkit/") for other in own)


def test_the_root_of_evaluation_holds_its_table_of_names_alone() -> None:
    assert strays(ROOT) == []


MADE_UP = {
    "sslkit/__init__.py": "from sslkit import lazy",
    "sslkit/lazy.py": "import importlib",
    "sslkit/errors.py": "",
    "sslkit/zoo/__init__.py": "",
    "sslkit/zoo/entry.py": "from sslkit.errors import UserError",
    "evaluation/__init__.py": "from sslkit import lazy",
    "evaluation/ranking/rank.py": "import sslkit.zoo.entry as entry\nfrom sslkit import zoo",
    "recipes/command.py": "from evaluation.ranking import rank",
    "recipes/rank.py": "from command import run",
    "recipes/benchmarks/speed.py": "import command\nfrom .machine import name",
    "recipes/benchmarks/machine.py": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A made-up project that keeps to the floors."""
    for file, text in MADE_UP.items():
        write(tmp_path, file, text)
    return tmp_path


def write(root: Path, file: str, text: str) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)


def test_the_graph_of_a_made_up_tree(tree: Path) -> None:
    graph = drawn(tree)
    assert {file: sorted(others) for file, others in graph.items() if others} == {
        "sslkit/__init__.py": ["sslkit/lazy.py"],
        "sslkit/zoo/entry.py": ["sslkit/errors.py"],
        "evaluation/__init__.py": ["sslkit/lazy.py"],
        "evaluation/ranking/rank.py": ["sslkit/zoo/__init__.py", "sslkit/zoo/entry.py"],
        "recipes/command.py": ["evaluation/ranking/rank.py"],
        "recipes/rank.py": ["recipes/command.py"],
        "recipes/benchmarks/speed.py": ["recipes/benchmarks/machine.py", "recipes/command.py"],
    }
    assert (circles(graph), upside_down(graph, FLOORS), unlisted(graph, FLOORS), strays(tree)) == ([], [], [], [])


@pytest.mark.parametrize(
    "text",
    [
        "from sslkit.zoo import entry",
        "from sslkit.zoo.entry import ZooEntry",
        "import sslkit.zoo.entry",
        "from .zoo import entry",
        "def f():\n    from sslkit.zoo import entry",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sslkit.zoo.entry import ZooEntry",
    ],
)
def test_an_import_of_what_stands_below_is_found(text: str, tree: Path) -> None:
    write(tree, "sslkit/errors.py", text)
    graph = drawn(tree)
    assert upside_down(graph, FLOORS) == ["sslkit/errors.py imports sslkit/zoo/entry.py"]
    assert circles(graph) == [("sslkit/errors.py", "sslkit/zoo/entry.py")]


def test_sslkit_must_not_import_evaluation_nor_itself_by_its_table(tree: Path) -> None:
    write(tree, "sslkit/zoo/entry.py", "import evaluation\nimport sslkit")
    assert upside_down(drawn(tree), FLOORS) == [
        "sslkit/zoo/entry.py imports evaluation/__init__.py",
        "sslkit/zoo/entry.py imports sslkit/__init__.py",
    ]


def test_a_circle_within_a_folder_is_found(tree: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tree, f"evaluation/ranking/{name}.py", f"def f():\n    from evaluation.ranking import {other}")
    graph = drawn(tree)
    assert upside_down(graph, FLOORS) == []
    assert circles(graph) == [("evaluation/ranking/a.py", "evaluation/ranking/b.py", "evaluation/ranking/c.py")]


def test_a_file_without_a_floor_is_found(tree: Path) -> None:
    for file in ("sslkit/more.py", "evaluation/more/a.py", "evaluation/more.py"):
        write(tree, file, "")
    assert unlisted(drawn(tree), FLOORS) == ["evaluation/more.py", "evaluation/more/a.py", "sslkit/more.py"]
    assert strays(tree) == ["more.py"]
