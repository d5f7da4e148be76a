"""Write an embedding to one .npz or .parquet file, whole or not at all, and read it."""

import importlib.util
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.embedding.table import Embedding
from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular
from sslkit.files.writing import write_whole

FORMAT = 1  # of the file: raised when an older one would be misread
KINDS = (".npz", ".parquet")
SAME = ("digest", "data", "image_size", "resize", "interpolation", "precision")  # of two embeddings that do not differ
PARQUET_ROWS = 2**14  # of a row group, which is held in memory


def write(embedding: Embedding, path: str | Path) -> None:
    """Write an embedding; the same embedding gives the same bytes.

    .npz: `features` (N, D) float32, `paths`, `labels`, `classes`, `splits`, `unreadable`, the model's name `model` and
        sha256 `digest`, `mean` and `std`, and `about`, a JSON text with everything about model, data and preparation.
    .parquet: columns path, split, label, class, features, and `about` with classes and unreadable images as the
        metadata "sslkit"; needs pyarrow.
    Raises UserError for another ending, if pyarrow is missing, and if the file cannot be written, for example because
    the disk is full; an older file is then unchanged.
    """
    path = Path(path)
    {".npz": _write_npz, ".parquet": _write_parquet}[check_ending(path)](embedding, path)


def read(path: str | Path) -> Embedding:
    """Read an embedding, without pickles. Raises UserError for a file that `write` did not write."""
    path = Path(path)
    kind = check_ending(path)
    with _reading(path):
        return {".npz": _read_npz, ".parquet": _read_parquet}[kind](regular(path))


def check_ending(path: Path) -> str:
    """Return ".npz" or ".parquet". Raises UserError for another ending, and for .parquet without pyarrow."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        how = f"; as text: numpy.savetxt({path.name!r}, numpy.load({path.stem + '.npz'!r})['features'], delimiter=',')"
        raise UserError(f"out={path} must end in .npz or .parquet{how if kind == '.csv' else ''}")
    if kind == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"out={path} needs pyarrow: pip install pyarrow, or name out=FILE.npz")
    return kind


def check_out(path: Path, about: dict[str, Any]) -> None:
    """Raises UserError if `path` cannot be an output, or has features of another model, data set or preparation."""
    check_ending(path)
    if path.is_dir():
        raise UserError(f"out={path} is a folder: name a file in it")
    if not path.exists():
        return
    old = read_about(path)
    wrong = [name for name in SAME if old.get(name) != about[name]]
    if wrong:
        other = "another model" if wrong[0] == "digest" else f"another {wrong[0]}"
        was, now = ((record.get("model"), record.get("data")) for record in (old, about))
        raise UserError(
            f"{path} has features of {other}: it is of {was[0]} on {was[1]}, this is {now[0]} on {now[1]}; "
            "name another out=, or remove it"
        )


def read_about(path: Path) -> dict[str, Any]:
    """Return what a file says about its model, data and preparation. Raises UserError as in `read`."""
    with _reading(path):
        if check_ending(regular(path)) == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return _parse_about(str(file["about"]))
        from pyarrow import parquet

        return _parse_about(parquet.read_schema(path).metadata[b"sslkit"])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise UserError for what a file that `write` did not write makes numpy, pyarrow and zipfile raise."""
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        raise UserError(
            f"{path} has no features of recipes/embed.py ({first_line(error)}): name another file, or remove it"
        ) from error


def _parse_about(text: str | bytes) -> dict[str, Any]:
    about = json.loads(text)
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}")
    return about


def _write_npz(embedding: Embedding, path: Path) -> None:
    about = embedding.about
    arrays = {
        "features": embedding.x,
        "paths": embedding.paths,
        "labels": embedding.y,
        "classes": np.array(list(embedding.classes), dtype=str),
        "splits": embedding.splits,
        "unreadable": np.array(embedding.unreadable, dtype=str),
        "model": np.array(about["model"]),
        "digest": np.array(about["digest"]),
        "mean": np.array(about["mean"]),
        "std": np.array(about["std"]),
        "about": np.array(json.dumps({**about, "format": FORMAT})),
    }
    with write_whole(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            _add(archive, name, array)


def _add(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Add an array in pieces, as it may be larger than the memory; texts of fixed width are compressed."""
    member = zipfile.ZipInfo(f"{name}.npy")  # its date is fixed
    member.compress_type = zipfile.ZIP_DEFLATED if array.dtype.kind == "U" else zipfile.ZIP_STORED
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _read_npz(path: Path) -> Embedding:
    with np.load(path, allow_pickle=False) as file:
        about = _parse_about(str(file["about"]))
        x, paths, y, splits = (file[name] for name in ("features", "paths", "labels", "splits"))
        classes, unreadable = (file[name].tolist() for name in ("classes", "unreadable"))
    if len({len(array) for array in (x, paths, y, splits)}) != 1 or x.ndim != 2:
        raise ValueError("its arrays have different lengths")
    return Embedding(x, paths, y, classes, splits, tuple(unreadable), about)


def _write_parquet(embedding: Embedding, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    more = {"classes": list(embedding.classes), "unreadable": list(embedding.unreadable), "format": FORMAT}
    several = embedding.y.ndim == 2
    schema = pa.schema(
        {
            "path": pa.string(),
            "split": pa.string(),
            "label": pa.list_(pa.int8(), embedding.y.shape[1]) if several else pa.int64(),
            **({} if several else {"class": pa.string()}),
            "features": pa.list_(pa.float32(), embedding.x.shape[1]),
        },
        metadata={"sslkit": json.dumps({**embedding.about, **more})},
    )
    with write_whole(path) as partial, parquet.ParquetWriter(partial, schema) as writer:
        for start in range(0, len(embedding), PARQUET_ROWS):
            writer.write_table(_table(embedding, slice(start, start + PARQUET_ROWS), schema))


def _table(embedding: Embedding, rows: slice, schema: Any) -> Any:
    import pyarrow as pa

    y = embedding.y[rows]
    paths = [path.encode(errors="replace").decode() for path in embedding.paths[rows].tolist()]  # bytes may be no text
    columns = {"path": paths, "split": embedding.splits[rows].tolist()}
    if y.ndim == 2:
        columns["label"] = pa.FixedSizeListArray.from_arrays(pa.array(y.ravel()), y.shape[1])
    else:
        columns |= {"label": y, "class": [embedding.classes[label] if label >= 0 else None for label in y]}
    x = np.ascontiguousarray(embedding.x[rows])
    columns["features"] = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    return pa.table(columns, schema=schema)


def _read_parquet(path: Path) -> Embedding:
    from pyarrow import parquet

    table = parquet.read_table(path)
    about = _parse_about(table.schema.metadata[b"sslkit"])
    classes, unreadable = about.pop("classes"), about.pop("unreadable")
    x, y = (_array(table[name].combine_chunks()) for name in ("features", "label"))
    paths, splits = (np.array(table[name].to_pylist(), dtype=str) for name in ("path", "split"))
    return Embedding(x, paths, y, classes, splits, tuple(unreadable), about)


def _array(column: Any) -> np.ndarray:
    """(N,) of a plain column, (N, D) of a column of lists of one length."""
    if hasattr(column.type, "list_size"):
        return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return column.to_numpy()
