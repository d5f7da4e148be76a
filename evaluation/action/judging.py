"""What a person sees of action recognition: a line for each split as it goes, one table, and the next command."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evaluation import store
from evaluation.models import LoadedModel, load_model
from evaluation.protocols.action import action
from evaluation.result import Result
from evaluation.run import results_folder
from evaluation.summary import chosen, described, print_differences
from evaluation.tables import table


def judge(
    checkpoint: Any = None,
    zoo: str | Path | None = None,
    *,
    out: str | Path = "runs/evaluation",
    image_size: int | None = None,
    **options: Any,
) -> list[Result]:
    """Run the protocol for one model or several and print the table; `recipes/action_eval.py` calls it.

    checkpoint: a model or a list, see `evaluation.load_model`; or zoo: a folder of entries. options: see
    `evaluation.protocols.action.action`. Each result is added to the zoo entry's results.jsonl, or below `out`.
    Returns the results of all. Raises UserError before anything is computed.
    """
    models = [load_model(one, image_size=image_size) for one in chosen(checkpoint, zoo)]
    results = []
    for model in models:
        print(f"model     {described(model)}", flush=True)
        folder = results_folder(model, out)
        results.append(action(model, out=folder, say=_line, **options))
        store.append(folder, results[-1])
    print(f"\n{table(shown(results))}\n")
    print_differences(results)
    print(f"results   {', '.join(str(results_folder(model, out) / store.RESULTS) for model in models)}")
    print(f"next      {hint(models, options)}")
    return results


def shown(results: list[Result]) -> list[Result]:
    """The rows of the table: each result, its top-5 and its splits; the model's name only where there are several."""
    rows = []
    for result in results:
        rows.append(result)
        rows += [_row(result, name) for name in result.others if name == "top5" or name.startswith("split ")]
    several = len({result.model for result in results}) > 1
    return rows if several else [replace(row, model="") for row in rows]


def _row(result: Result, name: str) -> Result:
    return replace(result, metric=name, **asdict(result.others[name]))


def hint(models: list[LoadedModel], options: Mapping[str, Any]) -> str:
    """The next command to type: beside an untrained network, then the other protocol."""
    model = models[0]
    name = str(model.entry.folder) if model.entry else model.name
    asked = ("data", "protocol", "recipe", "epochs", "features")
    words = [f"{word}={options[word]}" for word in asked if options.get(word) not in (None, "live")]
    if len(models) == 1 and model.entry:
        words = [f"checkpoint=[{name},random:{name}]", *words]
        return f"python recipes/action_eval.py {' '.join(words)}   (beside the same network untrained)"
    data = options.get("data") or "video:FOLDER"
    return f"python recipes/action_eval.py checkpoint={name} data={data} protocol=fine_tune"


def _line(text: str) -> None:
    print(f"          {text}", flush=True)
