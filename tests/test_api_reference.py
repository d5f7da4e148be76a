"""Make the reference by the command of sslkit/README.md and follow each of its links."""

import html
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sslkit

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pdoc")
    command = re.search(r"pdoc (.+) -o api", (ROOT / "sslkit/README.md").read_text(encoding="utf-8"))
    assert command, "sslkit/README.md does not say how to make the reference"
    out = tmp_path_factory.mktemp("api")
    made = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m pdoc {command[1]} -o {out}"], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    assert not re.search("couldn't import|error", made.stderr, re.IGNORECASE), made.stderr
    return out


@pytest.mark.nightly
def test_the_links_of_the_reference_lead_somewhere(reference: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in reference.rglob("*.html")}
    anchors = {page.resolve(): set(re.findall(r'id="([^"]+)"', text)) for page, text in pages.items()}
    links = [
        (page, html.unescape(link))
        for page, text in pages.items()
        for link in re.findall(r'href="([^"$]+)"', text)
        if not link.startswith(("http", "data:", "#"))  # within a page pdoc also links members of torch's classes
    ]
    assert len(links) > 1_000
    for page, link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve()
        assert target in anchors, f"{page.name}: {link}"
        assert not anchor or anchor in anchors[target], f"{page.name}: {link}"


@pytest.mark.nightly
def test_the_reference_shows_each_public_name(reference: Path) -> None:
    text = (reference / "sslkit.html").read_text(encoding="utf-8")
    for name in sslkit.__all__:
        shown = getattr(sslkit, name)
        if isinstance(shown, ModuleType):
            assert (reference / shown.__name__.replace(".", "/")).with_suffix(".html").is_file(), name
        else:
            assert f'id="{name}"' in text, name
