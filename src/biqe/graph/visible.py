"""Names as they may be shown: in a terminal, in a page, in a picture."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence

_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    r"""``text`` with what a terminal would obey or XML does not allow written as escapes.

    >>> visible("Rhine\x1b[31m\n"), visible("Besançon"), visible("\ufffe")
    ('Rhine\\x1b[31m\\n', 'Besançon', '\\ufffe')
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(text, place) for place in range(len(text)))


def _visible(text: str, place: int) -> str:
    character = text[place]
    code = ord(character)
    if character in JOINERS:
        # Between two letters a joiner is part of the spelling in some scripts; elsewhere it only misleads.
        around = text[place - 1 : place] + text[place + 1 : place + 2]
        harmless = len(around) == 2 and not any(end.isspace() or end in JOINERS for end in around)
    else:
        is_noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
        harmless = not is_noncharacter and unicodedata.category(character) not in _HIDDEN
    return character if harmless else character.encode("unicode_escape").decode("ascii")


# HTML

Cell = str | Sequence[str]
"""A text, or several on a line each."""
_STYLE = (
    "<style>.biqe table{text-align:left}.biqe caption,.biqe th,.biqe td{text-align:left!important;"
    "vertical-align:top}.biqe caption{caption-side:top;white-space:pre-line;"
    "width:max-content;max-width:60em}</style>"
)
"""A notebook aligns cells right; its own colours are left as they are, in the dark too. A caption may be wider than its
table."""


def escaped(cell: Cell) -> str:
    """A cell as HTML.

    >>> escaped("<Rhine>"), escaped(["a", "b"])
    ('&lt;Rhine&gt;', 'a<br>b')
    """
    lines = [cell] if isinstance(cell, str) else cell
    return "<br>".join(html.escape(visible(line)) for line in lines)


def html_table(head: Sequence[str], columns: Sequence[str], rows: Iterable[str | Sequence[Cell]]) -> str:
    """One table element with the lines of ``head`` as its caption. A row that is a text spans all columns."""
    lines = ["<table>", f"<caption>{escaped(head)}</caption>"] if head else ["<table>"]
    if columns:
        lines.append(f"<thead><tr>{''.join(f'<th>{escaped(name)}</th>' for name in columns)}</tr></thead>")
    lines.append("<tbody>")
    for row in rows:
        if isinstance(row, str):
            lines.append(f'<tr><td colspan="{len(columns)}">{escaped(row)}</td></tr>')
        else:
            lines.append(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"]) + "\n"


def for_notebook(*parts: str) -> str:
    """Pieces of HTML as a notebook shows them."""
    return f'<div class="biqe">{_STYLE}\n{"".join(parts)}</div>'
