"""The lines at the end of a run: its results, its files, and what to run next."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sslkit.composition.method import signature
from sslkit.data.sources.builtin import NAMES
from sslkit.data.sources.own_dataset import PREFIX as OWN
from sslkit.options.command_line import words
from sslkit.terminal.columns import columns, printable
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.training.features import wilson
from sslkit.zoo.entry import WEIGHTS, ZooEntry

LONGER = 100  # epochs of the run that is proposed, where these are not more
OF_ONE_RUN = ("method", "data.source", "epochs", "name", "resume")  # not taken over by it as they are
BELOW = " " * 14  # a label of the last lines
PICTURES = ("views.png", "loss.png", "embedding.png")


def summary(entry: ZooEntry, data: Data, asked: Config) -> str:
    """The lines printed at the end of a run. Commands are written as in a clone; see `invocation.as_started`.

    asked: the settings as given, from which the next command is made.
    """
    card, folder = entry.card, entry.folder
    lines = ["", f"done in {card['seconds']:.0f} s of training: {folder}", "", *_results(card, data)]
    if paths := card.get("unreadable"):
        shown = paths[:5] + ([f"... all in {folder / 'card.json'}"] if len(paths) > 5 else [])
        unit = data.unit if len(paths) > 1 else data.unit.removesuffix("s")
        names = [f"    {printable(path, keep='')}" for path in shown]
        lines += ["", f"  {len(paths)} unreadable {unit} left out:", *names]
    lines = [*lines, "", *_files(folder), "", *_following(entry, data, asked)]
    return "\n".join(lines)


def _results(card: Mapping[str, Any], data: Data) -> list[str]:
    """The quick evaluations before and after training, and the rank of the features."""
    before, after, lines = card["before"], card.get("after"), []
    if after:
        held = "held-out " if data.held_out else ""
        judged_on = f"on {after['n']:,} {held}{data.unit}"
        lines = [f"  {judged_on:<41}   before     pretrained"]
        lines += [] if data.held_out else ["  (trained on too, without their labels: there is no test split)"]
        for key, name in (
            ("knn", f"{card['config']['eval']['k']}-nearest-neighbour accuracy"),
            ("probe", "quick probe accuracy"),
        ):
            half = 100 * wilson(after[key], after["n"])
            lines.append(f"  {name:<41} {100 * before[key]:6.1f} %   {100 * after[key]:8.1f} % ± {half:.1f}")
        for key, name in (("inter", "inter-class distance"), ("intra", "intra-class variance")):
            lines.append(f"  {name + ' (class means)':<41} {before[key]:8.3f}   {after[key]:10.3f}")
    if "diagnostics" in card:
        rank = card["diagnostics"]["rankme"]
        lines.append(f"  {'effective rank of the features (RankMe)':<41} {'':8}   {rank:10.1f}")
    return lines


def _files(folder: Path) -> list[str]:
    """The lines on the files of the folder."""
    pictures = [name for name in PICTURES if (folder / name).is_file()]
    return [
        f"  in {folder}",
        f"  weights   {WEIGHTS}; card.json says how to load it without sslkit",
        *([f"  pictures  {', '.join(pictures)}"] if pictures else []),
        f"  curves    metrics.csv, or: tensorboard --logdir {folder.parent}",
    ]


def _following(entry: ZooEntry, data: Data, asked: Config) -> list[str]:
    """How to load the entry, to judge it on the run's data, and to train again: for longer, or on own images."""
    card, folder = entry.card, str(entry.folder)
    maker, source = card["backbone"]["name"], str(card["data"]["source"])
    own = {"trust": maker} if ":" in maker else {}  # for user code
    given = {} if source in NAMES or source.startswith(OWN) else {"data": source}
    judged = {"checkpoint": folder, **given, **own}
    if data.clips is not None:
        judge = f"judge it:   python recipes/action_eval.py {words(judged)}"
    elif data.train.multi_labels is not None:
        judge = f"judge it:   python recipes/evaluate.py {words({**judged, 'protocols': 'linear'})}"
    elif data.bank is None and given:  # without classes there is nothing to judge by
        shown = {**judged, "out": f"{folder}/features.npz", "neighbours": 10, "map": "tsne"}
        judge = f"look at it: python recipes/embed.py {words(shown)}"
    else:
        judge = (
            f"judge it:   python recipes/evaluate.py {words(judged if data.bank else {'checkpoint': folder, **own})}"
        )
    argument = f"trust={maker!r}" if own else ""
    load = f"  load it:    net = sslkit.ZooEntry.load({folder!r}).backbone({argument})"
    if len(load) > columns():  # as Python reads it
        load = f"  load it:    net = sslkit.ZooEntry.load(\n{BELOW}  {folder!r}\n{BELOW}).backbone({argument})"
    return [load, f"  {judge}", f"  next:       python recipes/train.py {again(asked, data)}"]


def again(asked: Config, data: Data) -> str:
    """The words of the next run: on one's own images, or, if these were, longer with the same settings."""
    source = asked.data.source
    if source in NAMES or source.startswith(OWN):
        yours = "PATH/TO/YOUR/IMAGES" if data.clips is None else "video:PATH/TO/YOUR/VIDEOS"
        return words({"method": asked.method_name, "data": yours, "epochs": LONGER, **_of_method(asked)})
    epochs = max(LONGER, 4 * asked.epochs)
    return words({"method": asked.method_name, "data": source, "epochs": epochs, **_given(asked)})


def _of_method(asked: Config) -> dict[str, Any]:
    """The options of the method that are not the defaults and that fit any images."""
    found = {path: value for path, value in _given(asked).items() if path.startswith("method.")}
    return {path: value for path, value in found.items() if not str(value).startswith("features:")}


def _given(asked: Config) -> dict[str, Any]:
    """The settings, by their path, that are not the defaults."""
    usual, ours = dict(_leaves(Config().to_dict())), dict(_leaves(asked.to_dict()))
    found = {path: ours[path] for path in usual if path in ours and ours[path] != usual[path]}
    options = {f"method.{path}": value for path, value in _leaves(signature(asked.method_name))}
    given = {f"method.{path}": value for path, value in _leaves(asked.method_options())}
    found |= {path: value for path, value in given.items() if value is not None and value != options.get(path)}
    return {path: value for path, value in found.items() if path not in OF_ONE_RUN}


def _leaves(node: Any, path: str = "") -> list[tuple[str, Any]]:
    if not isinstance(node, Mapping):
        return [(path, node)]
    return [leaf for name, value in node.items() for leaf in _leaves(value, f"{path}.{name}".lstrip("."))]
