"""What every stage shares: the problem, the budget, the record of finished stages, how images are read."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.datasets import Reading
from evaluation.results.records import Records, run_id
from evaluation.results.result import rows_digest
from evaluation.solving.budget import Budget
from evaluation.solving.problem import Problem
from sslkit.files.writing import write_whole
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of

SCORES = "scores"  # of a stage: logits, or numbers, of the images that it judged
HALF = (-6e4, 6e4)  # what a number of half precision holds


@dataclass(frozen=True, eq=False)
class Session:
    """records: of finished stages in `out`, so that the same command goes on where it was stopped."""

    problem: Problem
    budget: Budget
    records: Records
    reading: Reading
    runtime: Runtime

    @property
    def out(self) -> Path:
        return self.records.path.parent

    def key(self, stage: str, model: Model, **more: Any) -> dict[str, Any]:
        """Everything that a stage of a model depends on."""
        labelled = self.problem.development
        return {
            "stage": stage,
            "model": model.name,
            "weights": model.digest,
            "size": model.image_size,
            "data": labelled.digest,
            "images": rows_digest(labelled.ids, labelled.y),
            "groups": None if labelled.groups is None else rows_digest(labelled.ids, labelled.groups),
            "cropped": [self.reading.resize, self.reading.interpolation],
            "seed": self.runtime.seed,
            **more,
        }

    def once(self, key: Mapping[str, Any], work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the record of a stage, which is done unless it was finished before.

        Its `scores`, an array, are beside the records, in half precision where they are logits.
        """
        record, file = self.records.find(key), self.out / SCORES / f"{run_id(key)}.npy"
        if record is None:
            start = time.perf_counter()
            values = dict(work())
            scores = values.pop(SCORES, None)
            if scores is not None:
                file.parent.mkdir(exist_ok=True)
                with write_whole(file) as partial, partial.open("wb") as opened:
                    np.save(opened, scores if self.problem.has_numbers else np.clip(scores, *HALF).astype(np.float16))
            record = {**key, **values, "seconds": time.perf_counter() - start}
            self.records.add(key, {name: record[name] for name in record if name not in key})
        else:
            self.budget.before += record["seconds"]
        return record | ({SCORES: np.load(file).astype(np.float64)} if file.is_file() else {})

    @property
    def device(self) -> torch.device:
        return device_of(self.runtime.device)
