"""The last lines of a run: how to load its entry, judge it, and train again.

Of a program that gave its own module or data they are Python, since no shell knows these objects.
"""

from collections.abc import Mapping
from typing import Any

from sslkit.backbones import tune
from sslkit.data.sources.builtin import NAMES
from sslkit.data.sources.own_dataset import PREFIX as OWN
from sslkit.models.using import keywords, lines_of_call, lines_to_load
from sslkit.options.members import signature
from sslkit.options.settings import leaves
from sslkit.terminal.say import words
from sslkit.training.build import GENTLE
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.zoo.entry import ZooEntry

LONGER = 100  # epochs of the run that is proposed, where these are not more: as short as published runs are
OF_ONE_RUN = ("method", "data.source", "epochs", "name", "resume")  # not taken over by it as they are
RETAINED = ("clipart", "fashion_mnist")  # sets of the package
LOAD, JUDGE, LOOK, AGAIN = (f"  {label:<12}" for label in ("load it:", "evaluate:", "look at it:", "next:"))
NET, DATA = "net", "data"  # the objects of a program, in lines for it


def following(entry: ZooEntry, data: Data, asked: Config, gentler: Mapping[str, Any]) -> list[str]:
    """How to load the entry, to judge it on the run's data, and to train again: for longer, or on own images.

    gentler: settings for the next run, where this one has harmed the given weights.
    """
    body, source = entry.card["backbone"], str(entry.card["data"]["source"])
    trust = body["name"] if ":" in body["name"] else ""  # user code
    objects = {} if body["lines"] else {NET: f"the {body['name']}"}
    objects |= {DATA: "the images"} if source.startswith(OWN) else {}
    module = f", backbone={NET}" if NET in objects else ""
    load = lines_to_load(LOAD, str(entry.folder), keywords(trust=trust) + module)
    if not objects:
        judge = _judge(entry, data, asked, {"trust": trust} if trust else {})
        return [*load, judge, f"{AGAIN}python recipes/train.py {words(next_run(asked, gentler))}"]
    told = " and ".join(f"{name} is {what}" for name, what in objects.items())
    return [
        *load,
        *_judge_in_python(data, source, asked),
        *_train_in_python(objects, next_run(asked, gentler)),
        f"  (Python, where {told} that was given)",
    ]


def _judge(entry: ZooEntry, data: Data, asked: Config, trust: Mapping[str, str]) -> str:
    """The command that judges an entry on the run's own data; without classes the one that shows them."""
    folder, source = str(entry.folder), str(entry.card["data"]["source"])
    data_word = {} if source in NAMES else {"data": source, **asked.columns.words}
    judged = {"checkpoint": folder, **data_word, **trust}
    if recipe := data.train.item.evaluated_by:
        return f"{JUDGE}python recipes/{recipe} {words(judged)}"
    if data.train.multi_labels is not None:
        return f"{JUDGE}python recipes/evaluate.py {words({**judged, 'protocols': 'linear'})}"
    if data.bank is None and data_word:  # without classes there is nothing to judge by
        shown = {**judged, "out": f"{folder}/features.npz", "neighbours": 10, "map": "tsne"}
        return f"{LOOK}python recipes/embed.py {words(shown)}"
    if asked.init and data.bank is not None:  # another set of images says what is retained of the start
        both = source if asked.columns.words else [source, next(name for name in RETAINED if name != source)]
        judged |= {"data": both, "against": "start"}
    return f"{JUDGE}python recipes/evaluate.py {words(judged if data.bank else {'checkpoint': folder, **trust})}"


def _judge_in_python(data: Data, source: str, asked: Config) -> list[str]:
    """Likewise as Python, where `model` is loaded."""
    word = DATA if source.startswith(OWN) else repr(source)
    columns = {name.rpartition(".")[2]: column for name, column in asked.columns.words.items()}
    arguments = ["model", f"data={word}", *([f"columns={columns}"] if columns else [])]
    if data.train.item.axes:
        return [] if word == DATA else lines_of_call(JUDGE, "evaluation.action_recognition", arguments)
    if data.train.multi_labels is not None:
        arguments.append("protocols=['linear']")
    elif data.bank is None:
        return lines_of_call(LOOK, "embedding = evaluation.embed", ["model", word])
    return lines_of_call(JUDGE, "evaluation.evaluate", arguments)


def _train_in_python(objects: Mapping[str, str], settings: Mapping[str, Any]) -> list[str]:
    plain = {name: value for name, value in settings.items() if not (name == "data" and DATA in objects)}
    more = [*([f"data={DATA}"] if DATA in objects else []), *([f"backbone={NET}"] if NET in objects else [])]
    return lines_of_call(AGAIN, "sslkit.pretrain", [repr(plain), *more])


def next_run(asked: Config, gentler: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the next run: on one's own images, or, if these were, longer and with the same settings.

    gentler: settings that replace them.
    """
    source, options, epochs = asked.data.source, {**_given(asked), **gentler}, max(LONGER, 4 * asked.epochs)
    if source in NAMES:
        source, epochs = "PATH/TO/YOUR/IMAGES", LONGER
        fits_any = {path: not str(value).startswith("features:") for path, value in options.items()}
        on_any = {path for path in options if path in ("init", "tune") or path.startswith("method.")}
        options = {path: value for path, value in options.items() if path in on_any and fits_any[path]}
    return {"method": asked.method_name, "data": source, "epochs": epochs, **options}


def gentler_settings(asked: Config) -> dict[str, Any]:
    """Settings that change given weights less; none for a random start."""
    if not asked.init:
        return {}
    rate = {"optimizer.lr": GENTLE} if (asked.optimizer.lr or 0) > GENTLE else {}
    return {**rate, **({"tune": tune.NORMS} if asked.tune != tune.NORMS else {})}


def _given(asked: Config) -> dict[str, Any]:
    """The settings, by their path, that are not the defaults."""
    usual, ours = dict(leaves(Config().to_dict())), dict(leaves(asked.to_dict()))
    changed = {path: ours[path] for path in usual if path in ours and ours[path] != usual[path]}
    options = {f"method.{path}": value for path, value in leaves(signature(asked.method_name))}
    chosen = {f"method.{path}": value for path, value in leaves(asked.method_options())}
    changed |= {path: value for path, value in chosen.items() if value is not None and value != options.get(path)}
    return {path: value for path, value in changed.items() if path not in OF_ONE_RUN}
