"""The pages: every link leads somewhere, every command and member that they name is there."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

import evaluation
import sslkit
from evaluation import protocols
from sslkit import priors
from sslkit.zoo import exporting

ROOT = Path(__file__).parents[1]
PAGES = [Path(name, "README.md") for name in ("", "sslkit", "evaluation", "recipes")]
BENCHMARKS = sorted((ROOT / "recipes" / "benchmarks").glob("**/*.md"))
PAGES += [path.relative_to(ROOT) for path in (*BENCHMARKS, *(ROOT / "recipes" / "pages").glob("*.md"))]
PAGES += [Path(".github", "CONTRIBUTING.md")] if (ROOT / ".github").is_dir() else []


def anchors(page: Path) -> set[str]:
    """Of each heading, as the forges write them: in small letters, blanks as hyphens, other marks dropped."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        target = target / "README.md" if target.is_dir() and anchor else target
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(ROOT / page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Its one heading, yes\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#its-one-heading-yes) [c](#here)\n"
        "[d](none.md) [e](other.md#another) [f](#there)\n```\n# There\n```\n"
    )
    assert broken(page) == ["none.md", "other.md#another", "#there"]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_that_is_named_is_there(page: Path) -> None:
    named = re.findall(r"\brecipes/[\w/]+\.py", (ROOT / page).read_text(encoding="utf-8"))
    assert {name for name in named if not (ROOT / name).is_file()} == set()


FAMILIES = {
    "objectives": sslkit.methods(),
    "regularisers": sslkit.regularizers.names(),
    "priors": priors.names(),
    "protocols": protocols.names(),
    "transferability": evaluation.metrics(),
    "exports": exporting.names(),
}


def test_the_first_page_is_short_and_its_members_are_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    table = text[text.index("## Methods, metrics and data sets, by name") :].splitlines()
    for family, members in FAMILIES.items():
        (row,) = (line for line in table if line.startswith(f"| {family}"))
        named = {re.split(r"[:+]", word)[0] for word in re.findall(r"`([^`\s]+)`", row)} - {""}
        assert len(named) > 1 and named - {*members} == set(), family


@pytest.mark.parametrize("page", ["README.md", pytest.param("sslkit/README.md", marks=pytest.mark.nightly)])
def test_the_loop_of_a_page_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "method.after_step(" in block)
    for here, there in {"path/to/images": "digits", "resnet18": "narrow_resnet", "range(10)": "range(1)"}.items():
        assert here in code
        code = code.replace(here, there)
    ran: dict[str, object] = {}
    exec(code, ran)
    assert ran["step"] == 1437 // 128 and ran["terms"]["loss"].isfinite() and ran["method"].epoch == 0


def test_the_network_of_such_a_loop_is_kept_as_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "sslkit" / "README.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "sslkit.zoo.save(" in block)
    monkeypatch.chdir(tmp_path)
    method = sslkit.method("simclr", backbone="narrow_resnet", image_size=32, in_chans=3)
    exec(code, {"sslkit": sslkit, "method": method})
    assert sslkit.ZooEntry.load("runs/zoo/mine").backbone()(torch.zeros(1, 3, 32, 32)).shape == (1, 128)
    assert 'sslkit.pretrain("simclr", backbone=net' in text
