"""Outcomes of trials: the choice of the best setting on held-out images, and the result of the final runs."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evaluation.results import unseen
from evaluation.results.choice import highest_of, lowest_of
from evaluation.results.measures import right_by_constant
from evaluation.results.numbers import R2
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import Estimate, over_seeds
from evaluation.tuning.task import Task
from sslkit.errors import UserError


def best(records: Sequence[dict[str, Any]], where: str) -> int:
    """Return the index of the record with the highest value; ties (see results/choice.py) are broken by lowest loss,
    then by largest weight decay, then by lowest learning rates, then by order.

    Raises UserError if all diverged.
    """
    sound = [number for number, record in enumerate(records) if not record["diverged"]]
    if not sound:
        raise UserError(
            f"{where}: all {len(records)} settings diverged (first: {records[0]['reason']}); check the model, "
            "or give a grid of lower learning rates"
        )
    highest = [sound[at] for at in highest_of([records[number]["value"] for number in sound])]
    lowest = [highest[at] for at in lowest_of([records[number]["loss"] for number in highest])]

    def strength(number: int) -> tuple[float, ...]:
        record = records[number]
        return record["weight_decay"], -record["lr"], -(record.get("head_lr") or 0.0), -number

    return max(lowest, key=strength)


def mean_record(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Average value, loss and calibration of one setting over several runs, with the seconds of all; diverged if one
    of them is."""
    seconds = sum(record["seconds"] for record in records)
    broken = next((record for record in records if record["diverged"]), None)
    if broken is not None:
        return {**broken, "seconds": seconds}
    means = {name: float(np.mean([record[name] for record in records])) for name in ("value", "loss")}
    if None not in (betas := [record["beta"] for record in records]):
        means["beta"] = float(np.exp(np.mean(np.log(betas))))
    return {**records[0], **means, "seconds": seconds}


def in_groups(records: Sequence[dict[str, Any]], size: int) -> list[Sequence[dict[str, Any]]]:
    """Return the records in consecutive groups, such as the seeds of each setting."""
    return [records[start : start + size] for start in range(0, len(records), size)]


def seconds_of(records: Sequence[dict[str, Any]]) -> float:
    """Return the seconds of all runs, each counted once."""
    return sum({record["run"]: record["seconds"] for record in records}.values())


def require_sound(records: Sequence[dict[str, Any]], where: str) -> None:
    """Raise UserError if one of the final runs diverged."""
    for record in records:
        if record["diverged"]:
            raise UserError(
                f"{where}: the chosen setting (lr {record['lr']:g}, weight decay {record['weight_decay']:g}) diverged "
                f"when it was tuned on all images with seed {record['seed']} ({record['reason']}); leave this lr out"
            )


def result_of(task: Task, records: Sequence[dict[str, Any]], names: Sequence[str], kind: str, **fields: Any) -> Result:
    """Make the result of the final runs on the test images.

    records: of R runs. names: of the runs ("seed 0"). kind: of the t interval ("seeds").
    One run has its interval over images, and outcomes by image. For several runs the value is the mean, outcomes are
    the R values, and each value with its interval is in `others`. fields: further fields of Result.
    """
    test_rows = rows_digest(task.test.ids, task.test.y)
    values = [record["value"] for record in records]
    if len(records) == 1:
        (record,) = records
        estimate = estimate_of(record)
        others = {name: estimate_of(other) for name, other in record["others"].items()}
        right = record["right"] and unpack(record["right"], len(task.test), are_shares=task.metric == R2)
        outcomes, paired_on = (None, "") if right is None else (right, test_rows)
        groups = None if right is None else task.test.groups
        largest = None if right is None else right_by_constant(task.test.y, task.train.y)
    else:
        estimate = _mean(values, kind)
        extra = list(records[0]["others"])
        others = {name: _mean([record["others"][name]["value"] for record in records], kind) for name in extra}
        others |= {name: estimate_of(record) for name, record in zip(names, records, strict=True)}
        outcomes, groups, largest = np.array(values), None, None
        paired_on = hashlib.sha256(f"{test_rows} {list(names)}".encode()).hexdigest()
    fields["leaky"] = fields.get("leaky", False) or unseen.is_leaky(task.in_train)
    fields["details"] = {
        **fields.get("details", {}),
        **unseen.details(task.in_train, task.near_in_train),
        "mirror": task.mirror,
    }
    return Result.from_estimate(
        estimate,
        metric=task.metric,
        model=task.model.name,
        data=task.name,
        others=others,
        outcomes=outcomes,
        groups=groups,
        largest=largest,
        paired_on=paired_on,
        **fields,
    )


def _mean(values: Sequence[float], kind: str) -> Estimate:
    return replace(over_seeds(values), kind=f"t over {len(values)} {kind}")


def estimate_of(record: dict[str, Any]) -> Estimate:
    """Return the value of a record with its interval."""
    interval = record["interval"]
    return Estimate(record["value"], interval and tuple(interval), record["kind"], record["n"], record["unit"])


def spread(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the values of several final runs and their standard deviation (ddof = 1), for `details`."""
    values = [record["value"] for record in records]
    return {"values": values, "std": float(np.std(values, ddof=1)) if len(values) > 1 else None}


def outcome_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the setting with its outcome, for `details`."""
    names = ("lr", "head_lr", "weight_decay", "optimizer", "value", "loss", "beta", "diverged")
    return {name: record.get(name) for name in names}


def pack(right: np.ndarray) -> str:
    """Encode (N,) bool as text, eight to a byte; or (N,) float64."""
    return base64.b64encode(np.packbits(right) if right.dtype == bool else right.tobytes()).decode()


def unpack(text: str, n: int, *, are_shares: bool = False) -> np.ndarray:
    """Decode (n,) bool from the text of `pack`; float64 if they are shares."""
    if are_shares:
        return np.frombuffer(base64.b64decode(text), np.float64)
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=n).astype(bool)
