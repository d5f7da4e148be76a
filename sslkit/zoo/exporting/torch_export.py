"""A .pt2 file of torch.export: images (batch, C, S, S) -> the tensors of an .onnx file, for PyTorch without timm.

It holds sslkit's description of the network, too. It is not read back by sslkit: torch restores it by more than plain
weights.
"""

import zipfile
from pathlib import Path

import torch

from sslkit.errors import UserError, first_line
from sslkit.zoo.about import About
from sslkit.zoo.exporting.base import Loaded, Source, Target, Whole, names_of, pretrained_cfg
from sslkit.zoo.loading import PICTURE, picture_lines, torchvision_transform

KEY = "sslkit.json"


class TorchExport(Target):
    """Any network that torch can export; images must have the size of training."""

    suffix = ".pt2"

    def refusal(self, source: Source) -> str:
        return ""

    def prepare(self, source: Source) -> Source:
        return source

    def write(self, source: Source, path: Path, name: str) -> None:
        images = torch.zeros(2, *source.about.input_size)  # 2: one image would fix the batch size
        free = ({0: torch.export.Dim("batch")},)
        try:
            program = torch.export.export(Whole(source).eval(), (images,), dynamic_shapes=free)
        except Exception as error:  # the exporter and the network raise many classes
            raise UserError(f"torch cannot export {source.about.name}: {first_line(error)}") from error
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # names of files of this machine
        with path.open("wb") as file:
            torch.export.save(program, file, extra_files={KEY: source.about.to_json()})

    def lines(self, about: About, name: str) -> list[str]:
        pixels, names = pretrained_cfg(about), ", ".join(names_of(about.link))
        return [
            "import torch",
            *picture_lines(torchvision_transform(pixels), pixels, about.range, f"{names} = {PICTURE}"),
            f"net = torch.export.load({name!r}).module()",
        ]

    def owns(self, path: Path) -> bool:
        return path.is_file() and path.suffix == self.suffix

    def about(self, path: Path) -> About:
        try:
            with zipfile.ZipFile(path) as file:
                (name,) = (name for name in file.namelist() if name.rpartition("/")[2] == KEY)
                text = file.read(name).decode()
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(f"{path} is no whole file of sslkit: {first_line(error)}; export it again") from error
        return About.from_json(text, path)

    def load(self, path: Path) -> Loaded:
        raise UserError(
            f"{path} is for PyTorch alone, torch.export.load: here give the entry, or an export to onnx or timm"
        )
