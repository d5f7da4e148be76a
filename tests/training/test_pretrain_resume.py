"""A run killed at any moment continues to the same weights."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from forks import exit_code

import sslkit
from sslkit.errors import UserError
from sslkit.files import checksums
from sslkit.files.checksums import seal
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain

RUN = """
import json, sys, torch
import sslkit
from sslkit.terminal import say
torch.set_num_threads(1)
say.print_lines()
sslkit.pretrain(json.loads(sys.argv[1]))
"""


class Die(Hook):
    """In the middle of the second epoch, before anything of it is kept."""

    def batch_end(self, loop: Loop, *_: object) -> None:
        if loop.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)


def die_at_a_step(config: dict) -> None:
    make = pretrain.make_loop
    pretrain.make_loop = lambda *given: make(*given[:-1], [Die(), *given[-1]])
    sslkit.pretrain(config)


def die_while_saving(config: dict) -> None:
    calls = []

    def broken(path: Path) -> None:
        calls.append(path)
        if len(calls) == 2:
            path.write_bytes(b"half a checkpoint")
            os.kill(os.getpid(), signal.SIGKILL)
        seal(path)

    checksums.seal = broken
    sslkit.pretrain(config)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return sslkit.ZooEntry.load(folder).state_dict()


THREE = {"method": {"name": "byol+dsa+guide+koleo", "dsa": {"eta": 4, "hidden": 8, "balance": 0.5}}, "epochs": 3}


@pytest.fixture
def run(small_run) -> dict:
    return {**small_run, **THREE}


@pytest.fixture(scope="module")
def unbroken(settings, tmp_path_factory) -> sslkit.ZooEntry:
    torch.set_num_threads(1)
    return sslkit.pretrain({**settings, **THREE, "out": str(tmp_path_factory.mktemp("unbroken"))})


@pytest.mark.parametrize("die", [die_at_a_step, die_while_saving])
def test_killed_and_resumed_is_bitwise_the_unbroken_run(run, unbroken, die: Callable, tmp_path) -> None:
    broken = {**run, "name": "broken"}
    code = exit_code(tmp_path / "said", die, broken)
    assert code == -signal.SIGKILL, (tmp_path / "said").read_text()[-2000:]
    folder = tmp_path / "zoo" / "broken"
    assert (folder / "checkpoints" / "last.ckpt").is_file() and not (folder / "card.json").exists()

    resumed = sslkit.pretrain({**broken, "resume": True})
    assert resumed.folder == folder and not list(folder.rglob("*.part"))
    before, after = weights(unbroken.folder), weights(folder)
    assert all(torch.equal(before[k], after[k]) for k in before)
    # The probe, the curves and the judgement are the same too.
    columns = [(unbroken.folder / "metrics.csv").read_text(), (folder / "metrics.csv").read_text()]
    drop = ("images_per_second", "waiting")
    assert _without(columns[0], drop) == _without(columns[1], drop)
    assert resumed.card["after"] == unbroken.card["after"] and resumed.card["before"] == unbroken.card["before"]


def test_the_name_of_a_run_says_what_it_is() -> None:
    from sslkit.training import run as runs
    from sslkit.training.config import Config

    for source, name in (("torchvision:CIFAR10:/d/x", "CIFAR10"), ("a/my images", "my_images"), ("b.npz", "b")):
        config = Config.from_mapping({"method": "simclr", "data": source})
        assert runs.base_name(config, "resnet18") == f"simclr-{name}-resnet18-e6-s0"


def test_resume_of_a_finished_run_does_nothing(run, capsys) -> None:
    entry = sslkit.pretrain({**run, "epochs": 1})
    stamp = (entry.folder / "backbone.safetensors").stat().st_mtime_ns
    assert sslkit.pretrain({**run, "epochs": 1, "resume": True}).folder == entry.folder
    assert (entry.folder / "backbone.safetensors").stat().st_mtime_ns == stamp
    assert "already finished" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["simclr", "supervised"])
def test_a_finished_run_is_compared_without_a_network(method: str, run, small_npz, tmp_path, monkeypatch) -> None:
    """One changed pixel or label is noticed, and a setting; labels that were withheld from the training are not."""
    import numpy as np

    data, arrays = tmp_path / "own.npz", dict(np.load(small_npz))
    arrays = {name: arrays[name] for name in ("x_train", "y_train")}  # no held-out split
    np.savez(data, **arrays)
    given = {**run, "method": method, "epochs": 1, "name": "x", "data": {**run["data"], "source": str(data)}}
    entry = sslkit.pretrain(given)
    for built in ("build_method", "check_parts"):
        monkeypatch.setattr(pretrain.build, built, lambda *_: pytest.fail("a finished run needs no network"))
    resumed = {**given, "resume": True}
    assert sslkit.pretrain(resumed).folder == entry.folder
    with pytest.raises(UserError, match=r"other settings \(optimizer\.lr was 0\.\d+, is 0\.1\)"):
        sslkit.pretrain({**resumed, "optimizer": {"lr": 0.1}})
    for name in arrays:
        other = arrays[name].copy()
        other.flat[0] ^= 1
        np.savez(data, **{**arrays, name: other})
        with pytest.raises(UserError, match="is finished, but the images have changed since"):
            sslkit.pretrain(resumed)


def test_resume_without_a_run_and_with_other_settings_is_refused(run) -> None:
    with pytest.raises(UserError, match="there is no run"):
        sslkit.pretrain({**run, "resume": True})
    sslkit.pretrain({**run, "epochs": 1, "name": "x"})
    with pytest.raises(UserError, match=r"other settings.*optimizer"):
        sslkit.pretrain({**run, "epochs": 1, "name": "x", "resume": True, "optimizer": {"lr": 1e-4}})


def test_accumulation_may_not_change_on_the_way(run) -> None:
    sslkit.pretrain({**run, "epochs": 1, "name": "x"})
    trainer = {**run["trainer"], "accumulate": 2, "num_nodes": 1, "checkpoint_activations": True}
    with pytest.raises(UserError, match=r"other settings \(trainer\.accumulate was 1, is 2\)"):
        sslkit.pretrain({**run, "epochs": 1, "name": "x", "resume": True, "trainer": trainer})


@pytest.mark.parametrize("labelled", [True, False])
def test_killed_between_training_and_the_entry(
    illustrated_run, labelled: bool, small_npz, tmp_path, monkeypatch
) -> None:
    import numpy as np

    run = {**illustrated_run, **THREE}
    if not labelled:
        np.savez(tmp_path / "plain.npz", x=np.load(small_npz)["x_train"])
        run = {**run, "data": {**run["data"], "source": str(tmp_path / "plain.npz")}}
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain({**run, "name": "late"})
    entry = sslkit.pretrain({**run, "name": "late", "resume": True})
    assert entry.backbone() is not None and (entry.folder / "loss.png").is_file()


def test_the_teacher_ends_at_the_end(run, monkeypatch) -> None:
    from sslkit.objectives.byol import BYOL

    seen = []
    monkeypatch.setattr(BYOL, "after_step", lambda self, progress: seen.append(progress))
    trainer = {**run["trainer"], "accumulate": 2, "num_nodes": 1, "checkpoint_activations": True}
    sslkit.pretrain({**run, "trainer": trainer})
    assert seen == pytest.approx([i / 6 for i in range(1, 7)])


@pytest.mark.nightly
def test_killed_from_outside_at_random_moments(run, tmp_path) -> None:
    """kill -9 at moments that the run does not choose, five times while it trains; the sixth process gets through."""
    unbroken = sslkit.pretrain({**run, "name": "unbroken", "epochs": 6})
    config = {**run, "name": "broken", "epochs": 6}
    delays = [0.0, *torch.rand(4, generator=torch.Generator().manual_seed(0)).tolist()]
    folder = tmp_path / "zoo" / "broken"
    killed = [kill_after_its_first_lines({**config, "resume": folder.is_dir()}, delay) for delay in delays]
    assert killed[0], "the first process ended before it could be killed"
    subprocess.run([sys.executable, "-c", RUN, json.dumps({**config, "resume": True})], check=True)
    before, after = weights(unbroken.folder), weights(folder)
    assert all(torch.equal(before[k], after[k]) for k in before)


def kill_after_its_first_lines(config: dict, delay: float) -> bool:
    """Start the run, wait until it says that it trains, then `delay` seconds, and kill it. Whether it still ran."""
    command = [sys.executable, "-c", RUN, json.dumps(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("training"):
                break
        time.sleep(delay)
        process.kill()
    return process.returncode == -signal.SIGKILL


def _without(text: str, columns: tuple[str, ...]) -> list[list[str]]:
    rows = [line.split(",") for line in text.splitlines()]
    keep = [i for i, name in enumerate(rows[0]) if name not in columns]
    return [[row[i] for i in keep] for row in rows]


def test_other_images_cannot_continue_a_run(run, small_npz, tmp_path, monkeypatch) -> None:
    import numpy as np

    data = tmp_path / "own.npz"
    arrays = dict(np.load(small_npz))
    np.savez(data, **arrays)
    run = {**run, "epochs": 1, "name": "x", "data": {**run["data"], "source": str(data)}}
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: None)
        sslkit.pretrain(run)
    np.savez(data, **{**arrays, "x_train": 255 - arrays["x_train"]})
    with pytest.raises(UserError, match="images have changed"):
        sslkit.pretrain({**run, "resume": True})


def test_ctrl_c_says_how_to_go_on(run, monkeypatch) -> None:
    from sslkit.training.monitor import Monitor

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "batch_end", press)
        with pytest.raises(
            KeyboardInterrupt, match=r"stopped; nothing was saved yet, .*resume=True begins .*stopped anew$"
        ):
            sslkit.pretrain({**run, "name": "stopped"})
    assert sslkit.pretrain({**run, "name": "stopped", "resume": True}).folder.name == "stopped"


def test_a_run_that_has_not_ended_has_an_entry_of_its_newest_epoch(small_run, monkeypatch) -> None:
    def stopped(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("sslkit.training.pretrain.finish", stopped)
        sslkit.pretrain({**small_run, "epochs": 3})
    (run,) = Path(small_run["out"]).glob("*e3*")
    entry = sslkit.ZooEntry.load(run / "checkpoints" / f"{run.name}-newest")
    assert entry.card["epochs"] == 2 and entry.card["data"]["images"] == 96
    assert entry.backbone()(torch.zeros(1, entry.card["backbone"]["in_chans"], 28, 28)).isfinite().all()
    with pytest.raises(UserError, match=r"the weights of its newest epoch are an entry, .*-newest$"):
        sslkit.ZooEntry.load(run)
    ended = sslkit.pretrain({**small_run, "epochs": 3, "resume": True})
    assert ended.folder == run and not entry.folder.exists()
