"""Trials: a detector trained from each seed and tested once, each recorded when it is done; a kill loses nothing."""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from evaluation.results.records import Records, run_id
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.pictures import draw_predictions
from evaluation.tasks.detection.prediction import Prediction, precisions_apart, predictions
from evaluation.tasks.detection.training import Trained, Training, train_detector
from evaluation.tuning import NONE
from evaluation.tuning.recorded import checkpoint_of, each_recorded, weights_of, write_network
from sslkit.models.detectors.detector import build_detector
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank, world_size
from sslkit.runtime.waiting import from_first, together
from sslkit.terminal.say import printable
from sslkit.zoo.weights import fill, read_weights

if TYPE_CHECKING:  # importing it takes more than a second
    from torchvision.models.detection import FasterRCNN

PICTURED = 6  # images of a picture


@dataclass(frozen=True, eq=False)
class Bench:
    """A model, a set's two splits, and the runtime of the trials of protocol `name`, with a device and a folder.

    keep: which of the trained detectors will be kept, see `keeping.keep_trials`; the weights of all wait for it.
    """

    name: str
    model: Model
    train: Boxes
    test: Boxes
    runtime: Runtime
    keep: str = NONE

    def run(self, training: Training, seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Return the record of the trial of each seed, in order; a recorded one is not done again.

        training: its seed is replaced. A record has the APs (fractions), the losses (step, loss), seconds, and the
        name of the picture in `folder`. Under torchrun every rank trains, rank 0 tests and records, and the others
        get [].
        Raises UserError; see `train_detector` and `precisions_apart`.
        """
        records = self.records
        trials = [replace(training, seed=seed) for seed in seeds]
        keys = [self.key(trial) for trial in trials]
        for number in sorted(set(range(len(keys))) - set(records.missing(keys))):
            self.say(f"{self._title(number, seeds)}: was done before, its numbers are kept")

        def work(number: int) -> dict[str, Any]:
            return self._trial(trials[number], self._title(number, seeds))

        outcomes = each_recorded(keys, records, work)
        return outcomes if rank() == 0 else []

    @property
    def folder(self) -> Path:
        return Path(self.runtime.out) / self.name

    @property
    def records(self) -> Records:
        return Records(self.folder.with_name(f"{self.name}.jsonl"))

    def detector(self, training: Training) -> "FasterRCNN":
        """The trained detector of a trial, on the CPU: from its weights, else trained again to them."""
        file = weights_of(self.records.path, self.key(training))
        if not from_first(f"the weights in {file}", file.is_file):
            with together(f"the weights in {file}"):
                self._train(training, f"{self.name}, again, to keep it")
                if rank() == 0:
                    checkpoint_of(self.records.path, self.key(training)).remove()
        options = {"masks": training.masks, "tune": training.tune, "seed": training.seed}
        sizes = training.schedule.sizes
        net = build_detector(self.model, len(self.train.classes), arch=training.arch, sizes=sizes, **options)
        return fill(net, read_weights(file), file).eval()

    def release(self, training: Training) -> None:
        """Delete the weights of a trial that wait to be kept."""
        if rank() == 0:
            weights_of(self.records.path, self.key(training)).unlink(missing_ok=True)

    def key(self, training: Training) -> dict[str, Any]:
        """Everything that a trial depends on: equal keys give equal results."""
        model = self.model
        return {
            "model": model.name,
            "weights": model.digest,
            "input": [model.in_chans, list(model.mean), list(model.std)],
            "data": PurePath(self.train.name).name,  # of "coco:FOLDER" the last part, that of a copy too
            "train": self.train.digest,
            "test": self.test.digest,
            "ranks": world_size(),
            **asdict(training),
        }

    def _title(self, number: int, seeds: Sequence[int]) -> str:
        return f"{self.name}, trial {number + 1} of {len(seeds)}" if len(seeds) > 1 else self.name

    def say(self, line: str) -> None:
        """Say a line on standard error, where bars are shown."""
        if rank() == 0 and self.runtime.progress:
            tqdm.write(printable(line, keep=""), file=sys.stderr)

    def _train(self, training: Training, title: str) -> Trained:
        """Train from a checkpoint if there is one; rank 0 writes the weights if they may be kept."""
        records, key = self.records.path, self.key(training)
        checkpoint = checkpoint_of(records, key, self.runtime.save_seconds)
        trained = train_detector(self.model, self.train, training, self.runtime, checkpoint=checkpoint, title=title)
        if rank() == 0 and self.keep != NONE:
            write_network(trained.detector, weights_of(records, key))
        return trained

    def _trial(self, training: Training, title: str) -> dict[str, Any]:
        """Train and test; return the values of the record, on ranks other than 0 nothing."""
        started = time.perf_counter()
        trained = self._train(training, title)
        if rank() != 0:
            return {}
        values = self._test(trained, training, run_id(self.key(training)))
        seconds = trained.before + time.perf_counter() - started
        return {**values, "seconds": seconds, "device": self.runtime.device.type}

    def _test(self, trained: Trained, training: Training, run: str) -> dict[str, Any]:
        predicted = predictions(trained.detector, self.test, self.model.in_chans, self.runtime)
        first: list[Prediction] = []
        seen = self.test.copies_in(self.train)
        values, rest = precisions_apart(_keep_first(predicted, first), self.test, training.masks, seen)
        picture = f"{re.sub(r'[^-+.0-9A-Za-z_]+', '_', self.test.name)}-{run}.png"
        draw_predictions(self.test, first, self.folder / picture, title=f"{self.model.name} on {self.test.name}")
        return {
            "ap": values,
            "unseen": rest,
            "in_train": int(seen.sum()),
            "losses": trained.losses,
            "picture": picture,
        }


def _keep_first(found: Iterator[Prediction], first: list[Prediction]) -> Iterator[Prediction]:
    """The same predictions; the first few are put into `first` too."""
    for prediction in found:
        if len(first) < PICTURED:
            first.append(prediction)
        yield prediction
