"""Description of the machine of a benchmark, for its results file."""

import importlib.metadata
import os
import platform
from pathlib import Path


def machine() -> dict[str, str | int | None]:
    """Processor, cores and versions, without the host name."""
    packages = ("sslkit", "torch", "torchvision", "lightly", "timm", "pytorch-lightning")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()
