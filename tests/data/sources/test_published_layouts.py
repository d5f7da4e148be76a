"""Data sets as they are published, each in small: they open with the documented words, or one line says how."""

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sslkit.data.images import Images
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


@dataclass(frozen=True)
class Layout:
    """files: pictures below a folder. tables: other files, with their lines. data, columns: what is typed there.

    labels, groups: of the images of `split`, in order; groups by any names. says: a part of what is said. error: in the
    place of all, where it cannot be read in this way.
    """

    files: tuple[str, ...]
    data: str
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[Any, ...] = ()
    groups: str = ""
    split: str = "train"
    says: str = ""
    error: str = ""


HAM = (
    "lesion_id,image_id,dx,dx_type,age,sex,localization",
    "HAM_0000118,ISIC_0027419,bkl,histo,80.0,male,scalp",
    "HAM_0000118,ISIC_0025030,bkl,histo,80.0,male,scalp",
    "HAM_0002730,ISIC_0026769,mel,histo,80.0,male,scalp",
)
HAM_FILES = tuple(f"HAM10000_images_part_{part}/{name}.jpg" for part, name in ((1, "ISIC_0027419"),))
ISIC_2019 = ("image,MEL,NV,BCC,UNK", "ISIC_0000000,0.0,1.0,0.0,0.0", "ISIC_0000002,1.0,0.0,0.0,0.0")
ISIC_2020 = (
    "image_name,patient_id,sex,age_approx,anatom_site_general_challenge,diagnosis,benign_malignant,target",
    "ISIC_2637011,IP_7279968,male,45.0,head/neck,unknown,benign,0",
    "ISIC_0015719,IP_3075186,female,45.0,upper extremity,unknown,malignant,1",
    "ISIC_0052212,IP_7279968,female,50.0,lower extremity,nevus,benign,0",
)
WILD = (
    "category_id,date_captured,file_name,frame_num,id,location,rights_holder,seq_id,seq_num_frames,width,height",
    "19,2011-05-13 23:43:18,5998cfa4.jpg,1,5998cfa4,33,Justin Brown,6f084ccc,3,1024,747",
    "0,2012-03-17 03:48:44,588a679f.jpg,2,588a679f,115,Justin Brown,6f12067d,3,1024,747",
    "19,2014-05-11 11:56:46,59279ce3.jpg,1,59279ce3,33,Erin Boydston,6faa92d1,1,1024,747",
)
EUROSAT = (",Filename,Label,ClassName", "0,AnnualCrop/AnnualCrop_142.jpg,0,AnnualCrop", "1,River/River_7.jpg,8,River")
RSNA = (
    "patientId,x,y,width,height,Target",
    "0004cfab-14fd,,,,,0",
    "00436515-870c,264.0,152.0,213.0,379.0,1",
    "00436515-870c,562.0,152.0,256.0,453.0,1",
)
CAMELYON = (
    ",patient,node,x_coord,y_coord,tumor,slide,center,split",
    "0,4,4,3328,21792,1,0,0,0",
    "1,17,1,3200,22272,0,4,2,1",
)
CAMELYON_FILES = tuple(
    f"patches/patient_0{patient}_node_{node}/patch_patient_0{patient}_node_{node}_x_{x}_y_{y}.png"
    for patient, node, x, y in (("04", 4, 3328, 21792), ("17", 1, 3200, 22272), ("17", 2, 64, 64))
)
IN_SHOP = (
    "3",
    "image_name item_id evaluation_status",
    "img/WOMEN/Dresses/id_00000002/02_1_front.jpg                  id_00000002 train",
    "img/WOMEN/Dresses/id_00000002/02_2_side.jpg                   id_00000002 query",
    "img/MEN/Denim/id_00000080/01_1_front.jpg                      id_00000080 gallery",
)
WILDS_SPLITS = ("split,filename,y,location_remapped", "train,a.jpg,3,1", "id_val,b.jpg,3,1", "test,c.jpg,3,2")
NO_SOURCE = "is a file: give the folder that holds the images, a .npz file of arrays, or a list of files, .txt or .csv"

