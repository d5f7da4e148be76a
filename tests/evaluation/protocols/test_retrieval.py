"""Retrieval: on folders, by instances of a table, and on published queries with junk; wrong data end in one line."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import evaluation
import sslkit
from evaluation.datasets.revisited import open_revisited
from evaluation.learners.rankings import rank_gallery, trapezoid
from evaluation.protocols.base import Subject
from evaluation.protocols.retrieval import Options, measure, open, run
from evaluation.results.comparison import compare
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime

QUIET = {"cache": None, "progress": False, "device": "cpu"}


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8))


def noisy(seed: int, number: int) -> Image.Image:
    """One of several pictures of an object."""
    clean = np.asarray(picture(seed), float)
    changed = clean + np.random.default_rng(1000 * seed + number).normal(0, 250, clean.shape)
    return Image.fromarray(changed.clip(0, 255).astype(np.uint8))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """40 pictures of ten objects of two classes, and of one that has a single picture, with a table."""
    lines = ["file,kind,object,day"]
    for seed in range(10):
        for number in range(4):
            noisy(seed, number).save(tmp_path / f"{seed}-{number}.png")
            lines.append(f"{seed}-{number}.png,{'ab'[seed % 2]},o{seed},d{number % 2}")
    picture(77).save(tmp_path / "77-0.png")
    (tmp_path / "list.csv").write_text("\n".join([*lines, "77-0.png,a,alone,d0"]))
    return tmp_path / "list.csv"


def model() -> Model:
    return sslkit.load("pixels", image_size=16)


def by_object(table: Path, **more: object) -> evaluation.Result:
    columns = {"label": "kind", "instance": "object", **more.pop("columns", {})}
    return evaluation.retrieval(model(), table, columns=columns, split="all", **more, **QUIET)


def test_an_object_is_found_among_all_images_and_one_picture_is_no_query(table: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 41 images have no answer, and are no queries"):
        result = by_object(table)
    assert result.n == 40 and result.details["without_an_answer"] == 1 and result.details["instances"] == 11
    assert result.value > 0.45 > 2.5 * result.details["chance"]["map"] and result.kind == "jackknife over images"
    assert set(result.others) == {"map_at_r", "recall_at_1", "recall_at_5", "recall_at_10"}
    classes = evaluation.retrieval(model(), table, columns={"label": "kind"}, split="all", **QUIET)
    assert classes.n == 41 and classes.details["instances"] == 2
    assert classes.value - classes.details["chance"]["map"] < result.value - result.details["chance"]["map"]


def test_images_of_the_group_of_a_query_do_not_count(table: Path) -> None:
    with pytest.warns(UserWarning):
        result = by_object(table, columns={"group": "day"})
    assert result.kind == "jackknife over 2 groups of images" and result.groups is not None
    with pytest.raises(UserError, match=r"no image has another one of its instance outside its group"):
        by_object(table, columns={"group": "object"})


def test_a_copy_under_another_name_is_no_answer(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / "images" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        for copy in range(2):
            picture(number).save(folder / f"{number}-{copy}.{('png', 'bmp')[copy]}")
    result = evaluation.retrieval(model(), tmp_path / "images", split="all", **QUIET)
    assert result.value < 0.75, "noise with labels by coin: its copy would be the first answer of each"


def test_the_worst_and_named_queries_are_drawn_with_their_first_answers(table: Path, tmp_path: Path) -> None:
    how = {"columns": {"label": "kind", "instance": "^([0-9]+)-"}, "split": "all", **QUIET}
    evaluation.retrieval(model(), table, draw=["0-1.png", "worst"], out=tmp_path / "out", **how)
    [sheet] = (tmp_path / "out").glob("retrieval-*.png")
    with Image.open(sheet) as image:
        assert image.height > image.width, "eight or nine queries"


def test_instances_are_refused_where_labels_are_read(table: Path, tmp_path: Path) -> None:
    columns = {"label": "kind", "instance": "object"}
    for call in (
        lambda: evaluation.evaluate(model(), table, ["knn"], columns=columns, out=tmp_path, **QUIET),
        lambda: evaluation.extract(model(), table, columns=columns, **QUIET),
        lambda: sslkit.open_images(table, columns=columns),
    ):
        with pytest.raises(UserError, match=r"columns.instance=object: only the protocol retrieval reads it") as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"columns.instance=objekt: .* has no such column: did you mean 'object'"):
        by_object(table, columns={"instance": "objekt"})


def test_one_image_a_class_ends_before_any_is_read(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "images" / str(number)).mkdir(parents=True)
        picture(number).save(tmp_path / "images" / str(number) / "a.png")
    with pytest.raises(UserError, match="no image has another one of its instance"):
        open(Subject(model(), tmp_path / "images"), Options(split="all"))


def test_a_wrong_name_of_a_query_is_one_line(table: Path) -> None:
    with pytest.raises(UserError, match=r"retrieval.draw: there is no image '0-1.pgn': did you mean '0-1.png'"):
        by_object(table, draw=["0-1.pgn"])


def test_k_beyond_the_images_is_left_out_and_two_networks_are_compared_in_pairs() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 8
    good, bad = ((np.eye(8)[y] * size + rng.standard_normal((40, 8))).astype(np.float32) for size in (3, 0.3))
    results = [measure((x, y), Options(ks=(1, 39, 40))) for x in (good, bad)]
    assert set(results[0].others) == {"map_at_r", "recall_at_1", "recall_at_39"}
    low, high = results[0].interval
    assert low < results[0].value < high and np.isclose(results[0].outcomes.mean(), results[0].value)
    paired = [evaluation.Result(**{**vars(result), "paired_on": "same"}) for result in results]
    test = compare(*paired)
    assert test.difference == pytest.approx(results[0].value - results[1].value) and test.p < 0.001
    many = measure((np.repeat(good, 2, 0), np.repeat(np.arange(40), 2)), Options())
    assert many.kind.startswith("jackknife over 40 instances")


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder as revisited Oxford is published: 30 images, of which five pairs of queries are parts."""
    folder = tmp_path / "roxford5k"
    (folder / "jpg").mkdir(parents=True)
    names = [f"building_{number:06}" for number in np.random.default_rng(0).permutation(30)]
    for number, name in enumerate(names):
        noisy(number % 6, number).save(folder / "jpg" / f"{name}.jpg", quality=95)
    queries, truth = [f"query_{number}" for number in range(5)], []
    for number, name in enumerate(queries):
        picture(number).save(folder / "jpg" / f"{name}.jpg", quality=95)
        same = [row for row in range(30) if row % 6 == number]
        kinds = {"easy": same[:2], "hard": np.array(same[2:3]), "junk": same[3:4]} if number < 4 else {}
        truth.append({"bbx": np.array([1.5, 2, 30.25, 23]), "easy": [], "hard": [], "junk": [7], **kinds})
    content = {"imlist": names, "qimlist": queries, "gnd": truth}
    (folder / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(content, protocol=2))
    return folder


