"""The output of a solution: the lines of a terminal, a JSON file, and one offline page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from evaluation.datasets import Split
from evaluation.learners.calibration import calibration_error, softmax
from evaluation.results.numbers import describe_errors, describe_half
from evaluation.results.tables import table as results_table
from evaluation.results.tables import with_interval
from evaluation.solving.solve import Solution, solve
from evaluation.solving.unlabelled import WORTH, BestFeatures
from sslkit.data.manifest.page import TEMPLATE as LOOK
from sslkit.decision import LABEL, USE
from sslkit.files import pages
from sslkit.files.writing import write_text
from sslkit.models.using import line_to_predict
from sslkit.terminal import say
from sslkit.terminal.say import as_started, lasting, words
from sslkit.terminal.tables import align

TEMPLATE = Path(__file__).parent
MISTAKES = 24  # pictures of held-back images that were answered wrongly: two rows of a wide window
SIDE = 112  # pixels of these


def run(data: Any, zoo: Any, *, out: str | Path, **how: Any) -> Solution | BestFeatures:
    """Solve and print the outcome; called by `recipes/solve.py`. Arguments: see `solve`."""
    solution = solve(data, zoo, out=out, say=say.line, **how)
    if isinstance(solution, BestFeatures):
        tell_features(solution, data)
        return solution
    say.lines(f"\n{table(solution)}\n")
    for line in lines(solution):
        say.line(line)
    folder = solution.entry.folder.parent
    written = [write_json(solution, folder / "solution.json"), write_page(solution, folder / "solution.html")]
    say.line(f"written   {', '.join(map(str, [*written, solution.entry.folder]))}")
    if solution.decision.taken or not solution.decision.decides:
        say.line(f"{USE}model = sslkit.load({str(solution.entry.folder)!r})")
    say.line(line_to_predict(solution.entry.folder))
    return solution


def tell_features(best: BestFeatures, data: Any) -> None:
    """Print the answer without labels, what it is worth, and what to type next."""
    say.lines(f"\n{results_table(best.results)}\n")
    say.line(f"{LABEL}{best.results[0].data}, without labels: {best.decision}")
    say.line(f"worth     {WORTH}")
    if not best.decision.taken:
        return
    say.line(f"{USE}model = sslkit.load({best.checkpoint!r})")
    following = words({"checkpoint": best.checkpoint, "data": data, "out": "features.npz"})
    say.line(f"next      python recipes/embed.py {following}")


def table(solution: Solution) -> str:
    """Return the candidates with their value on known images, and the chosen one and the controls on held-back ones."""
    return align(_cells(solution), [1, 2])


def _cells(solution: Solution) -> list[list[str]]:
    """The table of all candidates and controls, its header first."""
    chosen = solution.answer
    rows = [["candidate", "known images", "time", "held back"]]
    for judged in solution.judged:
        held_back = with_interval(chosen.result.estimate) if judged is chosen.judged else ""
        rows.append([str(judged), f"{100 * judged.value:.1f} %", lasting(judged.seconds), held_back])
    return rows + [[result.model, "", "", with_interval(result.estimate)] for result in solution.controls]


def lines(solution: Solution) -> list[str]:
    """Return the decision, what tuning gained, what was spent, and notes."""
    problem, chosen = solution.problem, solution.answer
    text = [f"{LABEL}{problem.name}: {solution.decision}"]
    if problem.has_numbers:
        text.append(f"errors    {describe_errors(chosen.result.others)}")
        if chosen.half is not None:
            held_back = problem.held_back
            text.append(f"interval  {describe_half(chosen.half, len(held_back), held_back.groups)}")
    else:
        text.append(f"sure      {calibration(chosen.scores, problem.held_back.y)}")
    text.append(f"spent     {solution.budget}")
    text += [f"note      {note}" for note in solution.notes]
    return text


def calibration(scores: np.ndarray, y: np.ndarray) -> str:
    """Return how well the probabilities of held-back images fit, in words."""
    error = 100 * calibration_error(scores, y)
    return f"its probabilities are off by {error:.1f} points in the mean (expected calibration error)"


def write_json(solution: Solution, path: Path) -> Path:
    """Write what was chosen, of what, and how good it is."""
    content = {
        "data": solution.problem.name,
        "decision": str(solution.decision),
        "taken": solution.decision.taken,
        "candidates": [
            {"name": str(judged), "value": judged.value, "seconds": judged.seconds, **judged.setting}
            for judged in solution.judged
        ],
        "left_out": solution.left_out,
        "held_back": {
            result.model: {"value": result.value, "interval": result.interval, "n": result.n}
            for result in solution.results
        },
        "entry": str(solution.entry.folder),
        "spent": solution.budget.spent,
        "budget": solution.budget.seconds,
    }
    write_text(path, json.dumps(content, indent=1) + "\n")
    return path


def write_page(solution: Solution, path: Path) -> Path:
    """Write one offline page: the decision, all candidates, what was spent, and the surest mistakes."""
    templates = pages.open_templates(TEMPLATE, style=(LOOK / "look.css").read_text(encoding="utf-8"))
    context = {
        "name": solution.problem.name,
        "lines": lines(solution),
        "candidates": _cells(solution),
        "confusions": _confusions(solution),
        "mistakes": _mistakes(solution),
        "has_numbers": solution.problem.has_numbers,
        "left_out": solution.left_out,
        "folder": solution.entry.folder,
    }
    return pages.write_page(path, as_started(templates.get_template("solution.html").render(context)))


def _confusions(solution: Solution) -> list[list[str]]:
    """Each class with its held-back images, the share that is right, and the class it is most often taken for."""
    held_back, names = solution.problem.held_back, solution.problem.classes
    if held_back.y.ndim != 1 or held_back.has_numbers:
        return []
    answers = solution.answer.scores.argmax(1)
    rows = []
    for label in np.unique(held_back.y):
        answered = answers[held_back.y == label]
        wrong = np.bincount(answered[answered != label], minlength=len(names))
        other = f"{names[wrong.argmax()]} ({wrong.max():,})" if wrong.any() else ""
        rows.append((float((answered == label).mean()), [names[label], f"{len(answered):,}", other]))
    rows.sort(key=lambda row: row[0])
    return [[name, count, f"{100 * share:.1f} %", other] for share, (name, count, other) in rows]


def _mistakes(solution: Solution) -> list[tuple[str, list[str]]]:
    """Pictures of the held-back images whose wrong answer is the surest, with what was said and what they are."""
    held_back, names = solution.problem.held_back, solution.problem.classes
    if held_back.y.ndim != 1:
        return []
    if held_back.has_numbers:
        return _largest_errors(held_back, solution.answer.scores[:, 0])
    shares = softmax(solution.answer.scores)
    answers, sure = shares.argmax(1), shares.max(1)
    wrong = np.flatnonzero(answers != held_back.y)
    rows = wrong[np.argsort(-sure[wrong], kind="stable")][:MISTAKES]
    captions = [
        [str(held_back.ids[row]), f"is {names[held_back.y[row]]}", f"{names[answers[row]]} {100 * sure[row]:.0f} %"]
        for row in rows
    ]
    return list(zip(_pictures(held_back, rows), captions, strict=True))


def _largest_errors(held_back: Split, predicted: np.ndarray) -> list[tuple[str, list[str]]]:
    """Pictures of the held-back images whose number is the furthest from the predicted one (N,), with both."""
    rows = np.argsort(-np.abs(held_back.y - predicted), kind="stable")[:MISTAKES]
    captions = [
        [str(held_back.ids[row]), f"is {held_back.y[row]:.4g}", f"predicted {predicted[row]:.4g}"] for row in rows
    ]
    return list(zip(_pictures(held_back, rows), captions, strict=True))


def _pictures(split: Split, rows: Sequence[int]) -> list[str]:
    """The images as data of a page, squeezed to squares; of many channels the first."""
    if not len(rows):
        return []
    images = split.images
    small = images.at(image_size=SIDE, channels=images.channels, fit="squash") if images.decodes else images
    batch = small.__getitems__([int(row) for row in rows])["images"].numpy()
    sources = []
    for planes in batch:
        planes = planes[[0, 1, 2] if len(planes) >= 3 else [0, 0, 0]]
        sources.append(pages.picture_source(Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0)))))
    return sources
