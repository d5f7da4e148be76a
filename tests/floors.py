"""Print the oldest release of each package that pyproject.toml promises to work with, as constraints for pip.

python tests/floors.py > floors.txt && pip install --constraint floors.txt ".[test]"
"""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(pyproject: Path = PYPROJECT) -> list[str]:
    """Return what the project and all its extras require, as it is written there, in its order."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]


def floors(required: list[str]) -> dict[str, str]:
    """Return the floor of each required package that has one. Raises ValueError for one with two floors."""
    found: dict[str, str] = {}
    for requirement in required:
        floor = re.fullmatch(r"([\w.-]+)>=([\w.]+)(,.*)?", requirement)
        if floor and found.setdefault(floor[1], floor[2]) != floor[2]:
            raise ValueError(f"{floor[1]} has two floors: {found[floor[1]]} and {floor[2]}")
    return found


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in floors(requirements()).items()))
