"""The first lines of a run: what it does that nobody asked for by name."""

import pytest
from unfolded import unfolded

import sslkit


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
    sslkit.pretrain({**run, "data": {**small_run["data"], "image_size": size}})
    said = unfolded(capsys.readouterr().out)
    line = (
        f"note      patches of 16 pixels do not divide {size}: the last {left} rows and columns of every image are not"
    )
    assert (line in said) == bool(left) and ("do not divide" in said) == bool(left)
