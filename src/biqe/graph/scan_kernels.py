"""Compiled scanners for the line formats: TSV, N-Triples and N-Quads.

They read plain lines only. A scanner stops at any other line (ODD), which the strict reader then reads, so that ids
keep the order of the file. N-Triples lines with a literal that is a label or not plain are *deferred*: they have no new
entity, so they can wait for the end of the block.
"""

from __future__ import annotations

import numpy as np

from biqe.graph.compiled import compiled
from biqe.graph.intern_kernels import has_room, intern

DONE, ODD, FULL = 0, 1, 2
"""Why a scanner stopped: end of block; a line for the strict reader; no room in an interner."""
POSITION, STATUS, ROWS, COMMENTS, LITERALS, GRAPHS, DEFERRED = range(7)
"""Places in the ``state`` of a scanner."""

_LF, _CR, _TAB, _SPACE, _HASH = 10, 13, 9, 32, 35
_QUOTE, _PERCENT, _DOT, _SLASH, _COLON = 34, 37, 46, 47, 58
_LESS, _GREATER, _QUESTION, _AT, _BACKSLASH, _CARET, _UNDERSCORE, _MINUS = 60, 62, 63, 64, 92, 94, 95, 45

LETTER, DIGIT, UNRESERVED, PATH = 1, 2, 4, 8
"""Bits of a byte's class: may stand in a host (LETTER, DIGIT, UNRESERVED), in a path as well (PATH)."""


def _classes():  # type: ignore[no-untyped-def]
    classes = np.zeros(256, np.uint8)
    for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz":
        classes[letter] = LETTER | PATH
    for digit in b"0123456789":
        classes[digit] = DIGIT | PATH
    for mark in b"-._~":
        classes[mark] = UNRESERVED | PATH
    for mark in b"!$&'()*+,;=:@/":
        classes[mark] = PATH
    return classes


_CLASS = _classes()
_LABEL_END = np.frombuffer(b"label", np.uint8).copy()
_LABEL = np.frombuffer(b"http://www.w3.org/2000/01/rdf-schema#label", np.uint8).copy()


@compiled(nogil=True, inline="always")
def _line_end(data, start):  # type: ignore[no-untyped-def]
    """Place of the line feed, or the end of the data."""
    end = start
    while end < len(data) and data[end] != _LF:
        end += 1
    return end


@compiled(nogil=True)
def scan_tsv(data, entities, relations, rows, state, longest):  # type: ignore[no-untyped-def]
    """Read lines of ``data`` from ``state[POSITION]`` on into ``rows``."""
    position = state[POSITION]
    count = state[ROWS]
    state[STATUS] = DONE
    while position < len(data):
        # One pass finds the end of the line and both tabs.
        tabs = 0
        first = second = position
        odd = False
        blank = True
        end = position
        while end < len(data):
            byte = data[end]
            if byte == _LF:
                break
            if byte == _TAB:
                if tabs == 0:
                    first = end
                elif tabs == 1:
                    second = end
                tabs += 1
            elif byte == _CR:
                odd = odd or not (end + 1 == len(data) or data[end + 1] == _LF)
            if byte != _SPACE and byte != _CR:
                blank = False
            end += 1
        stop = end - 1 if end > position and data[end - 1] == _CR else end
        if not blank and data[position] == _HASH:
            state[COMMENTS] += 1
        elif not blank:
            a, b, c = first - position, second - first - 1, stop - second - 1
            if odd or tabs != 2 or a < 1 or b < 1 or c < 1 or a > longest or b > longest or c > longest:
                state[STATUS] = ODD
                break
            if data[second + 1] == _QUOTE and data[stop - 1] != _QUOTE:
                # A literal with a language or a type, if it is plain; a label of an entity is not.
                if _literal_end(data, second + 1, stop) != stop or _ends_with_label(data, first + 1, second):
                    state[STATUS] = ODD
                    break
                state[LITERALS] += 1
                position = end + 1
                continue
            if not (has_room(entities, 2, a + c) and has_room(relations, 1, b)):
                state[STATUS] = FULL
                break
            rows[count, 0] = intern(entities, data, position, first)
            rows[count, 1] = intern(relations, data, first + 1, second)
            rows[count, 2] = intern(entities, data, second + 1, stop)
            count += 1
        position = end + 1
    state[POSITION] = min(position, len(data))
    state[ROWS] = count


@compiled(nogil=True, inline="always")
def _skip_space(data, place, stop):  # type: ignore[no-untyped-def]
    while place < stop and (data[place] == _SPACE or data[place] == _TAB):
        place += 1
    return place


