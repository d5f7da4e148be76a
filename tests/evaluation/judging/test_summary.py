"""evaluate_models: every model is opened first; a damaged member of a zoo is named and left out, the others are not."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluation
from evaluation.judging.summary import MOST_TESTS, evaluate_models, print_differences
from evaluation.protocols import base
from evaluation.ranking.summary import rank_tasks
from evaluation.results.result import Result
from evaluation.results.statistics import share
from sslkit import backbones, zoo
from sslkit.data.sources.named import open_images
from sslkit.decision import NULLS
from sslkit.errors import UserError

CARD = {"normalize": {"mean": [0.3], "std": [0.4]}}


def make_entry(folder: Path, **own: object) -> zoo.ZooEntry:
    body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
    net = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1}
    return zoo.save(folder, body.export(), {**CARD, "backbone": {**net, **own}})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two sound entries and four damaged ones: by card, file, tensors and numbers; and real digits."""
    for name in ("sound", "sound2", "card", "file", "other", "numbers"):
        make_entry(tmp_path / "zoo" / name)
    (tmp_path / "zoo" / "card" / zoo.CARD).write_text("[]")
    path = tmp_path / "zoo" / "file" / zoo.WEIGHTS
    path.write_bytes(path.read_bytes()[:1000])
    other = zoo.ZooEntry.load(tmp_path / "zoo" / "other")
    zoo.save(other.folder, {"fc.weight": torch.zeros(3)}, other.card)
    numbers = zoo.ZooEntry.load(tmp_path / "zoo" / "numbers")
    state = {name: value * (1e30 if name.endswith("weight") else 1) for name, value in numbers.state_dict().items()}
    zoo.save(numbers.folder, state, numbers.card)  # finite weights, features that are not
    arrays = {}
    for split, n in (("train", 60), ("test", 40)):
        images = open_images("digits", split=split)
        arrays |= {f"x_{split}": images.pixels[:n, 0], f"y_{split}": images.labels[:n]}
    np.savez(tmp_path / "few.npz", **arrays)
    return tmp_path


def test_a_list_of_a_zoo_and_of_words_is_judged(place: Path) -> None:
    how = {"out": place / "out", "cache": place / "cache", "progress": False}
    words = [str(place / "zoo"), f"random:{place / 'zoo' / 'sound'}"]
    results = evaluate_models(zoo=words, data=str(place / "few.npz"), protocols="knn", checkpoint=None, **how)
    assert [result.model for result in results] == ["sound", "sound2", "random:sound"]


def test_two_entries_of_one_name_are_told_by_their_folders(place: Path, capsys: pytest.CaptureFixture) -> None:
    (place / "more").mkdir()
    make_entry(place / "more" / "sound")
    both = [str(place / folder / "sound") for folder in ("zoo", "more")]
    evaluate_models(
        both, data=str(place / "few.npz"), protocols="knn", cache=place / "c", out=place / "o", progress=False, zoo=None
    )
    said = "".join(capsys.readouterr().out.partition("results ")[0].split())
    assert all(f"{path}onfew" in said for path in both), said


DAMAGED = {"card", "file", "other", "numbers"}


def test_a_zoo_is_judged_without_its_damaged_members(place: Path, capsys: pytest.CaptureFixture) -> None:
    how = {"cache": place / "cache", "out": place / "out", "progress": False}
    results = evaluate_models(zoo=place / "zoo", data=str(place / "few.npz"), protocols="knn", checkpoint=None, **how)
    assert [result.model for result in results] == ["sound", "sound2"]
    said = " ".join(capsys.readouterr().out.split())
    first, _, end = said.partition("model sound:")
    for name in ("card", "file", "other"):
        assert f"left out {name}: " in first and f"left out {name}: " in end
    assert "left out numbers: numbers gives features that are not finite" in end
    assert len(json.loads((place / "zoo" / "sound" / "results.jsonl").read_text().splitlines()[0])) > 3


