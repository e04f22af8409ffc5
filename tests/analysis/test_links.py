"""Every link between the pages leads to a file and a heading that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(path for room in ("docs", "benchmarks", "traces") for path in (ROOT / room).rglob("*.md")),
]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> Iterator[str]:
    """The headings of a page as GitHub names them."""
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
