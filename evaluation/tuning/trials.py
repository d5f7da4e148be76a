"""Trials: fine-tuning runs on a task with some setting, each recorded once."""

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from evaluation.features.checks import whole_number
from evaluation.learners.calibration import inverse_temperature
from evaluation.results import unseen
from evaluation.results.measures import measure
from evaluation.results.numbers import R2
from evaluation.results.records import Records
from evaluation.results.result import rows_digest
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.classifier import Setting, classification_loss, predict, train_classifier, with_head
from evaluation.tuning.loop import Diverged, State
from evaluation.tuning.outcomes import pack
from evaluation.tuning.pixels import Pixels, Pool
from evaluation.tuning.processes import process_group
from evaluation.tuning.recorded import checkpoint_of, each_recorded, of_ranks, open_folder, weights_of, write_network
from evaluation.tuning.task import Task
from sslkit.errors import RunFailed, UserError
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime, silent
from sslkit.runtime.distributed import rank, world_size
from sslkit.runtime.jobs import GRACE
from sslkit.runtime.waiting import from_first, together
from sslkit.terminal.say import printable
from sslkit.zoo.weights import fill, read_weights

NEEDS = ("value", "diverged", "seconds")  # fields of every record


@dataclass(frozen=True, eq=False)
class Trial:
    """One run: tune with a setting on some training rows, evaluate on others or on the test split.

    stage: "select" or "test". learn: (n,) int64 rows of the task's training images.
    judge: (m,) held-out rows of them; None: the test images. notes: further entries of the record.
    keep: the weights stay beside the records, until `Runner.release`; see `Runner.network`.
    """

    stage: str
    setting: Setting
    learn: np.ndarray
    judge: np.ndarray | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    keep: bool = False


def key(task: Task, trial: Trial) -> dict[str, Any]:
    """Return everything a run depends on: equal keys give equal results."""
    train, test = task.train, task.test
    judged = (test.ids, test.y) if trial.judge is None else (train.ids[trial.judge], train.y[trial.judge])
    return {
        "stage": trial.stage,
        **of_model(task.model),
        "data": task.name,
        "images": task.digest,
        "metric": task.metric,
        "classes": len(task.classes),
        "learn": rows_digest(train.ids[trial.learn], train.y[trial.learn]),
        "judge": rows_digest(*judged),
        **asdict(trial.setting),
        **trial.notes,
        **of_ranks(),
    }


def of_model(model: Model) -> dict[str, Any]:
    """Return the entries of a key for a model and the preparation of its images."""
    prepared = [*astuple(model.resizing), list(model.mean), list(model.std)]
    return {"model": model.name, "weights": model.digest, "input": prepared}