def test_published_queries_are_scored_by_their_rules(published: Path, tmp_path: Path) -> None:
    subject = Subject(model(), str(published))
    [result] = run(open(subject, Options(draw=["worst"])), Options(draw=["worst"]), Runtime(cache=None, out=tmp_path))
    assert result.n == 4 and result.details["without_an_answer"] == 1 and result.kind == "bootstrap over queries"
    assert {"map_easy", "map_hard", "precision_at_1", "precision_at_5"} <= set(result.others)
    assert (tmp_path / "retrieval-roxford5k.png").stat().st_size > 1000
    opened = open_revisited(published / "gnd_roxford5k.pkl", subject.reading)
    with pickle_of(published) as content:
        for query, entry in enumerate(content["gnd"]):
            for kind in ("easy", "hard", "junk"):
                names = [Path(name).stem for name in opened.images.ids[opened.kinds[kind][query]]]
                assert names == [content["imlist"][row] for row in entry[kind]], "rows are those of the names"
    x = [
        evaluation.extraction.features_of(subject.model, split, subject.reading, Runtime(cache=None)).x
        for split in (opened.queries, opened.images)
    ]
    hard = rank_gallery(*x, lambda query: opened.answers("hard", query), {"map": trapezoid}).values["map"]
    assert result.others["map_hard"].value == pytest.approx(np.nanmean(hard), abs=1e-9)


class pickle_of:
    """The content of the list of a folder."""

    def __init__(self, folder: Path) -> None:
        self.content = pickle.loads((folder / "gnd_roxford5k.pkl").read_bytes())

    def __enter__(self) -> dict[str, Sequence]:
        return self.content

    def __exit__(self, *_: object) -> None:
        return None


class Harm:
    def __reduce__(self) -> tuple:
        return (print, ("code in a pickle ran",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c | {"gnd": c["gnd"][:3]}, "has 5 queries, and facts of 3"),
        (lambda c: c | {"gnd": [entry | {"easy": [30]} for entry in c["gnd"]]}, "names image 30 of 30"),
        (lambda c: {"imlist": c["imlist"]}, "is not written as published"),
        (lambda c: c | {"gnd": Harm()}, "is not a pickle of plain values and arrays"),
        (lambda c: c | {"imlist": [*c["imlist"], "missing"]}, "1 of 36 listed images are missing, first .*missing.jpg"),
    ],
)
def test_a_list_that_is_not_as_published_is_one_line(published: Path, change, message: str, capsys) -> None:
    with pickle_of(published) as content:
        (published / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(change(content)))
    with pytest.raises(UserError, match=message) as caught:
        open(Subject(model(), str(published)), Options())
    assert "\n" not in str(caught.value) and "code in a pickle ran" not in capsys.readouterr().out
