"""Options of `finetune`, and the number of steps that its time allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.protocols import fine_tune
from evaluation.protocols.fine_tune import settings_of
from evaluation.tuning.estimate import seconds_of_step
from sslkit.errors import UserError, format_value
from sslkit.models.model import Model
from sslkit.options.durations import seconds_of
from sslkit.options.settings import MOST, setting, storable, with_default
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.terminal.say import and_more, counted, lasting

NETWORK, LINEAR = HEADS = ("network", "linear")
OUT = "runs/finetuned"
# passes over the training images where time allows more: accuracies of small sets level off between 10 and 30
PASSES = 30
LEAST_STEPS = 20  # of a run: with fewer even a head that starts at 0 has learned little


@dataclass(frozen=True, kw_only=True)
class Options:
    head: str = setting(
        NETWORK,
        "what is trained: network, all weights and a linear head; linear, a linear classifier of the features as they "
        "are, in seconds",
        choices=HEADS,
    )
    budget: str | float = setting("30min", "time of all runs where steps=null, by measured steps: 90s, 30min, 2h")
    steps: int | None = setting(
        None, f"of each run; null: what the budget allows, at most {PASSES} passes over the images", least=1, most=MOST
    )
    grid: str | Mapping = with_default(fine_tune.Options, "grid", "adamw")
    extend: bool = setting(True, "while the best rate is an end of the grid, also try the next one beyond it")
    folds: int = with_default(fine_tune.Options, "folds", fine_tune.Options.folds)
    batch_size: int = setting(32, "images of a step", least=2, most=MOST)
    crop: Sequence[float] = with_default(fine_tune.Runs, "crop", (0.5, 1.0))
    precision: str = with_default(fine_tune.Runs, "precision", fine_tune.Runs.precision)
    workers: int = with_default(fine_tune.Runs, "workers", fine_tune.Runs.workers)
    out: str | Path = setting(OUT, "folder of the kept model, and of what a stopped call goes on from")

    def check(self, numbers: bool = False) -> None:
        """Check what no declaration says. Raises UserError for options that head=linear does not obey, and no time.

        numbers: the labels are; bfloat16 would round them to three digits.
        """
        if numbers and self.precision != "float32":
            raise UserError(f"precision={self.precision} rounds numbers to three digits: leave it out")
        seconds_of("budget", self.budget)
        changed = sorted(self.given.keys() - {"head"})
        if self.head == LINEAR and changed:
            raise UserError(f"{and_more(changed)}: only with head={NETWORK}; head={LINEAR} trains no network")
        if self.head == NETWORK:
            fine_tune.check_options(self.of_tuning(self.steps or LEAST_STEPS, 0))

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not as usual, but for the folder."""
        values = {name: storable(value) for name, value in vars(self).items() if name != "out"}
        return {name: value for name, value in values.items() if value != storable(getattr(Options, name))}

    @property
    def has_rates(self) -> bool:
        """Return whether the grid has several learning rates, beyond which it can be extended."""
        return len({point.lr for point in settings_of(self.grid)}) > 1

    def of_tuning(self, steps: int, seed: int) -> fine_tune.Options:
        """The options of the protocol."""
        names = ("grid", "folds", "batch_size", "crop", "precision", "workers")
        extend = self.extend and self.has_rates
        return fine_tune.Options(
            steps=steps, seeds=[seed], extend=extend, **{name: getattr(self, name) for name in names}
        )


def plan_steps(options: Options, model: Model, images: int, runtime: Runtime) -> tuple[int, str]:
    """Return the steps of each run, and a line on them.

    Raises UserError if the budget allows fewer than LEAST_STEPS, with what would.
    """
    rates = len(settings_of(options.grid))
    runs = options.folds * rates + 1 + (2 if options.extend and options.has_rates else 0)
    most = max(PASSES * images // min(options.batch_size, images), LEAST_STEPS)
    if options.steps is not None:
        return options.steps, f"{counted(options.steps, 'step')} a run"
    each = seconds_of_step(model, options.batch_size, device_of(runtime.device))
    allowed = int(seconds_of("budget", options.budget) / (each * runs))
    if allowed < LEAST_STEPS:
        needed = lasting(1.1 * each * runs * LEAST_STEPS)
        raise UserError(
            f"budget={format_value(options.budget)} allows {counted(allowed, 'step')} in each of about {runs} runs, "
            f"and {LEAST_STEPS} are the fewest: give about {needed}, a smaller image_size, or head={LINEAR}"
        )
    steps = min(allowed, most)
    limit = f"{PASSES} passes over {images:,} images" if steps == most else f"what budget={options.budget} allows"
    time = lasting(steps * each * runs)
    return steps, f"about {runs} runs of {counted(steps, 'step')}, {limit}: about {time} by measured steps"