class Bench:
    """Run trials one after the other, in this process.

    Pixels stay on the device between trials on the same images. Resident pixels (see `Pixels`), also of the test
    images, are read before the first step, so that a damaged file raises an error before training. Other pixels are
    read batch by batch, and a damaged file stops the run that reads it.
    """

    def __init__(self, task: Task, runtime: Runtime) -> None:
        self.task, self.runtime = task, runtime
        self._kept: dict[str, Pixels] = {}

    def run(self, trial: Trial, checkpoint: Checkpoint, file: Path, place: str = "") -> dict[str, Any]:
        """Run a trial and return the values of its record; a diverged one has the value None.

        file: of the weights, where the trial keeps them. place: among the runs, such as "run 3 of 12, ", for the lines
        of progress.
        The checkpoint is resumed, and deleted by the caller once the record is written.
        """
        started, state = time.perf_counter(), State()
        for pixels in (self._pixels_to_learn(trial), self._pixels_to_test(trial), self._test()):
            pixels.keep()
        try:
            net = self.tune(trial, checkpoint, state, place)
            if trial.keep and rank() == 0:
                write_network(net, file)
            values = self._judge(trial, net)
        except Diverged as error:
            values = {"value": None, "diverged": True, "reason": str(error)}
        return {**values, "seconds": state.before + time.perf_counter() - started, "device": self.runtime.device.type}

    def tune(self, trial: Trial, checkpoint: Checkpoint, state: State, place: str = "") -> torch.nn.Sequential:
        """Tune the network of a trial, from its checkpoint if there is one."""
        train, setting = self.task.train, trial.setting
        y = torch.from_numpy(train.y[trial.learn])
        rates = f"lr {setting.lr:g}, decay {setting.weight_decay:g}"
        title = self.runtime.progress and f"  {self.task.model.name}, {trial.stage}: {place}{rates}"
        pixels, classes = self._pixels_to_learn(trial), len(self.task.classes)
        how = {"classes": classes, "state": state, "checkpoint": checkpoint, "progress": title}
        return train_classifier(self.task.model, pixels, y, setting, **how)

    def _judge(self, trial: Trial, net: torch.nn.Sequential) -> dict[str, Any]:
        scores = predict(net, self.task.model, self._pixels_to_test(trial), trial.setting.precision)
        judged = self.task.test if trial.judge is None else self.task.train
        rows = np.arange(len(judged)) if trial.judge is None else trial.judge
        scored, y, groups, metric = scores.numpy(), judged.y[rows], unseen.take(judged.groups, rows), self.task.metric
        unit = str(self.task.classes[0])
        estimate, others, right = measure(scored, y, metric, groups, unit)
        if trial.judge is None:
            others |= unseen.beside(
                self.task.in_train,
                lambda some: measure(scored[some], y[some], metric, unseen.take(groups, some), unit)[0],
            )
        return {
            **asdict(estimate),
            "loss": classification_loss(scores, torch.from_numpy(y)).item(),
            "beta": None if trial.stage == "test" or metric == R2 else inverse_temperature(scored, y),
            "diverged": False,
            "others": {name: asdict(other) for name, other in others.items()},
            "right": None if right is None or trial.stage == "select" else pack(right),
        }

    def _pixels_to_learn(self, trial: Trial) -> Pixels:
        return self._pixels("learn", self.task.train.crops, trial.learn)

    def _pixels_to_test(self, trial: Trial) -> Pixels:
        return self._test() if trial.judge is None else self._pixels("judge", self.task.train.centres, trial.judge)

    def _test(self) -> Pixels:
        return self._pixels("test", self.task.test.centres, np.arange(len(self.task.test)))

    def _pixels(self, use: str, pool: Pool, rows: np.ndarray) -> Pixels:
        cached = self._kept.get(use)
        if cached is None or not np.array_equal(cached.rows, rows):
            self._kept[use] = Pixels(pool, rows, self.runtime.device)
        return self._kept[use]


