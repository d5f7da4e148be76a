"""Measure the cells of a study that have no result yet, one after the other or by several processes."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from sslkit.errors import UserError
from sslkit.terminal import say

Cell = Callable[[], Mapping[str, Any]]
Keep = Callable[[str, Mapping[str, Any]], None]


def missing_cells(cells: Mapping[str, Cell], known: Collection[str]) -> dict[str, Cell]:
    """The cells without a result. cells: by key. known: keys of the results."""
    return {key: cell for key, cell in cells.items() if key not in known}


def measure_cells(
    cells: Mapping[str, Cell], keep: Keep, *, processes: int = 1, begin: Callable[[], None] | None = None
) -> None:
    """Measure the cells in their order and keep the numbers of each at once, so that a stopped call can go on.

    keep: takes key and numbers; several processes call it at once. begin: sets up each process. With several processes,
    cells, keep and begin are pickled, and a cell that raises UserError is told while the others go on.
    """
    if processes == 1:
        if begin is not None:
            begin()
        for number, (key, cell) in enumerate(cells.items(), 1):
            say.line(f"{number}/{len(cells)}  {key}")
            keep(key, cell())
        return
    with ProcessPoolExecutor(processes, initializer=begin) as pool:
        running = {pool.submit(_measure_cell, key, cell, keep): key for key, cell in cells.items()}
        for number, future in enumerate(as_completed(running), 1):
            error = future.exception()
            if error is not None and not isinstance(error, UserError):
                raise error
            failure = "" if error is None else f"  failed: {error}"
            say.line(f"{number}/{len(cells)}  {running[future]}{failure}")


def _measure_cell(key: str, cell: Cell, keep: Keep) -> None:
    keep(key, cell())
