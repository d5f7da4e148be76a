"""Damaged files of every kind that is read: one line that names what is wrong, or a result; no file is changed.

Run on 2026-11-22 with 3,500 draws, seed 1, and 3,200 draws, seed 9, beside 3,780 draws of
tests/recipes/test_fuzz_settings.py: nothing found.
More: pytest -m nightly, or other draws by SSLKIT_FUZZ=5000 SSLKIT_FUZZ_SEED=3 pytest -n 0 tests/test_fuzz_files.py
"""

import contextlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import damaged_sets
import fuzzing
import numpy as np
import pytest
import safetensors.torch
import torch
from fuzzing import Kind, Reached
from named_pipes import pipe
from PIL import Image

import evaluation
import sslkit
from evaluation.features import cache
from evaluation.ranking.ranking import Ranking
from evaluation.ranking.summary import read_truth
from evaluation.report import write_report
from evaluation.results import store
from evaluation.results.records import Records
from sslkit import backbones
from sslkit.data.sources import open_images
from sslkit.errors import UserError
from sslkit.zoo import exporting

DRAWS = int(os.environ.get("SSLKIT_FUZZ", "80"))
SEED = int(os.environ.get("SSLKIT_FUZZ_SEED", "0"))
CHUNK = 20  # draws of one test, so that a failure names few
NIGHTLY = 3000  # draws


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[Kind]:
    """Those that are made in a moment."""
    sets = (damaged_sets.films, damaged_sets.coco, damaged_sets.voc)
    return made(tmp_path_factory.mktemp("files"), entries, weights, images, arrays, results, rankings, features, *sets)


@pytest.fixture(scope="module")
def all_kinds(kinds: list[Kind], tmp_path_factory: pytest.TempPathFactory) -> list[Kind]:
    """With those that need a whole zoo, an export to ONNX or a training."""
    more = (exports, reports, checkpoints, damaged_sets.stopped_trainings)
    return [*kinds, *made(tmp_path_factory.mktemp("more"), *more)]


def made(root: Path, *makers: Callable[[Path], list[Kind]]) -> list[Kind]:
    found = [kind for make in makers for kind in make(root / make.__name__)]
    for kind in found:
        with contextlib.suppress(Reached):
            kind.read()  # else damage would be refused for another reason
    return found


def entry(folder: Path, name: str = "narrow_resnet", image_size: int = 8, in_chans: int = 1) -> sslkit.ZooEntry:
    body = backbones.build(name, image_size=image_size, in_chans=in_chans)
    own = {"name": name, "lines": body.recipe.lines, "image_size": image_size, "in_chans": in_chans}
    normalize = {"mean": [0.3] * in_chans, "std": [0.4] * in_chans}
    card = {"backbone": own, "normalize": normalize, "method": "byol", "epochs": 3}
    return sslkit.zoo.save(folder, body.export(), card)


def entries(root: Path) -> list[Kind]:
    one = entry(root / "zoo" / "a")
    files = tuple(one.folder / name for name in ("card.json", "backbone.safetensors"))

    def table() -> None:
        str(sslkit.zoo.open(root / "zoo"))

    return [
        Kind("entry", files, lambda: sslkit.ZooEntry.load(one.folder).backbone()),
        Kind("zoo", files, table),
        Kind("judged entry", files, lambda: evaluation.load_model(one.folder)),
    ]


def exports(root: Path) -> list[Kind]:
    one, found = entry(root / "a", "resnet18", image_size=72, in_chans=3), []
    for to in exporting.names():
        path = sslkit.zoo.export(one, to)
        files = tuple(path.iterdir()) if path.is_dir() else (path, *path.parent.glob(f"{path.stem}*.json"))
        found.append(Kind(f"export {to}", files, lambda path=path: sslkit.zoo.load(path)))
    return found


def weights(root: Path) -> list[Kind]:
    root.mkdir()
    state = backbones.build("resnet10t", image_size=72, in_chans=3).export()
    safetensors.torch.save_file(state, root / "w.safetensors")
    torch.save(state, root / "w.pth")
    return [
        Kind(path.name, (path,), lambda path=path: evaluation.load_model(f"timm:resnet10t:{path}"))
        for path in (root / "w.safetensors", root / "w.pth")
    ]


