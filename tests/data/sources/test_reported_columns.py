"""Public reports about splits, labels and tables in other libraries, each written down as the data that it is about."""

import codecs
import gzip
import io
import json
import re
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sslkit.data.columns import Columns
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError


def pictures(folder: Path, *names: str) -> Path:
    for level, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), level).save(folder / name, format="PNG")
    return folder


def table(folder: Path, *lines: str, name: str = "list.csv", sign: str = ",") -> str:
    (folder / name).write_text("\n".join(line.replace(",", sign) for line in lines))
    return f"{folder / name}"


def read(source: str, part: str = "train", /, **columns: Any) -> tuple[Images, list[str]]:
    """The images of one split, and what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        images = open_images(source, split=part, image_size=4, cache=None, columns=columns)
    assert images.splits == splits(source, None, Columns(**columns))
    return images, [str(warning.message) for warning in said]


def names(images: Images) -> list[str]:
    return [images.image_name(row).rpartition("/")[2] for row in range(len(images))]


def classes(images: Images) -> list[str | None]:
    return [images.classes[label] if label >= 0 else None for label in images.labels]


@pytest.mark.parametrize("sign", [" ", "|"])
def test_several_diseases_in_one_text_are_no_class_of_their_own(sign: str, tmp_path: Path) -> None:
    """Lightning-Universe/lightning-flash#728: 11 classes of Plant Pathology where 6 are meant."""
    texts = ["scab", "rust", "complex", f"scab{sign}rust", f"complex{sign}rust{sign}scab"]
    pictures(tmp_path, *(f"{row}.jpg" for row in range(5)))
    source = table(tmp_path, "image,labels", *(f"{row}.jpg,{text}" for row, text in enumerate(texts)))
    images, _ = read(source, label="labels")
    assert images.classes == ["complex", "rust", "scab"]
    assert images.multi_labels.tolist() == [[-1, -1, 1], [-1, 1, -1], [1, -1, -1], [-1, 1, 1], [1, 1, 1]]


def test_findings_of_chest_x_rays_by_patient(tmp_path: Path) -> None:
    """jrzech/reproduce-chexnet#2: `Atelectasis|Infiltration|Pneumonia` of Data_Entry_2017.csv."""
    rows = ["0_000.png,Atelectasis|Infiltration|Pneumonia,0", "0_001.png,No Finding,0", "1_000.png,Pneumonia,1"]
    pictures(tmp_path, *(row.partition(",")[0] for row in rows))
    source = table(tmp_path, "Image Index,Finding Labels,Patient ID", *rows)
    images, _ = read(source, image="Image Index", label="Finding Labels", group="Patient ID")
    assert images.classes == ["Atelectasis", "Infiltration", "No Finding", "Pneumonia"]
    assert images.multi_labels.tolist() == [[1, 1, -1, 1], [-1, -1, 1, -1], [-1, -1, -1, 1]]
    assert images.groups[0] == images.groups[1] != images.groups[2]


@pytest.mark.parametrize("yes", ["True", "1", "1.0"])
@pytest.mark.parametrize("named", [{}, {"split": "is_valid"}], ids=["usual", "named"])
def test_is_valid_divides_by_its_name_wherever_it_stands(yes: str, named: dict[str, str], tmp_path: Path) -> None:
    """fastai/fastai#2444: the documented column is_valid was taken by its place, and another one divided."""
    pictures(tmp_path, "a.png", "b.png", "c.png")
    no = {"True": "False", "1": "0", "1.0": "0.0"}[yes]
    rows = [f"{no},a.png,1", f"{yes},b.png,0", f"{no},c.png,1"]
    source = table(tmp_path, "is_valid,filename,label", *rows)
    assert names(read(source, **named)[0]) == ["a.png", "c.png"]
    assert names(read(source, "test", **named)[0]) == ["b.png"]


def test_zeros_before_a_name_stay(tmp_path: Path) -> None:
    """fastai/fastai#1008: 0001 became 1, and no file was there."""
    pictures(tmp_path, "0001", "0002")
    images, _ = read(table(tmp_path, "id_code,label", "0001,cat", "0002,dog"), image="id_code")
    assert names(images) == ["0001", "0002"] and classes(images) == ["cat", "dog"]


def test_names_without_their_ending(tmp_path: Path) -> None:
    """keras-team/keras-preprocessing#88, #164, #169: 0 images of a table whose ids have no ending."""
    pictures(tmp_path / "train", "000bec.jpg", "00151.3.jpg")
    (tmp_path / "train" / "000bec.txt").write_text("a note")
    source = table(tmp_path, "id,breed", "000bec,boston_bull", "00151.3,dingo")
    images, said = read(f"{source}:{tmp_path}/train", image="id", label="breed")
    assert names(images) == ["000bec.jpg", "00151.3.jpg"] and classes(images) == ["boston_bull", "dingo"]
    assert any(re.search("2 of 2 paths are not there as written: 000bec is read as .*/000bec.jpg", t) for t in said)


