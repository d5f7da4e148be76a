"""report.py as a person types it."""

import json
from pathlib import Path

import pytest
from report_zoo import make_entry


def test_a_page_is_written_and_the_next_step_said(tmp_path: Path, typed) -> None:
    make_entry(tmp_path / "a zoo" / "one-digits", 0.5)
    (tmp_path / "a zoo" / "torn").mkdir()
    (tmp_path / "a zoo" / "torn" / "card.json").write_text("{")
    (tmp_path / "study.json").write_text(json.dumps({"score": 0.1234}))
    done = typed("report", "zoo=a zoo", "study=study.json", "out=pages/zoo.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "pages" / "zoo.html").read_text()
    assert "one-digits" in page and "0.1234" in page
    assert "recipes/report.py &#39;zoo=a zoo&#39; study=study.json out=pages/zoo.html" in page
    problem, _, rest = " ".join(done.stdout.split()).partition(" written ")
    written, _, following = rest.partition(" next ")
    assert problem.startswith("problem ") and "torn" in problem
    assert written.startswith("pages/zoo.html, 0.") and " MB" in written
    assert following == f"open {(tmp_path / 'pages' / 'zoo.html').as_uri()} in a browser"


def test_help_names_every_setting(tmp_path: Path, typed) -> None:
    said = typed("report", "--help", cwd=tmp_path).stdout
    for setting in (
        "zoo=runs/zoo",
        "rankings=runs/ranking",
        "evaluation=runs/evaluation",
        "study=null",
        "out=report.html",
    ):
        assert setting in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no zoo folder runs/zoo"),
        (["zoos=runs/zoo"], "did you mean 'zoo'"),
        (["zoo=.", "study=no.json"], "no.json cannot be read as JSON"),
        (["zoo=."], ". has no finished entry: train one"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str, tmp_path: Path, typed) -> None:
    done = typed("report", *words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len([line for line in done.stderr.splitlines() if line.strip()]) == 1, done.stderr
    assert not list(tmp_path.rglob("*.html"))
