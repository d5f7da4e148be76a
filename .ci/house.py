"""Measure the house: lines, rooms, functions, and what a few small jobs run of it.

    python .ci/house.py          what the source says, at once
    python .ci/house.py run      what runs, too: some minutes
    python .ci/house.py check    fails where a number is above its budget

A file runs if one of its functions does; what importing alone runs and what child processes run is not counted.
"""

import ast
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("sslkit", "evaluation", "recipes")
CONTEXT = ("device", "root", "counts", "cache", "workers", "batch_size", "precision", "progress")

# What may stand in the source; a number is raised by hand, with its reason in the commit, and lowered when it falls.
BUDGET = {
    "lines of code": 98_950,
    "lines of detection, segmentation, action, video": 8_660,
    "signatures that repeat a declared default": 18,
    "private functions of under four lines that are called once": 18,
    "functions named by a participle": 11,
    "assignments to a word without a meaning": 23,
}
BESIDE = ("tasks", "video", "detectors")
MEMBERS = ("objectives", "regularizers", "priors", "transferability")
EMPTY = {"one", "found", "part", "own", "place", "known", "kept", "said", "given"}  # what a search does not find
VERBS = {"read", "embed", "need", "feed", "speed", "seed", "shed", "red", "bed", "freed", "indeed"}

# Run before each job, whose program and words follow; it prints the numbers of files and functions that ran.
COUNTED = """
import runpy, sys, threading
root, program, *words = sys.argv[1:]
places = tuple(f"{root}/{part}/" for part in ("sslkit", "evaluation", "recipes"))
ran = set()

def note(frame, event, argument):
    is_function = frame.f_code.co_flags & 1  # bodies of classes and modules are not optimised
    if event == "call" and is_function and frame.f_code.co_filename.startswith(places):
        ran.add(frame.f_code)

threading.setprofile(note)
sys.setprofile(note)
sys.argv = [program, *words]
sys.path.insert(0, root)
try:
    runpy.run_path(program, run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
    functions = {(code.co_filename, code.co_firstlineno) for code in ran if code.co_name[0] != "<"}
    print("RAN", len({file for file, _ in functions}), len(functions), file=sys.__stderr__)
"""


def sources() -> dict[Path, ast.Module]:
    """Return the product's Python files with their syntax trees."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.splitlines() if name.split("/")[0] in PARTS]
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in files if file.exists()}


def functions(trees: dict[Path, ast.Module]) -> Iterator[ast.FunctionDef]:
    """Yield every function and method."""
    for tree in trees.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> set[str]:
    """Return the names of a function's parameters."""
    of = function.args
    return {parameter.arg for parameter in (*of.posonlyargs, *of.args, *of.kwonlyargs)}


