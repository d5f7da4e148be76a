"""What the command lines share: Hydra's key=value words, help from the settings' own text, and errors in one line."""

import dataclasses
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from sslkit import members, objectives, regularizers
from sslkit.allocator import keep_freed_memory
from sslkit.errors import UserError
from sslkit.method import signature

EXPERIMENTS = Path(__file__).parent / "conf" / "experiment"
WORDS = {"data": "source", "optimizer": "name"}  # `data=X` is short for `data.source=X`
SHOWING = ("--cfg", "-c", "--package", "-p", "--info", "-i")  # Hydra's own, of which a word may follow
CALL = re.compile(r"""[^\s\[\],"'()][^\[\],"'()]*\([^()"']*\)[^\[\],"'()]*""")  # ped(lam=0.3)+logme
IN_LIST = re.compile(rf"(?<=[\[, ]){CALL.pattern}")
QUIET = {  # Hydra leaves no folder and no log of its own
    "defaults": ["_self_", {"override hydra/job_logging": "disabled"}, {"override hydra/hydra_logging": "disabled"}],
    "hydra": {"output_subdir": None, "run": {"dir": "."}, "sweep": {"dir": ".", "subdir": "."}},
}


def run(task: Callable[[dict[str, Any]], Any], settings: Any, usage: str) -> None:
    """Compose `settings` (a dataclass with a `method`) with the words of the command line and call the task.

    UserError is printed in one line and ends with exit code 2.
    """
    _prepare()
    try:
        words = [_lengthen(word) for word in _joined(sys.argv[1:])]
        methods = _methods(words, settings.method)
        if {"--help", "-h"} & set(words):
            print(help_text(settings, methods[0], usage))
            return
        _check(words, dataclasses.asdict(settings), methods)
        _register(settings, methods)
        sys.argv[1:] = words
        hydra.main(version_base="1.3", config_path=str(Path(__file__).parent / "conf"), config_name="config")(
            _job(task)
        )()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def composed(words: Sequence[str], settings: Any) -> dict[str, Any]:
    """What `run` would give its task for these words, with one method. Raises UserError for words that are wrong."""
    words = [_lengthen(word) for word in words]
    methods = _methods(words, settings.method)
    _check(words, dataclasses.asdict(settings), methods)
    _register(settings, methods)
    try:
        with hydra.initialize_config_dir(str(EXPERIMENTS.parent.resolve()), version_base="1.3"):
            return OmegaConf.to_container(hydra.compose("config", overrides=words), resolve=True)
    except HydraException as error:
        raise UserError(f"cannot read {' '.join(words)}: {str(error).splitlines()[0]}") from error


def run_plain(
    task: Callable[[dict[str, Any]], Any], settings: Any, usage: str, options: Mapping[str, Mapping[str, Any]]
) -> None:
    """The same for `settings` without a method.

    options: {part: {option: default}}, set by part.option=value; those of part "" by option=value.
    """
    _prepare()
    try:
        words = [_quoted(word) for word in sys.argv[1:]]
        if {"--help", "-h"} & set(words):
            print(plain_help(settings, usage, options))
            return
        tree = dataclasses.asdict(settings)
        for part, known in options.items():
            tree |= {part: dict(known)} if part else known
        check(words, {**tree, "hydra": None})
        ConfigStore.instance().store(name="plain", node={**QUIET, **tree})
        sys.argv[1:] = words
        hydra.main(version_base="1.3", config_path=str(EXPERIMENTS.parent), config_name="plain")(_job(task))()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _prepare() -> None:
    """What every command line wants of the process. A warning is one line, without the place in the code."""
    keep_freed_memory()
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"


def plain_help(settings: Any, usage: str, options: Mapping[str, Mapping[str, Any]]) -> str:
    """Every setting with its default and its text, and the options of each part."""
    lines = [usage, "", "settings, with their defaults", *_settings_lines(settings, "")]
    for part, known in options.items():
        lines += ["", f"options of {part}"] if known and part else [""]
        lines += [f"  {f'{part}.{key}'.lstrip('.')}={_shown(value)}" for key, value in known.items()]
    return "\n".join(line.rstrip() for line in lines)


def _quoted(word: str) -> str:
    """Paths may hold what Hydra's grammar reads otherwise, such as = and blanks; name(option=value) is a call to it."""
    key, equals, value = word.partition("=")
    if not equals or word.startswith("-") or value[:1] in ("{", '"', "'"):
        return word
    if value[:1] == "[":
        return f"{key}={IN_LIST.sub(_in_quotes, value)}"
    return f"{key}={_in_quotes(value)}" if "/" in value or CALL.fullmatch(value) else word


