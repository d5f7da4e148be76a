"""What the code computes of a setting: its fingerprint, by which a published number knows whether code has changed.

A digest of sources changes with each name, file and faster form. A fingerprint is what the code itself computes in
miniature: the losses of the first steps of `sslkit.pretrain`, an epoch each, with the settings of the study, and the
measures of a network of random weights. So only a change of what is computed changes it: of views, network, loss,
gradient, optimiser, schedule, hooks between epochs, judging. It holds no time, and nothing that only larger batches or
later epochs reach. LOG.md has what it and a digest of sources would have named in 408 commits.

`fingerprints.json` has every fingerprint that a part had, by a key, and the key of today's code. Each run of a study
has the keys of its parts; where one is not today's, the tables mark what it stands in (`stale.py`).
"""

import functools
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import keys
import numpy as np
import torch
from keys import JUDGING, Numbers
from objectives.settings import FIXED, best, config, settings
from plugins.plan import BESIDE_KIND, CONTROLS, CORE, FORMS, PRIORS_OF_CODE
from ranking.made_up import of_metric, part_of
from results import load

import evaluation
import sslkit
from sslkit import objectives as family

RANKING = "ranking/study"
STEPS, IMAGES, JUDGED_IMAGES, CLASSES, SIDE = 4, 32, 400, 8, 28
WHOLE_BATCH = {"w_mse": 128}  # images that its whitening needs


class _EnoughError(Exception):
    """The steps that are asked for were made."""


def of_training(name: str, plugin: str = "", options: Mapping[str, Any] | None = None) -> dict[str, list[float]]:
    """The losses of the first steps of an objective with the settings of the study, and with a plug-in."""
    asked = {"name": f"{name}+{plugin}", plugin: dict(options or {})} if plugin else {"name": name}
    losses: list[float] = []
    step = torch.Tensor.backward

    def note(loss: torch.Tensor, *given: Any, **more: Any) -> None:
        losses.append(loss.item())
        if len(losses) == STEPS:
            raise _EnoughError
        step(loss, *given, **more)

    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(torch.Tensor, "backward", note):
        data = Path(scratch) / "images.npz"
        images = WHOLE_BATCH.get(name, IMAGES)
        write_images(data, images, labelled=name == "supervised")
        try:
            sslkit.pretrain(_config(asked | settings(name), name, data, epochs=STEPS, batch_size=images))
        except _EnoughError:
            return {"losses": losses}
    raise RuntimeError(f"{name}+{plugin} made {len(losses)} steps of {STEPS}")


def of_judging() -> dict[str, list[float]]:
    """What each measure of the study says of a network of random weights, by the measure's name."""
    with tempfile.TemporaryDirectory() as scratch:
        data, colour = Path(scratch) / "images.npz", Path(scratch) / "colour.npz"
        write_images(data, JUDGED_IMAGES, labelled=True)
        write_images(colour, IMAGES, labelled=True, shape=(3, 48, 48))
        still = {"lr": 1e-12, "epochs": 1, "batch_size": JUDGED_IMAGES}
        entry = sslkit.pretrain(_config({"name": "simclr"} | settings("simclr"), "simclr", data, **still))
        features, other = (
            evaluation.extract(entry, str(file), "test", cache=None, progress=False) for file in (data, colour)
        )
        few = evaluation.few_shot(features, n_way=5, k_shot=5, episodes=100).value
    before = entry.card["before"]
    return {
        **{name: [before[name]] for name in ("probe", "knn", "inter", "intra")},
        "few_shot": [float(few)],
        "transfer": [float(way(other.x)) for way in (np.mean, np.std, np.max)],
    }


def _config(method: dict[str, Any], name: str, data: Path, **how: Any) -> dict[str, Any]:
    """A run of one process in float32 with the rate that was tuned, which is removed with its data."""
    how = {"lr": best(name)["lr"], "seed": 0, "out": data.parent / "zoo", **how}
    network = f"narrow_{family.find(name).families[0]}"
    return config(method, str(data), backbone=network, precision="float32", trainer={"devices": 1}, **how)


def write_images(path: Path, n: int, *, labelled: bool, shape: tuple[int, int, int] = (1, SIDE, SIDE)) -> None:
    """Write n training images, and if they are labelled as many for the test: a coarse pattern a class, and noise."""
    rng, arrays = np.random.default_rng(0), {}
    coarse = rng.integers(0, 256, (CLASSES, shape[0], shape[1] // 4, shape[2] // 4))
    patterns = np.kron(coarse, np.ones((1, 1, 4, 4), dtype=int))
    for split in ("train", "test")[: 1 + labelled]:
        y = np.arange(n) % CLASSES
        x = (2 * patterns[y] + 3 * rng.integers(0, 256, (n, *shape))) // 5
        arrays |= {f"x_{split}": x.astype(np.uint8)} | ({f"y_{split}": y} if labelled else {})
    np.savez(path, **arrays)


@functools.cache
def parts() -> dict[str, Callable[[], Numbers]]:
    """What measures the fingerprint of each part.

    Objectives; plug-ins and priors beside one of a kind; the metrics of the ranking study; judging.
    """
    trained = {name: partial(of_training, name) for name in sorted(FIXED)}
    forms = [form for form in CORE if form != "plain" and form not in CONTROLS]
    beside = [(kind, form) for kind in BESIDE_KIND.values() for form in forms]
    beside += [(BESIDE_KIND[True], f"guide, {prior}") for prior in PRIORS_OF_CODE]
    trained |= {f"{kind} + {form}": partial(of_training, kind, *FORMS[form]) for kind, form in beside}
    scored = {part_of(metric): partial(of_metric, metric) for metric in load(RANKING)["metrics"]}
    return {**trained, **scored, JUDGING: of_judging}


def update(names: Collection[str], commit: str) -> dict[str, tuple[str, str]]:
    """Measure parts with today's code, keep what is new, and return (key before, key now) of those that changed."""
    record = keys.load()
    before = dict(record["now"])
    for name in names:
        record["now"][name] = keys.add(record, name, parts()[name](), commit)
    keys.keep(record)
    return {
        name: (before.get(name, ""), record["now"][name]) for name in names if before.get(name) != record["now"][name]
    }
