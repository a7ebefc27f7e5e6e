"""Names, numbers and paragraphs as they may be shown: harmless in a terminal, in a page and in a picture, and not too
wide."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

HELD = "the graph holds every fact that it needs"
"""Why a known row is an answer."""
_IRI = re.compile(r"[a-z][a-z0-9+.-]*://")
RAW_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that JSON and XML allow as they are, but a terminal should not see."""
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


def escaped_json(text: str) -> str:
    """A JSON document with the characters that JSON allows raw, but a terminal should not see, as escapes."""
    return RAW_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def short(name: str) -> str:
    """The last part of an IRI, or of a name written as a path, as Freebase does; any other name as it is.

    >>> short("http://ex.org/geo#Rhine"), short("/location/country/capital"), short("AC/DC")
    ('Rhine', 'capital', 'AC/DC')
    """
    if _IRI.match(name) or name.startswith("/"):
        return re.split(r"[/#]", name.rstrip("/#"))[-1] or name
    return name


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns, without its middle where it is longer.

    >>> cut("North Rhine-Westphalia", 12)
    'North …halia'
    """
    if cell_len(text) <= width:
        return text
    ahead = set_cell_size(text, width // 2).rstrip(JOINERS)
    behind = set_cell_size(text[::-1], width - 1 - width // 2)[::-1].lstrip(JOINERS)
    return f"{ahead}…{behind}"


def fit(text: str, width: int) -> str:
    """``text`` in exactly ``width`` columns: filled with spaces, or without its end where it is longer."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    # A joiner at the cut would join the ellipsis to the name.
    return set_cell_size(set_cell_size(text, width - 1).rstrip(JOINERS) + "…", width)


def padded(text: str, width: int) -> str:
    """``text`` in exactly ``width`` columns."""
    return set_cell_size(cut(text, width), width)


def wrapped(text: str, width: int, *, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of at most ``width`` columns, broken between words; ``first`` begins the first, ``rest`` all others."""
    rest = " " * cell_len(first) if rest is None else rest
    lines, line, is_empty = [], first, True
    for word in text.split(" "):
        while True:
            wide = line if is_empty else f"{line} "
            if cell_len(wide) + cell_len(word) <= width:
                line, is_empty = wide + word, False
                break
            if not is_empty:
                lines.append(line)
                line, is_empty = rest, True
            else:  # one word wider than a line
                head = _head(word, max(1, width - cell_len(line)))
                lines.append(line + head)
                word, line = word[len(head) :], rest
    return [*lines, line]


def _head(word: str, width: int) -> str:
    """The longest beginning of ``word`` that fits, at least one character; not broken at a joiner."""
    size = len(word)
    while size > 1 and (cell_len(word[:size]) > width or any(end in JOINERS for end in word[size - 1 : size + 1])):
        size -= 1
    return word[:size]


def probability(value: float, digits: int = 3) -> str:
    """A probability as people read it.

    >>> probability(0.2661), probability(0.00001), probability(0.0)
    ('0.266', '<0.001', '0.000')
    """
    smallest = 10.0**-digits
    return f"<{smallest:.{digits}f}" if 0 < value < smallest else f"{value:.{digits}f}"


def percent(share: float) -> str:
    """A share in whole percent, without the sign."""
    return "<1" if 0 < share < 0.005 else f"{100 * share:.0f}"


def compared(before: float, after: float) -> str:
    """What became of a probability, in words.

    >>> compared(0.2, 0.05), compared(0.2, 0.202), compared(0.2, 0.5)
    ('25 % of it', 'about the same', '2.5 times as much')
    """
    if before <= 0:
        return "about the same" if after <= 0 else "more"
    ratio = after / before
    if 0.95 < ratio < 1.05:
        return "about the same"
    if ratio < 1:
        return f"{percent(ratio)} % of it"
    return f"{ratio:,.{0 if ratio >= 10 else 1}f} times as much"


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
