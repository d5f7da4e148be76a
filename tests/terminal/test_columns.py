"""Lines fit 80 columns; a command that is folded is the same command for a shell."""

import io
import subprocess

import pytest

from sslkit.terminal import say

LONG = "runs/zoo/" + "n" * 100


def test_text_is_continued_below_the_text_of_its_label() -> None:
    assert say.fold("backbone  " + "word " * 20, 40).splitlines() == [
        "backbone  word word word word word word",
        *["          word word word word word word"] * 2,
        "          word word",
    ]
    assert say.fold("short\n\n  a table  1\n", 40) == "short\n\n  a table  1\n"


def test_a_word_that_is_longer_has_a_line_of_its_own() -> None:
    assert say.fold(f"results   {LONG}, two", 80).splitlines() == ["results", f"{LONG},", "          two"]


@pytest.mark.parametrize("label", ["next      ", "  evaluate:   ", ""])
def test_a_folded_command_is_the_same_for_a_shell(label: str) -> None:
    words = ["a=1", "'data=\"my pictures, and more of them\"'", "b=[1,2]", f"checkpoint={LONG}", "c=" + "3" * 30, "d=4"]
    command = " ".join(["python recipes/train.py", *words])
    shown = say.fold(f"{label}{command}   # what it is for", 80)
    assert all(len(line) <= 80 or LONG in line for line in shown.splitlines()) and shown.count("\n") >= 3
    show = ["bash", "-c", 'python() { printf "<%s>" "$@"; }\n' + shown.removeprefix(label)]
    alone = ["bash", "-c", f'python() {{ printf "<%s>" "$@"; }}\n{command}']
    assert subprocess.check_output(show) == subprocess.check_output(alone)


def test_a_usage_is_filled_anew_with_a_line_for_each_command() -> None:
    usage = "What it\nis.\n\npython a.py one=1      (short)\npython b.py " + "x=1 " * 20 + "  (long)\n\nMore\nwords.\n"
    assert say.reflow(usage, 40).splitlines()[:5] == [
        "What it is.", "", "python a.py one=1      (short)", "python b.py x=1 x=1 x=1 x=1 x=1 x=1 \\",
        "    x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 \\",
    ]  # fmt: skip
    assert say.reflow(usage, 40).endswith("    # long\n\nMore words.")


def test_an_entry_stands_beside_its_text_or_above_it() -> None:
    assert say.entry("a=1", "text", 10) == "  a=1     text"
    assert say.entry("a.long.name=1", "text", 10) == "  a.long.name=1\n          text"


def test_eighty_columns_unless_a_terminal_has_more(monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "132")
    assert say.columns() == 80
    monkeypatch.setattr("sys.stdout", Terminal())
    assert say.columns() == 132
    monkeypatch.setenv("COLUMNS", "40")
    assert say.columns() == 80


def test_a_number_and_its_noun() -> None:
    said = [say.counted(*pair) for pair in ((1, "epoch"), (0, "step"), (8000, "image"), (2, "class"))]
    assert said == ["1 epoch", "0 steps", "8,000 images", "2 classes"]


def test_the_first_names_of_a_long_list() -> None:
    assert [say.and_more("abc", most) for most in (3, 2)] == ["a, b, c", "a, b and 1 more"]
    assert [say.and_more(range(count)) for count in (2, 5)] == ["0, 1", "0, 1, 2 and 2 more"]
    assert [say.and_so_on("abc", most) for most in (3, 2)] == ["a, b, c", "a, b, ..."]
