"""Docstrings on the site: examples with ``>>>`` become blocks of code. mkdocstrings loads this as an extension."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^([ ]*)>>> .*\n?(?:^\1\S.*\n?)*", re.MULTILINE)
"""A line with a prompt, and all to the next empty line."""


def fenced(text: str) -> str:
    """The text with its examples between fences.

    >>> print(fenced("One.\\n\\n    >>> 1 + 1\\n    2\\n\\nTwo."))
    One.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    Two.
    """

    def block(match: re.Match[str]) -> str:
        lines = [line.removeprefix(match[1]) for line in match[0].rstrip("\n").split("\n")]
        return "\n".join(["```pycon", *lines, "```", ""])

    return EXAMPLE.sub(block, text)


class DocstringExamples(griffe.Extension):
    """Rewrites the docstring of each object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called when an object is complete."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
