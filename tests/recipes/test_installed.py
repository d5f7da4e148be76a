"""The installed command `sslkit`, and the wheel that brings it."""

import os
import re
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from unfolded import unfolded

from recipes import installed

ROOT = Path(__file__).parents[2]
HELPERS = {"__init__", "installed"}
SHIPPED = ("sslkit", "evaluation", "recipes")


def sslkit(*words: str, **options: object) -> subprocess.CompletedProcess:
    code = "from recipes.installed import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment, **options
    )


def test_every_program_is_a_command() -> None:
    files = {path.stem for path in (ROOT / "recipes").glob("*.py")} - HELPERS
    assert {"train", "zoo", "few_shot"} <= files
    assert {path.stem: name for name, path in installed.programs().items()} == {
        file: file.replace("_", "-") for file in files
    }


def test_the_commands_are_listed_without_torch(tmp_path: Path) -> None:
    listed = sslkit("--help", cwd=tmp_path)
    assert listed.stdout == sslkit(cwd=tmp_path).stdout and listed.returncode == 0
    for name in installed.programs():
        assert re.search(rf"^  {name} +[A-Z]", listed.stdout, re.M), name
    code = "import sys; from recipes.installed import overview; overview(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "False\n"


def test_an_unknown_command_is_refused_with_the_nearest(tmp_path: Path) -> None:
    done = sslkit("trian", "method=byol", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: there is no command 'trian': did you mean 'train'? known: action-eval, ")


def test_a_command_is_its_program(typed, tmp_path: Path) -> None:
    done = sslkit("few-shot", "--help", cwd=tmp_path)
    script = typed("few_shot", "--help", cwd=tmp_path).stdout
    assert "python recipes/few_shot.py checkpoint=" in script and "recipes" not in done.stdout
    assert done.stdout == script.replace("python recipes/few_shot.py", "sslkit few-shot")
    assert sslkit("few_shot", "--help", cwd=tmp_path).stdout == done.stdout
    wrong = sslkit("rank", "meterics=logme", cwd=tmp_path)
    assert wrong.returncode == 2 and "did you mean 'metrics'?" in wrong.stderr


def test_every_package_is_shipped() -> None:
    tomllib = pytest.importorskip("tomllib")
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {
        ".".join(path.relative_to(ROOT).parent.parts)
        for top in ("sslkit", "evaluation")
        for path in (ROOT / top).rglob("*.py")
    }
    assert sorted(listed) == sorted(found | {"sslkit_recipes"})


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A virtual environment with this project's wheel and, by a path, with what is installed here."""
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in SHIPPED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "benchmarks"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", wheels, source], check=True)
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (wheel,) = wheels.glob("*.whl")
    python = folder / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "here.pth").write_text("\n".join(site.getsitepackages()))  # their own .pth files are not read
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"sslkit", "evaluation", "sslkit_recipes"}
    kinds = (".py", ".yaml")
    shipped = {name.replace("sslkit_recipes/", "recipes/") for name in names if name.endswith(kinds)}
    files = (path for top in SHIPPED for path in (source / top).rglob("*") if path.suffix in kinds)
    written = {path.relative_to(source).as_posix() for path in files}
    assert shipped == written
    return folder


@pytest.mark.nightly
def test_from_a_wheel_away_from_the_clone(environment: Path, few_digits: Path, tmp_path: Path) -> None:
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SSLKIT_COMMAND")}

    def call(*words: object) -> str:
        command = [str(environment / "bin" / "sslkit"), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=alone)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    code = "import sslkit, evaluation; print(sslkit.__file__, evaluation.__file__)"
    command = [environment / "bin" / "python", "-c", code]
    where = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=alone)
    assert where.stdout.count(str(environment)) == 2
    small = ["batch_size=32", "eval.k=5", "eval.tsne=0", "workers=0"]
    said = call("train", "method=simclr", "experiment=simclr", f"data={few_digits}", "epochs=1", *small)
    assert "  next:       sslkit train method=simclr data=" in unfolded(said)
    assert (tmp_path / "runs/zoo").is_dir() and "recipes/" not in said
    (entry,) = (path.parent for path in (tmp_path / "runs/zoo").glob("*/card.json"))
    said = call("evaluate", f"checkpoint={entry}", f"data={few_digits}", "protocols=[knn]", "knn.k=5")
    assert "wilson over images" in said and "next      sslkit evaluate " in said
    listed = call("zoo", "methods=[simclr]", "plugins=[none]", f"data={few_digits}", "epochs=1", *small, "dry_run=true")
    assert f"\nsslkit train method=simclr seed=0 data={few_digits}" in listed
    call("zoo", "methods=[simclr]", "plugins=[none]", f"data={few_digits}", "epochs=1", *small, "out=more", "jobs=1")
    assert "  next:       sslkit train " in (next((tmp_path / "more/logs").glob("*.log"))).read_text()


def test_the_version(tmp_path: Path) -> None:
    tomllib = pytest.importorskip("tomllib")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert sslkit("--version", cwd=tmp_path).stdout == f"sslkit {version}\n"
