"""The picture of successive halving: intervals, a scale that is said, and the task in words."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from figures import cut_texts, overlapping_texts

from evaluation.ranking.choice.halving_output import plot
from evaluation.ranking.choice.rounds import Arm, Round
from sslkit.numerics.figures import FIRST, OTHERS
from sslkit.numerics.wilson import wilson


def arm(model: str, share: float, *, of_images: bool) -> Arm:
    right = np.arange(40)[None] < 40 * share if of_images else None
    return Arm(model, (0.1,), np.array([share]), right, 1.0, 4)


@pytest.mark.parametrize("of_images", [True, False])
def test_accuracies_have_intervals_unless_an_image_has_several_labels(
    of_images: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(
        "evaluation.ranking.choice.halving_output.save_figure", lambda figure, path: drawn.append(figure)
    )
    one, two = arm("byol", 0.8, of_images=of_images), arm("random:vit", 0.5, of_images=of_images)
    rounds = [Round((one, two), 4, 1, (0,)), Round((one,), 8, 1, (0,))]
    plot(SimpleNamespace(rounds=rounds, winner="byol", held_out=40, data="/a/folder/of/flowers"), tmp_path / "a.png")
    axis = drawn[0].axes[0]
    assert axis.get_title(loc="left") == "Fine-tuned on flowers"
    assert axis.get_xscale() == "log" and axis.get_xlabel().endswith("log scale")
    assert axis.get_ylabel() == "accuracy, %; higher is better"
    assert [lines[0].get_color() for lines in axis.containers] == [OTHERS, FIRST]
    whiskers = [lines.lines[2] for lines in axis.containers]
    assert all(bool(one) == of_images for one in whiskers)
    if of_images:
        ends = whiskers[0][0].get_segments()[0][:, 1]
        assert ends == pytest.approx(100 * np.array(wilson(0.5, 40)))
    assert overlapping_texts(drawn[0]) == [] and cut_texts(drawn[0]) == []
