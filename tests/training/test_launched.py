"""torchrun's processes make one run, whose weights are those of `trainer.devices=2`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forks import free_port

import sslkit
from sslkit.errors import UserError
from sslkit.training import launched
from sslkit.training.config import Config

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
    config = Config.from_mapping({"trainer": given})
    launched.check(config)
    assert (launched.devices(config), launched.nodes(config)) == found and launched.processes(config) == world


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
    monkeypatch.setattr(launched.SLURMEnvironment, "detect", staticmethod(lambda: True))
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    with pytest.raises(UserError, match=r"srun: You set `--ntasks=2`"):
        launched.check(Config.from_mapping({"trainer.devices": 1}))
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    with pytest.raises(UserError, match=r"srun has started 2 processes, .*asks for 1"):
        launched.check(Config.from_mapping({"trainer.devices": 1}))
    launched.check(Config.from_mapping({"trainer.devices": 2}))


@pytest.mark.slow
def test_torchrun_and_two_devices_end_with_the_same_weights(small_npz, tmp_path) -> None:
    words = [f"data={small_npz}", "method=byol", "data.batch_size=32", "epochs=1", "eval.tsne=0", "eval.k=3", "out=zoo"]
    words += ["trainer.accelerator=cpu", "trainer.precision=32-true"]
    train = str(ROOT / "recipes" / "train.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    said = []
    for start in (
        ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}", train, "name=torchrun"],
        [train, "name=devices", "trainer.devices=2"],
    ):
        done = subprocess.run(
            [sys.executable, *start, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(done.stdout)
    assert all("3 steps x 32 images (16 on each of 2 processes)" in text for text in said)
    assert said[0].count("optimizer ") == 1 and said[0].count("done in") == 1
    assert sorted(p.name for p in (tmp_path / "zoo").iterdir() if p.name[0] != ".") == ["devices", "torchrun"]
    assert len(list((tmp_path / "zoo" / "torchrun").glob("events*"))) == 1
    one, other = (sslkit.ZooEntry.load(tmp_path / "zoo" / name).state_dict() for name in ("torchrun", "devices"))
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
