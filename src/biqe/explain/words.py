"""Names, numbers and paragraphs as they may be shown: harmless in a terminal and in a picture, and not too wide."""

from __future__ import annotations

import re

from rich.cells import cell_len, set_cell_size

from biqe.graph.visible import JOINERS
from biqe.graph.visible import visible as visible

HELD = "the graph holds every fact that it needs"
"""Why a known row is an answer."""
_IRI = re.compile(r"[a-z][a-z0-9+.-]*://")
RAW_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that JSON and XML allow as they are, but a terminal should not see."""


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
