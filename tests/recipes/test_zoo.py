"""zoo.py as a person types it."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import psutil
import pytest
import torch
from forks import listening

import sslkit
from sslkit.errors import UserError

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = ["data=digits", "batch_size=512", "epochs=1", "eval.tsne=0", "eval.k=3", "out=zoo"]


def command(*words: str, cwd: Path, recipe: str = "zoo.py", **environment: str) -> subprocess.CompletedProcess:
    call = [sys.executable, str(RECIPES / recipe), *words]
    environment = {**os.environ, **environment}
    return subprocess.run(call, capture_output=True, text=True, cwd=cwd, timeout=900, env=environment)


@pytest.fixture
def zoo(monkeypatch, tmp_path) -> ModuleType:
    """The recipe as a module, in an empty folder: what it plans takes no process of its own."""
    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("zoo")


def dry(zoo: ModuleType, capsys, *words: str) -> list[str]:
    """The words of the commands that a dry run prints."""
    assert zoo.main([*TINY, *words, "dry_run=true"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("python ")]
    assert not Path("zoo").exists()
    return [line.partition("train.py ")[2] for line in lines]


def test_every_method_with_every_plugin_and_seed(zoo, capsys) -> None:
    rest = " ".join(TINY)
    assert dry(zoo, capsys, "methods=[simclr,byol]", "plugins=[none,dsa+koleo]", "seeds=[0,3]") == [
        f"method={name} seed={seed} {rest}"
        for seed in (0, 3)
        for name in ("simclr", "simclr+dsa+koleo", "byol", "byol+dsa+koleo")
    ]
    assert dry(zoo, capsys, "methods=simclr", "plugins=none", "seeds=range(0,2)") == [
        f"method=simclr seed={seed} {rest}" for seed in (0, 1)
    ]


def test_an_option_goes_to_those_that_have_it(zoo, capsys) -> None:
    options = ["method.dsa.nu=0.2", "method.objective.momentum=0.9", "method.views.scale=[0.5,1]", "experiment=each"]
    said = dry(zoo, capsys, "methods=[simclr,byol]", "plugins=[none,dsa]", *options)
    has = {line.split()[0]: [word in line for word in options[:2]] for line in said}
    assert has == {
        "method=simclr": [False, False],
        "method=simclr+dsa": [True, False],
        "method=byol": [False, True],
        "method=byol+dsa": [True, True],
    }
    assert all("method.views.scale=[0.5,1]" in line for line in said)
    assert [line.count(f"experiment={name}") for line, name in zip(said, ("simclr",) * 2 + ("byol",) * 2, strict=True)]


def test_a_cluster_gets_one_multirun_for_members_with_the_same_words(zoo, capsys) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="hydra-submitit-launcher is not installed")
    words = ["methods=[simclr,byol]", "seeds=[0,1]", "cluster=slurm", "hydra.launcher.timeout_min=600"]
    rest = f"{' '.join(TINY)} hydra.launcher.timeout_min=600"
    tail = "hydra/launcher=submitit_slurm hydra.sweep.dir=zoo/logs"
    assert dry(zoo, capsys, *words, "plugins=[none,dsa]") == [
        f"-m method=simclr,simclr+dsa,byol,byol+dsa seed=0,1 {rest} {tail}"
    ]
    nu = "method.dsa.nu=0.2"
    assert dry(zoo, capsys, *words, "plugins=[none,dsa]", nu) == [
        f"-m method=simclr,byol seed=0,1 {rest} {tail}",
        f"-m method=simclr+dsa,byol+dsa seed=0,1 {rest} {nu} {tail}",
    ]


def test_a_multirun_makes_no_member_twice(zoo) -> None:
    grid = importlib.import_module("sslkit.cli.grid")
    ones = [(grid.Wanted(m, s, (f"method={m}", f"seed={s}", "a=1")), m + str(s) == "x1") for m in "xyz" for s in (0, 1)]
    assert grid.multiruns(ones) == [
        ["-m", "method=x", "seed=0", "a=1"],
        ["-m", "method=x", "seed=1", "a=1", "resume=true"],
        ["-m", "method=y,z", "seed=0,1", "a=1"],
    ]


def test_a_launcher_that_is_not_installed(zoo, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="cluster=ray needs hydra-ray-launcher: pip install hydra-ray-launcher"):
        zoo.main(["methods=[simclr]", "cluster=ray", *TINY])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["methods=[simclr,byolo]"], "did you mean 'byol'"),
        (["plugins=[none,dsaa]"], "there is no plug-in 'dsaa': did you mean 'dsa'"),
        (["plugins=[dsa+dsa]"], "twice"),
        (["epohcs=3"], "did you mean 'epochs'"),
        (["metods=[byol]"], "did you mean 'method"),
        (["data=/no/such/folder"], "/no/such/folder"),
        (["method.objective.momentum=0.9"], "there is no setting 'method.objective.momentum'"),
        (["method.dsa.nuu=0.9"], "did you mean 'nu'"),
        (["methods=[byol]", "method.objective.momentum=high"], "momentum"),
        (["seeds=[0,0]"], "2 members would have the same name, simclr-digits-narrow_resnet-e1-s0"),
        (["seeds=[]"], "seeds must have at least one value, got []"),
        (["seeds=[a]"], "seeds must be a whole number"),
        (["jobs=many"], "jobs must be a whole number, at least 1, or auto, got 'many'"),
        (["jobs=0"], "or auto, got 0"),
        (["dry_run=perhaps"], "dry_run must be true or false, got 'perhaps'"),
        (["cluster=slrum"], "did you mean 'slurm'"),
        (["cluster=slurm", "hydra.launcher.timeout=3"], "hydra.launcher.timeout"),
        (["experiment=simclrr"], "did you mean 'simclr'"),
        (["hydra.launcher.timeout_min=3"], "cluster=slurm"),
        (["method=byol"], "use methods=[...]"),
        (["seed=1"], "write seeds=[...]"),
        (["name=x"], "each member is named automatically"),
        (["resume=true"], "resumed automatically"),
        (["-m"], "is for recipes/train.py"),
        (["methods=[simclr"], "cannot read 'methods=[simclr'"),
        (["epochs=[1"], "cannot read"),
        (["epochs"], "key=value"),
        (["batch_size=9000"], "batch_size=9000"),
        (["trainer.num_nodes=2"], "num_nodes=2"),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(words: list[str], said: str, zoo) -> None:
    with pytest.raises(UserError) as told:
        zoo.main(["methods=[simclr]", "plugins=[none,dsa]", *TINY, *words])
    assert said in str(told.value) and "\n" not in str(told.value) and not Path("zoo").exists()


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, typed) -> None:
    done = typed("zoo", "methods=[byolo]", *TINY, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1
    assert "did you mean 'byol'" in done.stderr


def test_help_names_every_setting(tmp_path, typed) -> None:
    said = typed("zoo", "--help", cwd=tmp_path).stdout
    for setting in ("methods=[simclr,byol,barlow_twins,swav,mae]", "plugins=[none,dsa]", "jobs=auto", "dry_run=false"):
        assert f"  {setting}" in said


def test_hydra_shows_what_a_launcher_would_get(tmp_path, typed) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="hydra-submitit-launcher is not installed")
    words = ["method=simclr", "seed=1", *TINY]
    launcher = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=600", "hydra.launcher.partition=gpu"]
    done = typed("train", *words, *launcher, "--cfg", "hydra", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line in ("SlurmLauncher", "timeout_min: 600", "partition: gpu", "- method=simclr", "- seed=1"):
        assert line in done.stdout, done.stdout
    assert not (tmp_path / "zoo").exists()


CAPTIONED = """
from sslkit.regularizers.koleo import KoLeo

