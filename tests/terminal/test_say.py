"""Lines for people: silent in a library, printed by a command line, once."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import sslkit
from sslkit.terminal import say

# Its bar names the words of splits.
NO_NAMES = {"sslkit/data/sources/shard_writer.py"}

PRINTED = "from sslkit.terminal import say; say.print_lines();"
QUIET = """
from sslkit.terminal import say
say.line("epoch 1"); say.warning("a file was left out")
"""


def output(code: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def test_a_library_shows_warnings_alone() -> None:
    assert output(QUIET) == ("", "a file was left out\n")


def test_a_program_may_log_them() -> None:
    said = output(f"import logging; logging.basicConfig(level=logging.INFO, format='%(message)s')\n{QUIET}")
    assert said == ("", "epoch 1\na file was left out\n")


def test_printed_once_to_what_is_stdout_then(capsys: pytest.CaptureFixture) -> None:
    say.print_lines()
    say.print_lines()
    say.line("epoch 2 of 100 %")
    say.warning("warning: odd")
    assert capsys.readouterr() == ("epoch 2 of 100 %\nwarning: odd\n", "")


def test_a_part_of_another_command_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    with say.only_warnings():
        say.line("epoch 1")
        say.warning("a file was left out")
    say.line("done")
    assert caplog.messages == ["a file was left out", "done"]


def test_a_file_name_that_is_no_text_is_printed() -> None:
    """In a process of its own: pytest-xdist cannot pass on a captured line that is no UTF-8."""
    code = (
        "from sslkit.terminal import say; say.print_lines(); say.line('could not be read: caf' + chr(0xDCE9) + '.png')"
    )
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=True)
    assert done.stdout == b"could not be read: caf\\udce9.png\n"


def test_an_escape_code_in_a_name_does_nothing_to_a_terminal() -> None:
    code = f"{PRINTED} say.lines('left out: \\x1b[2Ja\\rb\\x07\\u202e.png\\nnext')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "left out: \\x1b[2Ja\\rb\\x07\\u202e.png\nnext\n"


def test_a_line_is_one_line_whatever_a_name_in_it_holds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "sslkit.say"):
        say.line("left out: a\nepoch 9/9 10-NN 99 %")
        say.warning("left out: a\x1b[31m\nb")
        say.lines("a\nb\x9b")
    assert caplog.messages == ["left out: a\\nepoch 9/9 10-NN 99 %", "left out: a\\x1b[31m\\nb", "a\nb\\x9b"]


def calls(attribute: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a function or method of this name in the packages, with their files."""
    root = Path(__file__).parents[2]
    for path in (path for package in ("sslkit", "evaluation", "recipes") for path in (root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and attribute in (getattr(node.func, name, "") for name in ("id", "attr")):
                yield path.relative_to(root).as_posix(), node


@pytest.mark.parametrize("attribute", ["tqdm", "write"])
def test_names_beside_a_progress_bar_are_escaped(attribute: str) -> None:
    for path, call in calls(attribute):
        is_tqdm = attribute == "tqdm" or getattr(getattr(call.func, "value", None), "id", "") == "tqdm"
        if not is_tqdm or path.startswith("recipes/benchmarks/"):
            continue
        said = [word.value for word in call.keywords if word.arg == "desc"] if attribute == "tqdm" else call.args[:1]
        for text in said:
            plain = isinstance(text, ast.Constant) or path in NO_NAMES
            assert plain or getattr(getattr(text, "func", None), "id", "") == "printable", f"{path}:{text.lineno}"


def test_libraries_do_not_print() -> None:
    root = Path(__file__).parents[2]
    printing = {
        path.relative_to(root).as_posix()
        for package in ("sslkit", "evaluation")
        for path in (root / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    assert printing == {
        "sslkit/terminal/say.py",
        "sslkit/cli/command.py",
        "sslkit/cli/help.py",
        "sslkit/cli/process.py",
    }


def test_names_in_a_warning_of_python_are_printable(tmp_path: Path) -> None:
    """A terminal would obey the escape code of a file's name, and a line break in it begins a line that looks ours."""
    pets = tmp_path / "\x1b[31mpets\nerror: all is lost"
    for folder in ("train/cat", "cats"):
        (pets / folder).mkdir(parents=True)
        Image.new("L", (8, 8)).save(pets / folder / "1.png")
    with pytest.warns(UserWarning, match=r"\\x1b\[31mpets\\nerror: all is lost: .* look like splits") as warned:
        sslkit.open_images(pets)
    assert all(str(warning.message).isprintable() for warning in warned)


def test_libraries_warn_in_printable_lines_only() -> None:
    root = Path(__file__).parents[2]
    bare = [
        f"{path.relative_to(root)}:{node.lineno}"
        for package in ("sslkit", "evaluation", "recipes")
        for path in (root / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    ]
    assert len(bare) == 1 and bare[0].startswith("sslkit/terminal/say.py:"), bare


STARTED = "with say.print_by_default(): say.line('epoch 1')\nsay.line('after it')"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("", ("epoch 1\n", "")),
        ("logging.basicConfig()", ("", "INFO:sslkit.say:epoch 1\nINFO:sslkit.say:after it\n")),
        ("logging.getLogger('sslkit').addHandler(logging.NullHandler())", ("", "")),
        ("logging.getLogger('sslkit.say').setLevel('WARNING')", ("", "")),
        ("say.print_lines()", ("epoch 1\nafter it\n", "")),
    ],
)
def test_a_run_prints_its_lines_unless_a_program_logs_them(own: str, said: tuple[str, str]) -> None:
    assert output(f"import logging\nfrom sslkit.terminal import say\n{own}\n{STARTED}") == said
