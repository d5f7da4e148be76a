"""The page begins with which model to take: told apart or not, one entry, nothing to compare."""

from pathlib import Path

import numpy as np
import pytest
from report_page import Page
from report_zoo import make_entry, make_zoo

from evaluation.ranking.consensus import CHANCES
from evaluation.report import glossary, write_report
from evaluation.report.answer import answer, of_group
from evaluation.report.charts import distinct
from evaluation.report.judged import Group, comparison_table, groups
from evaluation.report.reading import Material, Member, read_all
from evaluation.results.result import Result
from evaluation.results.statistics import share

TWO_MB = 2_000_000


def group_of(*right: int, data: str = "digits") -> Material:
    """Models a, b, ... that have so many of 200 images right, the first ones."""
    members = []
    for name, count in zip("abcdefgh", right, strict=False):
        outcomes = np.arange(200) < count
        about = {"protocol": "linear", "recipe": "r", "metric": "top1", "model": name, "data": data}
        result = Result.from_estimate(share(outcomes), **about, outcomes=outcomes, paired_on="rows")
        members.append(Member(name, Path(name), results=[result]))
    return Material(Path("zoo"), members)


def test_the_best_is_named_with_the_next_one_and_its_interval() -> None:
    (group,) = groups(group_of(100, 180, 120))
    verdict = of_group(group)
    assert verdict.lead == "digits: take b:" and "; better than c and a; by linear, top1 (r), 200" in verdict.text
    assert verdict.text.startswith("90.0 % (") and verdict.text.endswith(" images, Holm over 3 pairs.")
    table = comparison_table(group)
    assert [[row[0].text, row[3].text] for row in table.rows] == [["c", "worse"], ["a", "worse"]]
    assert all(row[1].text.startswith("+") for row in table.rows), "the best less the others"


def test_models_that_cannot_be_told_apart_are_said_so() -> None:
    (group,) = groups(group_of(180, 181, 60))
    verdict = of_group(group)
    assert verdict.lead == "digits: take b:" and "; not told apart from a; better than c; by " in verdict.text
    assert isinstance(group, Group) and group.unit == "images"


def test_a_best_model_that_is_no_entry_is_said_to_be_none() -> None:
    material = group_of(100, 180, 120)
    material.outside = [material.members.pop(1)]
    (verdict,) = answer(material, groups(material)).verdicts
    assert verdict.text.endswith("b is no entry of this zoo, marked † below.")


def test_one_entry_or_nothing_to_compare_is_said_with_its_command(tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "byol-digits", 0.5)
    material = read_all(tmp_path / "zoo", [], tmp_path / "none", None)
    (only,) = answer(material, []).verdicts
    assert only.lead == "There is one entry, so nothing to choose."
    assert "quick 10-NN, 40.0 % (35.6 to 44.6) before training, on 450 held-out images of digits" in only.text
    make_entry(tmp_path / "zoo" / "simclr-digits", 0.5)
    found = answer(read_all(tmp_path / "zoo", [], tmp_path / "none", None), [])
    assert found.verdicts[0].lead == "Nothing here tells which model to take." and "evaluate.py" in found.command


def test_the_page_begins_with_the_answer_and_every_comparison_with_a_verdict(tmp_path: Path) -> None:
    zoo = make_zoo(tmp_path)
    path, _ = write_report(zoo, tmp_path / "report.html", rankings=tmp_path / "ranking")
    page, text = Page(path), path.read_text()
    assert text.index('id="answer"') < text.index("<table")
    assert "digits: take byol+dsa-digits:" in page.text
    assert page.text.count(CHANCES) == 3, "at two rankings and in the list of words"
    for ranking in text.split('<section aria-labelledby="ranking-')[1:]:
        assert ranking.index("<strong>") < ranking.index("<table")


def test_words_have_a_meaning_on_hover_and_in_one_list(tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "byol-digits", 0.5)
    path, _ = write_report(tmp_path / "zoo", tmp_path / "report.html", rankings=[])
    page = Page(path)
    for word in glossary.WORDS:
        assert any(one.get("id") == word.id for one in page.all("div")) and word.meaning in page.text
    said = str(glossary.link_words("<b> wilson, RankMe of features, rank of z"))
    assert said.startswith("&lt;b&gt; ") and said.count('class="word"') == 3
    heads = [one.get("title", "") for one in page.all("button") if one.get("class") == "sort"]
    assert any("vote of the k nearest neighbours" in title for title in heads)


@pytest.mark.parametrize(
    ("names", "shown", "shared"),
    [
        (["a-x-e1-s0", "b-x-e1-s0"], ["a", "b"], "-x-e1-s0"),
        (["a-s0", "a-s1"], ["a-s0", "a-s1"], ""),
        (["a-s0"], ["a-s0"], ""),
    ],
)
def test_names_are_cut_at_the_end_that_repeats(names: list[str], shown: list[str], shared: str) -> None:
    assert distinct(names) == (shown, shared)


@pytest.mark.nightly
def test_a_page_of_forty_entries_is_under_two_megabytes(tmp_path: Path) -> None:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (300, 600, 3), np.uint8)
    for k in range(40):
        folder = tmp_path / "zoo" / f"byol-digits-s{k}"
        make_entry(folder, 0.3 + 0.01 * k)
        for name in ("views", "embedding"):
            Image.fromarray(noise).save(folder / f"{name}.png")
    path, _ = write_report(tmp_path / "zoo", tmp_path / "report.html", rankings=[])
    assert path.stat().st_size < TWO_MB
    text = Page(path).text
    assert "To keep the page small" in text and str(tmp_path / "zoo" / "byol-digits-s0" / "views.png") in text
