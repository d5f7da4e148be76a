"""`--help`: the same text without torch as with it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from unfolded import unfolded

import sslkit
from recipes.installed import overview, programs

TRUST = "package.module:function: own code that a card may name and that is run"
LARGE = ["torch", "torchvision", "timm", "sklearn", "scipy", "faiss", "matplotlib", "pytorch_lightning", "hydra"]
CODE = """
import json, runpy, sys
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def alone(path: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess:
    """A program in a process of its own that says at its end which packages it has imported."""
    start = f"import sys; sys.argv = {[str(path), *words]!r}; sys.path.insert(0, {str(path.parent)!r})\n"
    return subprocess.run([sys.executable, "-c", start + CODE], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize("name", programs())
def test_help_is_the_same_without_the_large_libraries(name: str, typed, tmp_path: Path) -> None:
    path = programs()[name]
    without = alone(path, "--help=all", cwd=tmp_path)
    assert without.returncode == 0, without.stderr
    loaded = set(json.loads(without.stderr.splitlines()[-1]))
    assert "sslkit" in loaded and not loaded & set(LARGE)
    assert "torch" in sys.modules  # so that this text is made with it
    assert typed(path.stem, "--help=all", cwd=tmp_path).stdout == without.stdout


@pytest.mark.parametrize(
    "name",
    ["choose", "detect", "embed", "evaluate", "few-shot", "finetune", "ground-truth", "linear-eval", "rank", "solve"],
)
def test_commands_that_read_images_take_the_range_of_deep_ones(name: str, typed, tmp_path: Path) -> None:
    said = " ".join(typed(programs()[name].stem, "--help", cwd=tmp_path).stdout.split())
    assert "range=null pixels of more than 8 bits: [low,high], the values that become 0 and 255" in said


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    command = [sys.executable, str(programs()["train"]), "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    process.stdout.close()  # as `--help | head` does
    assert (process.stderr.read(), process.wait()) == ("", 0)
    process.stderr.close()


def test_help_of_a_chosen_method_and_of_an_unknown_one(typed, tmp_path: Path) -> None:
    train = programs()["train"]
    without = alone(train, "--help=method", "method=u_mae+koleo", cwd=tmp_path)
    assert "  method.objective.uniformity=0.01\n" in without.stdout and "  method.koleo.weight=" in without.stdout
    assert typed("train", "--help=method", "method=u_mae+koleo", cwd=tmp_path).stdout == without.stdout
    unknown = alone(train, "--help", "method=bylo", cwd=tmp_path)
    assert unknown.returncode == 2 and unknown.stderr.startswith("error: there is no objective 'bylo': did you mean")


def test_help_of_a_method_from_outside_is_made_with_the_libraries_that_it_needs(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom sslkit.objectives.simclr import SimCLR\n\n"
        'class Mine(SimCLR):\n    """scale: of it."""\n\n'
        "    def __init__(self, backbone, *, scale: float = torch.tensor(2.0).sqrt().item()) -> None:\n"
        "        super().__init__(backbone)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    done = alone(programs()["train"], "--help=all", "method=mine:Mine", cwd=tmp_path)
    assert done.returncode == 0 and "  method.objective.scale=1.414" in done.stdout, done.stderr


@pytest.mark.parametrize("name", programs())
def test_help_fits_80_columns(name: str, typed, tmp_path: Path) -> None:
    for flag in ("--help", "--help=all"):
        said = typed(programs()[name].stem, flag, cwd=tmp_path).stdout
        assert said.count("\n") > 5 and [line for line in said.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("method", [*sslkit.methods(), "byol+dsa+koleo"])
def test_help_of_each_method_fits_80_columns(method: str, typed, tmp_path: Path) -> None:
    said = typed("train", "--help=all", f"method={method}", cwd=tmp_path).stdout
    assert f"options of method={method}" in said and max(map(len, said.splitlines())) <= 80


def test_the_list_of_commands_fits_80_columns() -> None:
    assert max(map(len, overview().splitlines())) <= 80


def test_null_says_what_the_views_are(typed, tmp_path: Path) -> None:
    said = unfolded(typed("train", "--help=method", "method=dinov2", cwd=tmp_path).stdout)
    assert "share of the image's area in the crop; null: 0.32 to 1" in said
    assert "side of the smaller crops in pixels; null: 98 of 224 pixels, in proportion" in said
    assert "probability of a Gaussian blur; null: 1 and 0.1; up to 64 pixels 0" in said
    said = unfolded(typed("train", "--help=method", "method=simclr", cwd=tmp_path).stdout)
    assert "share of the image's area in the crop; null: 0.08 to 1; up to 64 pixels 0.2 to 1" in said


FIRST = {  # what a newcomer needs, before trust, root, cache and the like
    "evaluate": ["checkpoint", "zoo", "data", "protocols"],
    "linear-eval": ["checkpoint", "zoo", "data"],
    "detect": ["checkpoint", "zoo"],
    "rank": ["zoo", "data", "metrics"],
    "choose": ["zoo", "data"],
    "finetune": ["checkpoint", "data", "head", "budget"],
    "solve": ["zoo", "data"],
    "train": ["method", "data", "optimizer", "backbone"],
}


@pytest.mark.parametrize("name", FIRST)
def test_models_data_and_protocols_come_first(name: str, typed, tmp_path: Path) -> None:
    said = typed(programs()[name].stem, "--help", cwd=tmp_path).stdout
    assert re.findall(r"^  ([\w.]+)=", said, re.M)[: len(FIRST[name])] == FIRST[name]


@pytest.mark.parametrize("name", sorted(set(programs()) - {"list"}))
def test_every_setting_has_a_text_and_trust_has_one(name: str, typed, tmp_path: Path) -> None:
    said = typed(programs()[name].stem, "--help=all", cwd=tmp_path).stdout
    settings = re.split(r"\n\n.*(?=\n)|\n(?=  [\w.]+=)", said[said.index("settings, with their defaults") :])[1:]
    settings = [one for one in settings if re.match(r"  [\w.]+=", one)]
    assert settings and [one for one in settings if not re.match(r"  [\w.]+=\S+\s+\S.{3,}", one, re.S)] == []
    trust = [one.split(maxsplit=1)[1] for one in settings if one.startswith("  trust=")]
    assert [" ".join(one.split()).replace(", or a list:", ":") for one in trust] in ([], [TRUST])


def test_the_first_page_names_the_groups_and_each_has_a_page(typed, tmp_path: Path) -> None:
    first = typed("evaluate", "--help", cwd=tmp_path).stdout
    assert "few_shot.episodes=" not in first and re.search(r"^  few_shot\.\*  +n_way, k_shot,", first, re.M)
    page = typed("evaluate", "--help=few_shot", cwd=tmp_path).stdout
    assert page.startswith("options of few_shot\n") and "few_shot.episodes=2000" in page and "knn.k=" not in page
    unknown = typed("evaluate", "--help=knm", cwd=tmp_path)
    assert unknown.returncode == 2 and "there is no --help=knm: did you mean 'knn'" in unknown.stderr
