"""A fixed-width font of 5 by 7 pixels, two more below the baseline, for pictures made without a graphics library.

Each glyph is a row of numbers in hexadecimal, from the top down; the sixteen's bit is its leftmost pixel. Characters
outside ASCII are written as their plain letter where they have one (é as e), else as a question mark.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, BASELINE = 6, 9, 7
"""Of a character with the gap to its neighbour; the baseline is below row 7."""

_INSTEAD = {
    "→": "->",
    "←": "<-",
    "−": "-",
    "–": "-",
    "—": "-",
    "…": "...",
    "×": "x",
    "’": "'",
    "“": '"',
    "”": '"',
    "ß": "ss",
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
    "đ": "d",
    "æ": "ae",
    "Æ": "AE",
    "ı": "i",
}

_GLYPHS = {
    " ": "00",
    "!": "04 04 04 04 04 00 04",
    '"': "0a 0a 0a",
    "#": "0a 0a 1f 0a 1f 0a 0a",
    "$": "04 0f 14 0e 05 1e 04",
    "%": "18 19 02 04 08 13 03",
    "&": "0c 12 14 08 15 12 0d",
    "'": "04 04 04",
    "(": "02 04 08 08 08 04 02",
    ")": "08 04 02 02 02 04 08",
    "*": "00 04 15 0e 15 04 00",
    "+": "00 04 04 1f 04 04 00",
    ",": "00 00 00 00 00 0c 0c 04 08",
    "-": "00 00 00 1f 00 00 00",
    ".": "00 00 00 00 00 0c 0c",
    "/": "01 01 02 04 08 10 10",
    "0": "0e 11 13 15 19 11 0e",
    "1": "04 0c 04 04 04 04 0e",
    "2": "0e 11 01 02 04 08 1f",
    "3": "1f 02 04 02 01 11 0e",
    "4": "02 06 0a 12 1f 02 02",
    "5": "1f 10 1e 01 01 11 0e",
    "6": "06 08 10 1e 11 11 0e",
    "7": "1f 01 02 04 08 08 08",
    "8": "0e 11 11 0e 11 11 0e",
    "9": "0e 11 11 0f 01 02 0c",
    ":": "00 0c 0c 00 0c 0c 00",
    ";": "00 0c 0c 00 0c 0c 04 08",
    "<": "02 04 08 10 08 04 02",
    "=": "00 00 1f 00 1f 00 00",
    ">": "08 04 02 01 02 04 08",
    "?": "0e 11 01 02 04 00 04",
    "@": "0e 11 17 15 17 10 0e",
    "A": "0e 11 11 1f 11 11 11",
    "B": "1e 11 11 1e 11 11 1e",
    "C": "0e 11 10 10 10 11 0e",
    "D": "1e 11 11 11 11 11 1e",
    "E": "1f 10 10 1e 10 10 1f",
    "F": "1f 10 10 1e 10 10 10",
    "G": "0e 11 10 17 11 11 0f",
    "H": "11 11 11 1f 11 11 11",
    "I": "0e 04 04 04 04 04 0e",
    "J": "07 02 02 02 02 12 0c",
    "K": "11 12 14 18 14 12 11",
    "L": "10 10 10 10 10 10 1f",
    "M": "11 1b 15 15 11 11 11",
    "N": "11 19 15 13 11 11 11",
    "O": "0e 11 11 11 11 11 0e",
    "P": "1e 11 11 1e 10 10 10",
    "Q": "0e 11 11 11 15 12 0d",
    "R": "1e 11 11 1e 14 12 11",
    "S": "0f 10 10 0e 01 01 1e",
    "T": "1f 04 04 04 04 04 04",
    "U": "11 11 11 11 11 11 0e",
    "V": "11 11 11 11 11 0a 04",
    "W": "11 11 11 15 15 15 0a",
    "X": "11 11 0a 04 0a 11 11",
    "Y": "11 11 0a 04 04 04 04",
    "Z": "1f 01 02 04 08 10 1f",
    "[": "0e 08 08 08 08 08 0e",
    "\\": "10 10 08 04 02 01 01",
    "]": "0e 02 02 02 02 02 0e",
    "^": "04 0a 11",
    "_": "00 00 00 00 00 00 00 1f",
    "`": "08 04",
    "a": "00 00 0e 01 0f 11 0f",
    "b": "10 10 1e 11 11 11 1e",
    "c": "00 00 0e 11 10 11 0e",
    "d": "01 01 0f 11 11 11 0f",
    "e": "00 00 0e 11 1f 10 0e",
    "f": "06 09 08 1c 08 08 08",
    "g": "00 00 0f 11 11 11 0f 01 0e",
    "h": "10 10 1e 11 11 11 11",
    "i": "04 00 0c 04 04 04 0e",
    "j": "02 00 06 02 02 02 02 12 0c",
    "k": "10 10 12 14 18 14 12",
    "l": "0c 04 04 04 04 04 0e",
    "m": "00 00 1a 15 15 15 15",
    "n": "00 00 1e 11 11 11 11",
    "o": "00 00 0e 11 11 11 0e",
    "p": "00 00 1e 11 11 11 1e 10 10",
    "q": "00 00 0f 11 11 11 0f 01 01",
    "r": "00 00 16 19 10 10 10",
    "s": "00 00 0f 10 0e 01 1e",
    "t": "08 08 1c 08 08 09 06",
    "u": "00 00 11 11 11 13 0d",
    "v": "00 00 11 11 11 0a 04",
    "w": "00 00 11 15 15 15 0a",
    "x": "00 00 11 0a 04 0a 11",
    "y": "00 00 11 11 11 11 0f 01 0e",
    "z": "00 00 1f 02 04 08 1f",
    "{": "02 04 04 08 04 04 02",
    "|": "04 04 04 04 04 04 04",
    "}": "08 04 04 02 04 04 08",
    "~": "00 00 08 15 02 00 00",
}


def plain_ascii(text: str) -> str:
    """The text in characters that the font has.

    >>> plain_ascii("Besançon → 川")
    'Besancon -> ?'
    """
    spelled = "".join(_INSTEAD.get(letter, letter) for letter in text)
    letters = (c for c in unicodedata.normalize("NFKD", spelled) if not unicodedata.combining(c))
    return "".join(_INSTEAD.get(c, c) if c in _INSTEAD or c in _GLYPHS else "?" for c in letters)


@cache
def glyph(letter: str) -> NDArray[np.bool_]:
    """(HEIGHT, WIDTH) pixels of a character of the font."""
    rows = [int(row, 16) for row in _GLYPHS[letter].split()]
    rows += [0] * (HEIGHT - len(rows))
    return np.array([[bool(row >> (4 - column) & 1) for column in range(5)] + [False] for row in rows])


def pixels(text: str) -> NDArray[np.bool_]:
    """(HEIGHT, WIDTH * characters) pixels of a line of text."""
    letters = [glyph(letter) for letter in plain_ascii(text)]
    return np.concatenate([np.zeros((HEIGHT, 0), bool), *letters], axis=1)
