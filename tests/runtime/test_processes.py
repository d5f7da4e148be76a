"""torchrun's processes make one run, whose weights are those of `trainer.devices=2`."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from forks import free_port
from photographs import write_jpegs

import sslkit
from sslkit.errors import UserError
from sslkit.runtime import processes
from sslkit.training.config import Config
from sslkit.training.machine import check_trainer, compile_hint, describe_share, device_of, reading

ROOT = Path(__file__).parents[2]


def torchruns(rank: int, *, local: int = 2, world: int = 2) -> dict[str, str]:
    """The variables that torchrun gives a process, of those that tell it from other launchers."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank % local, "GROUP_RANK": rank // local}
    sizes = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": local, "MASTER_PORT": 1}
    given = {**ranks, **sizes, "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "x"}
    return {name: str(value) for name, value in given.items()}


@pytest.mark.parametrize(
    ("local", "world", "given", "found"),
    [
        (2, 2, {}, (2, 1)),
        (2, 2, {"devices": 2}, (2, 1)),
        (2, 4, {}, (2, 2)),
        (2, 4, {"devices": 2, "num_nodes": 2}, (2, 2)),
        (1, 1, {}, (1, 1)),
    ],
)
def test_devices_and_machines_are_torchruns(local, world, given, found, monkeypatch) -> None:
    for name, value in torchruns(0, local=local, world=world).items():
        monkeypatch.setenv(name, value)
    asked, machines = given.get("devices", "auto"), given.get("num_nodes", 1)
    processes.check_launcher(asked, machines)
    assert (processes.devices(asked, num_nodes=1), processes.nodes(machines)) == found and processes.count(
        asked, machines
    ) == world


@pytest.mark.parametrize(("given", "world"), [("2", 2), ("0,1", 2), ("0,", 1), ([0, 2, 5], 3)])
def test_devices_may_be_a_text_or_a_list(given, world: int) -> None:
    assert processes.count(given, 1) == world


@pytest.mark.parametrize("given", ["0x10", "two", "0,x", "1.5"])
def test_devices_that_are_no_numbers_are_one_line(given: str) -> None:
    with pytest.raises(UserError, match=r"give a number, a list such as \[0,1\], or auto"):
        processes.count(given, 1)


@pytest.mark.parametrize("given", [{"devices": 1}, {"devices": 4}, {"devices": [0]}, {"num_nodes": 3}])
def test_a_contradiction_is_one_line_before_anything_is_written(given: dict, small_run, tmp_path, monkeypatch) -> None:
    for name, value in torchruns(0).items():
        monkeypatch.setenv(name, value)
    said = (
        r"torchrun has started 2 processes, and trainer\.devices=.* asks for \d.*give both for 2 processes, or neither"
    )
    with pytest.raises(UserError, match=said):
        sslkit.pretrain({**small_run, "trainer": {**small_run["trainer"], **given}})
    assert not (tmp_path / "zoo").exists()


def test_sruns_processes_are_counted_too(monkeypatch) -> None:
    monkeypatch.setattr(processes.SLURMEnvironment, "detect", staticmethod(lambda: True))
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    with pytest.raises(UserError, match=r"srun: You set `--ntasks=2`"):
        processes.check_launcher(1, 1)
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    with pytest.raises(UserError, match=r"srun has started 2 processes, .*asks for 1"):
        processes.check_launcher(1, 1)
    processes.check_launcher(2, 1)


@pytest.mark.parametrize(("tasks", "each", "found"), [(2, 2, (2, 1)), (8, 2, (2, 4)), (1, 1, (1, 1))])
def test_devices_and_machines_are_sruns(tasks, each, found, monkeypatch) -> None:
    given = {"NTASKS": tasks, "NTASKS_PER_NODE": each, "STEP_ID": 0, "JOB_NAME": "pretrain"}
    for name, value in given.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    processes.check_launcher("auto", 1)
    assert (processes.devices("auto", num_nodes=1), processes.nodes(1)) == found and processes.count("auto", 1) == tasks
    monkeypatch.delenv("SLURM_STEP_ID")  # as in a batch script, where python was not started by srun
    assert processes.devices("auto", num_nodes=1) == 1


@pytest.mark.parametrize(
    ("found", "batch_size", "machines", "taken"),
    [
        (3, 128, 1, 2),
        (5, 128, 1, 4),
        (6, 128, 1, 4),
        (7, 128, 1, 4),
        (8, 128, 1, 8),
        (3, 96, 1, 3),
        (3, 7, 1, 1),
        (3, 128, 2, 2),
    ],
)
def test_auto_takes_as_many_gpus_as_share_a_batch(found, batch_size, machines, taken, beside_gpus, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    assert processes.devices("auto", "auto", batch_size, num_nodes=machines) == taken
    assert processes.count("auto", machines, "cuda", batch_size) == machines * taken
    assert processes.count("auto", machines, "cpu", batch_size) == machines
    assert processes.count(-1, 1) == found, "all of them were asked for"


def test_a_run_says_why_it_leaves_gpus_alone(beside_gpus) -> None:
    given = {"batch_size": 128}
    assert describe_share(Config.from_mapping(given)) == " (64 on each of 2 processes; 3 GPUs cannot share 128 evenly)"
    assert describe_share(Config.from_mapping({"batch_size": 96})) == " (32 on each of 3 processes)"
    assert describe_share(Config.from_mapping({**given, "device": "cpu"})) == ""


def test_a_run_says_how_many_processes_decode(beside_gpus, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.data.loader.cores", lambda: 48)
    monkeypatch.setattr("sslkit.training.machine.cores", lambda: 48)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    data = SimpleNamespace(train=SimpleNamespace(decodes=True))
    for accelerator, said in (("auto", "23 processes for each of 2 ranks"), ("cpu", "8 processes")):
        line = f"reading   files are decoded by {said}, of 48 cores (workers)"
        assert reading(Config.from_mapping({"device": accelerator}), data) == [line]
    assert reading(Config.from_mapping({"workers": 3}), data) == []


@pytest.mark.parametrize(
    ("given", "parameters", "steps", "said"),
    [
        ({}, 10**7, 5000, 1),
        ({}, 10**7, 4999, 0),
        ({}, 10**6, 5000, 0),
        ({"trainer.compile": True}, 10**7, 5000, 0),
        ({"trainer.strategy": "fsdp"}, 10**7, 5000, 0),
        ({"device": "cpu"}, 10**7, 5000, 0),
    ],
)
def test_a_long_run_on_a_gpu_says_that_it_could_be_compiled(given, parameters, steps, said, beside_gpus) -> None:
    method = SimpleNamespace(backbone=torch.nn.Linear(parameters, 1, bias=False, device="meta"))
    assert len(compile_hint(Config.from_mapping(given), method, steps)) == said


def test_a_run_on_the_cpu_leaves_gpus_alone(small_run, tmp_path, beside_gpus) -> None:
    """The first command with device=cpu: one process, fp32, and no GPU is touched."""
    run = {**small_run, "method": "simclr", "epochs": 1}
    entry = sslkit.pretrain({**run, "device": "cpu", "precision": "auto"})
    assert entry.card["computed"]["device"] == "cpu" and entry.card["computed"]["processes"] == 1
    assert entry.card["computed"]["precision"] == "float32"
    with pytest.raises(UserError, match=r"batch_size=32 cannot be shared evenly by 3 processes: take 30 or 33"):
        check_trainer(Config.from_mapping({"batch_size": 32, "device": "cpu", "trainer.devices": 3}))


@pytest.mark.nightly
def test_torchrun_and_two_devices_end_with_the_same_weights_and_one_process_nearly(tmp_path) -> None:
    for name in ("one", "two"):
        write_jpegs(tmp_path / "photos" / name, 48, (60, 45))
    words = ["data=photos", "method=byol", "batch_size=32", "image_size=16", "epochs=1", "eval.tsne=0"]
    words += ["eval.k=3", "optimizer.name=sgd", "optimizer.lr=0.01", "device=cpu", "out=zoo"]
    train = str(ROOT / "recipes" / "train.py")
    starts = {
        "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}", train],
        "devices": [train, "trainer.devices=2"],
        "alone": [train],
    }
    said = {name: _printed([*start, f"name={name}", *words], tmp_path) for name, start in starts.items()}
    shared = [name for name, text in said.items() if "3 steps x 32 images (16 on each of 2 processes)" in text]
    assert shared == ["torchrun", "devices"]
    assert said["torchrun"].count("sgd       lr") == 1 and said["torchrun"].count("done in") == 1
    assert sorted(p.name for p in (tmp_path / "zoo").iterdir() if p.name[0] != ".") == sorted(starts)
    assert len(list((tmp_path / "zoo" / "torchrun").glob("events*"))) == 1
    one, other, alone = (sslkit.ZooEntry.load(tmp_path / "zoo" / name).state_dict() for name in starts)
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
    torch.testing.assert_close(one, alone, rtol=1e-3, atol=1e-4)


def _printed(words: list[str], folder: Path) -> str:
    """What a Python process of one thread prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    how = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, *words], **how, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_several_ranks_leave_the_buffers_alone() -> None:
    assert processes._strategy("auto", processes.count(1, 1)) == "auto"
    for devices, nodes in ((2, 1), ("0,1", 1), (1, 2)):
        strategy = processes._strategy("auto", processes.count(devices, nodes))
        assert strategy._ddp_kwargs["broadcast_buffers"] is False


def test_a_missing_gpu_says_how_to_go_on(small_run) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UserError, match="PyTorch finds no GPU here: install a build of it for yours"):
        sslkit.pretrain({**small_run, "device": "cuda"})


def test_news_of_lightning_stay_silent_when_it_is_imported_later() -> None:
    """Its import sets the level of its own logger; on a GPU it would advise TF32, which `precision` chooses."""
    processes.quiet()
    for name in ("lightning_fabric", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.INFO)
        assert logging.getLogger(f"{name}.utilities.rank_zero").getEffectiveLevel() == logging.WARNING


def test_a_numbered_device_is_that_one_alone_unless_more_are_asked_for() -> None:
    for words, expected in (
        ({"device": "cuda:1"}, ("cuda", [1])),
        ({"device": "cuda:1", "trainer.devices": 2}, ("cuda", 2)),
        ({"device": "cpu"}, ("cpu", "auto")),
    ):
        assert device_of(Config.from_mapping(words)) == expected
