"""The first lines of a run, and those of an epoch: printed weights and terms give the printed loss, in 80 columns."""

import re

import numpy as np
import pytest
import safetensors.torch
import timm
from unfolded import unfolded

import sslkit
from sslkit.composition.method import method
from sslkit.terminal.epoch_lines import Epoch, epoch_lines
from sslkit.training import finish, start


@pytest.mark.parametrize(
    ("accumulate", "said"),
    [
        (2, "lr 0.05 = 0.2 x 64/256, a step of 64 images every 2 batches, the last of an epoch of 32, weight"),
        (5, "lr 0.075 = 0.2 x 96/256, a step of 96 images every 3 batches, as an epoch has no more (trainer.accum"),
        (3, "lr 0.075 = 0.2 x 96/256, a step of 96 images every 3 batches, weight"),
    ],
)
def test_the_first_lines_say_the_images_of_a_step(accumulate: int, said: str, small_run, capsys) -> None:
    optimizer = {"name": "sgd", "lr": 0.2, "lr_scaling": "linear"}
    trainer = {**small_run["trainer"], "accumulate": accumulate}
    sslkit.pretrain({**small_run, "epochs": 1, "optimizer": optimizer, "trainer": trainer})
    assert said in unfolded(capsys.readouterr().out)


@pytest.mark.parametrize(("size", "left"), [(68, 4), (80, 0)])
def test_pixels_that_no_patch_covers_are_a_line(size: int, left: int, small_run, capsys) -> None:
    run = {**small_run, "method": "mae", "backbone": "narrow_vit", "epochs": 1}
    sslkit.pretrain({**run, "image_size": size})
    said = unfolded(capsys.readouterr().out)
    line = (
        f"note      patches of 16 pixels do not divide {size}: the last {left} rows and columns of every image are not"
    )
    assert (line in said) == bool(left) and ("do not divide" in said) == bool(left)


NOTED = {"knn": 0.662, "probe": 0.721, "rankme": 40.5, "std": 0.84, "images_per_second": 998.2, "waiting": 0.0}
DSA = {"dsa/arrange": 0.1, "dsa/consistency": 100.0}


def epoch(terms: dict[str, float], **noted: float) -> Epoch:
    return Epoch(1, 6, {**NOTED, **noted}, sum(terms.values()), terms, 10, "images")


def test_the_first_epoch_of_the_first_command() -> None:
    terms = {"align": 1.7123, "dsa/arrange": 0.8731, "dsa/consistency": 339.1726}
    assert epoch_lines(epoch(terms), DSA).splitlines() == [
        "epoch 1/6  10-NN 66.2 %  online probe 72.1 %  rank of z 40.5  std 0.84",
        "  loss 341.8 = align 1.7 + 0.1 x dsa/arrange 8.7 + 100 x dsa/consistency 3.392",
        "    998 images/s",
    ]


def test_a_short_loss_leaves_room_for_the_speed() -> None:
    assert epoch_lines(epoch({"align": -4.334, "constrain": 9.661}), {}).splitlines() == [
        "epoch 1/6  10-NN 66.2 %  online probe 72.1 %  rank of z 40.5  std 0.84",
        "  loss 5.327 = align -4.334 + constrain 9.661  998 images/s",
    ]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 3e3])
def test_weights_times_terms_sum_to_the_loss(scale: float) -> None:
    """To one unit of the loss's last digit for each term."""
    terms = {"align": 1.7123 * scale, "dsa/arrange": 0.8731 * scale, "dsa/consistency": 339.17 * scale, "koleo": -0.31}
    weights = {**DSA, "koleo": 0.1}
    said = " ".join(epoch_lines(epoch(terms), weights).split())
    said = said[said.index("loss ") : said.index(" 998 images/s")]
    loss, _, parts = said.removeprefix("loss ").partition(" = ")
    total = 0.0
    for part in parts.split(" + "):
        weight, name, value = re.fullmatch(r"(?:(\S+) x )?(\S+) (\S+)", part).groups()
        assert float(weight or 1) == weights.get(name, 1)
        total += float(weight or 1) * float(value)
    assert total == pytest.approx(float(loss), abs=2e-3 * abs(float(loss)))
    assert max(map(len, epoch_lines(epoch(terms), weights).splitlines())) <= 80


