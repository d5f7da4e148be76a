"""Files of every kind that is read, whole, and what reads each: the fuzz tests damage them."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from fuzzing import Kind, Reached
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
from sslkit.data.sources.named import open_images, splits
from sslkit.files.blocks import Blocks
from sslkit.zoo import exporting


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
        Kind("judged entry", files, lambda: sslkit.load(one.folder)),
    ]


def exports(root: Path) -> list[Kind]:
    one, found = entry(root / "a", "resnet18", image_size=72, in_chans=3), []
    for to in sorted({*exporting.names()} - {"torch_export"}):  # it is not read back
        path = sslkit.zoo.export(one, to)
        files = tuple(path.iterdir()) if path.is_dir() else (path, *path.parent.glob(f"{path.stem}*.json"))
        found.append(Kind(f"export {to}", files, lambda path=path: sslkit.load(path)))
    return found


def weights(root: Path) -> list[Kind]:
    root.mkdir()
    state = backbones.build("resnet10t", image_size=72, in_chans=3).export()
    safetensors.torch.save_file(state, root / "w.safetensors")
    torch.save(state, root / "w.pth")
    return [
        Kind(path.name, (path,), lambda path=path: sslkit.load(f"timm:resnet10t:{path}"))
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


def lists(root: Path) -> list[Kind]:
    """A text file and a table that name pictures, and both together."""
    pixels = open_images("clipart").__getitems__(list(range(6)))["images"].permute(0, 2, 3, 1).numpy()
    paths = [f"class{number % 2}/{number}.png" for number in range(6)]
    for path, one in zip(paths, pixels, strict=True):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(one).save(root / path)
    text, table = root / "lines.txt", root / "table.csv"
    text.write_text("".join(f"{path}\n" for path in paths[:2]))
    rows = [
        f"{path},{path[5]},{split}\n" for path, split in zip(paths[2:], ("train", "train", "val", "val"), strict=True)
    ]
    table.write_text("path,label,split\n" + "".join(rows))

    def read(source: str) -> None:
        for split in splits(source):
            open_images(source, split=split, image_size=32).__getitems__([0])

    return [
        Kind("text", (text,), lambda: read(str(text))),
        Kind("table", (table,), lambda: read(str(table))),
        Kind("text from elsewhere", (text,), lambda: read(f"{text}:{root}")),
        Kind("both", (text, table), lambda: read(f"{text},{table}")),
    ]


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
    blocks = Blocks(root / "key.part", len(x), len(x), cache.WHAT)
    identity = {cache.DIGESTS: np.arange(len(x)), cache.LIKENESS: np.zeros((len(x), 4), np.int64)}
    blocks.write(range(len(x)), **{cache.ROWS: x, cache.KEPT: np.ones(len(x), bool), **identity})
    blocks.flush()
    with blocks.publish(root / "key") as whole:
        beside = {cache.LABELS: y, cache.IDS: np.arange(len(y)).astype(str)}
        cache.write_features(blocks, whole, x.shape[1], beside, {"model": "a"})
    files = tuple(path for path in (root / "key").iterdir() if path.name != cache.ROWS)
    return [Kind("features", files, lambda: cache.features_store(root / "key").read(), may_mend=True)]


def checkpoints(root: Path) -> list[Kind]:
    """A run that was stopped after its first epoch of two, resumed as far as training would begin."""
    root.mkdir()
    digits = open_images("digits")
    np.savez(root / "digits.npz", x_train=digits.pixels[:64, 0], y_train=digits.labels[:64])
    config = {
        "method": "byol",
        "batch_size": 32,
        "data": {"source": str(root / "digits.npz")},
        "epochs": 2,
        "name": "run",
        "out": str(root / "zoo"),
        "eval": {"k": 3, "tsne": 0},
        "progress": False,
        "device": "cpu",
    }
    _stopped(config)
    run = root / "zoo" / "run"
    files = (run / "config.yaml", *sorted((run / "checkpoints").glob("*.ckpt*")))
    return [Kind("resumed run", files, lambda: _resumed(config), may_mend=True)]


def _stopped(config: dict[str, Any]) -> None:
    from sslkit.training.monitor import History

    def stop(*_: Any) -> None:
        raise Reached

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Reached):
        begin = History.epoch_begin
        patch.setattr(History, "epoch_begin", lambda self, loop: stop() if loop.epoch else begin(self, loop))
        sslkit.pretrain(config)


def _resumed(config: dict[str, Any]) -> None:
    from sslkit.training.step import Progress

    def stop(*_: Any) -> None:
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "epoch_begin", stop)
        sslkit.pretrain({**config, "resume": True})


def _features() -> tuple[np.ndarray, np.ndarray]:
    digits = open_images("digits", split="train")
    return digits.pixels[:60].reshape(60, -1)[:, 10:30].astype(np.float32), digits.labels[:60] % 3