@dataclass(frozen=True)
class Runner:
    """Runs and records trials. The runtime's workers are processes that share the trials and the threads."""

    task: Task
    records: Records
    runtime: Runtime

    def run(self, trials: Sequence[Trial], title: str) -> list[dict[str, Any]]:
        """Return the record of every trial, in order; recorded trials are not repeated."""
        keys = [key(self.task, trial) for trial in trials]
        missing = len(self.records.missing(keys))
        with tqdm(
            total=len(keys),
            initial=len(keys) - missing,
            desc=printable(title, keep=""),
            unit="run",
            disable=None if self.runtime.progress and rank() == 0 else True,  # None: shown on a terminal only
        ) as bar:
            if self.runtime.workers > 1 and missing > 1:
                self._in_processes(keys, trials, bar)
            work = self._work(keys, trials)

            def run_one(number: int) -> dict[str, Any]:
                values = work(number)
                bar.update()
                return values

            return each_recorded(keys, self.records, run_one, NEEDS)

    def _in_processes(self, keys: list[dict[str, Any]], trials: Sequence[Trial], bar: tqdm) -> None:
        workers = self.runtime.workers
        threads = max(torch.get_num_threads() // workers, 1)
        try:
            quiet = replace(self, runtime=replace(self.runtime, progress=False, say=silent))
            sent = pickle.dumps((quiet, keys, trials))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(f"workers={workers}: the model or data cannot be sent to them ({error})") from error
        try:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                left = {pool.submit(_share, sent, threads) for _ in range(workers)}
                with _end_with_this_process():
                    while left:
                        done, left = wait(left, timeout=1)
                        bar.update(len(keys) - len(self.records.missing(keys)) - bar.n)
                        for future in done:
                            future.result()
        except BrokenProcessPool as error:
            raise RunFailed(
                f"one of workers={workers} was killed, perhaps for lack of memory; the same command goes on with "
                "what is left: give it fewer workers"
            ) from error

    def _work(self, keys: list[dict[str, Any]], trials: Sequence[Trial]) -> Callable[[int], dict[str, Any]]:
        bench = Bench(self.task, self.runtime)

        def run(number: int) -> dict[str, Any]:
            title = f"run {number + 1} of {len(keys)}, " if len(keys) > 1 else ""
            checkpoint, file = (of(self.records.path, keys[number]) for of in (checkpoint_of, weights_of))
            return bench.run(trials[number], checkpoint, file, title)

        return run

    def network(self, trial: Trial) -> torch.nn.Sequential:
        """Return the tuned network of a trial, on the CPU: from the file that it kept, else tuned again to that."""
        run = key(self.task, trial)
        file = weights_of(self.records.path, run)
        if not from_first(f"the weights in {file}", file.is_file):
            checkpoint = checkpoint_of(self.records.path, run)
            net = Bench(self.task, self.runtime).tune(trial, checkpoint, State())
            with together(f"the weights in {file}"):
                if rank() == 0:
                    write_network(net, file)
                    checkpoint.remove()
        net = with_head(self.task.model, len(self.task.classes))
        return fill(net, read_weights(file), file).eval()

    def release(self, trial: Trial) -> None:
        """Delete the weights that a trial kept."""
        if rank() == 0:
            weights_of(self.records.path, key(self.task, trial)).unlink(missing_ok=True)


@contextmanager
def _end_with_this_process() -> Iterator[None]:
    """End the processes of a pool when the block is left by a signal; the pool would wait for their work.

    Each of them saves its training after the step that it computes, see `sslkit.runtime.signals`.
    """
    try:
        yield
    except KeyboardInterrupt:
        processes = active_children()
        for process in processes:
            process.terminate()
        end = time.monotonic() + GRACE
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
            process.kill()
        raise


def _share(sent: bytes, threads: int) -> None:
    """Run the trials of one process. sent: pickled, because torch's sharing keeps a file open for every tensor."""
    torch.set_num_threads(threads)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # otherwise the pool would take a stop for a result
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    runner, keys, trials = pickle.loads(sent)
    each_recorded(keys, runner.records, runner._work(keys, trials))


@contextmanager
def open_runner(task: Task, name: str, runtime: Runtime) -> Iterator[Runner]:
    """Open a runner that records in `out/NAME.jsonl`, or in a temporary file.

    Under torchrun all processes share each trial, see `processes.py`.
    Raises UserError for an unavailable device, for workers below 1, and for several under torchrun.
    """
    workers = whole_number("workers", runtime.workers, 1)
    with ExitStack() as stack:
        joined = stack.enter_context(process_group(runtime))
        if workers > 1 and world_size() > 1:
            raise UserError(f"workers={workers}: the {world_size()} processes share every trial; leave workers at 1")
        folder = stack.enter_context(open_folder(runtime.out))
        records = Records(Path(folder) / f"{name}.jsonl")
        if workers > 1 and not records.are_shared():
            raise UserError(f"workers={workers} would do each other's runs in {folder}, without locks: give workers=1")
        yield Runner(task, records, replace(joined, workers=workers))