def test_a_round_loss_keeps_its_digits() -> None:
    assert "  loss 279.0 = align 279.0" in epoch_lines(epoch({"align": 279.0}), {})


def test_waiting_is_said_from_one_per_cent_on() -> None:
    assert "waiting" not in epoch_lines(epoch({"align": 1.0}, waiting=0.004), {})
    assert "  waiting for data 3 %" in epoch_lines(epoch({"align": 1.0}, waiting=0.03), {}, width=200)


def test_a_method_says_its_weights() -> None:
    built = method("byol+dsa+koleo", image_size=28, in_chans=1, dsa={"nu": 0.2}, koleo={"weight": 0.3})
    assert built.weights() == {"dsa/arrange": 0.2, "dsa/consistency": 100.0, "koleo": 0.3}


@pytest.mark.parametrize(("epochs", "notes"), [(2, ["6 steps in all are few: try epochs=34 or more"]), (34, [])])
def test_few_steps_are_a_line(epochs: int, notes: list[str], small_run, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sslkit.training.pretrain.announce_cost", stop)
    with pytest.raises(KeyboardInterrupt):
        sslkit.pretrain({**small_run, "epochs": epochs})
    said = [line.removeprefix("note ").strip() for line in capsys.readouterr().out.splitlines() if "note " in line]
    assert said == notes


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def judge_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run be judged so: 10-NN falls, the probe does not."""
    judged = iter([{"knn": 0.9, "probe": 0.5}, {"knn": 0.4, "probe": 0.6}])
    about = {"few": 0.1, "inter": 0.1, "intra": 0.1, "n": 40, "largest": 0.1}

    def of_next(*_: object) -> tuple[dict, dict]:
        numbers = next(judged)
        return {**numbers, **about}, {name: np.arange(40) < 40 * share for name, share in numbers.items()}

    for module in (start, finish):
        monkeypatch.setattr(module, "evaluate", of_next)


@pytest.fixture
def resnet(tmp_path) -> str:
    file = tmp_path / "resnet.safetensors"
    safetensors.torch.save_file(timm.create_model("resnet10t").state_dict(), file)
    return f"timm:resnet10t:{file}"


@pytest.mark.parametrize(
    ("lr", "tune", "gentler"),
    [
        (None, None, "tune=norms"),
        (1e-3, "all", "optimizer.lr=3e-05 tune=norms"),
        (1e-5, "norms", ""),
    ],
)
def test_given_weights_that_became_worse_are_said_with_a_way(
    lr, tune, gentler, small_run, resnet, monkeypatch, capsys
) -> None:
    judge_worse(monkeypatch)
    data = {**small_run["data"], "channels": 3}
    own = {"method": "simclr", "init": resnet, "tune": tune, "optimizer": {"lr": lr}}
    sslkit.pretrain({**small_run, **own, "data": data, "epochs": 1})
    said = unfolded(capsys.readouterr().out)
    assert "worse than before training, on the same images: kNN -50.0 points (-66.2 to -33.8) try" in " ".join(
        said.split()
    )
    assert f"  try       {gentler}{', ' if gentler else ''}more epochs\n" in said
    following = said.split("  next:")[1]
    assert all(word in following.split() for word in gentler.split()) and "(trained anew)" in said


def test_random_weights_that_became_worse_need_more_epochs(small_run, monkeypatch, capsys) -> None:
    judge_worse(monkeypatch)
    sslkit.pretrain({**small_run, "epochs": 1})
    assert "33.8)\n  try       more epochs\n" in capsys.readouterr().out