LAYOUTS = {
    "HAM10000": Layout(
        (*HAM_FILES, "HAM10000_images_part_2/ISIC_0025030.jpg", "HAM10000_images_part_2/ISIC_0026769.jpg"),
        "HAM10000_metadata.csv",
        {"HAM10000_metadata.csv": HAM},
        {"label": "dx", "group": "lesion_id"},
        ("bkl", "bkl", "mel"),
        groups="aab",
        says="3 of 3 paths are not there as written: ISIC_0027419 is read as",
    ),
    "HAM10000 in part": Layout(
        HAM_FILES,
        "HAM10000_metadata.csv",
        {"HAM10000_metadata.csv": HAM},
        {"label": "dx"},
        error="2 of 3 files cannot be found; the first, in line 3, is not there: ",
    ),
    "ISIC 2019": Layout(
        ("ISIC_2019_Training_Input/ISIC_0000000.jpg", "ISIC_2019_Training_Input/ISIC_0000002.jpg"),
        "ISIC_2019_Training_GroundTruth.csv",
        {"ISIC_2019_Training_GroundTruth.csv": ISIC_2019},
        {"label": ["MEL", "NV", "BCC"]},
        (["NV"], ["MEL"]),
        says="columns.label=MEL, NV, BCC: no image of train has 1 of 3 classes: BCC",
    ),
    "ISIC 2020": Layout(
        tuple(f"train/{name}.jpg" for name in ("ISIC_2637011", "ISIC_0015719", "ISIC_0052212")),
        "train.csv:train",
        {"train.csv": ISIC_2020},
        {"image": "image_name", "group": "patient_id"},
        ("0", "1", "0"),
        groups="aba",
        says="labels from 'target'",
    ),
    "iWildCam": Layout(
        ("train_images/5998cfa4.jpg", "train_images/588a679f.jpg", "train_images/59279ce3.jpg"),
        "train.csv:train_images",
        {"train.csv": WILD},
        {"group": "location"},
        ("19", "0", "19"),
        groups="aba",
        says="labels from 'category_id'",
    ),
    "iWildCam of WILDS": Layout(
        ("train/a.jpg", "train/b.jpg", "train/c.jpg"),
        "metadata.csv:train",
        {"metadata.csv": WILDS_SPLITS},
        {"label": "y", "group": "location_remapped"},
        error="'id_val' is no split: these are called train, val (or valid, validation, dev) and test; of folds, "
        "columns.split=COLUMN:id_val holds out that one",
    ),
    "iWildCam's annotations": Layout(
        ("train/a.jpg",),
        "iwildcam2021_train_annotations.json",
        {"iwildcam2021_train_annotations.json": ('{"images": [], "annotations": [], "categories": []}',)},
        error=NO_SOURCE,
    ),
    "PCam": Layout(
        (),
        "camelyonpatch_level_2_split_train_x.h5",
        {"camelyonpatch_level_2_split_train_x.h5": ("\x89HDF",)},
        error=NO_SOURCE,
    ),
    "EuroSAT": Layout(
        ("AnnualCrop/AnnualCrop_142.jpg", "River/River_7.jpg", "AnnualCrop/AnnualCrop_2.jpg"),
        "train.csv,test.csv",
        {"train.csv": EUROSAT, "test.csv": (EUROSAT[0], "0,AnnualCrop/AnnualCrop_2.jpg,0,AnnualCrop")},
        {"label": "ClassName"},
        ("AnnualCrop",),
        split="test",
    ),
    "RSNA pneumonia": Layout(
        ("stage_2_train_images/0004cfab-14fd.png", "stage_2_train_images/00436515-870c.png"),
        "stage_2_train_labels.csv",
        {"stage_2_train_labels.csv": RSNA},
        {"image": "patientId", "label": "Target"},
        error="lines 3 and 4 name the same file, ",
    ),
    "RSNA pneumonia, a row an image": Layout(
        ("stage_2_train_images/0004cfab-14fd.png", "stage_2_train_images/00436515-870c.png"),
        "stage_2_train_labels.csv",
        {"stage_2_train_labels.csv": RSNA[:3]},
        {"image": "patientId", "label": "Target"},
        ("0", "1"),
    ),
    "PlantVillage": Layout(
        ("color/Tomato___Late_blight/0a.JPG", "color/Tomato___healthy/1b.JPG", "color/Corn_(maize)___healthy/2c.jpg"),
        "color",
        labels=("Corn_(maize)___healthy", "Tomato___Late_blight", "Tomato___healthy"),
    ),
    "Camelyon17 of WILDS, by nodes": Layout(
        CAMELYON_FILES,
        "patches",
        columns={"group": "(patient_[0-9]+)_node"},
        labels=tuple(name.split("/")[1] for name in CAMELYON_FILES),
        groups="abb",
    ),
    "Camelyon17 of WILDS": Layout(
        CAMELYON_FILES,
        "metadata.csv",
        {"metadata.csv": CAMELYON},
        {"label": "tumor", "group": "patient"},
        error="its first line names no column of files, called path, file, filename, filepath, image",
    ),
    "Camelyon17 with a column of files": Layout(
        CAMELYON_FILES[:2],
        "metadata.csv",
        {
            "metadata.csv": (
                f"{CAMELYON[0]},file",
                *(f"{line},{name}" for line, name in zip(CAMELYON[1:], CAMELYON_FILES, strict=False)),
            )
        },
        {"label": "tumor", "group": "patient"},
        error="'0' is no split: these are called train, val (or valid, validation, dev) and test; of folds, "
        "columns.split=COLUMN:0 holds out that one",
    ),
    "DeepFashion In-shop": Layout(
        tuple(line.split()[0] for line in IN_SHOP[2:]),
        "list_eval_partition.txt",
        {"list_eval_partition.txt": IN_SHOP},
        error="begins with a count and is a table between blanks: write it with commas, tail -n +2 ",
    ),
    "DeepFashion In-shop with commas": Layout(
        tuple(line.split()[0] for line in IN_SHOP[2:]),
        "list.csv",
        {"list.csv": tuple(",".join(line.split()) for line in IN_SHOP[1:])},
        {"image": "image_name", "label": "item_id", "split": "evaluation_status:gallery"},
        ("id_00000002", "id_00000002"),
        says="columns.label=item_id: no image of train has 1 of 2 classes: id_00000080",
    ),
}


