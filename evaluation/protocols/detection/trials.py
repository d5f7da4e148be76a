"""Trials: a detector trained from each seed and tested once, each recorded when it is done; a kill loses nothing."""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from evaluation.features.models import LoadedModel
from evaluation.protocols.detection.boxes import Boxes
from evaluation.protocols.detection.options import Place
from evaluation.protocols.detection.pictures import draw_predictions
from evaluation.protocols.detection.prediction import Prediction, average_precisions, predictions
from evaluation.protocols.detection.ranks import agreed, process_group
from evaluation.protocols.detection.training import Trained, Training, train_detector
from evaluation.results.records import Records, run_id
from sslkit.distributed import rank, world_size
from sslkit.files import write_whole

PICTURED = 6  # images of a picture


@dataclass(frozen=True, eq=False)
class Bench:
    """A model, a set's two splits, and where the trials of protocol `name` are done: place.out is a folder."""

    name: str
    model: LoadedModel
    train: Boxes
    test: Boxes
    place: Place

    def run(self, training: Training, seeds: Sequence[int]) -> list[dict[str, Any]]:
        """The record of the trial of each seed, in order; one that is recorded is not done again.

        training: its seed is replaced. A record has the APs (fractions), the losses (step, loss), seconds, and the
        names of the picture and of the weights in `folder`. Under torchrun every rank trains, rank 0 tests and
        records, and the others get [].
        Raises UserError; see `train_detector` and `average_precisions`.
        """
        found = []
        with process_group(self.place.device) as device:
            for number, seed in enumerate(seeds, 1):
                title = f"{self.name}, trial {number} of {len(seeds)}" if len(seeds) > 1 else self.name
                found.append(self._recorded(replace(training, seed=seed), device, title))
            return found if rank() == 0 else []

    @property
    def folder(self) -> Path:
        return self.place.out / self.name

    def key(self, training: Training) -> dict[str, Any]:
        """What a trial depends on: equal keys, equal results."""
        model = self.model
        return {
            "model": model.name,
            "weights": model.digest,
            "input": [model.in_chans, list(model.mean), list(model.std)],
            "data": self.train.name,
            "train": self.train.digest,
            "test": self.test.digest,
            "ranks": world_size(),
            **asdict(training),
        }

    def _recorded(self, training: Training, device: torch.device, title: str) -> dict[str, Any] | None:
        """The record of one trial; None on ranks other than 0."""
        key = self.key(training)
        with _claimed(self.place.out / f"{self.name}.jsonl", key) as records:
            known = records and records.find(key)
            if agreed(known is not None, device):
                if rank() == 0 and self.place.progress:
                    tqdm.write(f"{title}: was done before, its numbers are kept", file=sys.stderr)
                return known
            started = time.perf_counter()
            checkpoint = self.folder / f"{run_id(key)}.ckpt"
            trained = train_detector(
                self.model,
                self.train,
                training,
                device=device,
                checkpoint=checkpoint,
                every=self.place.every,
                workers=self.place.workers,
                progress=self.place.progress and title,
            )
            if records is None:
                return None
            values = self._tested(trained, training, device, run_id(key))
            records.add(key, {**values, "seconds": time.perf_counter() - started, "device": device.type})
            checkpoint.unlink(missing_ok=True)
            return records.find(key)

    def _tested(self, trained: Trained, training: Training, device: torch.device, run: str) -> dict[str, Any]:
        import safetensors.torch

        how = {"device": device, "workers": self.place.workers}
        found = predictions(
            trained.detector, self.test, self.model.in_chans, progress=self.place.progress and "testing", **how
        )
        first: list[Prediction] = []
        values = average_precisions(_kept(found, first), self.test, training.masks)
        picture, weights = f"{re.sub(r'[^-+.0-9A-Za-z_]+', '_', self.test.name)}-{run}.png", f"{run}.safetensors"
        draw_predictions(self.test, first, self.folder / picture, title=f"{self.model.name} on {self.test.name}")
        with write_whole(self.folder / weights) as partial:
            # each tensor on its own, as safetensors keeps none that share memory; the mask head's layer4 stands twice
            state = trained.detector.state_dict()
            own = {name: value.cpu().clone(memory_format=torch.contiguous_format) for name, value in state.items()}
            safetensors.torch.save_file(own, partial)
        return {"ap": values, "losses": trained.losses, "picture": picture, "weights_file": weights}


@contextmanager
def _claimed(path: Path, key: dict[str, Any]) -> Iterator[Records | None]:
    """The records, while no other process works on the same trial; None on ranks other than 0."""
    if rank() != 0:
        yield None
        return
    records = Records(path)
    with records.claim(key, wait=True):
        yield records


def _kept(found: Iterator[Prediction], first: list[Prediction]) -> Iterator[Prediction]:
    """The same predictions; the first few are put into `first` too."""
    for prediction in found:
        if len(first) < PICTURED:
            first.append(prediction)
        yield prediction
