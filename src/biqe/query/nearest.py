"""Names that look like a misspelt one, among millions, in a fraction of a second.

difflib compares two strings well but slowly. So all names are first rated by the letters that they share with the
wanted one, in numpy; only the best are compared by difflib.
"""

from __future__ import annotations

import difflib

import numpy as np
from numpy.typing import NDArray

from biqe.graph.vocabulary import Names

_END = 24
"""Bytes looked at, from the end of a name: the beginning of an IRI says little."""
_FINALISTS = 64
"""Names that are compared letter by letter."""
_RATED = 100_000
"""Names whose letters are counted; larger vocabularies are thinned out first."""
_CHUNK = 20_000
"""Names rated at once; bounds the memory."""
_LIKE = 0.6
"""Least similarity of a suggestion, the standard library's own threshold."""
WORSE = 0.15
"""How much less similar than the best one a suggestion may be."""


def nearest(names: Names, wanted: str, limit: int = 3) -> list[tuple[float, int]]:
    """Similarity and id of names like ``wanted``, most similar first; few or none where nothing is like it.

    >>> nearest(Names.of(["borders", "flows_into", "flows_through"]), "flowsThrough", limit=1)
    [(0.96, 2)]
    """
    scored = sorted(
        (-score, id_) for id_ in _share_letters(names, wanted) if (score := _similarity(names[id_], wanted)) >= _LIKE
    )
    return [(-score, id_) for score, id_ in scored[:limit] if score - scored[0][0] <= WORSE]


def local_part(name: str) -> str:
    """What follows the last slash or hash of an IRI or path: the part that people remember.

    >>> local_part("http://ex.org/Germany"), local_part("Germany")
    ('Germany', 'Germany')
    """
    return name[max(name.rfind("/"), name.rfind("#")) + 1 :] or name


def _similarity(name: str, wanted: str) -> float:
    """Between 0 and 1; half of it is the local part, so that names of one namespace do not all look alike."""
    name, wanted = name.casefold(), wanted.casefold()
    whole = difflib.SequenceMatcher(None, name[-256:], wanted[-256:], autojunk=False).ratio()
    local = difflib.SequenceMatcher(None, local_part(name)[-256:], local_part(wanted)[-256:], autojunk=False).ratio()
    return (whole + local) / 2


def _share_letters(names: Names, wanted: str) -> list[int]:
    """The names of about the same length that share most letters with ``wanted``."""
    encoded = _lower(np.frombuffer(wanted.encode(errors="replace"), np.uint8))
    if len(encoded) == 0:
        return []
    lengths = np.diff(names.offsets)
    ids = np.flatnonzero((np.abs(lengths - len(encoded)) <= max(4, len(encoded) // 2)) & (lengths > 0))
    if len(ids) > _RATED:
        ids = _same_beginning_or_end(names, ids, encoded, len(wanted.encode(errors="replace")) - _local_size(wanted))
        ids = ids[np.argsort(np.abs(lengths[ids] - len(encoded)), kind="stable")[:_RATED]]
    if len(ids) <= _FINALISTS:
        return ids.tolist()
    best = np.argsort(-_shares(names, ids, encoded[-_END:]), kind="stable")[:_FINALISTS]
    return ids[best].tolist()


def _same_beginning_or_end(
    names: Names, ids: NDArray[np.intp], encoded: NDArray[np.uint8], namespace: int
) -> NDArray[np.intp]:
    """Names with the first or the last two bytes of ``encoded``, counted without its namespace.

    Whoever misspells a name seldom does so at both ends.
    """
    starts, ends = names.offsets[ids], names.offsets[ids + 1]
    same_beginning, same_end = np.ones((2, len(ids)), bool)
    for step in (1, 2):
        if step <= len(encoded):
            same_end &= _lower(names.blob[np.maximum(ends - step, 0)]) == encoded[-step]
        if namespace + step <= len(encoded):
            places = np.minimum(starts + namespace + step - 1, ends - 1)
            same_beginning &= _lower(names.blob[places]) == encoded[namespace + step - 1]
    return ids[same_beginning | same_end]


def _shares(names: Names, ids: NDArray[np.intp], ending: NDArray[np.uint8]) -> NDArray[np.float32]:
    """For each name, the share of letters that its end has in common with ``ending``, whatever their order."""
    letters, numbers = np.unique(ending, return_counts=True)
    shares = np.empty(len(ids), np.float32)
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        ends, size = names.offsets[chunk + 1], np.minimum(names.offsets[chunk + 1] - names.offsets[chunk], _END)
        places = ends[:, None] - np.arange(1, _END + 1)
        rows = _lower(names.blob[np.maximum(places, 0)])
        rows[np.arange(_END) >= size[:, None]] = 0
        shared = np.zeros(len(chunk), np.int64)
        for letter, number in zip(letters, numbers, strict=True):
            shared += np.minimum((rows == letter).sum(axis=1), number)
        shares[start : start + _CHUNK] = 2 * shared / (size + len(ending))
    return shares


def _local_size(name: str) -> int:
    return len(local_part(name).encode(errors="replace"))


def _lower(letters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """ASCII capitals made small; all other bytes as they are."""
    return np.where((letters >= 65) & (letters <= 90), letters + 32, letters).astype(np.uint8)