def test_names_with_another_ending_unless_two_files_are_meant(tmp_path: Path) -> None:
    """keras-team/keras-preprocessing#92: names of .JPG where the files were converted."""
    pictures(tmp_path, "a.png", "b.png")
    source = table(tmp_path, "path,label", "a.JPG,x", "b.JPG,y")
    assert names(read(source)[0]) == ["a.png", "b.png"]
    pictures(tmp_path, "b.webp")
    with pytest.raises(UserError, match=r"1 of 2 files cannot be found; the first, in line 3, is not there"):
        read(source)


def test_only_the_files_of_the_table(tmp_path: Path) -> None:
    """keras-team/keras-preprocessing#60: all images of the folder came, whatever the table named."""
    pictures(tmp_path, "a.png", "b.png", "c.png")
    assert names(read(table(tmp_path, "filename,class", "c.png,x", "a.png,y"))[0]) == ["c.png", "a.png"]


def test_a_word_in_a_files_name_is_no_split(tmp_path: Path) -> None:
    """huggingface/datasets#5021, #7201: `photo of a train.jpg` alone was the split train, the others were left out."""
    files = ["photo of a cat.png", "photo of a train.png", "photo of test tubes.png", "train.png"]
    pictures(tmp_path, *files)
    table(tmp_path, "file_name,label", *(f"{name},{row % 2}" for row, name in enumerate(files)), name="metadata.csv")
    images, _ = read(str(tmp_path))
    assert sorted(names(images)) == sorted(files) and images.splits == ("train",)


@pytest.mark.parametrize("word", ["validation", "Valid", "VAL", "dev"])
def test_a_folder_of_validation_is_a_split_by_any_of_its_names(word: str, tmp_path: Path) -> None:
    """huggingface/datasets#4895: Unknown split validation, though the folder was there."""
    pictures(tmp_path, "train/1012.png", "test/7.png", f"{word}/234.png")
    assert names(read(str(tmp_path), "val")[0]) == ["234.png"]
    rows = ["train/1012.png,TRAIN", "test/7.png,Test", f"{word}/234.png,{word}"]
    assert names(read(table(tmp_path, "path,split", *rows), "val")[0]) == ["234.png"]


def test_fourteen_columns_of_labels_with_empty_cells(tmp_path: Path) -> None:
    """keras-team/keras-preprocessing#266, stanfordmlgroup/chexpert-labeler#9: CheXpert's findings; empty is no 0."""
    folder = tmp_path / "CheXpert-v1.0-small"
    tops = "CheXpert-v1.0-small/train"
    pictures(folder, "train/patient00001/study1/v.jpg", "train/patient00002/study1/v.jpg")
    rows = [f"{tops}/patient00001/study1/v.jpg,1.0,,0.0", f"{tops}/patient00002/study1/v.jpg,,1.0,1.0"]
    source = table(folder, "Path,No Finding,Edema,Fracture", *rows, name="train.csv")
    labels = ["No Finding", "Edema", "Fracture"]
    images, said = read(source, label=labels, group="(patient[0-9]+)/")
    assert images.multi_labels.tolist() == [[1, 0, -1], [0, 1, 1]] and images.classes == labels
    assert len(set(images.groups.tolist())) == 2
    assert any("2 of 2 paths are not there as written: CheXpert-v1.0-small/train/" in text for text in said)


def test_uncertain_is_not_guessed(tmp_path: Path) -> None:
    """stanfordmlgroup/chexpert-labeler#29, mlmed/torchxrayvision#22: -1, 0 and an empty cell mean three things."""
    pictures(tmp_path, "a.png", "b.png", "c.png")
    source = table(tmp_path, "path,edema,mass", "a.png,-1.0,1.0", "b.png,0.0,", "c.png,1.0,0.0")
    with pytest.raises(UserError, match="its column edema holds -1, 0 and 1, and -1 may be no or not known"):
        read(source, label=["edema", "mass"])


def test_a_patient_on_both_sides_of_a_split_is_counted(tmp_path: Path) -> None:
    """UCSD-AI4H/COVID-CT#11: `p23` in train and test; Lightning-Universe/lightning-Covid19#11."""
    rows = ["a.png,p23,train", "b.png,p24,train", "c.png,p23,test", "d.png,p25,test"]
    pictures(tmp_path, *(row[:5] for row in rows))
    _, said = read(table(tmp_path, "filename,patientid,split", *rows), "test", group="patientid")
    assert any("1 of 2 groups of test are in train, too (1 of 2 images)" in text for text in said)


