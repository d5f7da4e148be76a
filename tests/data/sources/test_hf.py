"""Hugging Face data sets: every row is the image and the label that were stored, from Arrow and from Parquet."""

import io
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from named_pipes import pipe
from PIL import Image

import evaluation
from sslkit.data.columns import Columns
from sslkit.data.images import ImageOptions
from sslkit.data.sources.hf import of_tables
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError

datasets = pytest.importorskip("datasets")
DIGITS = open_images("digits")
NAMES = [f"digit {label}" for label in range(10)]


def cell(row: int) -> dict:
    content = io.BytesIO()
    Image.fromarray(DIGITS.pixels[row, 0]).save(content, "png")
    return {"bytes": content.getvalue(), "path": None}


def table(rows: range, **more: object):
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
    values = {"image": [cell(row) for row in rows], "label": DIGITS.labels[rows].tolist()}
    for name, (kind, column) in more.items():
        kinds[name], values[name] = kind, column
    return datasets.Dataset.from_dict(values, features=datasets.Features(kinds))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


@pytest.fixture(params=["disk", "parquet"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    parts = {"train": table(range(40)), "validation": table(range(40, 52))}
    if request.param == "disk":
        datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "mine"))
    else:
        for name, part in parts.items():
            part.to_parquet(str(tmp_path / "mine" / "data" / f"{name}-00000-of-00001.parquet"))
    return tmp_path / "mine"


def test_every_row_is_the_image_and_the_label_that_was_stored(folder: Path) -> None:
    assert splits(f"hf:{folder}") == ("train", "test")
    for split, rows in (("train", range(40)), ("test", range(40, 52)), ("val", range(40, 52))):
        images = open_images(f"hf:{folder}", split=split, image_size=8)
        batch = pickle.loads(pickle.dumps(images)).__getitems__(list(range(len(images))))
        assert np.array_equal(batch["images"], DIGITS.pixels[rows]) and images.name == "mine"
        assert batch["label"].tolist() == DIGITS.labels[rows].tolist() and images.classes == NAMES
    again = open_images(f"hf:{folder}", image_size=8)
    assert again.digest == open_images(f"hf:{folder}", image_size=8).digest != images.digest
    some = again.part(np.array([5, 3]), "held out")
    assert np.array_equal(some.__getitems__([0, 1])["images"], DIGITS.pixels[[5, 3]])
    assert some.labels.tolist() == DIGITS.labels[[5, 3]].tolist() and some.digest != again.digest


def opened(given, **columns: str):
    return of_tables({"train": given}, "train", "mine", None, ImageOptions(image_size=8, columns=Columns(**columns)))


def test_columns_are_found_or_named() -> None:
    two = table(range(4), thumbnail=(datasets.Image(), [cell(row) for row in (7, 6, 5, 4)]))
    assert np.array_equal(opened(two, image="thumbnail").__getitems__([1])["images"], DIGITS.pixels[[6]])
    with pytest.raises(UserError, match=r"several columns of images, image, thumbnail: columns.image=image names one"):
        opened(two)
    with pytest.raises(UserError, match=r"columns.image=imag: mine has no such column: did you mean 'image'"):
        opened(two, image="imag")
    with pytest.raises(UserError, match="no column of images: its columns are label"):
        opened(table(range(4)).remove_columns("image"))


def test_missing_labels_and_several_columns_of_classes() -> None:
    unlabelled = table(range(4)).remove_columns("label")
    assert opened(unlabelled).labels is None
    other = (datasets.ClassLabel(names=["a", "b"]), [0, None, 1, 1])
    assert opened(table(range(4), kind=other)).labels.tolist() == DIGITS.labels[:4].tolist()
    assert opened(unlabelled.add_column("kind", [0, None, 1, 1], feature=other[0])).labels.tolist() == [0, -1, 1, 1]
    hidden = table(range(4)).remove_columns("label").add_column("label", [-1] * 4, feature=other[0])
    assert opened(hidden).labels is None
    two = unlabelled.add_column("kind", [0, 0, 1, 1], feature=other[0]).add_column("sort", [0] * 4, feature=other[0])
    with pytest.raises(UserError, match=r"several columns of classes, kind, sort: name the label, columns.label=kind"):
        assert opened(two).labels is None


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_two_classes_written_as_minus_one_and_one_are_said(kind: str) -> None:
    values = [str(one) if kind == "string" else one for one in (1, -1, -1, None)]
    given = table(range(4)).remove_columns("label").add_column("label", values, feature=datasets.Value(kind))
    with pytest.warns(UserWarning, match="2 of 3 labels are negative, which means none, and all others are 1"):
        assert opened(given).labels.tolist() == [0, -1, -1, -1]


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_whole_numbers_and_texts_named_label_are_classes_of_all_splits(kind: str) -> None:
    def split(rows: range, given: list):
        values = [None if one is None else str(one) if kind == "string" else one for one in given]
        return table(rows).remove_columns("label").add_column("label", values, feature=datasets.Value(kind))

    tables = {"train": split(range(4), [7, 2, None, 7]), "test": split(range(4, 6), [5, 2])}
    for name, labels in (("train", [2, 0, -1, 2]), ("test", [1, 0])):
        images = of_tables(tables, name, "mine", None, ImageOptions(image_size=8))
        assert images.labels.tolist() == labels and images.classes == ["2", "5", "7"]
    if kind == "int64":
        assert opened(split(range(4), [-1] * 4)).labels is None
    assert opened(split(range(2), [0, 1]).rename_column("label", "width")).labels is None


