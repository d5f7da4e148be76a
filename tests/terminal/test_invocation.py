"""The form of a command in a message: as a script of the clone, or as the installed command."""

from pathlib import Path

import pytest

from sslkit.terminal import say


@pytest.mark.parametrize(
    ("written", "installed"),
    [
        ("next      python recipes/train.py method=byol", "next      sslkit train method=byol"),
        ("python recipes/few_shot.py n_way=5", "sslkit few-shot n_way=5"),
        ("use recipes/action_eval.py", "use sslkit action-eval"),
        (
            "torchrun --nnodes=2 recipes/detect.py a=1",
            "torchrun --nnodes=2 --no-python sslkit detect a=1",
        ),
        ("python recipes/benchmarks/objectives.py", None),
        ("python /home/me/recipes/train.py", None),
        ("data=my-recipes/train.py", None),
        ("see evaluation/tasks/action/recipes.py", None),
    ],
)
def test_the_name_of_a_program(written: str, installed: str | None, monkeypatch) -> None:
    monkeypatch.delenv(say.COMMAND, raising=False)
    assert say.as_started(written) == written  # the tests run in a clone
    monkeypatch.setenv(say.COMMAND, "1")
    assert say.as_started(written) == (installed or written)


def test_without_a_clone_only_the_command_is_there(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv(say.COMMAND, raising=False)
    monkeypatch.setattr(say, "SCRIPTS", tmp_path / "recipes")
    assert say.as_started("python recipes/rank.py") == "sslkit rank"


def test_lines_for_people_say_it_so(monkeypatch, capsys) -> None:
    monkeypatch.setenv(say.COMMAND, "1")
    say.print_lines()
    say.line("next python recipes/rank.py")
    assert capsys.readouterr().out == "next sslkit rank\n"
