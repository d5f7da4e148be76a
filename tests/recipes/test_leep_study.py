"""recipes/benchmarks/leep_study.py: its tables on made-up scores, of which it is known how they rank."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "recipes" / "benchmarks"
TASKS = ("one", "two")
MODELS = [f"m{k}-{'fashion_mnist' if k % 2 else 'glyphs'}-net" for k in range(8)]
TRUTH = {task: {name: 0.5 + 0.01 * (k if task == "one" else k**2) for k, name in enumerate(MODELS)} for task in TASKS}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import leep_study

    return leep_study


def cells(script: ModuleType) -> dict:
    """LEEP as the truth by labels, upside down by clusters; two models have prototypes; the others are as the truth."""
    runs = {"weights": {"of the truth": {name: name == MODELS[0] for name in MODELS}}}
    for task in TASKS:
        runs[f"{task} | others"] = {"scores": dict.fromkeys(script.OTHERS, TRUTH[task])}
        for head in script.HEADS:
            sign = -1 if "clusters" in head else 1
            own = {name: sign * value for name, value in TRUTH[task].items()}
            own = dict(list(own.items())[:2]) if head == "prototypes" else own
            runs[f"{task} | {head}"] = {"scores": {"leep": own, "nce": own}, "heads": {}}
    return runs


def test_rows_are_the_agreement_with_the_truth_and_the_paired_differences(script: ModuleType) -> None:
    study = {"mean_of": TASKS, "truth": TRUTH, "metrics": {name: {"scores": TRUTH} for name in script.OTHERS}}
    first, second, weights = script.tables(cells(script), study, lambda rows: rows)
    by_name = {row[0]: row[1:] for row in first[1:]}
    assert by_name["leep, labels"][0] == "8" and by_name["leep, labels"][1].startswith("1.00 (1.00 to 1.00)")
    assert by_name["nce, 100 clusters"][1].startswith("-1.00") and by_name["knn"][1].startswith("1.00")
    assert by_name["leep, prototypes"] == ["2", "-", "-", "-", "-"]
    assert by_name["leep, labels of fashion_mnist"][0] == "4"
    regret = np.mean([max(column.values()) - min(column.values()) for column in TRUTH.values()])
    assert by_name["leep, 100 clusters"][2].startswith(f"{100 * regret:.1f}")
    differences = {row[0]: row[1:] for row in second[1:]}
    assert differences["leep, labels"] == ["+0.00 (0.00 to 0.00)"] * 3
    assert all(cell.startswith("-2.00 (-2.00 to -2.00)") for cell in differences["leep, 10 clusters"])
    assert "leep, prototypes" not in differences
    assert weights.startswith("1 of 8 networks have the bits") and weights.endswith("nleep 1.00, logme 1.00, knn 1.00.")


def test_heads_that_were_not_measured_are_left_out(script: ModuleType) -> None:
    study = {"mean_of": TASKS, "truth": TRUTH, "metrics": {name: {"scores": TRUTH} for name in script.OTHERS}}
    runs = {key: one for key, one in cells(script).items() if "300" not in key}
    first, second, _ = script.tables(runs, study, lambda rows: rows)
    assert not any("300 clusters" in row[0] for row in first + second) and any("30 clusters" in row[0] for row in first)
