"""Pictures of patients with labels, splits and groups in columns, in every source that has such."""

import io
import json
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

PATIENTS, SCANS = 10, 4  # of each patient, whose label is drawn by coin
LABELS = np.random.default_rng(0).integers(0, 2, PATIENTS)
NAMES = [f"p{patient}_{scan}.png" for patient in range(PATIENTS) for scan in range(SCANS)]


def picture(name: str) -> bytes:
    """A picture of 8 x 8 pixels, of its own for each name."""
    pixels = np.random.default_rng(zlib.crc32(name.encode())).integers(0, 255, (8, 8, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def patient_of(name: str) -> int:
    return int(name[1])


def split_of(name: str) -> str:
    return "test" if patient_of(name) >= 8 else "train"


def rows() -> list[dict[str, Any]]:
    return [
        {
            "file_name": name,
            "finding": ["none", "mass"][LABELS[patient_of(name)]],
            "patient": f"no {patient_of(name)}",
            "part": split_of(name),
            "edema": patient_of(name) % 2,
            "fracture": "" if patient_of(name) == 3 else patient_of(name) % 3 == 0,
        }
        for name in NAMES
    ]


def table(folder: Path) -> str:
    """A folder of pictures with a metadata.csv, named by its table."""
    return f"{of_folder(folder)}/metadata.csv"


def of_folder(folder: Path) -> str:
    for row in rows():
        (folder / row["file_name"]).write_bytes(picture(row["file_name"]))
    head = list(rows()[0])
    lines = [",".join(head), *(",".join(str(row[column]) for column in head) for row in rows())]
    (folder / "metadata.csv").write_text("\n".join(lines))
    return str(folder)


def of_shards(folder: Path) -> str:
    with tarfile.open(folder / "all.tar", "w") as tar:
        for row in rows():
            for ending, content in ((".png", picture(row["file_name"])), (".json", json.dumps(row).encode())):
                member = tarfile.TarInfo(row["file_name"].replace(".png", ending))
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return f"shards:{folder}/all.tar"


def of_parquet(folder: Path) -> str:
    datasets = pytest.importorskip("datasets")
    columns = {name: [str(row[name]) for row in rows()] for name in rows()[0] if name != "file_name"}
    images = [{"bytes": picture(row["file_name"]), "path": None} for row in rows()]
    features = datasets.Features({"image": datasets.Image(), **{name: datasets.Value("string") for name in columns}})
    datasets.Dataset.from_dict({"image": images, **columns}, features=features).to_parquet(f"{folder}/rows.parquet")
    return f"hf:{folder}"


SOURCES = {"folder": of_folder, "table": table, "shards": of_shards, "parquet": of_parquet}
COLUMNS = {"label": "finding", "split": "part", "group": "patient"}