@pytest.mark.parametrize(
    ("kind", "values", "labels", "classes"),
    [
        ("float32", [0.0, 1.0, None, 2.0], [0, 1, -1, 2], ["0", "1", "2"]),
        ("float64", [10.0, float("nan"), 9.0, -1.0], [1, -1, 0, -1], ["9", "10"]),
        ("bool", [True, None, False, True], [1, -1, 0, 1], ["False", "True"]),
        ("string", ["3", "10", "", None], [0, 1, -1, -1], ["3", "10"]),
    ],
)
def test_whole_floats_yes_or_no_and_missing_values_are_labels(
    kind: str, values: list, labels: list, classes: list
) -> None:
    given = table(range(4)).remove_columns("label").add_column("label", values, feature=datasets.Value(kind))
    images = opened(given)
    assert images.labels.tolist() == labels and images.classes == classes


def test_splits_that_are_not_read_and_one_that_is_learned_from_are_named(tmp_path: Path) -> None:
    parts = {"Training": table(range(4)), "dev": table(range(4, 6)), "extra": table(range(6, 8))}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "a"))
    with pytest.warns(UserWarning, match="a: its splits extra are not read"):
        assert open_images(f"hf:{tmp_path / 'a'}").labels.tolist() == DIGITS.labels[:4].tolist()
    assert splits(f"hf:{tmp_path / 'a'}") == ("train", "test")
    datasets.DatasetDict({"validation": table(range(4)), "test": table(range(2))}).save_to_disk(str(tmp_path / "b"))
    with pytest.warns(UserWarning, match="b has no split train: its split validation is learned from"):
        assert len(open_images(f"hf:{tmp_path / 'b'}")) == 4


def test_whole_floats_and_integers_of_two_splits_are_the_same_classes() -> None:
    whole = table(range(4)).remove_columns("label").add_column("label", [0, 1, 2, 3], feature=datasets.Value("int64"))
    floats = table(range(2)).remove_columns("label").add_column("label", [3.0, 2.0], feature=datasets.Value("float32"))
    for name, labels in (("train", [0, 1, 2, 3]), ("test", [3, 2])):
        images = of_tables({"train": whole, "test": floats}, name, "mine", None, ImageOptions(image_size=8))
        assert images.labels.tolist() == labels and images.classes == ["0", "1", "2", "3"]


def test_columns_that_are_no_classes_are_named() -> None:
    plain = table(range(4)).remove_columns("label")
    given = plain.add_column("label", [0.5, 1.0, 2.25, 3.0], feature=datasets.Value("float32"))
    with pytest.warns(UserWarning, match=r"mine: its column label holds numbers such as .*, which are no classes"):
        assert opened(given).labels is None
    boxes = table(range(2), labels=({"x": datasets.Value("int32")}, [{"x": 1}, {"x": 2}])).remove_columns("label")
    with pytest.warns(UserWarning, match="mine: its column labels is of .*, which gives no classes, and is not used"):
        assert opened(boxes).labels is None


def test_texts_of_two_splits_are_compared_as_names() -> None:
    def split(values: list[str]):
        return table(range(2)).remove_columns("label").add_column("label", values, feature=datasets.Value("string"))

    tables = {"train": split(["Cat", "dog"]), "test": split(["cat", "dog"])}
    with pytest.warns(UserWarning, match="mine: 'Cat' and 'cat' are one class"):
        images = of_tables(tables, "test", "mine", None, ImageOptions(image_size=8))
    assert images.classes == ["Cat", "dog"] and images.labels.tolist() == [0, 1]


