"""What `make docs` does beside MkDocs: links to files outside of docs, and the index of decisions.

MkDocs calls these functions by their names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(r"\]\((?:\.\./)*((?:results/[\w./-]+)|RESULTS\.md)((?:#[\w-]*)?)\)")
"""A link to a file of the repository that is no page of docs."""
INSIDE = re.compile(r"\]\((?:docs/)([\w./-]+)((?:#[\w-]*)?)\)")
TRIALS = re.compile(r"\[([^\]]+)\]\(trials/[^)]*\)")
"""A link to a folder of measurements, which the site leaves out."""
RESULTS = "RESULTS.md"
DECISIONS = "decisions/README.md"


def on_files(files: Files, config: Any) -> Files:
    """The files outside of docs that pages link to."""
    pages = [*Path(config.docs_dir).rglob("*.md"), ROOT / RESULTS]
    wanted = {match[1] for page in pages for match in OUTSIDE.finditer(page.read_text("utf-8"))} | {RESULTS}
    for name in sorted(wanted):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as they are inside the site; below the title of the decisions, all of them."""
    up = "../" * page.file.src_uri.count("/")
    markdown = TRIALS.sub(r"\1", markdown)
    markdown = OUTSIDE.sub(lambda match: f"]({up}{match[1]}{match[2]})", markdown)
    if page.file.src_uri == RESULTS:
        markdown = INSIDE.sub(r"](\1\2)", markdown)
    if page.file.src_uri == DECISIONS:
        markdown += "".join(map(_entry, sorted(Path(config.docs_dir).glob("decisions/0*.md"))))
    return markdown


def _entry(decision: Path) -> str:
    """The line of the index for one decision, by its title."""
    title = decision.read_text("utf-8").partition("\n")[0].removeprefix("# ")
    return f"\n- [{title}]({decision.name})"
