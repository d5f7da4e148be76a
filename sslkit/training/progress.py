"""The progress bar: images per second, and the share of time spent waiting for data."""

import time
from typing import Any

from tqdm import tqdm

from sslkit.runtime.loop import Hook, Loop
from sslkit.training.loading import Loading


class Bar(Hook):
    """One tqdm bar per epoch, only on a terminal; it is removed when the epoch's line is printed."""

    def __init__(self, loading: Loading) -> None:
        self.loading = loading
        self.bar: tqdm | None = None
        self.started = (0.0, 0.0)

    def epoch_begin(self, loop: Loop) -> None:
        self.started = (time.perf_counter(), self.loading.loader.waited)
        self.bar = tqdm(
            total=len(self.loading.loader) * self.loading.config.data.batch_size,
            desc=f"epoch {loop.epoch + 1}/{loop.epochs}",
            unit=f" {self.loading.data.unit}",
            leave=False,
            dynamic_ncols=True,
            disable=not loop.is_main,
        )

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        start, waited = self.started
        share = (self.loading.loader.waited - waited) / max(time.perf_counter() - start, 1e-9)
        self.bar.set_postfix_str(f"waiting for data {100 * share:.0f} %", refresh=False)
        self.bar.update(self.loading.config.data.batch_size)

    def epoch_end(self, loop: Loop) -> None:
        self.bar.close()
