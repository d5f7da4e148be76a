"""The training of a detector: resumed to the last bit, learning, on several ranks, and what is refused."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from detectors import SMALL, images, narrow, schedule
from forks import free_port

import sslkit
from evaluation.tasks.detection import training as module
from evaluation.tasks.detection.prediction import average_precisions, predictions
from evaluation.tasks.detection.schedules import find_schedule
from evaluation.tasks.detection.training import Training, detector_optimizer, train_detector
from evaluation.tuning.checkpoint import Checkpoint
from sslkit.errors import UserError
from sslkit.models.detectors.detector import build_detector
from sslkit.runtime.context import Runtime

QUIET = Runtime(device=torch.device("cpu"), progress=False)


def state(detector) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in detector.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def often(monkeypatch) -> None:
    """The mean loss is kept every two steps."""
    monkeypatch.setattr(module, "PERIOD", 2)


@pytest.fixture(scope="module")
def unstopped() -> module.Trained:
    """Six steps at one go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PERIOD", 2)
        return train_detector(narrow(), images(), Training(schedule(6), masks=True), QUIET, checkpoint=None)


@pytest.mark.parametrize("stopped_at", [3, 5])
def test_a_stopped_run_ends_with_the_same_weights(
    stopped_at: int, unstopped: module.Trained, often, monkeypatch, tmp_path: Path
) -> None:
    settings, model, data, whole = Training(schedule(6), masks=True), narrow(), images(), unstopped

    def stop(seed: int, step: int, real=module.step_seed) -> int:
        if step == stopped_at:
            raise KeyboardInterrupt
        return real(seed, step)

    file = Checkpoint(tmp_path / "run.ckpt", seconds=0)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, "step_seed", stop)
        train_detector(model, data, settings, QUIET, checkpoint=file)
    assert file.load()["step"] == stopped_at
    torch.manual_seed(99)  # what else draws in the process does not matter
    again = train_detector(model, data, settings, QUIET, checkpoint=file)
    assert same(state(whole.detector), state(again.detector)) and whole.losses == again.losses
    assert [step for step, _ in again.losses] == [2, 4, 6] and not list(tmp_path.glob(".*part"))


def test_a_seed_gives_its_own_weights_and_the_global_generator_is_put_back() -> None:
    before = torch.random.get_rng_state()
    runs = [
        state(train_detector(narrow(), images(), Training(schedule(1), seed=s), QUIET, checkpoint=None).detector)
        for s in (0, 1)
    ]
    assert not same(*runs) and torch.equal(torch.random.get_rng_state(), before)


def test_a_frozen_backbone_ends_as_it_began_and_a_tuned_one_does_not() -> None:
    model = narrow()
    for tune in ("none", "all"):
        done = train_detector(model, images(), Training(schedule(2), tune=tune), QUIET, checkpoint=None).detector
        own = {n.removeprefix("inner."): v for n, v in done.backbone.state_dict().items()}
        kept = [torch.equal(value, model.net.state_dict()[name]) for name, value in own.items()]
        assert all(kept) if tune == "none" else sum(kept) < len(kept) / 4


def test_norm_layers_do_not_decay_and_a_vit_has_adamw() -> None:
    settings = Training(find_schedule("full", "voc07"))
    detector = build_detector(narrow(), 4, tune="all", seed=0)
    decaying, free = detector_optimizer(detector, settings).param_groups
    assert (decaying["weight_decay"], free["weight_decay"]) == (1e-4, 0)
    norms = [p for m in detector.modules() if isinstance(m, torch.nn.BatchNorm2d) for p in m.parameters()]
    assert {id(p) for p in free["params"]} == {id(p) for p in norms}
    assert len(decaying["params"]) + len(norms) == len(list(detector.parameters()))
    vit, smoke = replace(settings, arch="vit_pyramid"), replace(settings, schedule=find_schedule("smoke", ""))
    for training, kind, lr in (
        (settings, torch.optim.SGD, 0.02),
        (vit, torch.optim.AdamW, 2.5e-5),
        (smoke, torch.optim.AdamW, 3e-3),
        (replace(smoke, arch="vit_pyramid"), torch.optim.AdamW, 3e-3),
    ):
        optimizer = detector_optimizer(detector, training)
        assert isinstance(optimizer, kind) and optimizer.param_groups[0]["lr"] == pytest.approx(lr)


def test_positions_and_class_token_of_a_vit_do_not_decay() -> None:
    detector = build_detector(
        sslkit.load("random:narrow_vit", image_size=28), 4, arch="vit_pyramid", sizes=SMALL, tune="all", seed=0
    )
    decaying, free = detector_optimizer(detector, Training(schedule(), arch="vit_pyramid")).param_groups
    own = detector.backbone.body.net
    places = {id(own.pos_embed), id(own.cls_token)}
    assert places <= {id(p) for p in free["params"]} and not places & {id(p) for p in decaying["params"]}
    assert free["weight_decay"] == 0 < decaying["weight_decay"]


