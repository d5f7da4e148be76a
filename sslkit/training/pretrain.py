"""pretrain(config) -> ZooEntry, the function behind recipes/train.py: check, build, train, then `finish`."""

import os
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sslkit.composition.method import Method
from sslkit.data import same_data
from sslkit.errors import RunFailed
from sslkit.files.leases import own_folder
from sslkit.files.writing import sweep
from sslkit.numerics.paired import Paired
from sslkit.runtime import loggers, processes
from sslkit.runtime.callers import process_kept
from sslkit.runtime.checkpoint import LastTwo, Saving, how_to_go_on
from sslkit.runtime.device import generators_restored
from sslkit.runtime.hardware import deterministic, explain_failures, fuses, one_float32, statistics_kept
from sslkit.runtime.loop import Hook, Loader, Loop
from sslkit.runtime.progress import ProgressBar
from sslkit.runtime.signals import JOB, handlers, is_requeued
from sslkit.terminal import say
from sslkit.training import build, run
from sslkit.training.choosing import Best, check_choice, settle_weights, weights_of
from sslkit.training.config import Config, parse_settings
from sslkit.training.continuing import announce_continuing, check_pilot
from sslkit.training.data import Data, images_of, open_data, rows_to_learn
from sslkit.training.elsewhere import open_elsewhere
from sslkit.training.estimate import announce_cost
from sslkit.training.evaluators import Evaluations, Evaluator, check_evaluators
from sslkit.training.finish import Newest, finish
from sslkit.training.loading import Unreadable, load, to_device
from sslkit.training.machine import check_trainer, compile_networks, demand, describe_computation, fabric_of
from sslkit.training.monitor import History, Monitor
from sslkit.training.optimizers import make_optimizer, make_schedule, peak_lr
from sslkit.training.patches import Patches
from sslkit.training.results import gains_of
from sslkit.training.settled import Settled
from sslkit.training.start import Start
from sslkit.training.step import Pretraining, Progress
from sslkit.training.summary import announce
from sslkit.zoo.entry import ZooEntry

_TRAINED: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # module objects that were given as backbone


@say.print_by_default()
@process_kept()
def pretrain(
    config: Mapping[str, Any] | Config | str | None = None,
    *,
    backbone: nn.Module | str | None = None,
    evaluators: Sequence[Evaluator] = (),
    **settings: Any,
) -> ZooEntry | None:
    """Pretrain a backbone and write a zoo entry; every setting and its default is in `sslkit.training.config`.

        sslkit.pretrain(method="simclr", data="path/to/images", epochs=100, optimizer={"lr": 1e-3})
        sslkit.pretrain({"method": "byol+dsa", "method.dsa.nu": 0.2, "data": images, "trainer.devices": 2})

    config: settings, keys as on the command line, or nested as in config.yaml; a text is the method.
    settings: the same as keywords; they are added to config.
    data: a name or a path, a list of folders or of image files, an array or tensor (N, C, H, W) or (N, H, W, C), alone
        or with labels as (images, labels), a map-style Dataset, or images of `sslkit.open_images`.
    backbone: a name, or a module. Its output is the features: take off the classifier, `net.fc = nn.Identity()`. The
        module itself is trained, from the weights that it has.
    evaluators: what measures the run on the way, see `sslkit.training.evaluators`; `evaluation.evaluators` makes them.
    init: the weights to start from, see `sslkit.zoo.start`; they name the backbone.
    Its lines are printed, unless logging is configured; `logging.getLogger("sslkit.say").setLevel("WARNING")` leaves
    only warnings.
    The process is as it was afterwards: its environment, filters of warnings, threads and random numbers.
    Returns the entry on rank 0, None on other ranks and for dry=True. Raises UserError for bad input, before anything
    is computed.
    """
    module = None if isinstance(backbone, str) else backbone
    asked, dataset = parse_settings(config, settings if backbone is module else {**settings, "backbone": backbone})
    requeued = JOB in os.environ and is_requeued() and not all(map(run.is_finished, run.of_settings(asked)[:1]))
    begun = run.to_resume(asked) if asked.resume or requeued else None
    settled = begun and begun.settled
    config = settled.config if settled else asked
    if begun and run.is_finished(begun.folder):
        return run.entry_of(begun.folder, lambda: images_of(config, dataset))
    build.check_parts(asked)
    if asked.pilot is not None:
        check_pilot(asked)
    if not asked.dry:
        check_trainer(asked)
        warn_of_trained(module)
    data = open_data(config, dataset)
    check_choice(config, data)
    settled = settled or Settled(asked, build.choose(asked, data, module))
    model = build.build_method(settled.config, data, module)
    check_evaluators(evaluators, settled.config, data, model)
    if asked.dry:
        from sslkit.training.dry import announce as announce_dry  # what a run does not need

        if processes.is_main():
            announce_dry(settled.config, data, model)
            if asked.init is not None:
                announce_continuing(asked, settled.config, data, model, partial(_try, data=data))
        return None
    _ = data.train.listing  # refuse a file that has gone before a folder is made
    folder, checkpoint = _place(begun, settled, model)
    if module is not None:
        _TRAINED.add(module)
    return train(settled, data, model, folder, checkpoint, evaluators)