def test_lists_of_plain_numbers_are_several_classes() -> None:
    given = table(range(3), labels=(datasets.Sequence(datasets.Value("int32")), [[9, 4], [], None]))
    assert opened(given.remove_columns("label")).multi_labels.tolist() == [[1, 1], [-1, -1], [0, 0]]
    assert opened(given).labels.tolist() == DIGITS.labels[:3].tolist()  # a column of classes is the label


def test_rows_without_an_image_are_named_and_others_are_used() -> None:
    images = [cell(0), None, {"bytes": b"no image", "path": None}, cell(3)]
    given = datasets.Dataset.from_dict({"image": images}, features=datasets.Features({"image": datasets.Image()}))
    batch = opened(given).__getitems__([0, 1, 2, 3])
    assert batch["bad"] == ["mine, train, row 1", "mine, train, row 2"] and batch["index"].tolist() == [0, 3, 3, 3]


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="streamed data set, whose rows have no numbers"):
        opened(table(range(4)).to_iterable_dataset())
    with pytest.raises(UserError, match="there is no folder"):
        open_images(f"hf:{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match="cannot load hf:nobody/nothing: "):
        open_images("hf:nobody/nothing")
    with pytest.raises(UserError, match="hf: names no data set: give hf:PATH"):
        open_images("hf:")
    (tmp_path / "one.parquet").write_bytes(b"")
    with pytest.raises(UserError, match=f"is a file: give the folder .*hf:{tmp_path}$"):
        open_images(f"hf:{tmp_path}/one.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=f"cannot load hf:{tmp_path / 'empty'}: "):
        open_images(f"hf:{tmp_path / 'empty'}")
    table(range(0)).save_to_disk(str(tmp_path / "none"), num_shards=1)  # whose guess datasets 4 divides by no rows
    with pytest.raises(UserError, match=r"none: it has no rows|there are no rows"):
        open_images(f"hf:{tmp_path / 'none'}")
    with pytest.raises(UserError, match="there are no rows"):
        opened(table(range(0)))


CONFIGS = "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {}\n"


@pytest.mark.parametrize("file", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/x.parquet", "hf://datasets/a/b/x.parquet", "zip://*.parquet::https://h.example/x.zip"]
)
def test_a_local_folder_that_names_a_url_opens_no_connection(
    file: str, url: str, tmp_path: Path, no_sockets: None
) -> None:
    table(range(4)).to_parquet(str(tmp_path / "mine" / "train.parquet"))
    fence = "---\n" if file == "README.md" else ""
    (tmp_path / "mine" / file).write_text(f"{fence}{CONFIGS.format(url)}{fence}")
    said = f"its {file} names data at {url!r}, and a local folder is read without the network"
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        splits(f"hf:{tmp_path / 'mine'}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["README.md", "rows/b.parquet"])
def test_a_pipe_in_a_local_folder_is_refused(name: str, tmp_path: Path) -> None:
    table(range(4)).to_parquet(str(tmp_path / "mine" / "rows" / "a.parquet"))
    with pipe(tmp_path / "mine" / name), pytest.raises(UserError, match="it is a named pipe, not a file"):
        splits(f"hf:{tmp_path / 'mine'}")


def test_a_local_folder_that_names_its_own_files_is_read(tmp_path: Path, no_sockets: None) -> None:
    table(range(4)).to_parquet(str(tmp_path / "mine" / "rows" / "a.parquet"))
    more = "license_link: https://h.example/licence\n"
    (tmp_path / "mine" / "README.md").write_text(
        f"---\n{more}{CONFIGS.format('rows/*.parquet')}---\nhttps://h.example\n"
    )
    (tmp_path / "mine" / ".huggingface.yaml").write_text(more)
    assert len(open_images(f"hf:{tmp_path / 'mine'}", image_size=8)) == 4
    table(range(4)).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "saved" / "README.md").write_text(f"---\n{CONFIGS.format('http://h.example/x.parquet')}---\n")
    assert len(open_images(f"hf:{tmp_path / 'saved'}", image_size=8)) == 4  # which README.md is not about


def test_several_classes_an_image() -> None:
    several = datasets.Sequence(datasets.ClassLabel(names=["x", "y", "z"]))
    given = table(range(4), labels=(several, [[2, 0], [], None, [1]])).remove_columns("label")
    images = opened(given)
    assert images.labels is None and images.classes == ["x", "y", "z"]
    assert images.multi_labels.tolist() == [[1, -1, 1], [-1] * 3, [0] * 3, [-1, 1, -1]]
    assert images.part(np.array([3, 0]), "some").multi_labels.tolist() == [[-1, 1, -1], [1, -1, 1]]


def test_the_column_of_labels_can_be_named(folder: Path) -> None:
    coarse = (datasets.ClassLabel(names=["few", "many"]), [0, 1, 1, 0])
    fine = (datasets.ClassLabel(names=["a", "b"]), [1, 1, 0, 0])
    both = table(range(4), coarse_label=coarse, fine_label=fine, breed=(datasets.Value("string"), [*"xyxy"]))
    both = both.remove_columns("label")
    assert opened(both, label="fine_label").labels.tolist() == [1, 1, 0, 0]
    assert opened(both, image="image", label="coarse_label").classes == ["few", "many"]
    assert opened(both, label="breed").classes == ["x", "y"]
    with pytest.warns(UserWarning, match="no column is called label: columns.label=breed reads those of breed"):
        assert opened(both.remove_columns(["fine_label", "coarse_label"])).labels is None


def test_a_split_that_a_program_has_loaded() -> None:
    given = table(range(12))
    images = open_images(given, image_size=8)
    assert np.array_equal(images.__getitems__([3])["images"], DIGITS.pixels[[3]]) and images.classes == NAMES
    assert images.labels.tolist() == DIGITS.labels[:12].tolist() and splits(given) == ("train",)
    with pytest.raises(UserError, match="data is a DatasetDict of Hugging Face: give one split"):
        open_images(datasets.DatasetDict({"train": given}))
    with pytest.raises(UserError, match="data is a IterableDataset of Hugging Face: give one split, loaded whole"):
        open_images(given.to_iterable_dataset())


def test_the_columns_of_a_loaded_split_can_be_named() -> None:
    more = {"breed": (datasets.Value("string"), [*"xy"] * 6), "shape": (datasets.Value("int32"), [3, 4, 5] * 4)}
    more |= {"other": (datasets.Image(), [cell(row) for row in range(12)])}
    more |= {"part": (datasets.Value("string"), ["train", "train", "test"] * 4)}
    given = table(range(12), **more).remove_columns("label")
    images = open_images(given, image_size=8, columns={"image": "image", "label": "breed"})
    assert images.classes == ["x", "y"] and images.labels.tolist() == [0, 1] * 6 and len(images) == 12
    assert open_images(given, image_size=8, columns={"image": "other", "label": "shape"}).classes == ["3", "4", "5"]
    plain = given.remove_columns("other")
    shapes = Columns(label="shape", group="breed", split="part")
    assert splits(plain) == ("train",) and splits(plain, columns=shapes) == ("train", "test")
    with pytest.warns(UserWarning, match="2 of 2 groups of test are in train, too \\(4 of 4 images\\)"):
        held_out = open_images(plain, split="test", image_size=8, columns=shapes)
    assert held_out.labels.tolist() == [2] * 4 and held_out.classes == ["3", "4", "5"]
    assert np.array_equal(held_out.__getitems__([0, 3])["images"], DIGITS.pixels[[2, 11]])
    assert held_out.groups[0] == held_out.groups[2] != held_out.groups[1] == held_out.groups[3]
    with pytest.warns(UserWarning, match="no column is called label: columns.label=breed reads those of breed"):
        assert open_images(plain).labels is None
    with pytest.raises(UserError, match=r"columns.label=bred: table has no such column: did you mean 'breed'"):
        open_images(plain, columns={"label": "bred"})
    with pytest.raises(UserError, match=r"columns.group='\^\(a\)': rows of table have no names; its columns are"):
        open_images(plain, columns={"group": "^(a)"})
    with pytest.raises(UserError, match=r"a column of labels is named by columns={'label': NAME}, beside the data set"):
        open_images((plain, "breed"))
    part = evaluation.open_split(plain, "test", columns={"label": "breed"})
    assert part.classes == ["x", "y"] and 0 < len(part) < 12


@pytest.mark.parametrize("labels", ["label", "fine_label"])
def test_a_table_beside_the_folders_of_the_splits_is_read_as_by_hugging_face(labels: str, tmp_path: Path) -> None:
    rows = {"train": range(3), "test": range(3, 6)}
    lines = [f"file_name,{labels}"]
    for split, some in rows.items():
        (tmp_path / "mine" / split).mkdir(parents=True)
        for row in some:
            (tmp_path / "mine" / split / f"{row}.png").write_bytes(cell(row)["bytes"])
            lines.append(f"{split}/{row}.png,{'odd' if row % 2 else 'even'}")
    (tmp_path / "mine" / "metadata.csv").write_text("\n".join(lines))
    for split, some in rows.items():
        images = open_images(tmp_path / "mine", split=split, image_size=8)
        assert [images.classes[label] for label in images.labels] == ["odd" if row % 2 else "even" for row in some]