def test_a_loss_that_is_not_finite_stops_the_run_with_a_line() -> None:
    wild = replace(schedule(40), lr=1e9, warmup=0)
    with pytest.raises(UserError, match=r"NaN or infinite by step .*: lower lr="):
        train_detector(narrow(), images(), Training(wild), QUIET, checkpoint=None)


RUN = """
import sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from pathlib import Path
from forks import free_port
from detectors import SMALL, images, narrow, schedule
from evaluation.tasks.detection import training as module
from evaluation.tasks.detection.schedules import find_schedule
from evaluation.tasks.detection.training import Training, train_detector
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.processes import process_group
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import SyncBatchNorm, rank
module.PERIOD = 2
with process_group(Runtime(device="cpu", progress=False)) as runtime:
    model = narrow()
    checkpoint = Checkpoint(Path(sys.argv[1]), seconds=0)
    done = train_detector(model, images(), Training(schedule({steps})), runtime, checkpoint=checkpoint)
    synced = sum(isinstance(m, SyncBatchNorm) for m in done.detector.modules())
    torch.save({{"state": done.detector.state_dict(), "synced": synced}}, f"{{sys.argv[2]}}-{{rank()}}.pt")
"""


def script(path: Path, steps: int) -> Path:
    tests = str(Path(__file__).parents[3])
    path.write_text(RUN.format(tests=tests, steps=steps))
    return path


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[4]), **more}


@pytest.mark.nightly
def test_a_killed_process_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    command = [sys.executable, str(script(tmp_path / "run.py", 12))]
    process = subprocess.Popen([*command, str(tmp_path / "b.ckpt"), str(tmp_path / "b")], env=environment())
    waited = time.monotonic()
    while not (tmp_path / "b.ckpt").is_file():
        assert process.poll() is None and time.monotonic() - waited < 1200
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not (tmp_path / "b-0.pt").exists()
    for name in ("a", "b"):
        subprocess.run([*command, str(tmp_path / f"{name}.ckpt"), str(tmp_path / name)], env=environment(), check=True)
    a, b = (torch.load(tmp_path / f"{name}-0.pt", weights_only=True)["state"] for name in ("a", "b"))
    assert same(a, b)


def two_ranks(folder: Path, *checkpoints: str) -> list[tuple[int, str]]:
    """What becomes of two processes of one training, each with its checkpoint: exit codes, and what is said."""
    command = [sys.executable, str(script(folder / "run.py", 4))]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [*command, str(folder / checkpoint), str(folder / "r")],
            env=environment(RANK=str(number), LOCAL_RANK=str(number), **shared),
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, checkpoint in enumerate(checkpoints)
    ]
    said = [process.communicate(timeout=1200)[1] for process in ranks]
    return [(process.returncode, text) for process, text in zip(ranks, said, strict=True)]


@pytest.mark.nightly
def test_two_ranks_synchronise_batch_norm_and_end_with_the_same_weights(tmp_path: Path) -> None:
    assert [code for code, _ in two_ranks(tmp_path, "r.ckpt", "r.ckpt")] == [0, 0]
    one, two = (torch.load(tmp_path / f"r-{rank}.pt", weights_only=True) for rank in (0, 1))
    assert one["synced"] == two["synced"] > 5 and same(one["state"], two["state"])
    assert torch.load(tmp_path / "r.ckpt", weights_only=True)["step"] == 4
    for code, said in two_ranks(tmp_path, "r.ckpt", "elsewhere.ckpt"):
        assert code == 1 and "the processes found different checkpoints" in said
    (tmp_path / "damaged.ckpt").write_bytes(b"no checkpoint")
    (_, first), (_, second) = two_ranks(tmp_path, "damaged.ckpt", "elsewhere.ckpt")
    assert "damaged.ckpt is no checkpoint, or a part of one" in first and "found different checkpoints" in second


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arch", "network", "steps"),
    [
        ("c4", "narrow_resnet", 160),
        ("fpn", "narrow_resnet", 100),
        ("vit_pyramid", "narrow_vit", 80),
    ],
)
def test_the_loss_falls_and_the_images_are_learned_by_heart(arch: str, network: str, steps: int) -> None:
    lr = None if arch == "c4" else 1e-3
    quick = find_schedule("smoke", "clipart_boxes").change(steps=steps, batch_size=4, lr=lr)
    model, data = sslkit.load(f"random:{network}", image_size=28), images(4)
    done = train_detector(model, data, Training(quick, arch=arch), QUIET, checkpoint=None)
    untrained = build_detector(model, len(data.classes), arch=arch, sizes=quick.sizes, tune="all", seed=0).eval()
    trained, start = (
        average_precisions(predictions(one, data, 3, QUIET), data, masks=False) for one in (done.detector, untrained)
    )
    losses = [loss for _, loss in done.losses]
    assert losses[-1] < 0.5 * losses[0]
    assert trained["voc_ap50"] > 0.9 > 0.1 > start["voc_ap50"] and trained["coco_ap"] > 0.5
