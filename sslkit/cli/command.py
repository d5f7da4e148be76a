"""Shared parts of all command lines: Hydra's key=value words, help from the settings' docstrings, one-line errors."""

import dataclasses
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sslkit.cli import process, stand_ins  # first: it says in one line what stops the imports, too
from sslkit.cli.stand_ins import help_group

if process.is_command() and help_group(sys.argv) is not None:
    stand_ins.install(sys.argv)  # before the first import of a large library
elif process.is_command() and Path(sys.argv[0]).name == "train.py":
    from sslkit.cli.words import check_data

    check_data(sys.argv[1:])

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sslkit.cli.help import experiment_names, help_text, plain_help, show
from sslkit.cli.words import SWEEP, check, hint_to_escape, join_flags, lengthen, one_line, quote_each, quote_value

from sslkit.errors import RunFailed, UserError
from sslkit.options import members
from sslkit.options.members import signature
from sslkit.options.settings import iter_settings, overlaid, texts_of
from sslkit.terminal import say
from sslkit.terminal.say import as_typed, counted, printable

STOPPED = "stopped before the training began"
QUIET = {  # no output folder and no log of Hydra
    "defaults": ["_self_", {"override hydra/job_logging": "disabled"}, {"override hydra/hydra_logging": "disabled"}],
    "hydra": {"output_subdir": None, "run": {"dir": "."}, "sweep": {"dir": ".", "subdir": "."}},
}


def run(task: Callable[[dict[str, Any]], Any], settings: Any, usage: str, conf: Path) -> None:
    """Compose `settings` (a dataclass with a `method`) with the words of the command line and call the task.

    conf: folder of Hydra's files. The exit codes are those of `process`.
    """
    prepare()
    with one_line_errors(STOPPED):
        words = _quote_words(join_flags(sys.argv[1:]), settings)
        methods = _methods(words, settings.method)
        if (group := help_group(words)) is not None:
            show(help_text(settings, methods[0], usage, conf, group))
            return
        _check(words, dataclasses.asdict(settings), methods, conf)
        _check_values(words, settings)
        _register(settings, methods)
        sys.argv[1:] = _flags_first(words)
        refused: list[str] = []
        hydra.main(version_base="1.3", config_path=str(conf.resolve()), config_name="config")(
            _job(task, refused, STOPPED)
        )()
        if refused:
            raise RunFailed(
                f"{counted(len(refused), 'job')} of the sweep failed, the others are done: {'; '.join(refused)}"
            )


def compose(words: Sequence[str], settings: Any, conf: Path) -> dict[str, Any]:
    """Return the configuration that `run` passes to its task for these words, of one method. Raises UserError."""
    words = _quote_words(words, settings)
    methods = _methods(words, settings.method)
    _check(words, dataclasses.asdict(settings), methods, conf)
    _register(settings, methods)
    outer, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None  # of a task that composes another's words
    try:
        with hydra.initialize_config_dir(str(conf.resolve()), version_base="1.3"):
            return OmegaConf.to_container(hydra.compose("config", overrides=words), resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"cannot read {' '.join(words)}: {one_line(error)}{hint_to_escape(words)}") from error
    finally:
        GlobalHydra.instance().hydra = outer


def run_plain(
    task: Callable[[dict[str, Any]], Any],
    settings: Any,
    usage: str,
    options: Mapping[str, type] | Callable[[], Mapping[str, type]],
    of_all_parts: Callable[[], Mapping[str, type]] | None = None,
) -> None:
    """Like `run` for `settings` without a method; each value is checked against its setting's range.

    options: the dataclass with the options of each part, set by part.option=value; those of part "" by option=value;
        or what gives them, and may raise UserError.
    of_all_parts: gives those of all parts, if `options` has only those that the words name: for the help, and the
        error of a word that no part has.
    """
    prepare()
    with one_line_errors():  # the outermost one: behind it signals are ignored
        options = options() if callable(options) else options
        of_all_parts = of_all_parts or (lambda: options)
        words = _quote_words(sys.argv[1:], settings, shorten=False)
        if (section := help_group(words)) is not None:
            show(plain_help(settings, usage, of_all_parts(), section))
            return
        tree = _tree(settings, options)
        try:
            _check_plain(words, tree)
        except UserError:
            _check_plain(words, _tree(settings, of_all_parts()))
            raise
        ConfigStore.instance().store(name="plain", node={**QUIET, **tree})
        sys.argv[1:] = _flags_first(words)
        names = {field.name for field in dataclasses.fields(settings)}

        def run_task(config: dict[str, Any]) -> Any:
            chosen = {name: value for name, value in config.items() if name in names}
            return task({**config, **dataclasses.asdict(overlaid(settings, chosen))})

        hydra.main(version_base="1.3", config_path=None, config_name="plain")(_job(run_task))()


def _tree(settings: Any, options: Mapping[str, type]) -> dict[str, Any]:
    """The settings and the options of each part with their defaults."""
    tree = dataclasses.asdict(settings)
    for group, owner in options.items():
        tree |= {group: members.options(owner)} if group else members.options(owner)
    return tree


