"""Exit codes, stops by signals and broken streams of every command."""

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from forks import listening
from random_entries import made

from recipes import installed
from sslkit.errors import RunFailed, UserError

PROGRAMS = installed.programs()
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}
BLOCKED = "import sys, time; print('importing', flush=True); time.sleep(60)"
TRAIN = ["batch_size=32", "eval.k=3", "eval.tsne=0", "progress=false"]


def started(program: str, *words: str, cwd: Path, **environment: str) -> subprocess.Popen:
    call = [sys.executable, str(PROGRAMS[program.partition(" ")[0]]), *words]
    pipe, env = subprocess.PIPE, {**os.environ, **environment}
    how = {"start_new_session": True, "preexec_fn": listening}
    return subprocess.Popen(call, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=env, **how)


@pytest.mark.parametrize("program", PROGRAMS)
def test_stopped_while_it_imports(program: str, tmp_path: Path) -> None:
    package, *words = ("timm", "backbones", "*") if program == "list" else ("hydra",)
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(BLOCKED)
    for number, code in SIGNALS.items():
        process = started(program, *words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        assert process.communicate(timeout=20) == ("", "stopped before anything was begun\n")
        assert process.returncode == code


RANKS = ["trainer.devices=2", "device=cpu"]
WORK = {  # minutes of work, but for which a stop comes after its first line or a few seconds of it
    "train": ["method=simclr", "data=digits.npz", *TRAIN, "epochs=1000"],
    "train on two processes": ["method=simclr", "data=digits.npz", *TRAIN, "epochs=1000", *RANKS],
    "zoo": ["methods=[simclr,byol]", "plugins=[none]", "data=digits.npz", *TRAIN, "epochs=1000", "jobs=1"],
    "evaluate": ["checkpoint=zoo/a", "protocols=[few_shot]", "data=fashion_mnist", "few_shot.episodes=1000000"],
    "few-shot": ["checkpoint=zoo/a", "data=fashion_mnist", "episodes=1000000"],
    "linear-eval": ["checkpoint=zoo/a", "data=clipart", "recipe=simclr90", "epochs=1000"],
    "embed": ["checkpoint=zoo/a", "data=fashion_mnist", "out=features.npz", "map=tsne"],
    "rank": ["zoo=zoo", "data=clipart", "bootstrap=1000000", "max_images=null"],
    "ground-truth": ["zoo=zoo", "data=clipart", "steps=100000", "workers=2"],
    "choose": ["zoo=zoo", "data=clipart", "steps=100000", "first=2"],
    "finetune": ["checkpoint=zoo/a", "data=clipart", "steps=100000"],
    "detect": ["checkpoint=zoo/a", "data=clipart_boxes", "schedule=smoke", "steps=100000"],
}
# Of a second or two here (reproduce: the list; solve ends with the best so far): only their imports are stopped.
SHORT = {"action-eval", "cut-films", "export", "list", "look", "predict", "report", "reproduce", "shards", "solve"}


def test_every_command_is_stopped() -> None:
    assert {one.partition(" ")[0] for one in WORK} | SHORT == {*PROGRAMS}


OFTEN = ("train",)  # the others and the ranks by hand: each start takes seconds


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "program", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.nightly) for one in WORK]
)
def test_stopped_at_work(program: str, number: int, few_digits: Path, tmp_path: Path) -> None:
    """One line, no traceback, no process left behind; the whole group gets Ctrl-C, one process SIGTERM."""
    (tmp_path / "digits.npz").symlink_to(few_digits)
    for seed, name in enumerate("ab"):
        made(tmp_path / "zoo", name, "fashion_mnist", seed=seed)
    process = started(program, *WORK[program], cwd=tmp_path)
    if program.startswith("train"):
        while not (line := process.stdout.readline()).startswith("epoch 1/"):  # before, nothing is saved
            assert line, process.communicate()
    time.sleep(1)
    while busy(process.pid) < 9:  # seconds: the imports take four to seven
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == SIGNALS[number], said
    assert said.rstrip().splitlines()[-1].startswith("stopped; the same command "), said
    assert "Traceback" not in said
    assert all_gone(process.pid)


def all_gone(group: int, patience: float = 10.0) -> bool:
    """Return whether no process of a group is left, after the seconds in which the last ones notice."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def busy(pid: int) -> float:
    """Seconds of computing of a process and of those that it has started."""
    import psutil

    try:
        one = psutil.Process(pid)
        return sum(sum(each.cpu_times()[:2]) for each in (one, *one.children(recursive=True)))
    except psutil.NoSuchProcess:
        return 0.0


@pytest.mark.parametrize(("error", "code"), [(UserError("no such file"), 2), (RunFailed("the disk is full"), 1)])
def test_exit_codes(error: UserError, code: int, typed, monkeypatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("evaluation.report.write_report", fail)
    done = typed("report", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (code, f"error: {error}\n")


def test_an_error_is_one_line_whatever_a_name_holds(typed, tmp_path: Path) -> None:
    done = typed("embed", "checkpoint=\x1b[2Ja\nepoch 1/1", "data=digits", "out=x.npz", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "\\x1b[2Ja\\nepoch" in done.stderr


MINUTES = pytest.mark.nightly


@pytest.mark.parametrize(
    "stream",
    [
        "> /dev/full",
        *(
            pytest.param(more, marks=MINUTES)
            for more in ("| head -c 1", ">&- 2>&-", ">&-", "2>&-", "> /dev/full 2> /dev/full")
        ),
    ],
)
def test_a_stream_that_cannot_be_written_ends_nothing(stream: str, tmp_path: Path) -> None:
    words = "from recipes.installed import main; main()"
    code = f"set -o pipefail; {sys.executable} -c '{words}' shards folder=images out=out progress=false {stream}"
    (tmp_path / "images").mkdir()
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "images" / "a.png")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert list((tmp_path / "out").rglob("*.tar"))


def test_a_letter_that_a_terminal_lacks_is_its_escape_and_no_later_line_is_lost() -> None:
    code = "from sslkit.cli import process; process.prepare(); print('81 \u00b1 2 %'); print('next')"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "81 \\xb1 2 %\nnext\n", "")


def test_a_warning_is_one_line_whatever_a_name_holds(typed, monkeypatch, tmp_path: Path) -> None:
    def warn(*_: object, **__: object) -> None:
        warnings.warn("left out: a\nerror: b\x1b[2J.png", stacklevel=2)
        raise UserError("no such file")

    monkeypatch.setattr("evaluation.report.write_report", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *said: print(warnings.formatwarning(*said[:4]), end="", file=sys.stderr)
        said = typed("report", cwd=tmp_path).stderr
    assert said == "warning: left out: a\\nerror: b\\x1b[2J.png\nerror: no such file\n"
