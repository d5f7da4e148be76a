"""A safetensors file that plain `timm.create_model(NAME, checkpoint_path=FILE, ...)` loads strictly, or refuses.

Its header holds sslkit's description of the network and the lines that load it.
"""

from pathlib import Path

from sslkit.backbones.weight_files import read_weights
from sslkit.errors import UserError
from sslkit.zoo import weights
from sslkit.zoo.about import About
from sslkit.zoo.exporting.base import Loaded, Source, Target, load_weights, network_of, pretrained_cfg
from sslkit.zoo.loading import PICTURE, load_lines

KEY = "sslkit"


class Timm(Target):
    """timm's names and shapes, but of a changed stem, which a line makes."""

    suffix = ".safetensors"

    def write(self, source: Source, path: Path, name: str) -> None:
        header = {"format": "pt", KEY: source.about.to_json(), "load": "\n".join(self.lines(source.about, name))}
        path.write_bytes(weights.as_bytes(source.state_dict(), header))

    def lines(self, about: About, name: str) -> list[str]:
        return load_lines(
            network_of(about, Path(name)).lines(),
            pretrained_cfg(about),
            name,
            range=about.range,
            use=about.use.format(PICTURE),
        )

    def owns(self, path: Path) -> bool:
        return path.is_file() and path.suffix == self.suffix and KEY in header(path)

    def load(self, path: Path) -> Loaded:
        return load_weights(About.from_json(header(path)[KEY], path), read_weights(path, "sslkit.load"), path)


def header(path: Path) -> dict[str, str]:
    """The texts in a safetensors file's header. Raises UserError for a file that cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is no whole safetensors file: {error}; export or copy it again") from error