def write(layout: Layout, folder: Path) -> None:
    for level, name in enumerate(layout.files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), level).save(folder / name)
    for name, lines in layout.tables.items():
        (folder / name).write_text("\n".join(lines))


def open_layout(layout: Layout) -> tuple[Images, list[str]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        images = open_images(layout.data, split=layout.split, image_size=4, cache=None, columns=dict(layout.columns))
    return images, [str(warning.message) for warning in said]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", LAYOUTS)
def test_it_opens_or_one_line_says_what_to_type(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = LAYOUTS[name]
    monkeypatch.chdir(tmp_path)
    write(layout, tmp_path)
    if layout.error:
        with pytest.raises(UserError) as raised:
            open_layout(layout)
        assert layout.error in str(raised.value) and "\n" not in str(raised.value)
        return
    images, said = open_layout(layout)
    if images.multi_labels is None:
        labels = [images.classes[label] for label in images.labels]
    else:
        labels = [[images.classes[k] for k in (row == 1).nonzero()[0]] for row in images.multi_labels]
    assert tuple(labels) == layout.labels
    assert layout.says in "\n".join(said)
    if layout.groups:
        same = [[one == other for other in layout.groups] for one in layout.groups]
        assert (images.groups[:, None] == images.groups).tolist() == same


def test_pcam_as_hugging_face_has_it(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "png")
    images = [{"bytes": stream.getvalue(), "path": None}] * 2
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])}
    for split in ("train", "validation", "test"):
        rows = datasets.Dataset.from_dict({"image": images, "label": [0, 1]}, features=datasets.Features(kinds))
        rows.to_parquet(f"{tmp_path}/{split}-00000-of-00001.parquet")
    opened = open_images(f"hf:{tmp_path}", split="val", image_size=4, cache=None)
    assert opened.splits == ("train", "val", "test") and opened.classes == ["no", "yes"]
