"""The table of action recognition."""

from evaluation.judging.summary import list_rows
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate


def test_beside_the_main_number_stand_top5_and_the_official_splits() -> None:
    others = {name: Estimate(0.5) for name in ("top5", "split 1", "split 3", "split in halves", "per class")}
    rows = list_rows([Result("action", "", "top1", 0.4, others=others)])
    assert [row.metric for row in rows] == ["top1", "top5", "split 1", "split 3"]