def _check_plain(words: Sequence[str], tree: Mapping[str, Any]) -> None:
    check(words, {**{name: "" if value is None else value for name, value in tree.items()}, "hydra": None})


@contextmanager
def one_line_errors(stopped: str = process.STOPPED) -> Iterator[None]:
    """Print an error for people, a parse error of Hydra or a stop by a signal in one line, and exit with its code.

    stopped: the line of a stop that has none of its own.
    """
    try:
        with process.stops(stopped):
            yield
    except RunFailed as error:
        process.end(process.FAILED, error_lines(error))
    except UserError as error:
        process.end(process.REFUSED, error_lines(error))
    except (HydraException, OmegaConfBaseException) as error:
        process.end(process.REFUSED, f"error: {_one_line(one_line(error))}{hint_to_escape(sys.argv[1:])}")


def error_lines(error: UserError) -> str:
    """The line of an error, and those of its details."""
    return "error: " + "\n".join(map(_one_line, error.lines))


def _one_line(text: str) -> str:
    """The text as it is started here; names in it may hold what would begin another line."""
    return printable(as_typed(text), keep="")


def _quote_words(words: Sequence[str], settings: Any, *, shorten: bool = True) -> list[str]:
    """Words in Hydra's grammar; in a sweep commas separate values, each of which is quoted where it must be."""
    words = [lengthen(word) for word in words if word != "experiment=null"] if shorten else list(words)
    as_read = quote_each if shorten and SWEEP & set(sys.argv) else quote_value
    return [as_read(word, texts_of(settings)) for word in words]


def _flags_first(words: Sequence[str]) -> list[str]:
    """The words with those of a sweep before all others, among which Hydra's parser refuses them."""
    return sorted(words, key=lambda word: word not in SWEEP)


def prepare() -> None:
    """Prepare the process of a command line. A warning is printed in one line, without its code location."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # otherwise Hydra prints errors itself, in several lines
    process.keep_freed_memory()
    warnings.formatwarning = lambda message, *_: f"warning: {_one_line(str(message))}\n"


def _job(
    task: Callable[[dict[str, Any]], Any], refused: list[str] | None = None, stopped: str = process.STOPPED
) -> Callable[[DictConfig], Any]:
    """The function that Hydra calls for each job. refused: gets the words of the failed jobs of a sweep.

    A UserError ends a single job; in a sweep of Hydra's own launcher it is printed, and the next job starts.
    """

    def job(config: DictConfig) -> None:
        # Lightning starts other ranks with this command line: it must be that of the job, not of the sweep.
        sys.argv[1:] = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
        hydra_config = HydraConfig.get()  # only the basic launcher runs the jobs of a sweep in one process
        shares = hydra_config.mode == RunMode.MULTIRUN and hydra_config.launcher._target_.endswith("BasicLauncher")
        HydraConfig.instance().cfg = None
        say.print_lines()
        with one_line_errors(stopped):
            try:
                task(OmegaConf.to_container(config, resolve=True))
            except UserError as error:
                if refused is None or not shares:
                    raise
                print(error_lines(error), file=sys.stderr)
                refused.append(" ".join(sys.argv[1:]))

    return job


def _methods(words: list[str], default: str) -> list[str]:
    methods = [word.partition("=")[2] for word in words if word.startswith("method=")]
    return (methods[-1] if methods else default).split(",")


def _register(settings: Any, methods: list[str]) -> None:
    """Register the Hydra nodes: the dataclass's defaults, and each method's options from its signature."""
    store = ConfigStore.instance()
    plain = dataclasses.asdict(settings)
    plain.pop("method")
    store.store(name="settings", node=plain)
    for name in methods:
        store.store(group="method", name=name, node={"name": name, **signature(name)})
    store.store(name="chosen", node={"defaults": [{"method": methods[0]}]})


def _check(words: list[str], tree: Mapping[str, Any], methods: list[str], conf: Path) -> None:
    """Check as `words.check` does, with the methods' options and the experiments' names."""
    tree = {**tree, "method": {}, "hydra": None, "experiment": None}
    for name in methods:
        tree["method"] |= signature(name)
    for word in words:
        key, _, value = word.lstrip("+~").partition("=")
        for experiment in value.split(",") if key == "experiment" else ():
            if experiment not in ("null", *(experiments := experiment_names(conf))):
                raise UserError(f"there is no experiment {experiment!r}: {members.nearest(experiment, experiments)}")
    check([word for word in words if not word.startswith("method=")], tree)


def _check_values(words: Sequence[str], settings: Any) -> None:
    """Check the values of the settings before the imports of the task; of a sweep (-m) those of every job."""
    by_path = {option.path: option for option in iter_settings(settings)}
    for word in words:
        if word.startswith("-") or "${" in word:  # the latter is another setting's value
            continue
        override = OverridesParser.create().parse_override(word)
        if override.key_or_group in by_path and not override.is_delete():
            values = override.sweep_iterator() if override.is_sweep_override() else [override.value()]
            for value in values:
                by_path[override.key_or_group].check(value.text if isinstance(value, QuotedString) else value)