@pytest.mark.parametrize("top", ["/home/somebody/data/", "C:\\Users\\somebody\\", "../../elsewhere/"])
def test_paths_of_another_machine(top: str, tmp_path: Path) -> None:
    """maps-as-data/MapReader#219: absolute paths in the annotations, and the folder had been moved."""
    pictures(tmp_path, "maps/a.png", "maps/b.png")
    sign = "\\" if "\\" in top else "/"
    source = table(tmp_path, "image_path,label", f"{top}maps{sign}a.png,rail", f"{top}maps{sign}b.png,none")
    images, said = read(source)
    assert names(images) == ["a.png", "b.png"] and any("are not there as written" in text for text in said)
    with pytest.raises(UserError, match=r"1 of 3 files cannot be found; the first, in line 4, is not there"):
        read(table(tmp_path, "image_path,label", "maps/a.png,x", "maps/b.png,y", f"{top}maps{sign}c.png,x"))


def test_a_class_that_test_lacks_moves_no_other(tmp_path: Path) -> None:
    """ultralytics/ultralytics#13936: without 180 in test, the images of 90 were taken for 180."""
    angles = ["0", "180", "270", "90"]
    pictures(tmp_path, *(f"train/{a}/{a}.png" for a in angles), *(f"test/{a}/t{a}.png" for a in angles if a != "180"))
    images, _ = read(str(tmp_path), "test")
    assert classes(images) == [name.partition(".")[0][1:] for name in names(images)]
    rows = [f"train/{a}/{a}.png,{a},train" for a in angles] + ["test/90/t90.png,90,test"]
    assert classes(read(table(tmp_path, "path,label,split", *rows), "test")[0]) == ["90"]


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_tables_of_spreadsheets(sign: str, tmp_path: Path) -> None:
    """pandas-dev/pandas#4793, biolab/orange3#7000: the mark of UTF-8 before the first column; semicolons; 1.0 for 1."""
    pictures(tmp_path, "a.png", "b.png")
    file = Path(table(tmp_path, "filename,label,split", "a.png,1.0,Train", "b.png,2,Test", sign=sign))
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes().replace(b"\n", b"\r\n"))
    images, _ = read(str(file))
    assert images.classes == ["1", "2"] and images.splits == ("train", "test")


def test_a_file_in_two_rows_is_refused(tmp_path: Path) -> None:
    """keras-team/keras-preprocessing#175: rows of the same file were dropped in silence."""
    pictures(tmp_path, "a.png", "b.png")
    with pytest.raises(UserError, match="lines 2 and 4 name the same file"):
        read(table(tmp_path, "path,class", "a.png,A", "b.png,B", "a.png,A"))


def test_folds_of_shards(tmp_path: Path) -> None:
    """webdataset/webdataset#101: folds of shards were written by hand, from digests of the samples' names."""
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for row in range(6):
            pictures(tmp_path, f"{row}.png")
            content = {"png": (tmp_path / f"{row}.png").read_bytes(), "json": json.dumps({"fold": row % 3}).encode()}
            for ending, member in content.items():
                entry = tarfile.TarInfo(f"{row}.{ending}")
                entry.size = len(member)
                tar.addfile(entry, io.BytesIO(member))
    assert names(read(f"shards:{tmp_path}/all.tar", "test", split="fold:2")[0]) == ["2.png", "5.png"]


def test_packed_tables(tmp_path: Path) -> None:
    """Tables of MIMIC-CXR come as .csv.gz."""
    pictures(tmp_path, "a.png", "b.png")
    packed = tmp_path / "split.csv.gz"
    packed.write_bytes(gzip.compress(b"path,split,label\na.png,train,x\nb.png,test,y\n"))
    assert names(read(str(packed), "test")[0]) == ["b.png"]
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(UserError, match=r"cannot read .*split.csv.gz: "):
        read(str(packed))


def test_tables_in_parquet(tmp_path: Path) -> None:
    """bghira/SimpleTuner#494, #505: metadata of images in Parquet, whose numbers are no texts."""
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    pictures(tmp_path, "a.png", "b.png", "c.png")
    columns = {"file_name": ["a.png", "b.png", "c.png"], "species": [3.0, None, 5.0], "site": [[1], [1], [2]]}
    parquet.write_table(pa.table({**columns, "is_test": [False, False, True]}), tmp_path / "list.parquet")
    source = f"{tmp_path}/list.parquet"
    images, _ = read(source, label="species")
    assert names(images) == ["a.png", "b.png"] and classes(images) == ["3", None] and images.splits == ("train", "test")
    assert read(source, label="site")[0].multi_labels.tolist() == [[1, -1], [1, -1]]
    with pytest.raises(UserError, match=r"columns.group=sight: .*list.parquet has no such column: did you mean 'site'"):
        read(source, group="sight")
    parquet.write_table(pa.table({"image": [b"bytes"]}), tmp_path / "images.parquet")
    with pytest.raises(UserError, match=r"images.parquet holds images themselves, in its column image, .* data=hf:"):
        read(f"{tmp_path}/images.parquet")
