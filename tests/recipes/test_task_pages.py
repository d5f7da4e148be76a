"""The pages of tasks are short, and each of their commands is one that its program takes."""

import re
import shlex
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from sslkit.cli import command

PAGES = sorted((Path(__file__).parents[2] / "recipes" / "pages").glob("*.md"))
MOST_LINES = 60


def commands(page: Path) -> list[list[str]]:
    """The commands of a page's blocks, as a shell reads them."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


COMMANDS = [(page, words) for page in PAGES for words in commands(page)]


def test_pages_are_short_and_have_commands() -> None:
    assert PAGES and {page for page, _ in COMMANDS} == {*PAGES}
    lines = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda value: getattr(value, "stem", None))
def test_a_command_is_taken(page: Path, words: list[str], typed, tmp_path: Path, monkeypatch) -> None:
    taken: list[DictConfig] = []

    def job(config: DictConfig) -> None:
        taken.append(config)

    job.__module__ = command.__name__  # beside which Hydra looks for files
    monkeypatch.setattr(command, "_job", lambda *_: job)
    python, program, *settings = words
    done = typed(Path(program).stem, *settings, cwd=tmp_path)
    assert python == "python" and done.returncode == 0, done.stderr
    for setting in settings:
        assert OmegaConf.select(taken[0], setting.partition("=")[0]) is not None
