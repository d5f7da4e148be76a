"""recipes/look.py as a person types it, and a training from what it wrote."""

from pathlib import Path

import pytest
from PIL import Image

import sslkit
from sslkit.data.sources.named import open_images

TINY = ("method=simclr", "image_size=16", "batch_size=16", "epochs=1", "eval.tsne=0", "eval.k=3", "progress=false")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Forty digits as files in class folders, ten test images among them."""
    images = open_images("digits")
    for row in range(40):
        path = tmp_path / "mine" / ("test" if row % 4 == 3 else "train") / str(images.labels[row] % 2) / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.pixels[row, 0]).save(path)
    return tmp_path / "mine"


def test_a_run_from_a_manifest_is_one_of_its_images(digits: Path, typed) -> None:
    where = digits.parent
    done = typed("look", "data=mine", "progress=false", cwd=where)
    assert done.returncode == 0, done.stderr
    assert "data      mine: 40 images (30 train, 10 test), 2 classes, 8 x 8 pixels" in done.stdout
    assert "written   runs/look/mine.csv and runs/look/mine.html" in done.stdout
    assert "python recipes/train.py method=byol+dsa data=runs/look/mine.csv" in done.stdout
    table = where / "runs/look/mine.csv"
    lines = table.read_text(encoding="utf-8").splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("../../mine/train"))
    lines[row] += "blur"
    table.write_text("\n".join(lines), encoding="utf-8")
    done = typed("train", *TINY, "data=runs/look/mine.csv", "out=zoo", "name=run", cwd=where)
    assert done.returncode == 0, done.stderr
    assert sslkit.ZooEntry.load(where / "zoo" / "run").card["data"]["images"] == 29


def test_a_filter_is_typed_kept_and_printed(digits: Path, typed) -> None:
    where, chosen = digits.parent, "number < 30 or split == test"
    paths = [path.relative_to(where) for path in sorted(digits.rglob("*.png"))]  # those of test first
    rows = [f"{path},{path.parts[2]},{path.parts[1]},{number}" for number, path in enumerate(paths)]
    (where / "some.csv").write_text("\n".join(["path,class,split,number", *rows]))
    run = ("train", *TINY, "data=some.csv", "out=zoo", "name=run")
    done = typed(*run, f"columns.where={chosen}", cwd=where)
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert said.count(f"""'columns.where="{chosen}"'""") == 2, "to evaluate it, and to train again"
    card = sslkit.ZooEntry.load(where / "zoo" / "run").card
    assert card["data"]["images"] == 20 and card["config"]["columns"]["where"] == chosen
    done = typed(*run, "columns.where=class in (0, '1') and split != val", "resume=true", cwd=where)
    assert done.returncode == 2 and "columns.where" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give data=, as in: python recipes/look.py data=path/to/images"),
        (["data=nowhere"], "nowhere"),
        (["data=mine", "out=look.html"], "out=look.html must end with .csv or .parquet"),
        (["data=mine", "leave_out=[blank,coppies]"], "leave_out=coppies: it is a list of copies, near_copies, blank"),
        (["data=mine", "colums.group=x"], "colums"),
    ],
)
def test_bad_input_ends_in_one_line(digits: Path, typed, words: list[str], message: str) -> None:
    done = typed("look", *words, cwd=digits.parent)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1
