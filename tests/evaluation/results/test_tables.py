"""What a table shows, in both styles; every number comes back from JSON the same."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, over_episodes, share
from evaluation.results.tables import table, with_interval
from sslkit.errors import UserError


def results() -> list[Result]:
    accuracy = np.random.default_rng(0).normal(0.6, 0.1, 2000)
    right = share(np.arange(1000) < 785)
    return [
        Result.from_estimate(right, protocol="linear", recipe="lbfgs", metric="top1", model="byol", data="a|b"),
        Result.from_estimate(
            over_episodes(accuracy), protocol="few_shot", recipe="5-way 1-shot", metric="accuracy", model="byol"
        ),
    ]


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        (Estimate(0.785, (0.767, 0.803)), "78.5 % ± 1.8"),
        (Estimate(0.785, (0.75, 0.80)), "78.5 % (75.0 to 80.0)"),
        (Estimate(1.0, (0.886, 1.0)), "100.0 % (88.6 to 100.0)"),
        (Estimate(0.785), "78.5 %"),
        (Estimate(0.53786, (0.46786, 0.60786), unit="distance"), "0.538 distance ± 0.070"),
        (Estimate(337.4, (335.0, 339.8), unit="rank"), "337.4 rank ± 2.4"),
        (Estimate(-1.5, (-1.9, -1.4), unit="log"), "-1.50 log (-1.90 to -1.40)"),
    ],
)
def test_a_number_with_its_interval(estimate: Estimate, shown: str) -> None:
    assert with_interval(estimate) == shown


def test_text_columns_are_aligned_where_the_terminal_is_wide(monkeypatch) -> None:
    monkeypatch.setattr("evaluation.results.tables.columns_of_terminal", lambda: 200)
    lines = table(results()).splitlines()
    assert len(lines) == 4
    assert lines[0].split() == ["model", "data", "protocol", "metric", "value", "n", "interval", "recipe"]
    assert lines[2].index("linear") == lines[3].index("few_shot") == lines[0].index("protocol")
    assert lines[2].index("lbfgs") == lines[3].index("5-way") == lines[0].index("recipe")
    assert "wilson over images" in lines[2] and "1,000" in lines[2]
    assert "episodes" in lines[3] and "2,000" in lines[3]


def test_in_80_columns_models_are_headings_and_recipes_stand_below() -> None:
    """No line is longer, whatever the names; every number, flag, recipe and kind of interval is still there."""
    first, second = results()
    long = replace(first, data="d" * 30, model="m" * 40, recipe="word " * 30, converged=False, metric="mean_per_class")
    lines = table([long, first, second]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["protocol", "metric", "value", "n", "recipe"]
    assert lines[2] == f"{'m' * 40} on {'d' * 30}" and lines[4] == "    not converged" and lines[5] == "byol on a|b"
    assert lines[3].split() == ["linear", "mean_per_class", "78.5", "%", "(75.8", "to", "80.9)", "1,000", "[1]"]
    assert "[2] lbfgs; 95 % interval: wilson over images" in lines and lines[-1].startswith("[3] 5-way 1-shot; 95 %")


def test_markdown_has_one_cell_for_each_column_and_escapes_bars() -> None:
    lines = table(results(), style="markdown").splitlines()
    assert {line.replace("\\|", "").count("|") for line in lines} == {9}
    assert "a\\|b" in lines[2] and lines[1].count("---:") == 2


def test_flags_are_shown() -> None:
    result = Result.from_estimate(
        Estimate(0.5), protocol="linear", recipe="", metric="top1", leaky=True, converged=False,
        details={"unreadable": ["a.png", "b.png"]},
    )  # fmt: skip
    text = table([result])
    assert "leaky: test data were used; not converged" in text and text.endswith("\n\n2 unreadable")


def test_what_holds_for_a_data_set_is_said_once_below() -> None:
    first, _ = results()
    details = {"largest_class": 0.15, "unreadable": 1, "notes": "held out by name"}
    first = replace(first, data="d", details=details)
    seen = replace(first, model="dino", details={**details, "notes": "held out by name; the network saw these"})
    text = " ".join(table([first, replace(first, protocol="knn"), seen]).split())
    once = "d: always the largest class: 15.0 %; 1 unreadable; held out by name; the network saw these (dino)"
    assert text.endswith(once) and text.count("unreadable") == 1
    assert table([first, seen], style="markdown").count("1 unreadable; held out by name") == 2


def test_a_number_that_is_no_share_says_which_is_better() -> None:
    intra = Result.from_estimate(Estimate(0.7, unit="squared distance"), protocol="crowding", recipe="", metric="intra")
    rank = Result.from_estimate(Estimate(40.0, unit="rank"), protocol="crowding", recipe="", metric="rankme")
    text = table([intra, rank])
    assert "intra ↓" in text and "rankme ↑" in text and text.endswith("↑ higher, ↓ lower is better")
    assert "better" not in table(results())


def test_a_table_of_results_from_json_is_the_same() -> None:
    made = results()
    again = [Result.from_json(result.to_json()) for result in made]
    assert again == made and table(again) == table(made)


def test_bad_input_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'markdown'"):
        table(results(), style="markdwon")
    with pytest.raises(UserError, match="no result"):
        table([])
