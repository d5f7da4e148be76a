"""Train the members of a zoo: every method with every plug-in and seed.

python recipes/zoo.py methods=[simclr,byol,barlow_twins,swav,mae] plugins=[none,dsa] seeds=[0,1]
python recipes/zoo.py methods=[simclr,byol] plugins=[none,dsa,dsa+koleo] data=path/to/images epochs=100 out=runs/mine
python recipes/zoo.py methods=[byol,swav] plugins=[none,dsa] method.dsa.nu=0.2 experiment=each jobs=2
python recipes/zoo.py methods=[byol,swav] cluster=slurm hydra.launcher.timeout_min=600 dry_run=true

Every setting of recipes/train.py is passed to each member; an option of one method or plug-in only to the members that
have it. Each member is a separate process, `python recipes/train.py ...`, with its log in OUT/logs/NAME.log. Running
the same command again trains the missing members: finished ones are unchanged, stopped ones resume from their last
checkpoint, and one that a killed zoo.py has left running is waited for. If a member fails, the others are still
trained, and the exit code is 1.

jobs=auto trains one member for one epoch; its peak memory (resident, with its loader processes), plus a quarter for
safety, and the number of cores then give the number of parallel members. On GPUs it is one process per GPU. Cores are
shared evenly. jobs=N always runs N.

On a cluster, cluster=slurm (or local, ray) submits the members to Hydra's launcher instead: pip install
hydra-submitit-launcher (or hydra-ray-launcher). dry_run=true prints the commands, which can also be run by hand:

python recipes/train.py -m method=byol,swav seed=0,1 hydra/launcher=submitit_slurm hydra.launcher.timeout_min=600
python recipes/train.py method=byol hydra/launcher=submitit_slurm --cfg hydra      (shows the launcher's settings)
"""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sslkit.cli.command import compose, one_line_errors, prepare
from sslkit.cli.grid import LAUNCHERS, Wanted, list_members, multiruns, parse_words
from sslkit.cli.help import plain_help, show
from sslkit.cli.stand_ins import help_group

import sslkit
from sslkit.decision import LABEL
from sslkit.options.settings import MOST_SEED, setting
from sslkit.terminal import say
from sslkit.terminal.say import by_command, words
from sslkit.training.config import Config

if TYPE_CHECKING:
    from sslkit.cli.sweep import Member

    from sslkit.runtime.jobs import Job, Machine, Outcome

TRAIN = os.path.relpath(Path(__file__).with_name("train.py"))
CONF = Path(__file__).with_name("conf")


@dataclass
class Settings:
    methods: str | list[str] = setting(("simclr", "byol", "barlow_twins", "swav", "mae"), "objectives")
    plugins: str | list[str | None] | None = setting(
        ("none", "dsa"), "regularisers of each method: none, dsa, koleo, dsa+koleo, ..."
    )
    seeds: int | list[int] = setting((0,), "random seeds; each adds one member per method", least=0, most=MOST_SEED)
    jobs: int | str = setting(
        "auto", "parallel members; auto: by memory and cores, or one per GPU", least=1, choices=("auto",)
    )
    cluster: str | None = setting(None, f"Hydra's launcher: {', '.join(LAUNCHERS)}; null: this machine")
    dry_run: bool = setting(False, "print the commands and train nothing")