def _in_quotes(value: str | re.Match) -> str:
    text = value if isinstance(value, str) else value.group()
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _job(task: Callable[[dict[str, Any]], Any]) -> Callable[[DictConfig], Any]:
    def job(config: DictConfig) -> None:
        # Lightning starts its other ranks by this command line: it must be this job's, not the whole sweep's.
        sys.argv[1:] = list(HydraConfig.get().overrides.task)
        HydraConfig.instance().cfg = None
        try:
            task(OmegaConf.to_container(config, resolve=True))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)

    return job


def _joined(words: Sequence[str]) -> list[str]:
    """`--cfg hydra` as `--cfg=hydra`: what has no = would be taken for a setting."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in SHOWING and "=" not in word and not word.startswith("-"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _lengthen(word: str) -> str:
    key, equals, value = word.partition("=")
    if not equals or key not in WORDS:
        return word
    sweep = {"-m", "--multirun"} & set(sys.argv)
    quoted = value if sweep else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{key}.{WORDS[key]}={quoted}"


def _methods(words: list[str], default: str) -> list[str]:
    given = [word.partition("=")[2] for word in words if word.startswith("method=")]
    return (given[-1] if given else default).split(",")


def _register(settings: Any, methods: list[str]) -> None:
    """The Hydra nodes: the dataclass's defaults, and each method's options from its signature."""
    store = ConfigStore.instance()
    plain = dataclasses.asdict(settings)
    plain.pop("method")
    store.store(name="settings", node=plain)
    for name in methods:
        store.store(group="method", name=name, node={"name": name, **signature(name)})
    store.store(name="chosen", node={"defaults": [{"method": methods[0]}]})


def _check(words: list[str], tree: Mapping[str, Any], methods: list[str]) -> None:
    """As `check`, with the methods' options and the experiments' names."""
    tree = {**tree, "method": {}, "hydra": None, "experiment": None}
    for name in methods:
        tree["method"] |= signature(name)
    for word in words:
        key, _, given = word.lstrip("+~").partition("=")
        for experiment in given.split(",") if key == "experiment" else ():
            if experiment not in ("null", *_experiments()):
                raise UserError(f"there is no experiment {experiment!r}: {members.nearest(experiment, _experiments())}")
    check([word for word in words if not word.startswith("method=")], tree)


def check(words: list[str], tree: Mapping[str, Any]) -> None:
    """Refuse an unknown key with the nearest known one, before Hydra says it in its own way."""
    for word in words:
        key, equals, _ = word.lstrip("+~").partition("=")
        if word.startswith("-") or not equals:
            if not word.startswith("-"):
                raise UserError(f"cannot read {word!r}: write key=value")
            continue
        parts = key.replace("/", ".").split(".")  # hydra/launcher=... chooses from a group
        node: Any = tree
        for depth, part in enumerate(parts):
            if node is None:
                break
            if not isinstance(node, Mapping) or part not in node:
                known = node if isinstance(node, Mapping) else ()
                path = ".".join(parts[:depth])
                of = f" in {path}" if path else ""
                raise UserError(f"there is no setting {key!r}{of}: {members.nearest(part, known)}")
            node = node[part]


def help_text(settings: Any, method: str, usage: str) -> str:
    """Every setting with its default, every member in one line, and the options of the chosen method."""
    lines = [usage, "", "settings, with their defaults"]
    lines += list(_settings_lines(settings, ""))
    lines += [f"  {'experiment=null':<34} settings of a file in {EXPERIMENTS.name}/: {', '.join(_experiments())}"]
    for title, family in (("objectives", objectives), ("regularisers", regularizers)):
        lines += ["", title]
        lines += [f"  {name:<28} {members.summary(family.find(name))}" for name in family.names()]
    lines += ["", f"options of method={method}"]
    for part, options in signature(method).items():
        lines += [f"  {f'method.{part}.{k}={_shown(v)}':<44}" for k, v in options.items()]
    return "\n".join(line.rstrip() for line in lines)


def _experiments() -> list[str]:
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))


def _settings_lines(node: Any, where: str) -> Any:
    for f in dataclasses.fields(node):
        value = getattr(node, f.name)
        if dataclasses.is_dataclass(value):
            yield from _settings_lines(value, f"{where}{f.name}.")
        else:
            yield f"  {f'{where}{f.name}={_shown(value)}':<34} {f.metadata.get('help', '')}"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "[" + ",".join(map(_shown, value)) + "]" if isinstance(value, (list, tuple)) else str(value)
