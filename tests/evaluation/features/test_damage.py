"""Damaged files that evaluation reads: one UserError that names the file; a damaged cache is filled again."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from report_zoo import make_entry

import evaluation
import sslkit
from evaluation import protocols
from evaluation.protocols.base import Subject
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.ranking import Ranking
from evaluation.ranking.summary import read_truth
from evaluation.report import write_report
from evaluation.report.reading import read_json
from evaluation.results import store
from evaluation.results.records import Records, read_records
from evaluation.results.result import Result
from evaluation.results.statistics import share
from evaluation.tuning.recorded import each_recorded
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.files.writing import write_whole
from sslkit.models.model import Model
from sslkit.options import members

CONTENTS = {
    "empty": b"",
    "junk": b"\x00\xffjunk",
    "list": b"[]",
    "number": b"7",
    "text": b'"a"',
    "null": b"null",
    "nested": b"[" * 100_000,
    "mapping": b"{}",
    "mappings": b'{"models": {}, "metrics": {}, "files": [], "format": 1}',
}


@pytest.fixture
def model() -> Model:
    return sslkit.load("random:narrow_resnet", image_size=8, in_chans=1)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", ["index.json", "features.npy", "labels.npy", "ids.npy"])
def test_a_damaged_cache_is_filled_again(name: str, content: bytes, model: object, tmp_path: Path) -> None:
    split = draw_images(evaluation.open_split("digits", "test"), 40, 0)
    how = {"cache": tmp_path, "progress": False}
    first = evaluation.extract(model, split, "test", **how).x.copy()
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (folder / name).write_bytes(content)
    with pytest.warns(UserWarning, match=f"{folder} is damaged .*: making the features again"):
        again = evaluation.extract(model, split, "test", **how)
    assert (again.x == first).all() and again.digest


def test_a_file_in_place_of_the_cached_features_is_replaced(model: object, tmp_path: Path) -> None:
    split = draw_images(evaluation.open_split("digits", "test"), 40, 0)
    first = evaluation.extract(model, split, "test", cache=tmp_path, progress=False)
    for kind in ("file", "link", "part"):
        folder = tmp_path / first.digest
        for path in folder.glob("*"):
            path.unlink()
        folder.rmdir()
        if kind == "link":
            folder.symlink_to(folder.name)
        else:
            folder.with_name(folder.name + (".part" if kind == "part" else "")).write_text("no folder")
        assert len(evaluation.extract(model, split, "test", cache=tmp_path, progress=False)) == 40


READERS: dict[str, Callable[[Path], object]] = {
    "ranking": Ranking.from_json,
    "truth": read_truth,
    "episodes": evaluation.EpisodeTable.load,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_file_that_is_not_what_was_written_is_named(reader: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    if reader == "truth" and content.startswith(b'{"models'):
        return
    with pytest.raises(UserError, match=r"file\.json"):
        READERS[reader](path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000])
def test_a_study_that_is_no_json_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"study\.json cannot be read as JSON"):
        read_json(path)


def damaged(text: str, field: str, value: object) -> str:
    """The JSON of a record with another value of a field, or without it for `...`."""
    other = {name: own for name, own in json.loads(text).items() if name != field}
    return json.dumps(other if value is ... else other | {field: value})


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a ranking's file says."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    zoo = {name: (rng.normal(size=(40, 3)) + y[:, None], y) for name in ("a", "b", "c")}
    truth = {"a": 0.1, "b": 0.3, "c": 0.2}
    found = evaluation.rank(zoo, metrics=["logme"], bootstrap=4, truth=truth)
    return found.to_json(tmp_path_factory.mktemp("ranked") / "file.json").read_text()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scores", []),
        ("scores", None),
        ("data", ...),
        ("n", None),
        ("n", "many"),
        ("notes", 3),
        ("left_out", [1]),
        ("left_out", "why"),
        ("details", 3),
        ("made", [3]),
        ("truth", [1]),
        ("agreement", [1]),
        ("agreement", {"logme": [{}]}),
        ("agreement", {"logme": 3}),
        ("metrics", 5),
        ("tied", [["x"]]),
    ],
)
def test_a_damaged_field_of_a_ranking_names_the_file(field: str, value: object, ranked: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(damaged(ranked, field, value))
    with pytest.raises(UserError, match=r"file\.json is not a ranking"):
        Ranking.from_json(path)


def kept(folder: Path) -> Path:
    right = np.arange(50) < 30
    given = {"recipe": "k=20", "metric": "top1", "model": "a", "data": "digits", "details": {"k": 20}}
    result = Result.from_estimate(share(right), protocol="knn", outcomes=right, paired_on="rows", seeds=[0], **given)
    return store.append(folder, result)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("value", "much"),
        ("value", None),
        ("n", "many"),
        ("interval", [1]),
        ("interval", 5),
        ("others", 3),
        ("others", {"k": 3}),
        ("others", {"k": {}}),
        ("details", [1]),
        ("digests", None),
        ("protocol", 5),
        ("outcomes", "../../x"),
        ("outcomes", 5),
        ("run", ...),
        ("protocol", ...),
    ],
)
def test_a_damaged_record_of_a_result_names_the_file(field: str, value: object, tmp_path: Path) -> None:
    path = kept(tmp_path)
    path.write_text(damaged(path.read_text(), field, value) + "\n")
    with pytest.raises(UserError, match=r"results\.jsonl"):
        store.read(tmp_path)


def test_a_line_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    path = kept(tmp_path)
    path.write_text(path.read_text() + '{"run": "ab')
    assert len(store.read(tmp_path)) == 1
    kept(tmp_path)
    assert len(store.read(tmp_path)) == 1 and path.read_text().endswith("}\n")


@pytest.mark.parametrize("content", [b"5\n", b"[]\n", b"\xff\n", b"{}\n", b'{"run": []', b"[" * 100_000 + b"\n"])
def test_a_line_that_is_no_record_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    if content.endswith(b"\n"):
        with pytest.raises(UserError, match=r"runs\.jsonl line 1 is not a record"):
            read_records(path)
    else:
        assert read_records(path) == {}


def test_a_folder_in_place_of_the_records_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").mkdir()
    records = Records(tmp_path / "runs.jsonl")
    for use in (records.read, lambda: records.add({"a": 1}, {"b": 2})):
        with pytest.raises(UserError, match=r"runs\.jsonl"):
            use()


def test_a_record_without_what_is_needed_is_named(tmp_path: Path) -> None:
    records = Records(tmp_path / "runs.jsonl")
    records.add({"a": 1}, {"valuf": 2})
    with pytest.raises(UserError, match=r"runs\.jsonl: the record of run \w+ lacks value"):
        each_recorded([{"a": 1}], records, lambda number: {"value": 3}, ("value",))


@pytest.mark.parametrize("out", [".", "/", "..", "folder"])
def test_a_folder_is_no_page_and_no_file(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("zoo", "folder"):
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match="is a folder"):
        write_report("zoo", out)
    with pytest.raises(UserError, match="is a folder"), write_whole(Path(out)) as partial:
        partial.write_text("x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "zoo"]


def test_rankings_that_are_not_there_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_entry(tmp_path / "zoo" / "one-digits", 0.5)
    with pytest.raises(UserError, match="there is no ranking nope"):
        write_report("zoo", "report.html", rankings="nope")
    assert not (tmp_path / "report.html").exists()
    assert write_report("zoo", "report.html")[0].exists()  # the usual place need not be there


def test_a_looping_link_is_one_error(tmp_path: Path, model: object) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    small = draw_images(evaluation.open_split("digits", "test"), 40, 0)
    for use in (
        lambda: sslkit.load(str(loop)),
        lambda: evaluation.open_split(str(loop), "test"),
        lambda: evaluation.rank(str(loop), "digits", ["logme"]),
        lambda: evaluation.extract(model, small, "test", cache=loop),
        lambda: evaluation.evaluate(model, "digits", "knn", out=loop, cache=None),
        lambda: write_report(loop),
        lambda: write_report(tmp_path, tmp_path / "page.html", rankings=loop),
        lambda: write_report(tmp_path, loop / "page.html", rankings=[]),
        lambda: write_report(tmp_path, tmp_path / "page.html", rankings=[], study=loop),
        lambda: read_truth(loop),
    ):
        with pytest.raises(UserError):
            use()


BAD = [0, -1, 10**9, 1e300, float("nan"), float("inf"), "x", "", None, [], [0], [-1], ["x"], True, {"a": 1}]


@pytest.mark.parametrize("name", protocols.names())
def test_every_option_of_every_protocol_has_a_range(name: str) -> None:
    """Each option refuses some of fifteen odd values, in one line, and lets its default through."""
    own = protocols.find(name).Options
    for option, default in members.options(own).items():
        refused = 0
        for value in BAD:
            try:
                members.check_options(own, {option: value}, f"protocol {name}")
            except UserError as error:
                refused += 1
                assert option in str(error) and "\n" not in str(error)
        assert refused >= 8, option
        members.check_options(own, {option: default}, name)


def npz(path: Path, labels: list[int], **more: np.ndarray) -> str:
    images = open_images("digits", split="train").pixels[: len(labels), 0]
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels, **more)
    return str(path)


@pytest.mark.parametrize(
    "name", ["knn", "linear", "crowding", "few_shot", "fine_tune", "semi_supervised", "linear_aug"]
)
@pytest.mark.parametrize("kind", ["one class", "unlabelled"])
def test_data_that_cannot_serve_are_refused_before_anything_is_extracted(
    name: str, kind: str, model: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extracted = "evaluation.features.extraction._extract"
    monkeypatch.setattr(extracted, lambda *_, **__: pytest.fail("features were extracted"))
    labels = [4 if kind == "one class" else -1] * 40
    with pytest.raises(UserError, match=r"class|label"):
        evaluation.evaluate(model, npz(tmp_path / "few.npz", labels), [name], out=tmp_path / "out", cache=None)
    assert not (tmp_path / "out").exists()


def test_an_open_split_serves_several_protocols(model: object, tmp_path: Path) -> None:
    subject = Subject(model, npz(tmp_path / "few.npz", [0, 1, 2, 3] * 10))
    assert subject.open_split("test") is subject.open_split("test")
