"""Studies that are declared as YAML: templates of words, pairs of claims, and what is refused."""

from pathlib import Path

import pytest
import yaml

from evaluation.studies.declaration import load_paper, paper_names
from evaluation.studies.training import Row, Training
from sslkit.errors import UserError

STUDY = {
    "kind": "training",
    "caption": "Table 1.",
    "rows": {
        "A": ["image simclr", 1, 2.5],
        "A + D": ["image+d simclr data=ROOT/x HEAD=a=1"],
        "B": ["paper image byol b=2", 3],
        "C": [4.0],
        "B + D": ["image+d byol HEAD="],
    },
    "columns": {"top-1": {"protocol": "linear"}, "kNN": {"protocol": "knn", "unit": ""}},
    "judged_on": {"small": "digits"},
    "claims": [{"text": "D raises {column}", "column": ["top-1", "kNN"], "pairs": ["* + D | *"]}],
}
WORDS = {
    "image": {"small": "method=OBJECTIVE", "paper": "method=OBJECTIVE data=y"},
    "image+d": {"small": "method=OBJECTIVE+d HEAD WORDS epochs=2"},
}


def written(folder: Path, **changes: object) -> Path:
    file, content = folder / "paper.yaml", {"title": "T", "words": WORDS, "studies": {"t1": {**STUDY, **changes}}}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    load_paper.cache_clear()
    return file


def test_words_numbers_and_pairs_are_written_out(tmp_path: Path) -> None:
    study = load_paper(written(tmp_path, measured=["A", "A + D"])).studies["t1"]
    assert isinstance(study, Training) and study.seeds == (0, 1, 2)
    assert study.rows["A"] == Row(("method=simclr",), ("method=simclr", "data=y"), {"top-1": 1, "kNN": 2.5})
    assert study.rows["A + D"].small == ("method=simclr+d", "a=1", "data=ROOT/x", "epochs=2")
    assert study.rows["B"] == Row((), ("method=byol", "data=y", "b=2"), {"top-1": 3})
    assert study.rows["C"] == Row((), (), {"top-1": 4.0}) and study.rows["B + D"].small == ()
    assert [claim.text for claim in study.claims] == ["D raises top-1", "D raises kNN"]
    assert study.claims[1].pairs == (("A + D", "A"), ("B + D", "B"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "trainin"}, "paper.yaml, t1: kind trainin is unknown.*training"),
        ({"captoin": "x"}, "paper.yaml, t1: captoin is unknown.*caption"),
        ({"seeds": 3}, "paper.yaml, t1, seeds: 3 is no"),
        ({"seeds": ["0"]}, "paper.yaml, t1, seeds: '0' is no int"),
        ({"columns": {"top-1": {"other": "x"}}, "claims": []}, "paper.yaml, t1, columns, top-1: protocol is missing"),
        ({"columns": {"top-1": "linear"}, "claims": []}, "t1, columns, top-1: 'linear' is not a mapping of Column's"),
    ],
)
def test_what_is_not_declared_right_is_named(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_paper(written(tmp_path, **changes))


def test_papers_come_in_the_order_of_the_list(tmp_path: Path) -> None:
    for name in ("new", "leep", "dsa"):
        (tmp_path / f"{name}.yaml").touch()
    assert paper_names(tmp_path) == ["dsa", "leep", "new"]