def from_source() -> Iterator[tuple[str, str]]:
    """Yield what is measured and its value, of what stands in the files."""
    trees = sources()
    lines, files = Counter(), Counter()
    for file in trees:
        part = file.relative_to(ROOT).parts
        room = "benchmarks" if part[:2] == ("recipes", "benchmarks") else part[0]
        lines[room] += file.read_text(encoding="utf-8").count("\n")
        files[room] += 1
    yield "lines", ", ".join(f"{room} {count:,}" for room, count in lines.items()) + f"; all {lines.total():,}"
    yield "modules", ", ".join(f"{room} {count}" for room, count in files.items()) + f"; all {files.total()}"
    for room in ("sslkit", "sslkit/training", "sslkit/runtime", "evaluation"):
        inside = [file for file in trees if file.parent == ROOT / room and file.name != "__init__.py"]
        yield f"modules in {room} itself", str(len(inside))
    backward = [file for file, tree in trees.items() for node in ast.walk(tree) if _calls(node, "backward")]
    product = Counter(str(file.relative_to(ROOT)) for file in backward if "benchmarks" not in file.parts)
    yield "calls of backward", ", ".join(f"{file} {count}" for file, count in product.items())
    known = list(functions(trees))
    counts = Counter(name for function in known for name in parameters(function) if name in CONTEXT)
    yield "signatures with", ", ".join(f"{name} {counts[name]}" for name in CONTEXT)
    sizes = sorted(function.end_lineno - function.lineno + 1 for function in known)
    yield "lines of a function", f"median {statistics.median(sizes):g}, p90 {sizes[len(sizes) * 9 // 10]}"
    rows = sorted(file.read_text(encoding="utf-8").count("\n") for file in trees)
    yield "lines of a file", f"median {statistics.median(rows):g}, p90 {rows[len(rows) * 9 // 10]}, most {rows[-1]}"


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def budgeted() -> dict[str, int]:
    """Return what BUDGET limits, as it is."""
    trees = sources()
    known = list(functions(trees))
    listed = subprocess.run(["git", "ls-files", "*.yaml"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    settings = [ROOT / name for name in listed.splitlines() if name.split("/")[0] in PARTS]
    lines = {file: file.read_text(encoding="utf-8").count("\n") for file in (*trees, *settings) if file.exists()}
    beside = sum(count for file, count in lines.items() if set(file.relative_to(ROOT).parts) & set(BESIDE))
    used = Counter(name for tree in trees.values() for name in _names(tree))
    # what is handed over, as a key, a worker or a finalizer, stands nowhere else
    called = Counter(_callee(node) for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Call))
    small = [one for one in known if one.name[0] == "_" != one.name[1] and one.end_lineno - one.body[-1].lineno < 1]
    return {
        "lines of code": sum(lines.values()),
        "lines of detection, segmentation, action, video": beside,
        "signatures that repeat a declared default": len(list(_repeated(trees))),
        "private functions of under four lines that are called once": sum(
            used[one.name] == called[one.name] == 1 and one.end_lineno - one.lineno < 3 for one in small
        ),
        "functions named by a participle": sum(_is_participle(one.name) for one in known),
        "assignments to a word without a meaning": sum(
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY
            for tree in trees.values()
            for node in ast.walk(tree)
        ),
    }


def _callee(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield every use of a name, also as an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _is_participle(name: str) -> bool:
    first = name.strip("_").split("_")[0]
    return (first.endswith("ed") and first not in VERBS) or first in {"told", "said", "shown", "kept", "made", "found"}


def _repeated(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """Yield the parameters whose default is also that of a declared option, `name: type = setting(default, ...)`.

    A constant counts as its value. But where both name the same one, or a field of the declaration is named, the value
    is declared once. The arguments of a member (of an objective, a metric, ...) are its own declaration of its options.
    """
    options = defaultdict(set)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and getattr(getattr(node.value, "func", None), "id", "") == "setting":
                default = node.value.args[0]
                options[node.target.id, _value(default, file, trees)].add(_origin(default, file, trees))
    for file, tree in trees.items():
        for function in functions({file: tree}):
            of = function.args
            last = (*of.posonlyargs, *of.args)[-len(of.defaults) :] if of.defaults else ()
            for parameter, default in (
                *zip(last, of.defaults, strict=True),
                *zip(of.kwonlyargs, of.kw_defaults, strict=True),
            ):
                option = default and (parameter.arg, _value(default, file, trees))
                declared = _origin(default, file, trees) in options[option] - {None} if option in options else True
                if not declared and not (file.parent.name in MEMBERS and function.name in ("__init__", "score")):
                    line = f"{file.relative_to(ROOT)}:{function.lineno}"
                    yield f"{line} {function.name}({parameter.arg}={ast.unparse(default)})"


def _origin(node: ast.expr, file: Path, trees: dict[Path, ast.Module]) -> tuple[Path, str] | None:
    """Return file and name of the constant that an expression names, or None."""
    while isinstance(node, ast.Name) and file in trees:
        if node.id in _constants(trees[file]):
            return file, node.id
        lines = (line for line in trees[file].body if isinstance(line, ast.ImportFrom))
        origins = {name.asname or name.name: (name.name, line.module) for line in lines for name in line.names}
        name, module = origins.get(node.id, ("", ""))
        path = ROOT / module.replace(".", "/")
        node, file = ast.Name(name), path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ROOT, ast.unparse(node)) if isinstance(node, (ast.Attribute, ast.Subscript)) else None


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the constants of a module with their values; those of `A, B = 1, 2` apart."""
    values = {}
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(target := line.targets[0], ast.Name):
            values[target.id] = line.value
        elif isinstance(line, ast.Assign) and isinstance(target, ast.Tuple) and isinstance(line.value, ast.Tuple):
            values |= {name.id: value for name, value in zip(target.elts, line.value.elts, strict=True)}
    return values


def _value(node: ast.expr, file: Path, trees: dict[Path, ast.Module]) -> str:
    """Return an expression as text, with a constant of the file or an imported one replaced by its value."""
    if isinstance(node, ast.Name) and (origin := _origin(node, file, trees)):
        return _value(_constants(trees[origin[0]])[origin[1]], origin[0], trees)
    return ast.unparse(node)


def check() -> None:
    """End with 1 where a number is above its budget."""
    above = False
    for name, value in budgeted().items():
        above |= value > BUDGET[name]
        print(f"{name:60}{value:>8,}{BUDGET[name]:>10,}{'   ABOVE' if value > BUDGET[name] else ''}")
    sys.exit(1 if above else 0)


def from_runs() -> Iterator[tuple[str, str]]:
    """Yield jobs, each with the numbers of files and functions that it runs."""
    with tempfile.TemporaryDirectory() as folder:
        score = Path(folder) / "score.py"
        score.write_text(
            "import numpy as np, evaluation\n"
            "rng = np.random.default_rng(0)\n"
            "evaluation.score('logme', rng.normal(size=(200, 8)), rng.integers(0, 4, 200))\n"
        )
        train = ["recipes/train.py", "method=byol+dsa", "data=digits", "epochs=1", "name=run", f"out={folder}/zoo"]
        judged = ["recipes/evaluate.py", f"checkpoint={folder}/zoo/run", "data=digits", f"cache={folder}/cache"]
        yield "a small training", _ran(*train)
        yield "the resume of a finished run", _ran(*train, "resume=true")
        yield "evaluate knn, linear", _ran(*judged, "protocols=[knn,linear]")
        yield 'score("logme")', _ran(str(score))


def _ran(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(ROOT), program, *words], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{program} {' '.join(words)}:\n{done.stdout}{done.stderr}")
    files, count = done.stderr.rpartition("RAN ")[2].split()[:2]
    return f"{files} files, {count} functions"


def main() -> None:
    """Print the table."""
    if "check" in sys.argv[1:]:
        check()
    for name, value in from_source():
        print(f"{name:30} {value}")
    if "run" in sys.argv[1:]:
        for name, value in from_runs():
            print(f"{name:30} {value}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
    main()
