"""Tune all weights: settings chosen on held-out images, the best one on all of train, see `evaluation.fine_tune`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from evaluation.datasets import Reading
from evaluation.finetuning.options import Options, plan_steps
from evaluation.finetuning.parts import Parts
from evaluation.finetuning.trained import Trained
from evaluation.protocols import fine_tune
from evaluation.protocols.fine_tune import check_options, choose_setting, final_trials, report_grid, tune_on_all
from evaluation.results.records import run_id
from evaluation.tuning.classifier import predict
from evaluation.tuning.pixels import Pixels
from evaluation.tuning.recorded import each_recorded
from evaluation.tuning.task import Task, open_task
from evaluation.tuning.trials import Runner, key, of_model, open_runner
from sslkit.backbones.base import Backbone
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.terminal.say import counted


@contextmanager
def tune_network(model: Model, parts: Parts, options: Options, reading: Reading, runtime: Runtime) -> Iterator[Trained]:
    """Yield the tuned network and its result; its weights stay beside the records until it is kept."""
    task = open_task(model, parts.splits, reading, takes_numbers=True)
    with open_runner(task, fine_tune.NAME, replace(runtime, workers=options.workers)) as runner:
        steps = _agree_on_steps(runner, options)
        tuning = options.of_tuning(steps, runtime.seed)
        settings, seeds = check_options(tuning, task.mirror)
        tried, number, settings = choose_setting(runner, settings, tuning)
        chosen = settings[number]
        tested = tune_on_all(runner, chosen, seeds, keep=True)
        (trial,) = final_trials(task, chosen, seeds, keep=True)
        measured = "the squared error" if parts.train.has_numbers else "the accuracy"
        rate = f"learning rate {chosen.lr:g} of {len(tried)}, by {measured} on held-out images"
        held = sum(task.train.own_val) if task.train.own_val is not None else round(fine_tune.SHARE * len(task.train))

        def network() -> tuple[Backbone, nn.Sequential]:
            net = runner.network(trial)
            return net.backbone, nn.Sequential(net.head)

        yield Trained(
            report_grid(task, tuning, tried, tested),
            task.classes,
            f"all weights tuned, {counted(steps, 'step')} of {chosen.batch_size} images, {rate}",
            round(steps * chosen.batch_size / len(task.train), 2),
            run_id(key(task, trial)),
            tried[number]["beta"],
            f"about {held:,} images held out of train",
            network,
            lambda net: _test(net, task, chosen.precision, runner.runtime.device),
            lambda: runner.release(trial),
        )


def _test(net: nn.Sequential, task: Task, precision: str, device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    pixels = Pixels(task.test.centres, np.arange(len(task.test)), device)
    return predict(net.to(device), task.model, pixels, precision).numpy(), task.test.y


def _agree_on_steps(runner: Runner, options: Options) -> int:
    """Return the steps of a run: measured once, so that a stopped call goes on with the same ones."""
    task = runner.task
    asked = {name: getattr(options, name) for name in ("steps", "budget", "grid", "folds", "extend", "batch_size")}
    plan = {"plan": of_model(task.model), "images": task.digest, **asked}

    def measure(_: int) -> dict[str, object]:
        steps, line = plan_steps(options, task.model, len(task.train), runner.runtime)
        return {"agreed": steps, "line": line}

    (record,) = each_recorded([plan], runner.records, measure, ("agreed", "line"))
    runner.runtime.say(f"time: {record['line']}")
    return record["agreed"]