@compiled(nogil=True)
def _iri_end(data, start, stop):  # type: ignore[no-untyped-def]
    """Place of the ``>`` that ends the IRI after ``<`` at ``start``, or -1 if the IRI is not plain.

    Plain is a subset of what the IRI grammar allows, in one pass: scheme, a host of letters, digits and ``-._~``, and
    path, query and fragment of reserved and unreserved characters, %-escapes, and most letters beyond ASCII.
    """
    place = start + 1
    if place >= stop or not _CLASS[data[place]] & LETTER:
        return -1
    while place < stop and (_CLASS[data[place]] & (LETTER | DIGIT) or data[place] in (43, _MINUS, _DOT)):
        place += 1
    if place >= stop or data[place] != _COLON:
        return -1
    place += 1
    if place + 1 < stop and data[place] == _SLASH and data[place + 1] == _SLASH:
        place += 2
        host = place
        while place < stop and _CLASS[data[place]] & (LETTER | DIGIT | UNRESERVED):
            place += 1
        if place == host or place >= stop or data[place] not in (_SLASH, _QUESTION, _HASH, _GREATER):
            return -1
    fragment = False
    while place < stop:
        byte = data[place]
        if _CLASS[byte] & PATH or byte == _QUESTION:
            place += 1
        elif byte == _GREATER:
            return place
        elif byte == _HASH and not fragment:
            fragment = True
            place += 1
        elif byte == _PERCENT and place + 2 < stop and _is_hex(data[place + 1]) and _is_hex(data[place + 2]):
            place += 3
        elif 0xC3 <= byte <= 0xDF or (byte == 0xC2 and place + 1 < stop and data[place + 1] >= 0xA0):
            place += 2
        elif 0xE0 <= byte <= 0xED:
            place += 3
        else:
            return -1
    return -1


@compiled(nogil=True, inline="always")
def _is_hex(byte):  # type: ignore[no-untyped-def]
    return 48 <= byte <= 57 or 65 <= byte <= 70 or 97 <= byte <= 102


@compiled(nogil=True)
def _node_end(data, start, stop):  # type: ignore[no-untyped-def]
    """Place after the blank node label that follows ``_:`` at ``start``, or -1 if it is not plain."""
    place = start + 2
    if place >= stop or data[start + 1] != _COLON:
        return -1
    if not (_CLASS[data[place]] & (LETTER | DIGIT) or data[place] == _UNDERSCORE):
        return -1
    while place < stop and (_CLASS[data[place]] & (LETTER | DIGIT) or data[place] in (_UNDERSCORE, _MINUS)):
        place += 1
    # A label may go on with other characters; only what ends here for certain is plain.
    if place < stop and data[place] not in (_SPACE, _TAB, _LESS):
        return -1
    return place


@compiled(nogil=True)
def _literal_end(data, start, stop):  # type: ignore[no-untyped-def]
    """Place after the literal whose ``"`` is at ``start``, or -1 if it is not plain."""
    place = start + 1
    while place < stop and data[place] != _QUOTE:
        if data[place] == _BACKSLASH:
            return -1
        place += 1
    if place >= stop:
        return -1
    place += 1
    if place < stop and data[place] == _AT:
        place += 1
        # Language tags of two or three letters, maybe with one region of two: what nearly all files have.
        letters = place
        while place < stop and _CLASS[data[place]] & LETTER:
            place += 1
        if not 2 <= place - letters <= 3:
            return -1
        if place < stop and data[place] == _MINUS:
            region = place + 1
            place = region
            while place < stop and _CLASS[data[place]] & LETTER:
                place += 1
            if place - region != 2:
                return -1
    elif place + 2 < stop and data[place] == _CARET and data[place + 1] == _CARET and data[place + 2] == _LESS:
        place = _iri_end(data, place + 2, stop)
        if place < 0:
            return -1
        place += 1
    return place


@compiled(nogil=True, inline="always")
def _next_line(data, place):  # type: ignore[no-untyped-def]
    """Start of the next line, if nothing but a full stop and spaces stands before it; else -1."""
    stop = len(data)
    place = _skip_space(data, place, stop)
    if place >= stop or data[place] != _DOT:
        return -1
    place = _skip_space(data, place + 1, stop)
    if place < stop and data[place] == _CR:
        place += 1
    return place + 1 if place >= stop or data[place] == _LF else -1


@compiled(nogil=True, inline="always")
def _graph_end(data, place, stop):  # type: ignore[no-untyped-def]
    """Place after a graph name at ``place``, ``place`` itself if there is none, -1 if it is not plain."""
    if place < stop and data[place] == _LESS:
        end = _iri_end(data, place, stop)
        return end + 1 if end >= 0 else -1
    if place < stop and data[place] == _UNDERSCORE:
        return _node_end(data, place, stop)
    return place


