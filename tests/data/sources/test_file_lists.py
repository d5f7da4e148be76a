"""Text files and tables that name images."""

import warnings
from pathlib import Path

import pytest
from named_pipes import pipe
from PIL import Image

from sslkit.data.sources.folder import FolderImages
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of one value each: pictures/KIND/NUMBER.png, ant 0 to 2, bee 10 to 12."""
    for start, kind in ((0, "ant"), (10, "bee")):
        for number in range(3):
            path = tmp_path / "pictures" / kind / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), start + number).save(path)
    return tmp_path


def written(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text(end.join(lines) + end, encoding="utf-8")
    return path


def values(images: FolderImages) -> list[int]:
    return images.__getitems__(list(range(len(images))))["images"][:, 0, 0, 0].tolist()


def test_a_text_file_names_the_images_in_its_order(folder: Path) -> None:
    text = written(
        folder / "some.txt", "pictures/bee/1.png", "", "  ./pictures/ant/0.png  ", "pictures/ant/../bee/0.png"
    )
    images = open_images(text, image_size=4)
    assert values(images) == [11, 0, 10] and images.name == "some" and splits(text) == ("train",)
    assert images.classes == ["ant", "bee"] and images.labels.tolist() == [1, 0, 1]
    assert [images.image_name(row) for row in range(3)] == ["bee/1.png", "ant/0.png", "bee/0.png"]


@pytest.mark.parametrize("ending", ["txt", "lst", "list"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lists_as_windows_writes_them(ending: str, encoding: str, folder: Path) -> None:
    text = folder / f"some.{ending}"
    text.write_bytes("pictures/ant/0.png\r\npictures/ant/2.png\r\n".encode(encoding))
    assert values(open_images(text, image_size=4)) == [0, 2]


def test_paths_may_be_absolute_or_relative_to_another_folder(folder: Path) -> None:
    (folder / "lists").mkdir()
    text = written(folder / "lists" / "some.txt", "ant/0.png", "bee/0.png")
    assert values(open_images(f"{text}:{folder / 'pictures'}", image_size=4)) == [0, 10]
    absolute = written(folder / "lists" / "all.txt", *map(str, sorted(folder.glob("pictures/*/*.png"))))
    images = open_images(absolute, image_size=4)
    assert values(images) == [0, 1, 2, 10, 11, 12] and images.image_name(0) == "ant/0.png"


def test_the_identity_is_that_of_the_files_wherever_they_lie(folder: Path, tmp_path_factory) -> None:
    text = written(folder / "some.txt", "pictures/bee/1.png", "pictures/ant/0.png")
    before = open_images(text).digest
    copy = tmp_path_factory.mktemp("scratch") / "data"
    folder.rename(copy)
    assert open_images(copy / "some.txt").digest == before
    moved = written(copy / "moved.txt", *(str(copy / "pictures" / name) for name in ("bee/1.png", "ant/0.png")))
    assert open_images(moved).digest == before
    assert open_images(written(copy / "other.txt", "pictures/ant/0.png", "pictures/bee/1.png")).digest != before


def test_splits_are_the_folders_of_the_paths(folder: Path) -> None:
    (folder / "pictures").rename(folder / "train")
    (folder / "Test").mkdir()
    (folder / "train" / "bee").rename(folder / "Test" / "bee")
    (folder / "Test" / "ant").mkdir()
    (folder / "train" / "ant" / "2.png").rename(folder / "Test" / "ant" / "2.png")
    lines = ["train/ant/0.png", "train/ant/1.png", "Test/bee/0.png", "Test/ant/2.png"]
    text = written(folder / "some.txt", *lines)
    assert splits(text) == ("train", "test")
    assert values(open_images(text, image_size=4)) == [0, 1]
    test = open_images(text, image_size=4, split="test")
    assert values(test) == [10, 2] and test.classes == ["ant", "bee"] and test.labels.tolist() == [1, 0]


def test_a_table_has_paths_labels_and_splits(folder: Path) -> None:
    lines = [
        "file,label,split",
        "pictures/ant/0.png,nice,train",
        "pictures/ant/1.png,,train",
        "pictures/bee/0.png,bad,val",
    ]
    table = written(folder / "some.csv", *lines)
    with pytest.warns(
        UserWarning, match="columns are read as paths from 'file', labels from 'label', splits from 'split'"
    ):
        train = open_images(table, image_size=4)
    assert splits(table) == ("train", "test") and values(train) == [0, 1]
    assert train.classes == ["bad", "nice"] and train.labels.tolist() == [1, -1]
    assert open_images(table, split="val").labels.tolist() == [0]


@pytest.mark.parametrize("head", ["File Name;Class;Set", "image_path;TARGET;Subset", "Filename;Category;split"])
def test_columns_have_usual_names_and_separators(head: str, folder: Path) -> None:
    rows = ["pictures/ant/0.png;1;train", "pictures/ant/1.png;10;train", '"pictures/bee/0.png";2;test']
    images = open_images(written(folder / "some.csv", head, *rows))
    assert images.classes == ["1", "2", "10"] and images.labels.tolist() == [0, 2]


def test_tabs_and_a_mark_of_the_encoding(folder: Path) -> None:
    table = folder / "some.tsv"
    table.write_bytes("path\tlabel\r\npictures/ant/0.png\ta, b\r\npictures/ant/1.png\tc\r\n".encode("utf-8-sig"))
    assert open_images(table).classes == ["a, b", "c"]


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        (["0.0", "1.0", ""], ["0", "1"], [0, 1, -1]),  # as pandas writes whole numbers where one is missing
        (["7", "-1", "12"], ["7", "12"], [0, -1, 1]),
        (["01", "1", "01"], ["01", "1"], [0, 1, 0]),
        (["", "", ""], None, None),
    ],
)
def test_labels_of_a_table(labels: list[str], classes: list[str], numbers: list[int], folder: Path) -> None:
    rows = [f"pictures/ant/{row}.png,{label}" for row, label in enumerate(labels)]
    images = open_images(written(folder / "some.csv", "path,label", *rows))
    assert images.classes == classes and (numbers is None or images.labels.tolist() == numbers)


def test_measurements_are_no_labels_and_that_is_said(folder: Path) -> None:
    rows = [f"pictures/ant/{row}.png,{label}" for row, label in enumerate(["0.37", "2.5", "1"])]
    with pytest.warns(UserWarning, match=r"its labels are numbers such as 0\.37, which are no classes, and not used"):
        assert open_images(written(folder / "some.csv", "path,label", *rows)).labels is None


def test_a_table_without_labels_has_those_of_its_folders(folder: Path) -> None:
    paths = [f"pictures/{kind}/{row}.png" for kind in ("ant", "bee") for row in (0, 1)]
    assert open_images(written(folder / "a.csv", "path", *paths)).labels.tolist() == [0, 0, 1, 1]
    rows = [f"{path},{'test' if path.endswith('1.png') else 'train'}" for path in paths]
    divided = written(folder / "b.csv", "path,split", *rows)
    assert open_images(divided, split="test").labels.tolist() == [0, 1] and len(open_images(divided)) == 2


def test_classes_of_train_and_test_are_compared_as_names(folder: Path) -> None:
    rows = ["pictures/ant/0.png,Ant,train", "pictures/bee/0.png,bee,train", "pictures/ant/1.png,ant,test"]
    with pytest.warns(UserWarning, match="'Ant' and 'ant' are one class"):
        images = open_images(written(folder / "a.csv", "path,label,split", *rows), split="test")
    assert images.classes == ["Ant", "bee"] and images.labels.tolist() == [0]


def test_rows_that_are_no_images_or_have_no_split_are_counted(folder: Path) -> None:
    (folder / "pictures" / "notes.txt").write_text("no image")
    (folder / "pictures" / "bee" / "2.png").rename(folder / "pictures" / "bee" / "2")
    text = written(folder / "a.txt", "pictures/notes.txt", "pictures/bee/2", "pictures/ant/0.png")
    with pytest.warns(UserWarning, match=r"a\.txt: 2 images; left out 1 other file: notes\.txt"):
        assert values(open_images(text, image_size=4)) == [12, 0]
    table = written(folder / "a.csv", "path,split", "pictures/ant/0.png,train", "pictures/ant/1.png,")
    with pytest.warns(UserWarning, match="1 file without a split left out"):
        assert values(open_images(table, image_size=4)) == [0]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        (
            "a.txt",
            ["pictures/ant/0.png", "no/1.png", "no/2.png"],
            r"2 of 3 files cannot be found; the first, in line 2, is",
        ),
        ("a.txt", ["pictures/ant"], "the first, in line 1, is a folder: "),
        ("a.txt", ["pictures/ant/0.png", "./pictures/ant/0.png"], "lines 1 and 2 name the same file"),
        ("a.txt", ["", ""], "names no file"),
        ("a.txt", ["a.txt"], r"there are no images among its 1 file: 1 \.txt"),
        (
            "a.csv",
            ["name;klasse"],
            "classes is called label, labels, class, classname, target or category, of splits s",
        ),
        ("a.csv", ["pictures/ant/0.png,cat"], "its first line names no column of files, called path, file, filename"),
        ("a.csv", ["path,label", "pictures/ant/0.png"], "line 2 has 1 cells, and its first line 2"),
        ("a.csv", ["path,label", ",cat"], "line 2 names no file"),
        (
            "a.csv",
            ["path,fold", "pictures/ant/0.png,3"],
            "line 2: '3' is no split: .* columns.split=COLUMN:3 holds out that one",
        ),
        ("a.csv", ["path,split", "pictures/ant/0.png,test"], "its splits are test, and there is none to train on"),
        ("a.csv", ["path"], "names no file"),
        ("a.csv", [], "names no column of files"),
    ],
)
def test_a_list_that_cannot_be_used(name: str, lines: list[str], message: str, folder: Path) -> None:
    file = written(folder / name, *lines)
    with pytest.raises(UserError, match=message):
        open_images(file)


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"\xff\xfe\x00", b"path\n\x00", b"\xff\xfe\x00\xd8\x00\x00"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_bytes_that_are_no_list(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        open_images(folder / name)


def test_names_that_are_no_text_are_kept(folder: Path) -> None:
    odd = folder / "pictures" / "ant" / b"latin\xe9.png".decode("utf-8", "surrogateescape")
    (folder / "pictures" / "ant" / "0.png").rename(odd)
    (folder / "a.txt").write_bytes(b"pictures/ant/latin\xe9.png\n")
    assert values(open_images(folder / "a.txt", image_size=4)) == [0]


def test_a_pipe_in_a_list_is_missing_and_one_in_its_place_is_refused(folder: Path) -> None:
    text = written(folder / "a.txt", "pictures/queue.png")
    with pipe(folder / "pictures" / "queue.png"), pytest.raises(UserError, match="1 of 1 file cannot be found"):
        open_images(text)
    with pipe(folder / "b.txt"), pytest.raises(UserError):
        open_images(folder / "b.txt")


def test_a_list_that_changes_is_read_again(folder: Path) -> None:
    text = written(folder / "a.txt", "pictures/ant/0.png")
    assert len(open_images(text)) == 1
    written(text, "pictures/ant/0.png", "pictures/ant/1.png")
    assert len(open_images(text)) == 2


def test_a_plain_list_says_nothing(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_images(written(folder / "a.txt", "pictures/ant/0.png", "pictures/bee/0.png"))


def test_lines_of_a_path_and_the_number_of_its_class(folder: Path) -> None:
    """Lines as Caffe, mmpretrain and VideoMAE write them are read; names with blanks and numbers are names."""
    text = written(folder / "a.txt", "pictures/ant/0.png 7", "pictures/ant/1.png\t3", "pictures/bee/2.png  -1")
    with pytest.warns(UserWarning, match=r"a\.txt: its lines are read as paths and the numbers of their classes"):
        images = open_images(text, image_size=4)
    assert values(images) == [0, 1, 12] and images.classes == ["3", "7"] and images.labels.tolist() == [1, 0, -1]
    (folder / "pictures" / "bee" / "2.png").rename(folder / "pictures" / "bee" / "2.png 3")
    text = written(folder / "a.txt", "pictures/bee/2.png 3", "pictures/ant/0.png")
    assert values(open_images(text, image_size=4)) == [12, 0]


def test_columns_that_are_not_used_are_named(folder: Path) -> None:
    """A column of labels called `breed`: without a word there would be none."""
    table = written(folder / "a.csv", "file_name,breed,age", "pictures/ant/0.png,x,1", "pictures/bee/2.png,y,2")
    with pytest.warns(UserWarning, match="paths from 'file_name'; of the others, such as 'breed', 'age', none is used"):
        open_images(table)
