"""Numbers know their code: today's fingerprints are the recorded ones, and pages mark the runs of older code."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

import fingerprints
import keys
from objectives import tables
from objectives.settings import FIXED
from objectives.settings import RESULTS as OBJECTIVES
from plugins import answers
from plugins import run as plugins
from plugins.plan import FORMS, PARTS, parts_of
from ranking import table
from ranking.made_up import PREFIX, part_of
from results import load, path_of, put_tables

RUNS = load(plugins.RESULTS)["runs"]
OF_OBJECTIVES = load(OBJECTIVES)["runs"]
RECORD = keys.load()


def changes(part: str, numbers: dict[str, list[float]]) -> str:
    """What a commit must do whose code computes something else of a part."""
    was = RECORD["known"][part][RECORD["now"][part]]
    names = sorted(keys.differing(part, numbers, was["numbers"]))
    told = "; ".join(f"{name} {was['numbers'].get(name)} -> {numbers.get(name)}" for name in names)
    if part.startswith(PREFIX):
        return (
            f"the code computes something else of {part} than since commit {was['commit']}: {told}\n"
            f"Of older code is the row {part.removeprefix(PREFIX)} of recipes/benchmarks/ranking/README.md.\n"
            f"Mark it: python recipes/benchmarks/stale.py '{part}', and put it there as study --table prints it\n"
            "Or score the zoo again: python recipes/benchmarks/ranking/run.py study"
        )
    cells = Counter(" | ".join(run.split(" | ")[:2]) for run in RUNS if part in parts_of(run))
    cells |= Counter(run.partition(" | ")[0] for run in OF_OBJECTIVES if part in tables.parts_of(run))
    return (
        f"the code computes something else of {part} than since commit {was['commit']}: {told}\n"
        "Of older code are, in recipes/benchmarks/plugins/README.md and results/study.md, and in objectives/README.md: "
        f"{', '.join(f'{name} ({count} runs)' for name, count in cells.items())}.\n"
        f"Mark them: python recipes/benchmarks/stale.py '{part}'\n"
        "Or run the cheapest again, after that: python recipes/benchmarks/plugins/run.py --stale 20 --jobs 2"
    )


@pytest.mark.parametrize("part", fingerprints.parts())
def test_the_code_computes_what_the_keys_say(part: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        numbers = fingerprints.parts()[part]()
    finally:
        torch.set_num_threads(threads)
    assert not keys.differing(part, numbers, RECORD["known"][part][RECORD["now"][part]]["numbers"]), changes(
        part, numbers
    )


def test_every_run_of_the_study_has_keys_of_its_parts_that_are_known() -> None:
    for run, row in RUNS.items():
        of_run = dict(zip(parts_of(run), row["key"].split(), strict=True))
        assert all(key in RECORD["known"][part] for part, key in of_run.items()), run
    assert {part for runs in PARTS.values() for run in runs.runs() for part in parts_of(" | ".join(map(str, run)))} <= (
        RECORD["now"].keys()
    )


def test_every_form_rests_on_its_plug_in_and_a_prior_of_code() -> None:
    assert parts_of("fashion | swav | dsa, paper | 6 | 200") == ["swav", "byol + dsa, paper", "judging"]
    assert parts_of("fashion | mae | adc, alone | 6 | 200") == ["mae", "mae + adc", "judging"]
    assert parts_of("fashion | byol | adc, hog | 6 | 200") == ["byol", "byol + adc", "byol + guide, hog", "judging"]
    assert parts_of("fashion | byol | guide, shuffled | 6 | 200") == ["byol", "byol + guide", "judging"]
    assert all(set(parts_of(f"fashion | byol | {form} | 6 | 200")) <= fingerprints.parts().keys() for form in FORMS)


def test_a_fingerprint_is_known_again_but_for_rounding() -> None:
    record = {"now": {}, "known": {}}
    first = keys.add(record, "byol", {"losses": [4.0, 2.0]}, "abc")
    assert keys.add(record, "byol", {"losses": [4.0002, 2.0]}, "def") == first
    other = keys.add(record, "byol", {"losses": [4.0, 2.001]}, "def")
    assert other != first and record["known"]["byol"][other]["commit"] == "def"
    assert keys.add(record, "byol", {"losses": [4.0]}, "ghi") not in (first, other)
    judged = keys.add(record, "judging", {"knn": [0.3], "probe": [0.4]}, "abc")
    assert keys.add(record, "judging", {"knn": [0.3025], "probe": [0.4]}, "abc") == judged  # one image of 400
    assert keys.add(record, "judging", {"knn": [0.305], "probe": [0.4]}, "abc") != judged


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> dict:
    """The study's runs as of today's code, which then changed in SwAV and in kNN."""
    known = {part: {"old": {"numbers": {"losses": [1.0]}}} for part in RECORD["now"]}
    known["judging"] = {
        "old": {"numbers": {"probe": [0.5], "knn": [0.5]}},
        "new": {"numbers": {"probe": [0.5], "knn": [0.6]}},
    }
    now = {**dict.fromkeys(known, "old"), "swav": "new", "judging": "new"}
    monkeypatch.setattr(keys, "today", lambda: {"now": now, "known": known})
    return {run: row | {"key": " ".join("old" for _ in parts_of(run))} for run, row in RUNS.items()}


def test_what_is_of_older_code_is_marked_and_nothing_else(changed: dict) -> None:
    text = answers.tables(changed)
    assert "| fashion, 6 epochs | byol | simclr | barlow_twins | swav † | mae | resa | nnclr |" in text
    assert "| fashion, 6 epochs | 10-NN † | few-shot | transfer |" in text
    assert "swav (111 runs), 10-NN (all 502 runs). Every mean over objectives has runs of swav." in text
    assert "adc †" not in text and "probe †" not in text


def test_runs_of_today_bear_no_mark_and_runs_without_keys_are_as_the_oldest_known(changed: dict) -> None:
    now = {run: row | {"key": keys.key_now(parts_of(run))} for run, row in changed.items()}
    assert answers.tables(now).count(keys.MARK.strip()) == 1 and answers.of_older_code(now) == answers.NOTHING_OLDER
    before = {run: {name: value for name, value in row.items() if name != "key"} for run, row in changed.items()}
    assert answers.tables(before) == answers.tables(changed)


def test_the_row_of_a_metric_of_older_code_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    study = load(fingerprints.RANKING)
    assert keys.MARK.strip() not in table.table(study)
    now = {part_of(name): "old" for name in study["metrics"]} | {part_of("knn"): "new"}
    known = {part: {"old": {}, "new": {}} for part in now}
    monkeypatch.setattr(keys, "today", lambda: {"now": now, "known": known})
    marked = [line for line in table.table(study, True).splitlines() if keys.MARK.strip() in line]
    assert len(marked) == 1 and marked[0].startswith("| knn (baseline) † | 42 |")


def test_the_cheapest_whole_block_of_stale_runs_is_made_again(changed: dict) -> None:
    chosen = plugins.cheapest_stale(changed, minutes=0.1)
    assert {tuple(run.split(" | ")[i] for i in (0, 1, 3, 4)) for run in chosen} == {("letters", "swav", "6", "202")}
    assert sum(changed[run]["seconds"] for run in plugins.cheapest_stale(changed, minutes=20)) <= 1200
    now = {run: row | {"key": keys.key_now(parts_of(run))} for run, row in changed.items()}
    assert plugins.cheapest_stale(now, minutes=20) == []


def test_the_page_of_objectives_marks_those_of_older_code() -> None:
    page = (path_of(OBJECTIVES).parents[1] / "README.md").read_text(encoding="utf-8")
    stale = keys.find_stale(OF_OBJECTIVES, tables.parts_of)
    assert [f"| {stale.mark(name)} | " in page for name in FIXED] == [True] * len(FIXED)
    assert f"| 10-NN, %{keys.MARK * ('knn' in stale.measures)} |" in page


def test_the_page_of_papers_names_what_is_of_older_code() -> None:
    page = (path_of("papers/x").parents[1] / "README.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("Of older code"))
    older = {part for part, known in RECORD["known"].items() if next(iter(known)) != RECORD["now"][part]}
    studied = "swav", "dino", "simclr", "byol", "mae", "barlow_twins", "byol + adc", "byol + dsa, paper", "w_mse"
    assert [f"`{part}`" in line for part in studied] == [part in older for part in studied]


def test_a_table_is_put_in_the_place_of_the_one_with_its_first_cell(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        "a\n\n| form | x |\n| --- | --- |\n| dsa | 1 |\n\n| form, prior | y |\n| --- | --- |\n| dsa | 2 |\n\nb\n"
    )
    put_tables(page, ["| form | x † |\n| --- | --- |\n| dsa † | 3 |"])
    assert page.read_text() == (
        "a\n\n| form | x † |\n| --- | --- |\n| dsa † | 3 |\n\n| form, prior | y |\n| --- | --- |\n| dsa | 2 |\n\nb\n"
    )
