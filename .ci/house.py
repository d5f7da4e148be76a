"""Measure the house: lines, rooms, functions, and what a few small jobs run of it.

    python .ci/house.py          what the source says, at once
    python .ci/house.py run      what runs, too: some minutes

A file runs if one of its functions does; what importing alone runs and what child processes run is not counted.
"""

import ast
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("sslkit", "evaluation", "recipes")
CONTEXT = ("device", "root", "counts", "cache", "workers", "batch_size", "precision", "progress")

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
    for name, value in from_source():
        print(f"{name:30} {value}")
    if "run" in sys.argv[1:]:
        for name, value in from_runs():
            print(f"{name:30} {value}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
    main()