@compiled(nogil=True)
def scan_rdf_lines(data, entities, relations, rows, deferred, state, longest, quads, scratch, prefix):  # type: ignore[no-untyped-def]
    """Read N-Triples, or with ``quads`` N-Quads, from ``state[POSITION]`` on into ``rows``.

    ``scratch[:prefix]`` is what blank node labels are put after; ``prefix`` is 0 where they stay as they are.
    Deferred lines are put into ``deferred`` as (start, stop).
    """
    position = state[POSITION]
    count = state[ROWS]
    state[STATUS] = DONE
    while position < len(data):
        stop = len(data)
        place = _skip_space(data, position, stop)
        if place == stop or data[place] in (_LF, _CR, _HASH):
            end = _line_end(data, place)
            stop = end - 1 if end > place and data[end - 1] == _CR else end
            # A carriage return alone ends a line of RDF, so what follows it may be more than comment.
            if _has_return(data, place, stop):
                state[STATUS] = ODD
                break
            position = end + 1
            continue
        subject = place
        # No line end is plain within a term, so terms need not be told where the line ends.
        subject_end = _node_or_iri_end(data, subject, stop)
        ok = subject_end > 0 and subject_end - subject <= longest
        if ok:
            relation = _skip_space(data, subject_end, stop)
            ok = relation < stop and data[relation] == _LESS
        if ok:
            relation_end = _iri_end(data, relation, stop)
            ok = relation_end > 0 and relation_end - relation <= longest
        if ok:
            object_ = _skip_space(data, relation_end + 1, stop)
            ok = object_ < stop
        if not ok:
            state[STATUS] = ODD
            break
        if data[object_] == _QUOTE:
            end = _line_end(data, object_)
            stop = end - 1 if data[end - 1] == _CR else end
            if _has_return(data, object_, stop):
                state[STATUS] = ODD
                break
            place = _literal_end(data, object_, stop)
            named = False
            if place > 0 and quads:
                graph = _skip_space(data, place, stop)
                place = _graph_end(data, graph, stop)
                named = place > graph
            if place > 0 and _next_line(data, place) == end + 1 and not _is_label(data, relation + 1, relation_end):
                state[LITERALS] += 1
                state[GRAPHS] += named
            else:
                deferred[state[DEFERRED], 0] = position
                deferred[state[DEFERRED], 1] = end
                state[DEFERRED] += 1
            position = end + 1
            continue
        object_end = _node_or_iri_end(data, object_, stop)
        ok = object_end > 0 and object_end - object_ <= longest
        named = False
        if ok:
            place = object_end
            if quads:
                graph = _skip_space(data, place, stop)
                place = _graph_end(data, graph, stop)
                named = place > graph
            following = _next_line(data, place) if place > 0 else -1
            ok = following > 0
        if not ok:
            state[STATUS] = ODD
            break
        size = (subject_end - subject) + (object_end - object_) + 2 * prefix
        if not (has_room(entities, 2, size) and has_room(relations, 1, relation_end - relation)):
            state[STATUS] = FULL
            break
        rows[count, 0] = _intern_node(entities, data, subject, subject_end, scratch, prefix)
        rows[count, 1] = intern(relations, data, relation + 1, relation_end)
        rows[count, 2] = _intern_node(entities, data, object_, object_end, scratch, prefix)
        state[GRAPHS] += named
        count += 1
        position = following
    state[POSITION] = min(position, len(data))
    state[ROWS] = count


@compiled(nogil=True, inline="always")
def _has_return(data, start, stop):  # type: ignore[no-untyped-def]
    for place in range(start, stop):
        if data[place] == _CR:
            return True
    return False


@compiled(nogil=True, inline="always")
def _is_label(data, start, stop):  # type: ignore[no-untyped-def]
    if stop - start != len(_LABEL):
        return False
    for i in range(len(_LABEL)):
        if data[start + i] != _LABEL[i]:
            return False
    return True


@compiled(nogil=True, inline="always")
def _ends_with_label(data, start, stop):  # type: ignore[no-untyped-def]
    """Whether a relation may be rdfs:label, however it is written: its last letters are ``label``, or ``label>``."""
    if stop > start and data[stop - 1] == _GREATER:
        stop -= 1
    if stop - start < len(_LABEL_END):
        return False
    for i in range(len(_LABEL_END)):
        if data[stop - len(_LABEL_END) + i] != _LABEL_END[i]:
            return False
    return True


@compiled(nogil=True, inline="always")
def _node_or_iri_end(data, start, stop):  # type: ignore[no-untyped-def]
    """Place after a plain IRI or blank node at ``start``, else -1."""
    if data[start] == _LESS:
        end = _iri_end(data, start, stop)
        return end + 1 if end >= 0 else -1
    if data[start] == _UNDERSCORE:
        return _node_end(data, start, stop)
    return -1


@compiled(nogil=True, inline="always")
def _intern_node(entities, data, start, stop, scratch, prefix):  # type: ignore[no-untyped-def]
    """Id of the IRI without its brackets, or of the blank node as it is called among several files."""
    if data[start] == _LESS:
        return intern(entities, data, start + 1, stop - 1)
    if prefix == 0:
        return intern(entities, data, start, stop)
    size = stop - start - 2
    for i in range(size):
        scratch[prefix + i] = data[start + 2 + i]
    return intern(entities, scratch, 0, prefix + size)
