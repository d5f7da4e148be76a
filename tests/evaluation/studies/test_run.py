"""The list of the papers' tables and figures, and how one is run, stopped, resumed and shown."""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copy

import pytest

from sslkit.cli.command import compose

from evaluation.ranking.scoring import parse
from evaluation.results.statistics import over_seeds
from evaluation.studies import run
from evaluation.studies.claims import AGREES, Cell, Numbers, Summary
from evaluation.studies.declaration import Paper, load_paper, paper_names
from evaluation.studies.rankings import Ranked
from evaluation.studies.stages import Stages
from evaluation.studies.study import Absent, Lab, Study
from evaluation.studies.subsets import Subsets
from evaluation.studies.training import Row, Training
from sslkit.errors import UserError
from sslkit.training.config import Config

sys.path.insert(0, str(Path(__file__).parents[3] / "recipes"))
from reproduce import CONF, STUDIES, train

PAPERS = {name: load_paper(STUDIES / f"{name}.yaml").studies for name in paper_names(STUDIES)}
EVERY = [(paper, what) for paper, studies in PAPERS.items() for what in studies]
HOW = {"folder": STUDIES, "train": train}


@dataclass(frozen=True, kw_only=True)
class Counted(Study):
    """Three jobs, of which each is noted when it runs. stop: one that fails."""

    ran: list[str] = field(default_factory=list)
    stop: set[str] = field(default_factory=set)

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        return {f"row | {seed}": lambda seed=seed: self.measured(seed) for seed in range(3)}

    def measured(self, seed: int) -> Numbers:
        if str(seed) in self.stop:
            raise KeyboardInterrupt
        self.ran.append(str(seed))
        return {"top-1": 0.5 + 0.1 * seed}

    def summarize(self, found: Mapping[str, Numbers]) -> Summary:
        values = [numbers["top-1"] for numbers in found.values()]
        return Summary({"row": {"top-1": Cell(over_seeds(values), 70.15)}}, AGREES, "as it should")

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        path.write_bytes(b"picture")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    one = Counted(caption="Table 9: a table.", cost="no time", readings=("as printed",))
    monkeypatch.setattr(run, "load_paper", lambda file: Paper("DSA", {"table9": one, "fig1": ABSENT}))
    return one


ABSENT = Absent(caption="Figure 1: a drawing.", reason="nothing is measured")


def test_a_stopped_experiment_goes_on_where_it_was(counted: Counted, tmp_path: Path) -> None:
    counted.stop.add("2")
    with pytest.raises(KeyboardInterrupt):
        run.reproduce("dsa", "table9", out=tmp_path, **HOW)
    counted.stop.clear()
    summary = run.reproduce("dsa", "table9", out=tmp_path, **HOW)
    assert counted.ran == ["0", "1", "2"] and summary.outcome == AGREES
    text = (tmp_path / "dsa" / "table9.md").read_text()
    assert "60.0 % ± 24.8 [70.15]" in text and "agrees: as it should" in text and "reading: as printed" in text
    record = json.loads((tmp_path / "dsa" / "table9.json").read_text())
    assert list(record["jobs"]) == ["row | 0", "row | 1", "row | 2"] and record["made"][0]["date"]


def test_results_of_another_version_are_refused_and_kept(counted: Counted, tmp_path: Path) -> None:
    path = tmp_path / "dsa" / "table9.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"version": 0, "jobs": {}}))
    with pytest.raises(UserError, match=r"table9.json has results of another version or experiment: move it away"):
        run.reproduce("dsa", "table9", out=tmp_path, **HOW)
    assert json.loads(path.read_text())["version"] == 0 and not counted.ran


