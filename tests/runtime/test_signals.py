"""A Slurm job that gets SIGUSR1 goes back into the queue, and ends with the weights of an unbroken run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from forks import free_port
from PIL import Image

import sslkit
from sslkit.data.sources.shard_writer import write_shards

TRAIN = Path(__file__).parents[2] / "recipes" / "train.py"
WORDS = ("method=byol", "data=shards:shards/train-*.tar", "batch_size=32", "image_size=16", "epochs=4")
WORDS += ("eval.tsne=0", "eval.k=3", "workers=0", "device=cpu", "precision=float32")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two shards of real pictures, and a `scontrol` that writes down what it is told."""
    pixels = sslkit.open_images("clipart").pixels[:192].transpose(0, 2, 3, 1)
    for number, picture in enumerate(pixels):
        path = tmp_path / "pictures" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(picture).save(path)
    write_shards(tmp_path / "pictures", tmp_path / "shards", megabytes=1, progress=False)
    control = tmp_path / "bin" / "scontrol"
    control.parent.mkdir()
    control.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    control.chmod(0o755)
    return tmp_path


def start(place: Path, rank: int, ranks: int, port: int, out: str, **more: str) -> subprocess.Popen:
    """One process of a job as srun starts it."""
    slurm = {"JOB_ID": "77", "JOB_NAME": "pretrain", "NTASKS": ranks, "NTASKS_PER_NODE": ranks, "NNODES": 1}
    slurm |= {"PROCID": rank, "LOCALID": rank, "NODEID": 0, "STEP_ID": 0}
    given = {f"SLURM_{name}": str(value) for name, value in slurm.items()}
    given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PATH": f"{place}/bin:{os.environ['PATH']}"}
    words = [*WORDS, f"out={out}"]
    log = (place / f"{out}-{rank}.log").open("a")
    known = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    env = {**known, "OMP_NUM_THREADS": "1", **given, **more}
    return subprocess.Popen([sys.executable, str(TRAIN), *words], cwd=place, env=env, stdout=log, stderr=log)


def job(place: Path, ranks: int, out: str, **more: str) -> list[subprocess.Popen]:
    port = free_port()
    return [start(place, rank, ranks, port, out, **more) for rank in range(ranks)]


def wait_for(path: Path, said: str, tasks: list[subprocess.Popen]) -> None:
    for _ in range(1200):
        if path.exists() and said in path.read_text():
            return
        assert tasks[0].poll() is None, path.read_text()
        time.sleep(0.1)
    raise AssertionError(path.read_text())


def end(tasks: list[subprocess.Popen]) -> list[int]:
    return [task.wait(timeout=240) for task in tasks]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (entry,) = sslkit.zoo.open(folder)
    return entry.state_dict()


@pytest.mark.slow
def test_a_process_that_is_killed_is_one_line_of_the_other(place: Path) -> None:
    tasks = job(place, 2, "killed")
    log = place / "killed-0.log"
    wait_for(log, "epoch 1/", tasks)
    tasks[1].kill()
    assert tasks[0].wait(timeout=240) == 1
    said = log.read_text()
    assert "process 0 has lost another one of this run: its own output says why" in said
    assert "with resume=true continues killed/" in said and "Traceback" not in said


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 2])
def test_requeued_is_bitwise_the_unbroken_run(place: Path, ranks: int) -> None:
    assert end(job(place, ranks, "unbroken")) == [0] * ranks
    tasks = job(place, ranks, "broken")
    log = place / "broken-0.log"
    wait_for(log, "epoch 2/4", tasks)
    for task in tasks:
        task.send_signal(signal.SIGUSR1)
    assert tasks[0].wait(timeout=240) == 0
    for other in tasks[1:]:  # Slurm ends them
        other.kill()
        other.wait()
    assert (place / "told").read_text().split() == ["requeue", "77"]
    assert "job 77 is back in the queue" in log.read_text() and not list((place / "broken").glob("*/card.json"))
    assert not list((place / "broken").rglob("hpc_ckpt*"))  # Lightning's own
    assert end(job(place, ranks, "broken", SLURM_RESTART_COUNT="1")) == [0] * ranks
    assert log.read_text().count("epoch 1/4") == 1
    one, two = weights(place / "unbroken"), weights(place / "broken")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.nightly
def test_without_a_queue_training_goes_on(place: Path) -> None:
    (place / "bin" / "scontrol").write_text("#!/bin/sh\necho 'Requeue is disabled' >&2\nexit 1\n")
    tasks = job(place, 1, "kept")
    wait_for(place / "kept-0.log", "epoch 1/4", tasks)
    tasks[0].send_signal(signal.SIGUSR1)
    assert end(tasks) == [0]
    said = (place / "kept-0.log").read_text()
    assert "did not requeue job 77 (Requeue is disabled); training goes on" in said and "epoch 4/4" in said


def test_a_requeued_job_starts_where_no_run_was_begun(small_run: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    first, second = sslkit.pretrain(small_run), sslkit.pretrain(small_run)
    assert first.folder.name + "-2" == second.folder.name  # the finished run is another job's
