"""A set of runs: their progress, and the checks before the first one is trained.

By hand: Hydra's launchers (basic, joblib) give no run its GPUs, measure no memory, and begin finished runs again.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sslkit.errors import UserError
from sslkit.options.members import classes
from sslkit.runtime.checkpoint import LAST, newest_whole
from sslkit.runtime.jobs import Machine, Outcome, cores, last_lines
from sslkit.terminal import say
from sslkit.training import build, data, run
from sslkit.training.config import Config
from sslkit.training.machine import check_trainer
from sslkit.zoo.entry import ZooEntry


@dataclass(frozen=True)
class Member:
    """One run of a set.

    folder: of the run, existing or new. state: "done" (an entry with the same settings and images), "resume" (started
    but not finished) or "new". decodes: whether its images are files to be decoded. note: the damage of an earlier run
    of this name, which is trained again in a new folder.
    """

    config: Config
    folder: Path
    state: str
    decodes: bool
    note: str | None = None


def examine(configs: Sequence[Config], remembered: dict[str, Any] | None = None) -> list[Member]:
    """Open the data and build the network of every run once, and look up its progress in its folder `out`.

    remembered: what was opened, for a later call that looks up the progress again.
    Raises UserError for any input that `sslkit.pretrain` refuses, and when two runs would have the same name.
    """
    for config in configs:
        build.check_parts(config)
    remembered = {} if remembered is None else remembered
    facts = [_facts(config, remembered) for config in configs]
    names = [run.base_name(config, fact.backbone) for config, fact in zip(configs, facts, strict=True)]
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"{count} members would have the same name, {name}: list each method and seed only once")
    return [_member(*row) for row in zip(configs, names, facts, strict=True)]


@dataclass(frozen=True)
class _Facts:
    """Facts that a run's name and state depend on.

    listing, digest: of the images. init: sha256 of the initial weights; None for random ones.
    """

    backbone: str
    listing: str
    digest: str
    decodes: bool
    init: str | None


def _facts(config: Config, remembered: dict[str, Any]) -> _Facts:
    """remembered: results of earlier calls; runs that differ only by the seed share all of them."""
    learns = classes(config.method_name)["objective"].needs_labels  # such a run changes the labels of its data

    def facts() -> _Facts:
        opened = _once(remembered, [config.data, config.eval, learns], lambda: data.open_data(config))
        built = build.build_method(config, opened)
        images, recipe = opened.train, built.backbone.recipe
        init = recipe.origin and recipe.origin.sha256
        return _Facts(recipe.name, images.listing, images.digest, images.decodes, init)

    return _once(remembered, [dataclasses.replace(config, seed=0, name=None)], facts)


def _once(remembered: dict[str, Any], settings: list[Any], make: Callable[[], Any]) -> Any:
    plain = [
        [type(value).__name__, dataclasses.asdict(value)] if dataclasses.is_dataclass(value) else value
        for value in settings
    ]
    key = json.dumps(plain, sort_keys=True, default=str)
    if key not in remembered:
        remembered[key] = make()
    return remembered[key]


def _member(config: Config, name: str, facts: _Facts) -> Member:
    note = None
    try:
        mine = run.of_settings(config)
        for folder in mine:
            if _is_done(folder, facts):
                return Member(config, folder, "done", facts.decodes)
        if mine and _can_go_on(mine[0], facts):
            return Member(config, mine[0], "resume", facts.decodes)
    except UserError as error:
        note = str(error)
    return Member(config, run.fresh(Path(config.out), name), "new", facts.decodes, note)


def _is_done(folder: Path, facts: _Facts) -> bool:
    if not run.is_finished(folder):
        return False
    try:
        card = ZooEntry.load(folder).card
        now = (card.get("data", {}).get("digest"), card.get("init", {}).get("sha256"))
        return now == (facts.digest, facts.init)
    except UserError:  # damaged: `_can_go_on` raises the reason
        return False


def _can_go_on(folder: Path, facts: _Facts) -> bool:
    """Return whether training would resume here: it refuses other images and initial weights.

    Raises UserError if the run is damaged.
    """
    if run.is_finished(folder):
        ZooEntry.load(folder)
        return False
    if not os.path.lexists(folder / "config.yaml"):
        return False
    checkpoint, _ = newest_whole(folder, run.HOOKS)
    if checkpoint is None:
        return True
    try:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:  # a process that trains here has just finished, or has written a newer one
        return _can_go_on(folder, facts)
    begun = state["hooks"]["Start"]
    same = begun["listing"] == facts.listing and begun["digest"] in (
        None,
        facts.digest,
    )  # None: stopped before it was read
    return same and begun.get("init") == facts.init


def machine_for(configs: Sequence[Config], asked: int | None) -> Machine:
    """This machine, for runs with the same `trainer`. asked: parallel runs; None: as many as fit.

    Raises UserError for a trainer that is not possible here.
    """
    trainer = configs[0].trainer
    if trainer.num_nodes > 1:
        raise UserError(f"trainer.num_nodes={trainer.num_nodes}, but members are trained here: see cluster=slurm")
    if ":" in configs[0].device:
        raise UserError(f"device={configs[0].device}: the GPUs of a member are chosen here, so write device=cuda")
    gpus = visible_gpus() if configs[0].device in ("auto", "cuda") else []
    each = trainer.devices
    if each in ("auto", -1, "-1"):
        each = 1 if each == "auto" or not gpus else len(gpus)
    if not str(each).isdecimal():
        raise UserError(f"trainer.devices={each}: give a number; the GPUs of a member are chosen automatically")
    for config in {config.batch_size: config for config in configs}.values():
        check_trainer(dataclasses.replace(config, trainer=dataclasses.replace(trainer, devices=int(each))))
    return Machine(cores(), tuple(gpus), int(each), asked)


def visible_gpus() -> list[str]:
    """Identifiers of the GPUs that this process may use, in the form of CUDA_VISIBLE_DEVICES."""
    count = torch.cuda.device_count()
    return (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))).split(",")[:count]


def has_settled(member: Member, began: float) -> bool:
    """Return whether a run started at `began` has trained an epoch, so that its memory use is steady."""
    try:
        return (member.folder / LAST).stat().st_mtime > began
    except OSError:
        return False


def overview(members: Sequence[Member]) -> str:
    """The state of every member, in lines."""
    count = Counter(member.state for member in members)
    lines = [
        f"zoo       {members[0].config.out}: {len(members)} members, {count['done']} done, "
        f"{count['resume']} to go on with, {count['new']} to start"
    ]
    for member in members:
        lines.append(f"  {member.state:<7} {member.folder.name}")
        lines += [f"          beside a damaged run: {member.note}"] if member.note else []
    return "\n".join([*lines, f"logs      {log_of(members[0]).parent}"])


def log_of(member: Member) -> Path:
    return member.folder.parent / "logs" / f"{member.folder.name}.log"


def report(outcomes: Iterable[Outcome], members: Sequence[Member]) -> list[Outcome]:
    """Print a line for each job as it ends, and return them all."""
    by_name = {member.folder.name: member for member in members}
    total = sum(member.state != "done" for member in members)
    ended: list[Outcome] = []
    for outcome in outcomes:
        ended.append(outcome)
        member = by_name.get(outcome.job.name)
        say.lines(progress(ended, total, member) if member else f"{outcome.job.log}: ended with {outcome.code}")
    return ended


def failures(members: Sequence[Member], ended: Sequence[Outcome]) -> list[str]:
    """Lines on the members without an entry or with a failed process: the end of each one's log."""
    by_name = {outcome.job.name: outcome for outcome in ended}
    lines = []
    for member in members:
        outcome = by_name.get(member.folder.name)
        if not _has_failed(member, outcome):
            continue
        if outcome is None:
            lines.append(f"failed    {member.folder.name}: no entry yet; the launcher's logs: {log_of(member).parent}")
        else:
            lines.append(f"failed    {member.folder.name}: {_how(outcome)}; the end of {outcome.job.log}:")
            lines += [f"    {line}" for line in last_lines(outcome.job.log)]
    return lines