def _try(asked: Config, data: Data) -> Mapping[str, Paired]:
    """What a run gains over its start, of which nothing is kept."""
    with tempfile.TemporaryDirectory() as out, say.only_warnings():
        settled = Settled(asked, build.choose(asked, data))
        method = build.build_method(settled.config, data)
        return gains_of(train(settled, data, method, run.begin(Path(out), "pilot", settled), None).card)


def warn_of_trained(module: nn.Module | None) -> None:
    """Warn of a module object that an earlier run of this process has trained, and maybe frozen in parts."""
    if module is not None and module in _TRAINED and processes.is_main():
        say.warning(
            "warning: this backbone object was trained by an earlier run, and this one starts from those weights: to "
            "start anew, give each run a new object or copy.deepcopy(net)"
        )


def _place(begun: run.Begun | None, settled: Settled, model: Method) -> tuple[Path, Path | None]:
    """The run's folder, and the checkpoint to go on from, None for a new run."""
    if begun is None:
        out, name = Path(settled.asked.out), run.base_name(settled.asked, model.backbone.recipe.name)
        return run.begin(out, name, settled) if processes.is_main() else run.fresh(out, name), None
    if begun.checkpoint is None and processes.is_main():
        run.create(begun.folder, settled)  # nothing was saved: config.yaml may be missing
    return begun.folder, begun.checkpoint


def train(
    settled: Settled,
    data: Data,
    method: Method,
    folder: Path,
    checkpoint: Path | None,
    evaluators: Sequence[Evaluator] = (),
) -> ZooEntry | None:
    """Train `method` on `data` in `folder`, from `checkpoint` if there is one.

    Raises KeyboardInterrupt, with the way to go on, when a signal stops it.
    """
    try:
        with own_folder(folder, "trains in") if processes.is_main() else nullcontext():
            return _train(settled, data, method, folder, checkpoint, evaluators)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"stopped; {how_to_go_on(folder)}") from stop
    except SystemExit as stop:
        if stop.code:  # a signal that ends a program without a handler of its own; a job that is requeued has 0
            say.line(f"stopped; {how_to_go_on(folder)}")
        raise


