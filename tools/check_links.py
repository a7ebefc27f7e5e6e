"""Check that every relative link in the Markdown files leads to a file of this repository.

Code blocks are left out; a link's ``#section`` must be a heading of the file that it names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def pages(root: Path = ROOT) -> list[Path]:
    """Markdown files of the project: those at the top and under docs and src."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("src/**/*.md")])


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, spelt as code hosts spell them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(page: Path) -> Iterator[str]:
    """Links of ``page`` that lead nowhere, each as one sentence."""
    for match in LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        place, _, section = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists():
            yield f"{page.name}: {link} does not exist"
        elif section and target.suffix == ".md" and section not in headings(target):
            yield f"{page.name}: {link}: there is no such heading"


def main() -> int:
    """Print what is broken; 1 if anything is."""
    faults = [fault for page in pages() for fault in broken(page)]
    print("\n".join(faults) if faults else f"links: {len(pages())} pages, all links lead somewhere")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