class Captioned(KoLeo):
    def prepare(self, dataset, *, cache, steps):
        {}
"""


@pytest.mark.nightly
def test_a_zoo_is_trained_once_and_a_failure_stops_nobody(tmp_path) -> None:
    """A plug-in that asks for what the images lack when training starts; later it is content without."""
    words = ["methods=[simclr,barlow_twins]", "plugins=[none,captioned:Captioned]", *TINY]
    module = tmp_path / "captioned.py"
    module.write_text(CAPTIONED.format("raise KeyError(f'{dataset.name} has no captions')"))
    broken = command(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    assert broken.returncode == 1, broken.stdout + broken.stderr
    plain = [f"{name}-digits-narrow_resnet-e1-s0" for name in ("barlow_twins", "simclr")]
    assert [entry.folder.name for entry in sslkit.zoo.open(tmp_path / "zoo")] == plain
    assert "4 members, 0 done, 0 to go on with, 4 to start" in broken.stdout
    assert all(f"{name}\n      quick kNN " in broken.stdout for name in plain) and " left\n" in broken.stdout
    told = broken.stdout.partition("\nfailed    ")[2]
    assert (
        " ".join(told.split()).count("; the end of zoo/logs/") == 2 and "    KeyError: 'digits has no captions'" in told
    )
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("zoo/*/card.json")}

    module.write_text(CAPTIONED.format("return None"))
    whole = command(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert "4 members, 2 done, 2 to go on with, 0 to start" in whole.stdout
    assert len(sslkit.zoo.open(tmp_path / "zoo")) == 4
    assert "python recipes/rank.py zoo=zoo" in whole.stdout

    again = command(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert again.returncode == 0 and "4 members, 4 done" in again.stdout and "[1/" not in again.stdout
    assert len(stamps) == 2 and {path: path.stat().st_mtime_ns for path in stamps} == stamps


BREAKABLE = ["methods=[simclr]", "plugins=[koleo]", *TINY, "epochs=12", "jobs=1", "batch_size=128"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> sslkit.ZooEntry:
    folder = tmp_path_factory.mktemp("unbroken")
    done = command(*BREAKABLE, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return sslkit.zoo.open(folder / "zoo")[0]


@pytest.mark.nightly
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(stop: int, unbroken, tmp_path) -> None:
    folder = unbroken.folder.name
    call = [sys.executable, str(RECIPES / "zoo.py"), *BREAKABLE]
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "preexec_fn": listening}
    running = subprocess.Popen(call, cwd=tmp_path, **how)
    checkpoint = tmp_path / "zoo" / folder / "checkpoints" / "last.ckpt"
    while not checkpoint.exists():
        assert running.poll() is None
        time.sleep(0.01)
    members = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(stop)
    said = running.communicate(timeout=60)[1]
    if stop == signal.SIGKILL:  # its member outlives it: a machine that fails takes both
        for member in members:
            member.kill()
        psutil.wait_procs(members, timeout=10)
    else:
        assert running.returncode == 130 and "the same command goes on" in said
        assert not any(member.is_running() for member in members)
    assert not (tmp_path / "zoo" / folder / "card.json").exists()

    resumed = command(*BREAKABLE, cwd=tmp_path)
    assert resumed.returncode == 0 and "1 to go on with" in resumed.stdout, resumed.stdout + resumed.stderr
    assert is_same(unbroken, tmp_path / "zoo" / folder)


def is_same(unbroken: sslkit.ZooEntry, folder: Path) -> bool:
    one, other = unbroken.state_dict(), sslkit.ZooEntry.load(folder).state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.slow
def test_a_member_that_a_killed_one_left_running_is_waited_for_and_a_second_zoo_is_refused(
    unbroken: sslkit.ZooEntry, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "zoo" / unbroken.folder.name
    call = [sys.executable, str(RECIPES / "zoo.py"), *BREAKABLE]
    running = subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "zoo" / "logs" / f"{folder.name}.log"
    while not log.exists() or not (members := psutil.Process(running.pid).children()):
        assert running.poll() is None
        time.sleep(0.01)
    request.addfinalizer(lambda: members[0].is_running() and members[0].kill())  # it is suspended if this test fails
    second = command(*BREAKABLE, cwd=tmp_path)
    assert second.returncode == 2 and not second.stdout, second.stdout
    assert second.stderr.startswith(f"error: process {running.pid} trains members in zoo: wait until it has ended")
    assert len(second.stderr.splitlines()) == 1 and running.poll() is None
    members[0].suspend()  # so that it cannot end before it is waited for
    running.kill()
    running.wait()
    assert not (folder / "card.json").exists()

    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    again = subprocess.Popen(call, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **streams)
    assert again.stdout.readline().startswith(f"process {members[0].pid} of a killed zoo.py still trains")
    members[0].resume()
    said = again.communicate(timeout=300)[0]
    assert again.returncode == 0 and "1 members, 1 done, 0 to go on with" in said, said
    assert is_same(unbroken, folder)


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", ["basic", "submitit_local"])
def test_hydras_launchers_train_every_member(launcher: str, tmp_path) -> None:
    if launcher == "submitit_local":
        pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="hydra-submitit-launcher is not installed")
    words = ["-m", "method=simclr,simclr+koleo", *TINY, f"hydra/launcher={launcher}"]
    done = command(*words, cwd=tmp_path, recipe="train.py")
    assert done.returncode == 0, done.stderr
    assert [entry.card["method"] for entry in sslkit.zoo.open(tmp_path / "zoo")] == ["simclr+koleo", "simclr"]


@pytest.mark.nightly
def test_the_recipe_hands_over_to_a_launcher_and_tells_who_has_no_entry(tmp_path) -> None:
    """The folder of one member cannot be made there, which nobody can know before."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="hydra-submitit-launcher is not installed")
    words = ["methods=[simclr]", "plugins=[none,koleo]", "cluster=local", *TINY]
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "simclr+koleo-digits-narrow_resnet-e1-s0").touch()
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [entry.card["method"] for entry in sslkit.zoo.open(tmp_path / "zoo")] == ["simclr"]
    assert "failed    simclr+koleo-digits-narrow_resnet-e1-s0: no entry yet" in done.stdout
    assert (tmp_path / "zoo" / "logs" / ".submitit").is_dir()