def images(root: Path) -> list[Kind]:
    pixels = open_images("clipart").__getitems__(list(range(4)))["images"].permute(0, 2, 3, 1).numpy()
    for number, one in enumerate(pixels):
        for ending in ("png", "jpg", "webp"):
            path = root / f"class{number % 2}" / f"{number}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(one).save(path)

    def read(on_error: str) -> None:
        opened = open_images(str(root), image_size=32, on_error=on_error)
        opened.__getitems__(list(range(len(opened))))

    files = tuple(sorted(root.rglob("*.*")))
    return [Kind(f"images, {how}", files, lambda how=how: read(how)) for how in ("skip", "raise")]


def arrays(root: Path) -> list[Kind]:
    root.mkdir()
    digits = open_images("digits")
    path, packed = root / "digits.npz", root / "packed.npz"
    np.savez(path, x_train=digits.pixels[:40, 0], y_train=digits.labels[:40])
    np.savez_compressed(packed, x_train=digits.pixels[:40, 0], y_train=digits.labels[:40])
    return [
        Kind(one.name, (one,), lambda one=one: open_images(str(one)).__getitems__([0, 39])) for one in (path, packed)
    ]


def results(root: Path) -> list[Kind]:
    one = entry(root / "a")
    x, y = _features()
    store.append(one.folder, replace(evaluation.knn((x, y), (x + 0.01, y), k=3), model="a", data="made"))
    records = Records(root / "records.jsonl")
    for number in range(3):
        records.add({"number": number}, {"value": number / 2, "names": ["a", "b"]})
    outcomes = tuple((one.folder / "outcomes").iterdir())
    return [
        Kind("results", (one.folder / "results.jsonl", *outcomes), lambda: store.read(one.folder)),
        Kind("records", (records.path,), lambda: Records(records.path).read()),
    ]


def rankings(root: Path) -> list[Kind]:
    x, y = _features()
    ranking = evaluation.rank({"a": (x, y), "b": (x[:, :5], y)}, metrics=["logme"], truth=[0.5, 0.25], bootstrap=4)
    path, truth = ranking.to_json(root / "made.json"), root / "truth.json"
    truth.write_text(json.dumps({"made": {"a": 0.5, "b": 0.25}}))
    return [
        Kind("ranking", (path,), lambda: Ranking.from_json(path).table()),
        Kind("truth", (truth,), lambda: read_truth(truth)),
    ]


def reports(root: Path) -> list[Kind]:
    from report_zoo import make_zoo, write_study

    made = make_zoo(root)
    study = write_study(root / "study.json")
    own = [path for path in made.rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl", ".csv", ".png")]
    files = (*own, *(root / "ranking").iterdir(), study)
    out = root.parent / "report.html"
    return [Kind("report", files, lambda: write_report(made, out, rankings=root / "ranking", study=study))]


def features(root: Path) -> list[Kind]:
    x, y = _features()
    partial = cache.Partial(root, "key", len(x), x.shape[1], len(x))
    partial.prepare()
    partial.open()
    partial.write(0, x, np.ones(len(x), bool))
    partial.flush()
    partial.publish(root / "key", {cache.LABELS: y, cache.IDS: np.arange(len(y)).astype(str)}, {"model": "a"})
    files = tuple(path for path in (root / "key").iterdir() if path.name != cache.ROWS)
    return [Kind("features", files, lambda: cache.read_whole(root / "key"), may_mend=True)]


def checkpoints(root: Path) -> list[Kind]:
    """A run that was stopped after its first epoch of two, resumed as far as training would begin."""
    root.mkdir()
    digits = open_images("digits")
    np.savez(root / "digits.npz", x_train=digits.pixels[:64, 0], y_train=digits.labels[:64])
    config = {
        "method": "byol",
        "data": {"source": str(root / "digits.npz"), "batch_size": 32},
        "epochs": 2,
        "name": "run",
        "out": str(root / "zoo"),
        "eval": {"k": 3, "tsne": 0},
        "trainer": {"progress": False, "accelerator": "cpu"},
    }
    _stopped(config)
    run = root / "zoo" / "run"
    files = (run / "config.yaml", *sorted((run / "checkpoints").iterdir()))
    return [Kind("resumed run", files, lambda: _resumed(config), may_mend=True)]


def _stopped(config: dict[str, Any]) -> None:
    from sslkit.training.monitor import Monitor

    def stop(*_: Any) -> None:
        raise Reached

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Reached):
        patch.setattr(Monitor, "on_train_epoch_start", lambda self, trainer, module: trainer.current_epoch and stop())
        sslkit.pretrain(config)


def _resumed(config: dict[str, Any]) -> None:
    from sslkit.training.module import Pretraining

    def stop(*_: Any) -> None:
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pretraining, "on_train_epoch_start", stop, raising=False)
        sslkit.pretrain({**config, "resume": True})