@pytest.mark.parametrize(
    ("paper", "what", "said"),
    [
        ("das", "table9", "paper=das is unknown.*dsa"),
        ("dsa", "table99", "what=table99 is not in dsa.*table9"),
        ("dsa", "fig1", "what=fig1 is not run: nothing is measured"),
    ],
)
@pytest.mark.usefixtures("counted")
def test_names_that_cannot_be_run(paper: str, what: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        run.reproduce(paper, what, out=tmp_path, **HOW)


def test_the_list_has_every_table_and_figure_with_its_cost_or_the_reason() -> None:
    text = " ".join(run.overview(STUDIES).split())
    for paper, what in EVERY:
        one = PAPERS[paper][what]
        assert f"{what} " in text and " ".join(one.caption.split()) in text
        assert one.reason if isinstance(one, Absent) else one.cost and one.needs, f"{paper} {what}"


RUN = [one for one in EVERY if not isinstance(PAPERS[one[0]][one[1]], Absent)]
FIRST = [next(one for one in RUN if one[0] == paper) for paper in dict(RUN)]


@pytest.mark.parametrize(
    ("paper", "what"),
    [one if one in FIRST else pytest.param(*one, marks=pytest.mark.nightly) for one in RUN],
    ids=lambda name: name,
)
def test_the_settings_of_every_experiment_exist(paper: str, what: str, tmp_path: Path) -> None:
    """Words are read as recipes/train.py reads them, metrics parsed; nothing is trained."""
    one = PAPERS[paper][what]
    lab = Lab(scale="small", root=tmp_path, zoo=tmp_path / "zoo", train=train)
    for folder in getattr(one, "makes", ()):
        (tmp_path / folder).mkdir()
    assert one.jobs(lab)
    words = [row.small for row in one.rows.values() if row.small] if isinstance(one, Training) else []
    words += [one.source["small"]] if isinstance(one, Subsets) else []
    for each in words:
        assert compose(list(each), Config(), CONF)["method"]
    if isinstance(one, Training):
        named = {name for claim in one.claims for pair in claim.pairs for name in pair}
        assert named <= set(one.rows) and {claim.column for claim in one.claims} <= set(one.columns)
    if isinstance(one, Ranked):
        assert isinstance(one, Stages) or all(parse(metric) for metric in one.metrics.values())
        assert isinstance(one, Stages) or len({*one.metrics.values()}) == len(one.metrics)  # `rank` takes each once
        assert {name for claim in one.claims for pair in claim.pairs for name in pair} <= set(one.metrics)


@pytest.mark.nightly
def test_a_training_experiment_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("data=digits", "epochs=1", "backbone=narrow_resnet")
    rows = {name: Row((f"method={name}", *words), published={"top-1": 70.0}) for name in ("simclr", "supervised")}
    table1 = PAPERS["dsa"]["table1"]
    small = Training(
        caption="Table.", rows=rows, columns=table1.columns, judged_on=table1.judged_on, claims=(), seeds=(0, 1)
    )
    monkeypatch.setattr(run, "load_paper", lambda file: Paper("DSA", {"table1": small}))
    summary = run.reproduce("dsa", "table1", out=tmp_path, **HOW)
    assert set(summary.rows) == {"simclr", "supervised"} and summary.rows["simclr"]["top-1"].measured.n == 2
    assert (tmp_path / "dsa" / "table1.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "zoo").glob("simclr-*/card.json"))) == 2


def page_rows() -> list[tuple[str, str, str, str]]:
    """Paper, table or figure, caption and what the page tells, of each row of the page."""
    text = (CONF.parent / "benchmarks" / "papers" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+) \|$", text, re.M)
    assert [what for what, _, _ in rows] == [what for _, what in EVERY]
    return [(paper, *row) for (paper, _), row in zip(EVERY, rows, strict=True)]


def result_of(paper: str, what: str) -> Path:
    return CONF.parent / "benchmarks" / "papers" / "results" / f"{paper}-{what}.json"


def test_the_page_has_every_table_and_figure() -> None:
    for paper, what, caption, told in page_rows():
        one = PAPERS[paper][what]
        assert caption == one.caption.rstrip("."), f"{paper} {what}"
        if isinstance(one, Absent):
            assert told == f"not run: {one.reason}", f"{paper} {what}"
        else:
            assert told.startswith("not measured yet") != result_of(paper, what).exists(), f"{paper} {what}"


@pytest.mark.nightly
def test_the_page_has_the_outcome_of_every_result() -> None:
    for paper, what, _, told in page_rows():
        if (result := result_of(paper, what)).exists():
            summary = PAPERS[paper][what].summarize(json.loads(result.read_text())["jobs"])
            assert f"**{summary.outcome}** (" in told and summary.sentence in told, f"{paper} {what}"


def test_what_the_results_decide_stands_beside_what_chance_would(tmp_path: Path) -> None:
    assert run.count_findings(tmp_path, STUDIES) == ""
    results = Path(__file__).parents[3] / "recipes" / "benchmarks" / "papers" / "results"
    for name in ("dsa-fig1", "dsa-table6", "dsa-table9"):
        copy(results / f"{name}.json", tmp_path)
    (tmp_path / "other.json").write_text("[1]")
    text = " ".join(run.count_findings(tmp_path, STUDIES).split())
    records = [json.loads((results / f"{name}.json").read_text()) for name in ("dsa-fig1", "dsa-table6", "dsa-table9")]
    found = [
        one for r in records for one in run.find_study(STUDIES, r["paper"], r["what"]).summarize(r["jobs"]).findings
    ]
    assert f"of {len(found)} intervals below" in text and f"{found.count(AGREES)} as in the paper" in text
    assert f"about {len(found) / 20:.0f} would" in text


def test_every_file_of_settings_and_of_studies_is_in_the_wheel() -> None:
    project = tomllib.loads((STUDIES.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["sslkit_recipes"]
    packaged = {path for pattern in patterns for path in STUDIES.parent.glob(pattern)}
    assert packaged == set(STUDIES.parent.rglob("*.yaml"))
