"""LEEP's figures 3 and 4 on numbers that are given."""

from pathlib import Path

from evaluation.studies.claims import AGREES
from evaluation.studies.declaration import load_paper
from evaluation.studies.sources import MEASURES, ON_SOURCE
from evaluation.studies.subjects import percent

STUDIES = load_paper(Path(__file__).parents[3] / "recipes" / "studies" / "leep.yaml").studies


def test_an_accuracy_that_rises_with_leep_agrees(tmp_path: Path) -> None:
    one = STUDIES["fig4"]
    names = ("LEEP", "NCE", ON_SOURCE, *MEASURES)
    found = {f"m{k}": dict.fromkeys(names, 0.1 * k + 0.01 * (k % 2)) | {"H-score": float(k % 3)} for k in range(9)}
    summary = one.summarize(found)
    assert summary.outcome == AGREES and "9 source models" in summary.sentence
    assert summary.rows["LEEP"][MEASURES[0]].measured.value > 0.99
    one.draw(found, tmp_path / "sources.png", "Sources")
    assert (tmp_path / "sources.png").exists()


def test_tasks_of_a_higher_leep_converge_earlier(tmp_path: Path) -> None:
    one = STUDIES["fig3"]
    found = {
        f"task | {k}": {
            "LEEP": float(k),
            "reference": 0.5,
            **{percent(share): 0.1 * (k > 7) + share for share in one.shares},
        }
        for k in range(16)
    }
    summary = one.summarize(found)
    assert summary.outcome == AGREES and list(summary.rows) == ["level 1", "level 2"]
    one.draw(found, tmp_path / "convergence.png", "Convergence")
    assert (tmp_path / "convergence.png").exists()
