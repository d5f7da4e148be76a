"""The line charts of a run: values that are no number are left out."""

import math

import pytest

from evaluation.report.charts import curves

LOSS = [{"epoch": 1, "step": 2, "loss": 2.0}, {"epoch": 2, "step": 4, "loss": 1.0}]


def judged(knn: list[float], probe: list[float]) -> list[dict[str, float]]:
    ends = [
        {"epoch": epoch, "step": 2 * epoch, "knn": own, "probe": other}
        for epoch, (own, other) in enumerate(zip(knn, probe, strict=True), start=1)
    ]
    return [row for pair in zip(LOSS, ends, strict=True) for row in pair]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_column_without_a_number_has_no_line(broken: float) -> None:
    loss, accuracy = curves(judged([broken, broken], [0.25, 0.75]))
    assert loss.title == "loss" and [line.name for line in accuracy.lines] == ["online probe"]
    assert accuracy.alt == "accuracy during training, % over the steps: online probe from 25 at step 2 to 75 at step 4."
    assert all(math.isfinite(value) for value in (accuracy.y.low, accuracy.y.high))
    assert not {"nan", "inf"} & set(accuracy.lines[0].path.replace("M", "").replace("L", "").split())


def test_the_finite_values_of_a_column_stay() -> None:
    _, accuracy = curves(judged([math.nan, 0.5], [0.25, 0.75]))
    assert [(line.name, len(line.dots)) for line in accuracy.lines] == [("quick k-NN", 1), ("online probe", 2)]
    assert accuracy.lines[0].dots[0][2] == "quick k-NN 50 at step 4"


def test_columns_without_any_number_have_no_chart() -> None:
    assert [chart.title for chart in curves(judged([math.nan] * 2, [math.nan] * 2))] == ["loss"]