def progress(ended: Sequence[Outcome], total: int, member: Member) -> str:
    """The last member that ended, and below it its results and the time left for all `total`."""
    last, number = ended[-1], len(ended)
    if _has_failed(member, last):
        outcome = f"failed ({_how(last)}): {' '.join(last_lines(last.job.log, 1))}"
    else:
        outcome = _numbers(member)
    left = sum(job.seconds for job in ended) / number * (total - number) / (last.beside + 1)
    rest = f", about {duration(left)} left" if number < total else ""
    counter = f"[{number:>{len(str(total))}}/{total}] "
    return f"{counter}{member.folder.name}\n{' ' * len(counter)}{outcome}  {duration(last.seconds)}{rest}"


def _numbers(member: Member) -> str:
    try:
        after = ZooEntry.load(member.folder).card.get("after")
    except UserError as error:
        return str(error)
    return (
        f"quick kNN {100 * after['knn']:.1f} %  quick probe {100 * after['probe']:.1f} %"
        if after
        else "not evaluated: no labels"
    )


def _has_failed(member: Member, outcome: Outcome | None) -> bool:
    """outcome: of the member's own process, or None."""
    return not run.is_finished(member.folder) or (outcome is not None and outcome.code != 0)


def _how(outcome: Outcome) -> str:
    return f"signal {-outcome.code}" if outcome.code < 0 else f"exit code {outcome.code}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
