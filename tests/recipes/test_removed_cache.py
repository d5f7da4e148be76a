"""`cache=` holds all that is remembered: the same command reads nothing twice, and without it all is as it was."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from photographs import write_jpegs

from sslkit.data.sources.shard_writer import write_shards

RECIPES = Path(__file__).parents[2] / "recipes"
TRAIN = ["method=simclr", "image_size=16", "batch_size=16", "epochs=1", "eval.tsne=0", "eval.k=3"]
TRAIN += ["device=cpu", "trainer.logger=csv", "out=zoo", "cache=cache"]
EVALUATE = ["protocols=[linear,knn]", "cache=cache", "device=cpu", "pictures=false"]
# Every file of the data that a process of the command opens is noted, also by workers.
NOTE = """
import os, sys
def note(event, words):
    if event == "open" and isinstance(words[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(words[0]))
        if path.startswith(os.environ["NOTED_DATA"] + os.sep):
            log = os.open(os.environ["NOTED_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(log, (path + chr(10)).encode())
            os.close(log)
sys.addaudithook(note)
"""
pytestmark = pytest.mark.slow


@pytest.fixture(params=["files", pytest.param("shards", marks=pytest.mark.nightly)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders home, tmp, work and data; in the latter 48 photographs of two classes to learn from, 16 to test on.

    The name is short: the sockets of loader processes lie below tmp, and their paths have 107 letters at most.
    """
    folder = tmp_path_factory.mktemp("c")
    for split, n in (("train", 24), ("test", 8)):
        for name in "ab":
            write_jpegs(folder / "data" / split / name, n, (20, 18))
    if request.param == "shards":
        write_shards(folder / "data", folder / "tars", progress=False)
        shutil.rmtree(folder / "data")
        (folder / "tars").rename(folder / "data")
    for name in ("home", "tmp", "work", "noted"):
        (folder / name).mkdir()
    (folder / "noted" / "sitecustomize.py").write_text(NOTE)
    return folder


def command(place: Path, recipe: str, *words: str) -> tuple[str, Counter]:
    """What a command prints, and how often it opened each file of the data."""
    log = place / "noted" / "log"
    log.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MPL"))}
    environment |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), "NOTED_LOG": str(log)}
    environment |= {"NOTED_DATA": str(place / "data"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(place / "noted"), os.environ.get("PYTHONPATH"))))
    source = "shards:../data" if list((place / "data").glob("*.tar")) else "../data"
    call = [sys.executable, str(RECIPES / f"{recipe}.py"), f"data={source}", *words]
    done = subprocess.run(call, cwd=place / "work", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, Counter(log.read_text().splitlines() if log.exists() else [])


def files(place: Path) -> set[Path]:
    """All files but those of the data's own folder that stand there by themselves, and Matplotlib's list of fonts."""
    found = {path.relative_to(place) for path in place.rglob("*") if path.is_file()}
    return {path for path in found if path.parts[0] != "noted" and "matplotlib" not in str(path)}


def values(place: Path, name: str) -> list[tuple[str, float]]:
    lines = (place / "work" / "zoo" / name / "results.jsonl").read_text().splitlines()
    return [(one["protocol"], one["value"]) for one in map(json.loads, lines)]


def both(place: Path, name: str) -> tuple[Counter, Counter]:
    """Train an entry and evaluate it: the files that each has opened."""
    trained = command(place, "train", *TRAIN, f"name={name}")[1]
    return trained, command(place, "evaluate", f"checkpoint=zoo/{name}", *EVALUATE)[1]


def test_a_removed_cache_is_remembered_nowhere(place: Path) -> None:
    before = files(place)
    first = both(place, "a")
    new = files(place) - before
    remembered = {path for path in new if path.parts[:2] == ("work", "cache")}
    judged = {("work", "zoo", "a"), ("work", "runs", "evaluation")}  # the entry, and what it is compared with
    assert remembered and {path.parts[:3] for path in new - remembered} == judged

    again = command(place, "evaluate", "checkpoint=zoo/a", *EVALUATE)[1]
    second = both(place, "b")
    assert all(path.endswith(("a/00.jpg", "000000.tar")) for path in again), "the features are kept: it looks at one"
    assert second[1] == again, "the same weights in another entry"
    # What a run trains on and judges by is read, and no file for its identity or for the index.
    assert second[0].total() < first[0].total()

    shutil.rmtree(place / "work" / "cache")
    third = both(place, "c")
    weights = [(place / "work" / "zoo" / name / "backbone.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] == weights[2]
    assert values(place, "c") == values(place, "b") == values(place, "a")[:2]
    assert third == first