def _features() -> tuple[np.ndarray, np.ndarray]:
    digits = open_images("digits", split="train")
    return digits.pixels[:60].reshape(60, -1)[:, 10:30].astype(np.float32), digits.labels[:60] % 3


def fault(kind: Kind, file: Path, content: bytes) -> str:
    """The fault in reading a damaged file; "" if there is none."""
    whole = file.read_bytes()
    try:
        file.write_bytes(content)
        return _read(kind, file, content)
    finally:
        file.write_bytes(whole)


def fault_of_a_pipe(kind: Kind, file: Path, aside: Path) -> str:
    """The fault in reading a named pipe that stands in a file's place; "" if there is none."""
    os.replace(file, aside)
    try:
        with pipe(file):
            return _said(kind, file)
    except AssertionError as error:
        return str(error)
    finally:
        os.replace(aside, file)


def _read(kind: Kind, file: Path, content: bytes) -> str:
    before = fuzzing.snapshot(file.parent)
    if said := _said(kind, file):
        return said
    if not kind.may_mend and fuzzing.snapshot(file.parent) != before:
        return "reading it changed files"
    return "" if file.read_bytes() == content or kind.may_mend else "reading it changed it"


def _said(kind: Kind, file: Path) -> str:
    """The fault in what reading says of a file that is damaged; "" if there is none."""
    try:
        with fuzzing.time_limit(fuzzing.SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read()
    except Reached:
        pass
    except UserError as error:
        said = str(error)
        if "\n" in said.strip() or not said.strip() or len(said) > 1500:
            return f"an error of {said.count(chr(10)) + 1} lines and {len(said)} characters: {said[:200]}"
        if file.stem not in said and file.parent.name not in said:
            return f"the error does not name the file: {said[:300]}"
    except BaseException as error:
        return f"{type(error).__name__} escaped: {str(error)[:300]}"
    return ""


def drawn(rng: np.random.Generator, kinds: list[Kind]) -> tuple[Kind, Path, bytes]:
    kind = kinds[rng.integers(len(kinds))]
    file = kind.files[rng.integers(len(kind.files))]
    whole = file.read_bytes()
    if file.suffix in (".json", ".jsonl") and rng.random() < 0.6:
        lines = [json.loads(line) for line in whole.splitlines()] if file.suffix == ".jsonl" else [json.loads(whole)]
        lines[-1] = fuzzing.other_json(lines[-1], rng)
        return kind, file, "\n".join(map(json.dumps, lines)).encode()
    return kind, file, fuzzing.damaged(whole, rng)


def check(seed: int, chunk: int, kinds: list[Kind]) -> None:
    rng, faults = np.random.default_rng([seed, chunk]), []
    for _ in range(CHUNK):
        kind, file, content = drawn(rng, kinds)
        if said := fault(kind, file, content):
            faults.append(f"{kind.name}, {file.name} of {len(content)} bytes: {said}")
    assert not faults, "\n".join(faults)


def check_pipes(kinds: list[Kind], aside: Path) -> None:
    """One file of each ending of every kind, except for caches and records, which nobody else writes."""
    foreign = [kind for kind in kinds if not kind.may_mend and kind.name != "records"]
    one_of_each = {(kind.name, file.suffix): (kind, file) for kind in foreign for file in kind.files}
    found = {f"{kind.name}, {file.name}": fault_of_a_pipe(kind, file, aside) for kind, file in one_of_each.values()}
    faults = [f"{name}: {said}" for name, said in found.items() if said]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("chunk", range(-(-DRAWS // CHUNK)))
def test_a_damaged_file_is_named_in_one_line_or_read(chunk: int, kinds: list[Kind], capsys: Any) -> None:
    check(SEED, chunk, kinds)


def test_a_pipe_in_the_place_of_a_file_is_never_opened(kinds: list[Kind], tmp_path: Path, capsys: Any) -> None:
    check_pipes(kinds, tmp_path / "aside")


@pytest.mark.slow
def test_nor_is_one_in_the_place_of_those_that_take_long_to_make(
    all_kinds: list[Kind], tmp_path: Path, capsys: Any
) -> None:
    check_pipes(all_kinds, tmp_path / "aside")


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(-(-DRAWS // CHUNK)))
def test_so_are_those_that_take_long_to_make(chunk: int, all_kinds: list[Kind], capsys: Any) -> None:
    check(SEED, chunk, all_kinds)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(NIGHTLY // CHUNK))
def test_thousands_of_damaged_files(chunk: int, all_kinds: list[Kind], capsys: Any) -> None:
    check(SEED + 1, chunk, all_kinds)
