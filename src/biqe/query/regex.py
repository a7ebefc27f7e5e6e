"""Regular expressions of queries, as RE2 reads them: matching takes time in proportion to the text, whatever the
expression."""

from __future__ import annotations

import re
from functools import lru_cache

HINT = "back references and look-around are not supported: matching takes time in proportion to the text"


def as_re2(pattern: str, flags: str) -> str:
    """The expression with those flags of SPARQL in it that RE2 has in the expression; ``i`` is the caller's."""
    pattern = re.escape(pattern) if "q" in flags else pattern
    inline = "".join(sorted(set(flags) & set("sm")))
    return f"(?{inline}){pattern}" if inline else pattern


@lru_cache(maxsize=256)
def fault(pattern: str, flags: str = "") -> str | None:
    """Why the expression cannot be read; None where it can."""
    # pyarrow takes a tenth of a second to load: only those who ask for a regular expression wait for it.
    import pyarrow
    from pyarrow import compute

    try:
        compute.match_substring_regex(pyarrow.array([""], pyarrow.string()), as_re2(pattern, flags))
    except pyarrow.ArrowInvalid as error:
        reason = str(error).partition(": ")[2] or str(error)
        return f"{pattern[:60]!r} is no regular expression that can be read: {reason[:120]}"
    return None
