"""Terminal output of `finetune`: the model, its accuracy beside what costs nothing, how to use it."""

from typing import Any

from evaluation.finetuning.finetune import Finetuned, finetune
from evaluation.results import unseen
from evaluation.results.numbers import describe_errors
from evaluation.results.tables import with_interval
from sslkit.decision import LABEL, MEAN, RAW, USE
from sslkit.models.using import line_to_predict, lines_to_load
from sslkit.terminal import say
from sslkit.terminal.say import words


def run(checkpoint: Any, data: Any, **how: Any) -> Finetuned:
    """Call `finetune` and print the outcome; called by `recipes/finetune.py`."""
    tuned = finetune(checkpoint, data, say=lambda line: say.line(f"          {line}"), **how)
    for line in lines(tuned):
        say.line(line)
    return tuned


def lines(tuned: Finetuned) -> list[str]:
    """Return the outcome in lines."""
    about, result, folder = tuned.entry.card["classifier"], tuned.result, str(tuned.entry.folder)
    note, errors = unseen.note_of(result), describe_errors(result.others)
    constant = f"; {MEAN} of train: {100 * result.largest.mean():.1f} %" if errors else ""
    text = [
        f"model     {about['made']}",
        f"measured  {result.metric} {with_interval(result.estimate)} on {about['measured']['images']}; "
        f"95 % interval: {result.kind}" + (f"; {note}" if note else ""),
        f"beside    {RAW}: {with_interval(tuned.pixels.estimate)}{constant}",
    ]
    if errors:
        text.insert(2, f"errors    {errors}")
    if tuned.calibration is not None:
        text.append(f"sure      {tuned.calibration}")
    if "interval" in about:
        text.append(f"interval  {about['interval']}")
    if tuned.decision is not None:
        text.append(f"{LABEL}{tuned.decision}")
    text.append(f"kept      {folder}")
    if tuned.decision is None or tuned.decision.taken:
        text += lines_to_load(USE, folder)
    return [
        *text,
        line_to_predict(folder),
        f"export    python recipes/export.py {words({'checkpoint': folder, 'to': 'onnx'})}",
    ]