def _train(
    settled: Settled,
    data: Data,
    method: Method,
    folder: Path,
    checkpoint: Path | None,
    evaluators: Sequence[Evaluator],
) -> ZooEntry | None:
    config = settled.config
    processes.quiet()
    if processes.is_main():
        sweep(folder)
    announce(settled, data, method, folder, checkpoint)
    if processes.is_main() and checkpoint is None:
        announce_cost(config, data, method)
    loader = partial(load, config, rows_to_learn(config, data, method, whole=method.needs_images))
    history = History(folder, unit=data.unit, k=config.eval.k, log_every=config.trainer.log_every)
    unreadable = Unreadable()
    shown = rows_to_learn(config, data, method, whole=True)
    content = same_data.Content(data.train, read=processes.is_main())
    origin = method.backbone.recipe.origin
    where = open_elsewhere(config, data)
    start = Start(data, shown, folder, config.eval.k, origin and origin.sha256, content, where)
    # History comes before the monitor, so that its clock stops before the evaluation starts.
    compares = origin is not None or config.keep == "best" or config.stop is not None
    how = {"every": config.eval.every, "k": config.eval.k, "compares": compares}
    monitor = Monitor(data, history, before=lambda: start.right, **how)
    evaluations = Evaluations(evaluators, config, data, method, history)
    scorer = monitor if config.eval.by is None else evaluations
    best, first = Best(config, scorer, folder), None if origin is None else weights_of(method)
    module, count = Pretraining(method, build.heads_first(config, data, method)), build.steps(config, data)
    prepare = Prepare(data, config.cache and Path(config.cache), count)  # early: a prior that does not fit ends the run
    # First: what it compiles is removed before kNN and probe.
    hooks: list[Hook] = [compile_networks(config, method)] if config.trainer.compile else []
    hooks += [Progress(module, config.optimizer, count), prepare, start, history, monitor]
    hooks += [evaluations] if evaluators else []
    hooks += [best, unreadable]
    hooks += [Patches(data, history, folder, config.eval.every)] if origin is not None else []
    if config.progress:
        hooks.append(ProgressBar(unit=data.unit, size=config.batch_size))
    write = LastTwo(folder, checkpoint).write
    saving = Saving(write, config.save_seconds, history.close_epoch, handlers())
    hooks += [Newest(config, data, method, folder, content), saving]
    loop = make_loop(config, module, loader, peak_lr(config, build.batches(config, data)), count, hooks)
    _fit(loop, config, data, folder, checkpoint)
    if not loop.is_main:
        return None
    with explain_failures(demand(config, data), folder, loop):
        content.wait()
        fields = best.restore_best(loop, method)
        between, end = settle_weights(config, data, method, first)
        fields |= {**between, "computed": describe_computation(loop, config)}
        seen = {"start": start, "history": history, "evaluations": evaluations, "unreadable": unreadable.paths}
        return finish(config, data, method, folder, **seen, kept=fields, end=end, asked=settled.asked)


@dataclass
class Prepare(Hook):
    """Lets the regularisers read the clean images, on all ranks at the same time, once these see the same ones."""

    data: Data
    cache: Path | None
    steps: int

    def begin(self, loop: Loop) -> None:
        same_data.check(self.data.train)
        images = self.data.fixed
        loop.module.method.prepare(images, cache=self.cache, steps=self.steps)


def make_loop(
    config: Config, module: Pretraining, load: Callable[[Loop], Loader], lr: float, steps: int, hooks: Sequence[Hook]
) -> Loop:
    """The loop of a run with its optimiser. load: see `Loop`. lr: at the peak. steps: of the whole run."""
    fabric = fabric_of(config)
    fused = True if fuses(fabric.device, config.precision, config.optimizer.clip) else None
    alone = module.heads_first
    optimizer = make_optimizer(module.method, config.optimizer, lr, fused=fused, heads_first=alone)
    return Loop(
        fabric,
        module,
        optimizer,
        make_schedule(optimizer, config.optimizer, steps, config.epochs, alone),
        load,
        move=to_device,
        epochs=config.epochs,
        accumulate=config.trainer.accumulate,
        clip=config.optimizer.clip,
        around_backward=partial(statistics_kept, module) if config.trainer.checkpoint_activations else nullcontext,
        hooks=hooks,
    )


def _fit(loop: Loop, config: Config, data: Data, folder: Path, checkpoint: Path | None) -> None:
    """Train, with the settings' loggers, which are closed in any case, as is the process group."""
    launched_outside = "LOCAL_RANK" in os.environ
    read = None if checkpoint is None else partial(torch.load, checkpoint, map_location="cpu", weights_only=True)
    device = loop.fabric.device if torch.cuda.is_initialized() else torch.device("cpu")  # a step seeds the generators
    try:
        with (
            generators_restored(device),
            deterministic(config.trainer.deterministic),
            one_float32(),
            explain_failures(demand(config, data), folder, loop),
        ):
            asked = config.trainer.logger if processes.is_main() else []
            with (
                loggers.open_trackers(asked, folder, config.to_dict()) as loop.trackers,
                processes.others_watched(folder),
            ):
                loop.run(read)
    except OSError as error:  # for example from TensorBoard's writer
        raise RunFailed(f"stopped: {error.strerror or error}; {how_to_go_on(folder)}") from error
    finally:
        processes.leave_group(launched_outside)
