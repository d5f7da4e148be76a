"""What a run knows of the weights that it starts from: their evaluation, before the first step."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sslkit.data import same_data
from sslkit.data.images import Images
from sslkit.data.views.cropped import CroppedImages
from sslkit.errors import UserError
from sslkit.runtime import processes
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.terminal import say
from sslkit.training.data import Data
from sslkit.training.elsewhere import Elsewhere, measure_network
from sslkit.training.pictures import save_views
from sslkit.training.quick_evaluation import Hits, evaluate, line_of_near, of_start, of_views
from sslkit.training.view_retrieval import measure_views


@dataclass
class Start(Hook):
    """Before the first step, on the device: save a picture of the views and evaluate the initial weights.

    init: sha256 of these weights; None for random ones. where: see `elsewhere`. right: see `quick_evaluation.hits`.
    """

    data: Data
    shown: Images | CroppedImages
    folder: Path
    k: int
    init: str | None
    content: same_data.Content
    where: Elsewhere | None
    judged: dict[str, float] | None = None
    right: Hits = field(default_factory=dict)
    views: dict[str, dict[str, float]] | None = None
    elsewhere: dict[str, Any] | None = None

    def begin(self, loop: Loop) -> None:
        with together("the evaluation of the first weights"):
            if loop.is_main and self.judged is None:
                save_views(loop.module.method, self.shown, self.folder / "views.png")
                self.judged, right = evaluate(loop.module.method, self.data, self.k)
                self.views, by_view = measure_views(loop.module.method, self.data)
                self.right = right | by_view
                self.elsewhere = measure_network(self.where, loop.module.method, self.k)
                if self.data.bank is not None:
                    if line := line_of_near(self.data):
                        say.line(f"note      {line}")
                    say.line(of_start(self.judged, self.data, self.k))
                elif by_view:
                    say.line(of_views(by_view["found"]))

    def batch_end(self, *_: object) -> None:
        self.content.known()  # ends a resumed run whose images are found to be others

    def state(self) -> dict[str, Any]:
        right = {name: torch.from_numpy(of_images) for name, of_images in self.right.items()}
        return {**self.first_numbers, **self.content.state(), "init": self.init, "right": right}

    def restore(self, state: dict[str, Any]) -> None:
        if processes.is_main():  # `Prepare` compares the processes
            self.content.check(state, self.folder)
        if state.get("init") != self.init:
            raise UserError(f"the weights of init= have changed since {self.folder} was started: start a new run")
        self.judged, self.views, self.elsewhere = (state[name] for name in self.first_numbers)
        self.right = {name: of_images.numpy() for name, of_images in state["right"].items()}

    @property
    def first_numbers(self) -> dict[str, Any]:
        """What is known of the first weights."""
        return {"judged": self.judged, "views": self.views, "elsewhere": self.elsewhere}