def main(words: Sequence[str]) -> int:
    """Train the members; return the exit code: 0, or 1 if a member failed. Raises UserError before training."""
    from sslkit.cli import sweep

    from sslkit.files.leases import own_folder
    from sslkit.runtime.jobs import Machine, check_logs, run_all, wait_for_orphans

    settings, shared = parse_words(words, Settings(), Config())
    ones = list_members(settings, shared)
    configs = [Config.from_mapping(compose(wanted.words, Config(), CONF)) for wanted in ones]
    remembered: dict[str, Any] = {}
    members = sweep.examine(configs, remembered)
    asked = None if settings.jobs == "auto" else settings.jobs
    machine = Machine(0, asked=len(members)) if settings.cluster else sweep.machine_for(configs, asked)
    plan = _on_the_cluster if settings.cluster else partial(_here, machine=machine)
    if settings.dry_run:
        say.lines(sweep.overview(members))
        train = ["sslkit", "train"] if by_command() else ["python", TRAIN]
        print("\n".join(shlex.join([*train, *job.command[2:]]) for job in plan(_missing(ones, members))))
        return 0
    with own_folder(Path(members[0].config.out), "trains members in"):
        wait_for_orphans(sweep.log_of(members[0]).parent)
        members = sweep.examine(configs, remembered)  # another zoo.py, or an orphan, may have trained some meanwhile
        say.lines(sweep.overview(members))
        check_logs(jobs := plan(_missing(ones, members)))
        with closing(run_all(jobs, machine)) as outcomes:
            ended = sweep.report(outcomes, members)
    return _end(members, ended)


def _missing(ones: Sequence[Wanted], members: Sequence["Member"]) -> list[tuple[Wanted, "Member"]]:
    return [(wanted, member) for wanted, member in zip(ones, members, strict=True) if member.state != "done"]


def _here(missing: Sequence[tuple[Wanted, "Member"]], machine: "Machine") -> list["Job"]:
    """Jobs on this machine, one for each member."""
    from sslkit.cli import sweep

    from sslkit.runtime.jobs import Job

    workers = max(1, min(8, machine.threads(machine.most(len(missing))) - 1))
    jobs = []
    for wanted, member in missing:
        command = [sys.executable, TRAIN, *wanted.words]
        if member.state == "resume":
            command.append("resume=true")
        if member.decodes and member.config.workers == "auto":
            command.append(f"workers={workers}")
        settled = partial(sweep.has_settled, member)
        jobs.append(Job(member.folder.name, command, sweep.log_of(member), settled))
    return jobs


def _on_the_cluster(missing: Sequence[tuple[Wanted, "Member"]]) -> list["Job"]:
    """Jobs on a cluster, one for each multirun; Hydra's launcher trains the members and writes its logs to OUT/logs."""
    from sslkit.runtime.jobs import Job

    if not missing:
        return []
    logs = Path(missing[0][1].config.out) / "logs"
    runs = multiruns([(wanted, member.state == "resume") for wanted, member in missing])
    commands = [[sys.executable, TRAIN, *words, f"hydra.sweep.dir={logs}"] for words in runs]
    names = [f"multirun-{number}" for number in range(1, len(commands) + 1)]
    return [Job(name, command, logs / f"{name}.log") for name, command in zip(names, commands, strict=True)]


def _end(members: Sequence["Member"], ended: Sequence["Outcome"]) -> int:
    """Print the zoo and the next command; return the exit code."""
    from sslkit.cli import sweep

    out = members[0].config.out
    zoo = sslkit.zoo.open(out)
    say.lines(f"\n{zoo}")
    if decision := zoo.decision:
        say.lines(f"\n{LABEL}quick probe: {decision}")
    failed = sweep.failures(members, ended)
    again = ["again     the same command trains the missing members"] if failed else []
    following = f"next      python recipes/rank.py {words({'zoo': out, **_task(members)})}"
    say.lines("\n".join(["", *failed, *again, following]))
    return 1 if failed else 0


def _task(members: Sequence["Member"]) -> dict[str, Any]:
    """The data to rank the members for: those they were trained on, if these are one's own and have classes."""
    from sslkit.data.sources.builtin import NAMES

    config = members[0].config
    source = config.data.source
    judged = any(entry.card.get("after") for entry in sslkit.zoo.open(config.out))
    return {"data": source, **config.columns.words} if judged and source not in NAMES else {"data": "clipart"}


if __name__ == "__main__":
    prepare()
    say.print_lines()
    with one_line_errors():
        if (part := help_group(sys.argv)) is not None:
            show(plain_help(Settings(), __doc__, {}, part))
        else:
            sys.exit(main(sys.argv[1:]))
