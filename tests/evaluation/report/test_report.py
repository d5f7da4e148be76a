"""The page as text: its structure, its numbers, what it says of missing and damaged parts, what it must not hold."""

import html
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from report_page import Page
from report_zoo import ENTRIES, HOSTILE, LOST, make_entry, make_zoo, write_study

from evaluation.report import entries, write_report
from evaluation.report.cells import of_bytes, of_share
from evaluation.results.decisions import by_chance
from sslkit.errors import UserError
from sslkit.zoo import WEIGHTS, ZooEntry, update

LOADS = {"src", "href", "xlink:href", "srcset", "action", "poster", "data"}  # attributes that may load something


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A zoo with results, rankings and a study, and its page."""
    root = tmp_path_factory.mktemp("report")
    make_zoo(root)
    problems = report(root, study=write_study(root / "study.json"))
    assert problems == []
    return root


def report(root: Path, **options) -> list[str]:
    options = {"rankings": root / "ranking", "evaluation": root / "evaluation", **options}
    (root / "ranking").mkdir(exist_ok=True)
    path, problems = write_report(root / "zoo", root / "report.html", **options)
    assert path == root / "report.html"
    return problems


@pytest.fixture(scope="module")
def page(place: Path) -> Page:
    return Page(place / "report.html")


def test_nothing_is_loaded_from_anywhere(page: Page, place: Path) -> None:
    for tag, attributes in page.tags:
        for name in LOADS & set(attributes):
            assert attributes[name].startswith(("data:", "#")), (tag, attributes[name])
    source = (place / "report.html").read_text()
    assert "@import" not in source and "url(" not in source and "fetch(" not in source
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy


def test_the_structure_is_sound(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert page.all("title") and [a for a in page.all("meta") if a.get("name") == "viewport"]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) > 10
    for attributes in page.all("a"):
        assert attributes["href"].lstrip("#") in ids
    for _, attributes in page.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert name not in attributes or attributes[name] in ids
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels


def test_pictures_and_tables_can_be_read_aloud(page: Page) -> None:
    assert len(page.all("img")) == len(ENTRIES) and all(len(one["alt"]) > 20 for one in page.all("img"))
    assert len(page.all("svg")) > 10
    told = [one for one in page.all("svg") if one.get("aria-hidden") != "true"]
    assert len(told) > 10 and all(one["role"] == "img" and len(one["aria-label"]) > 10 for one in told)
    assert len(page.all("table")) > 8 and all(one["scope"] in ("row", "col") for one in page.all("th"))


@pytest.mark.parametrize(
    "shown",
    [
        "91.2 % (88.1 to 93.4)",  # kNN of a card, Wilson of 450 images
        "31.2",  # RankMe
        "42.5 s",
        "d1" * 32,
        "c0ffee",
        "BSD-3-Clause",
        "torch 2.15.0",
        "wilson over images",
        "cosine, k=20, T=0.07",
        "better than",
        "weighted tau (Vigna)",
        "0.62 (0.25 to 0.90)",  # of the study
        "not to be told apart",
        "+0.38 (+0.25 to +0.90)",
        "87.5 %",
        "a processor",
    ],
)
def test_what_was_measured_is_on_the_page(page: Page, shown: str) -> None:
    assert shown in page.text


def test_an_entry_stands_beside_its_start(tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "after", 0.5)
    about = {"data": "leaves", "metric": "top1", "n": 400}
    knn = {"protocol": "knn", **about, "before": 0.5, "after": 0.6, "difference": 0.1, "p": 0.004}
    probe = {"protocol": "linear", **about, "before": 0.7, "after": 0.69, "difference": -0.01, "p": 0.4}
    start = {"source": "efficientnet_lite0", "sha256": "0" * 64}
    update(
        ZooEntry.load(tmp_path / "zoo" / "after"),
        init=start,
        against_start=[{**knn, "interval": [0.04, 0.16]}, {**probe, "interval": None}],
    )
    report(tmp_path)
    said = " ".join(Page(tmp_path / "report.html").text.split())
    for part in ("beside efficientnet_lite0, on the same images", "knn on leaves", "+10.0 (+4.0 to +16.0)", "-1.0"):
        assert part in said, part


def test_many_comparisons_stand_beside_what_chance_would_find(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Page(place / "report.html").text.count("would by chance")
    monkeypatch.setattr("evaluation.report.page.by_chance", lambda groups: by_chance([*groups, *groups]))
    write_report(place / "zoo", place / "many.html", rankings=place / "ranking", evaluation=place / "evaluation")
    text = Page(place / "many.html").text
    assert told == 0, "one protocol on one data set"
    assert re.search(r"[02] of 2 comparisons, .*; without any about 0\.1 would by chance", text)


def test_every_number_says_how_it_was_made(page: Page) -> None:
    said = [attributes["title"] for attributes in page.all("button") if attributes.get("class") == "n"]
    assert len(said) > 60 and all(": " in one for one in said)
    training = [one for one in said if "nearest neighbours" in one and "after training" in one]
    assert training
    for line in ("data: held-out images of digits", "n: 450 images", "interval: 95 % Wilson", "seed: 7", "date: 2026"):
        assert line in training[0]
    assert "command: python recipes/train.py method=byol+dsa data=digits epochs=3 seed=7" in "\n".join(training)
    judged = next(one for one in said if "metric: top1" in one)
    for line in ("protocol: knn, cosine", "n: 359", "wilson over images", "recipes/evaluate.py", "versions: sslkit"):
        assert line in judged
    paired = next(one for one in said if "McNemar" in one)
    for line in ("is better than", "Holm-adjusted", "smallest difference that would be seen", "n: 359 pairs"):
        assert line in paired
    ranked = next(one for one in said if one.startswith("metric: logme: LogME"))
    assert "bootstrap over images" in ranked and "recipes/rank.py" in ranked and "n: 300 images" in ranked


def test_a_hostile_name_is_only_text(page: Page, place: Path) -> None:
    source = (place / "report.html").read_text()
    assert HOSTILE not in source and "<b>broken" not in source and "<i>the ranking" not in source
    assert html.escape(LOST[0]) in source and "3 unreadable images were dropped" in page.text
    assert not [tag for tag, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert HOSTILE in page.text and len(page.all("script")) == 1


def test_what_is_missing_is_said_with_its_command(tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "alone-digits", 0.5)
    (tmp_path / "zoo" / "alone-digits" / "embedding.png").unlink()
    (tmp_path / "zoo" / "alone-digits" / "metrics.csv").unlink()
    assert report(tmp_path) == []
    text = Page(tmp_path / "report.html").text
    for said in (
        "Not evaluated yet: alone-digits",
        f"recipes/evaluate.py checkpoint={tmp_path}/zoo/alone-digits",
        f"There is no ranking of this zoo in {tmp_path}/ranking",
        f"python recipes/rank.py zoo={tmp_path}/zoo",
        "No picture of the views",
        "No picture of the embedding",
        "has no metrics.csv",
        "No image was dropped",
    ):
        assert said in text, said


def test_an_empty_zoo_is_refused_and_says_how_to_fill_it(tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    with pytest.raises(UserError, match=r"zoo has no finished entry: train one, python recipes/train\.py .*out="):
        report(tmp_path)
    (tmp_path / "zoo" / "unfinished").mkdir()
    (tmp_path / "zoo" / "unfinished" / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(UserError, match=r"no finished entry \(.*unfinished has no card\.json"):
        report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_results_of_models_from_elsewhere_are_told_without_an_entry(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    outside = next(path.parent for path in (tmp_path / "zoo").glob("*/results.jsonl"))
    shutil.copytree(outside, tmp_path / "evaluation" / "other", dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "zoo")
    (tmp_path / "zoo").mkdir()
    report(tmp_path)
    assert "There is no finished entry. Train one" in Page(tmp_path / "report.html").text


@pytest.mark.parametrize("named", ["ranking/torn.json", "ranking"])
def test_rankings_that_are_all_damaged_are_refused(named: str, tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "one-digits", 0.5)
    (tmp_path / "ranking").mkdir()
    (tmp_path / "ranking" / "torn.json").write_text("{")
    with pytest.raises(UserError, match=r"torn\.json is not a ranking of recipes/rank\.py"):
        report(tmp_path, rankings=tmp_path / named)
    assert not (tmp_path / "report.html").exists()


def test_what_is_damaged_is_named_and_the_rest_is_told(tmp_path: Path) -> None:
    for name in ("whole-digits", "torn-digits", "weights-digits", "curves-digits", "results-digits"):
        make_entry(tmp_path / "zoo" / name, 0.5)
    for name in ("unfinished", "logs"):
        (tmp_path / "zoo" / name).mkdir()
    (tmp_path / "zoo" / "unfinished" / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "zoo" / "torn-digits" / "card.json").write_text('{"method": ')
    (tmp_path / "zoo" / "weights-digits" / WEIGHTS).write_bytes(b"torn")
    (tmp_path / "zoo" / "curves-digits" / "metrics.csv").write_text("epoch,step,loss\n1,20,much\n")
    (tmp_path / "zoo" / "results-digits" / "results.jsonl").write_text("{}\n")
    make_zoo(tmp_path / "whole")
    shutil.move(tmp_path / "whole" / "ranking", tmp_path / "ranking")
    for name, content in (("torn", "{"), ("list", "[]"), ("other", '{"models": ["a"], "metrics": ["logme"]}')):
        (tmp_path / "ranking" / f"{name}.json").write_text(content)
    for name in ("torn-layers", "lone-layers"):  # rank.py layers=knn writes the first beside torn.json
        (tmp_path / "ranking" / f"{name}.json").write_text('{"metric": "knn", "models": {}}')
    problems = report(tmp_path)
    page = Page(tmp_path / "report.html")
    for part in ("torn-digits", "unfinished has no card.json", "weights-digits", "metrics.csv", "results-digits"):
        assert [line for line in problems if part in line], part
    assert not [line for line in problems if "logs" in line]  # of recipes/zoo.py: no run, and no complaint
    assert not [line for line in problems if "torn-layers" in line]
    for name in ("torn.json", "list.json", "other.json", "lone-layers.json"):
        assert [line for line in problems if name in line and "is not a ranking of recipes/rank.py" in line], name
    assert "Unreadable files" in page.text and all(line in page.text for line in problems)
    assert "whole-digits" in page.text and "weights-digits" in page.text


def test_a_card_of_little_is_told(tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "bare", 0.5)
    card = json.loads((tmp_path / "zoo" / "bare" / "card.json").read_text())
    bare = {name: card[name] for name in ("backbone", "normalize")} | {"a_future_field": {"deep": [1]}}
    (tmp_path / "zoo" / "bare" / "card.json").write_text(json.dumps(bare))
    assert report(tmp_path) == []
    text = Page(tmp_path / "report.html").text
    assert "bare" in text and "The card has no accuracies" in text and "has no list of dropped images" in text


@pytest.mark.parametrize(
    ("zoo", "options", "said"),
    [
        ("nothere", {}, "there is no zoo folder"),
        ("zoo/one-digits", {}, "is one entry: give its parent folder"),
        ("zoo", {"study": "nothere.json"}, "nothere.json cannot be read as JSON"),
    ],
)
def test_a_mistake_leaves_the_old_page(zoo: str, options: dict, said: str, tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "one-digits", 0.5)
    (tmp_path / "report.html").write_text("the old page")
    with pytest.raises(UserError, match=said):
        (tmp_path / "ranking").mkdir(exist_ok=True)
        write_report(tmp_path / zoo, tmp_path / "report.html", rankings=tmp_path / "ranking", **options)
    assert (tmp_path / "report.html").read_text() == "the old page"
    assert not list(tmp_path.glob(".report*"))


def test_any_study_becomes_tables(place: Path, tmp_path: Path) -> None:
    study = {"note": "of <b>mine</b>", "runs": {"a": {"score": 0.5}, "b": {"score": {"value": 2, "interval": [1, 3]}}}}
    study |= {"deep": {"er": {"x": {"y": {"z": 12345}}}}, "list": [{"name": "first", "n": 1}, {"name": "second"}]}
    (tmp_path / "study.json").write_text(json.dumps(study))
    write_report(place / "zoo", tmp_path / "page.html", rankings=[], study=tmp_path / "study.json")
    text = Page(tmp_path / "page.html").text
    for said in ("of <b>mine</b>", "2 (1 to 3)", "12,345", "deep / er", "second"):
        assert said in text, said


def test_numbers_are_written_as_a_reader_expects() -> None:
    assert of_share(0.5, 100).interval == pytest.approx((0.404, 0.596), abs=1e-3)
    assert of_share(None, 100) is None and of_share(0.5, None).interval is None
    assert [of_bytes(size, "").text for size in (4096, 2.5e6, 3e9)] == ["4 kB", "2.5 MB", "3.0 GB"]


@pytest.mark.parametrize(("frames", "unit"), [(None, "images"), (8, "videos")])
def test_an_entry_of_clips_has_seen_videos(frames: int | None, unit: str) -> None:
    card = {"method": "byol", "backbone": {"name": "a", "frames": frames}, "data": {"images": 29, "source": "films"}}
    assert entries._line(card) == f"byol, a, 29 {unit} of films"