def test_the_data_are_opened_once_for_all_models(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = [], base.datasets.split_of
    monkeypatch.setattr(base.datasets, "split_of", lambda *a, **k: opened.append(a[1].split) or real(*a, **k))
    both = [str(place / "zoo" / name) for name in ("sound", "sound2")]
    evaluate_models(
        both,
        data=str(place / "few.npz"),
        protocols=["knn", "crowding"],
        out=place / "out",
        cache=None,
        progress=False,
        zoo=None,
    )
    assert sorted(opened) == ["test", "train"]


def test_a_network_that_a_protocol_cannot_judge_is_named_before_the_data_are_opened(place: Path) -> None:
    with pytest.raises(UserError, match="sound takes images"):
        evaluate_models(
            str(place / "zoo" / "sound"), data="video:nowhere", protocols="action", out=place / "out", zoo=None
        )


def test_a_zoo_is_ranked_without_its_damaged_members(place: Path, capsys: pytest.CaptureFixture) -> None:
    how = {"cache": place / "cache", "out": place / "out", "pictures": False, "bootstrap": 0}
    (ranking,) = rank_tasks(str(place / "zoo"), str(place / "few.npz"), ["logme"], **how)
    assert ranking.models == ("sound", "sound2") and set(ranking.left_out) == DAMAGED
    end = " ".join(capsys.readouterr().out.partition("\ndecision")[2].split())
    assert all(f"left out {name}: " in end for name in DAMAGED)
    again = evaluation.Ranking.from_json(next((place / "out").glob("*.json")))
    assert again.left_out == ranking.left_out


def test_a_truth_follows_the_models_that_are_left(place: Path) -> None:
    names = ["file", "numbers", "other", "sound", "sound2"]
    truth = {name: number / 10 for number, name in enumerate(names)}
    how = {"cache": None, "bootstrap": 0, "truth": truth}
    ranking = evaluation.rank(str(place / "zoo"), str(place / "few.npz"), ["logme"], **how)
    assert ranking.truth.tolist() == [0.3, 0.4]


def test_a_network_that_cannot_take_the_images_is_left_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = backbones.Backbone.forward

    def fails(self: backbones.Backbone, x: torch.Tensor) -> torch.Tensor:
        if calls and calls.pop():
            raise AssertionError("Input height (8) doesn't match model (224)")
        return forward(self, x)

    calls = [False, True]
    monkeypatch.setattr(backbones.Backbone, "forward", fails)
    ranking = evaluation.rank(str(place / "zoo"), str(place / "few.npz"), ["logme"], cache=None, bootstrap=0)
    assert "cannot take images of shape" in " ".join(ranking.left_out.values())
    assert len(ranking.models) == 2


def never(*_: object, **__: object) -> None:
    raise AssertionError("something was computed")


@pytest.mark.parametrize("name", ["card", "file", "other"])
def test_a_damaged_model_named_is_an_error_before_anything_is_computed(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluation.features.extraction._extract", never)
    asked = [str(place / "zoo" / "sound"), str(place / "zoo" / name)]
    with pytest.raises(UserError, match=name):
        evaluate_models(asked, data=str(place / "few.npz"), protocols="knn", out=place / "out", zoo=None)
    with pytest.raises(UserError, match=name):
        rank_tasks(asked, str(place / "few.npz"), ["logme"], out=place / "out", bootstrap=0)


def test_a_zoo_of_damaged_members_alone_is_an_error(place: Path) -> None:
    import shutil

    for name in ("sound", "sound2", "numbers"):
        shutil.rmtree(place / "zoo" / name)
    with pytest.raises(UserError, match=r"none of the 3 models can be used: .*card: .*file: .*other: "):
        evaluate_models(
            zoo=place / "zoo", data=str(place / "few.npz"), protocols="knn", out=place / "out", checkpoint=None
        )
    with pytest.raises(UserError, match="none of the 3 models can be used"):
        evaluation.rank(str(place / "zoo"), str(place / "few.npz"), ["logme"])


def test_what_fails_for_all_is_said_once(place: Path) -> None:
    with pytest.raises(UserError, match=r"^there is no data 'nonsuch'"):
        evaluate_models(zoo=place / "zoo", data="nonsuch", protocols="knn", out=place / "out", checkpoint=None)


def test_one_model_has_no_differences_to_tell(capsys: pytest.CaptureFixture) -> None:
    made = Result.from_estimate(
        share(np.arange(9) > 3), protocol="knn", recipe="", metric="mean_per_class", data="d", model="a"
    )
    one = replace(made, outcomes=np.arange(9) > 3)
    assert print_differences([one]) == "" == capsys.readouterr().out
    print_differences([one, replace(one, model="b")])
    assert "d: differences of mean_per_class need the labels" in capsys.readouterr().out


def test_one_line_says_which_to_take_before_the_pairs(capsys: pytest.CaptureFixture) -> None:
    about = {"protocol": "linear", "recipe": "", "metric": "top1", "data": "d", "paired_on": "rows"}
    right = {"worse": np.arange(200) < 60, "alike": np.arange(200) < 178, "better": np.arange(200) < 180}
    knn = [
        Result.from_estimate(share(own), model=name, outcomes=own, **about | {"protocol": "knn"})
        for name, own in right.items()
    ]
    linear = [replace(one, protocol="linear") for one in knn]
    assert print_differences([*knn, *linear]) == "better"
    assert print_differences([*linear, *(replace(one, data="e") for one in linear[:2])]) == ""
    capsys.readouterr()
    print_differences([*knn, *linear])
    said = " ".join(capsys.readouterr().out.split())
    assert "knn on d, top1: better is first: 90.0 %" in said and said.count("take ") == 1
    said = said[said.index("linear on") :]
    assert said.startswith("linear on d, top1: take better: 90.0 % (85.1 to 93.4); not told apart from alike; ")
    assert "; better than worse" in said and "better is better than worse by" in said
    assert "no difference seen between better and alike (1.0 points" in said and "p (3 pairs)" in said
    assert said.endswith(
        "2 of 2 comparisons, of a protocol on a data set each, find a difference between models; without any about 0.1 "
        "would by chance"
    )
    print_differences(linear)
    assert "by chance" not in capsys.readouterr().out, "of one group Holm's p says it"


@pytest.fixture
def bright(place: Path) -> str:
    """Dark and bright images, which every network tells apart."""
    rng, arrays = np.random.default_rng(0), {}
    for split, n in (("train", 60), ("test", 40)):
        y = np.arange(n) % 2
        x = 200 * y[:, None, None] + rng.integers(0, 40, (n, 8, 8))
        arrays |= {f"x_{split}": x.astype(np.uint8), f"y_{split}": y}
    np.savez(place / "bright.npz", **arrays)
    return str(place / "bright.npz")


@pytest.mark.parametrize("how", ["a zoo", "a list"])
def test_the_best_of_several_ends_with_how_to_use_it(
    how: str, place: Path, bright: str, capsys: pytest.CaptureFixture
) -> None:
    sound = place / "zoo" / "sound"
    asked = {"zoo": place / "zoo"} if how == "a zoo" else {"checkpoint": [str(sound), str(place / "zoo" / "sound2")]}
    asked = {"checkpoint": None, "zoo": None, **asked}
    where = {"out": place / "out", "cache": place / "cache", "progress": False, "nulls": ()}
    evaluate_models(**asked, data=bright, protocols="knn", **where)
    said = capsys.readouterr().out.splitlines()
    first = next(line for line in said if "knn on bright, top1: take " in line).split("take ")[1].split(":")[0]
    use = "\n".join(said[next(k for k, line in enumerate(said) if line.startswith("use it    ")) :])
    assert str(place / "zoo" / first) in use.replace("\n", "")
    assert use.splitlines()[-1].startswith("next      ") or "\nnext      " in use
    evaluate_models(str(sound), None, data=bright, protocols="knn", **where)
    assert "use it" not in capsys.readouterr().out, "of one model without a control nothing is decided"


def test_no_model_is_to_be_used_that_is_not_above_its_nulls(
    place: Path, bright: str, capsys: pytest.CaptureFixture
) -> None:
    where = {
        "out": place / "out",
        "cache": place / "cache",
        "progress": False,
        "zoo": None,
        "protocols": ["linear", "knn"],
    }
    results = evaluate_models(str(place / "zoo" / "sound"), data=bright, nulls=NULLS, **where)
    said = " ".join(capsys.readouterr().out.split())
    assert "decision linear on bright, top1: take none: sound with 100.0 % (91.2 to 100.0) is not above" in said
    assert "use it" not in said and said.count("control ") == 2
    assert [result.protocol for result in results] == ["linear", "knn"], "of the model that was asked for"
    evaluate_models(str(place / "zoo" / "sound"), data=bright, nulls=["pixels"], **where)
    assert "random:sound" not in capsys.readouterr().out


def test_of_many_models_six_tests_are_printed_and_the_others_counted(capsys: pytest.CaptureFixture) -> None:
    about = {"protocol": "linear", "recipe": "", "metric": "top1", "data": "d", "paired_on": "rows"}
    right = {f"m{k}": np.arange(200) < 180 - k for k in range(10)}
    print_differences(
        [Result.from_estimate(share(own), model=name, outcomes=own, **about) for name, own in right.items()]
    )
    said = capsys.readouterr().out
    assert said.count("no difference seen") == MOST_TESTS and "and 3 tests more: evaluation.decide(results)" in said
