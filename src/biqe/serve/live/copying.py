"""Copies of a live graph: back-ups, and folders that are restored, repaired or written in the present format.

All are made in one way: a live graph is read, and its newest version is written as the base of a new one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption, UnreadableFile
from biqe.graph import folder as graph_folder
from biqe.graph.whole_folder import cannot_be_read, check_free, read_regular
from biqe.serve.live import format_1, generations
from biqe.serve.live.changes import Changes, Statement, decode
from biqe.serve.live.generations import GRAPH, KIND, LITERALS, MAX_LITERALS_BYTES, REJECTED, Base
from biqe.serve.live.live_graph import LiveGraph, base_at
from biqe.serve.live.log import ACKNOWLEDGED, DAMAGE, NAME, checked, copied, read_state, version_of
from biqe.serve.live.versions import History
from biqe.suggest.rejections import MOST_BYTES

MAX_UPDATES = 10_000_000
"""Most updates that a repair looks for."""


@dataclass(frozen=True)
class Copied:
    """What a copy holds."""

    version: int
    triples: int
    literals: int
    entities: int
    given_up: tuple[str, ...] = ()
    """What could not be read, file by file and update by update; only a repair gives something up."""


def copy(source: Path, target: Path, *, repair: bool = False, force: bool = False) -> Copied:
    """Write the live graph in ``source`` to ``target``, whole or not at all; ``source`` stays as it is.

    ``source`` may be served and updated meanwhile; the copy has every update that was acknowledged before the call.
    All its bytes are compared with their checksums. UnreadableFile for a damaged one, unless ``repair`` saves what can
    be read. With ``force`` a live graph at ``target`` is replaced; RunFailed if a server uses it.
    """
    check_free(target, kind=KIND, what="live graph", force=force)
    base, given_up = _salvaged(source) if repair else (_read(source), [])
    try:
        rejected = read_regular(source / REJECTED, MOST_BYTES)
    except FileNotFoundError:
        rejected = b""
    except OSError as error:
        raise cannot_be_read(source / REJECTED, error) from error
    in_use = -1
    try:
        if generations.is_live_folder(target):
            in_use = generations.hold(target, alone=True)
        generations.write(target, base, rejected=rejected, replace=force)
    finally:
        if in_use >= 0:
            os.close(in_use)
    splits = base.splits
    triples = sum(len(part) for part in (splits.train, splits.valid, splits.test))
    return Copied(base.version, triples, len(base.literals), len(splits.vocabulary.entities), tuple(given_up))


def _read(source: Path) -> Base:
    if format_1.is_one(source):
        return _grown(*format_1.read(source))
    with contextlib.closing(LiveGraph(source, read_only=True)) as live:
        return live.base


def _grown(base: Base, updates: list[tuple[int, Changes]]) -> Base:
    """A base with updates in it."""
    history = History(base.splits, base.known, base.literals, base.version)
    for _, changes in updates:
        # An update before it may be gone, so that not all of it has an effect.
        effect, _ = history.state.effect([changes])
        if effect:
            history.apply(effect)
    return replace(base_at(history, base), version=max([base.version, *(version for version, _ in updates)]))


def _salvaged(source: Path) -> tuple[Base, list[str]]:
    """What can be read of a damaged live graph, and what cannot."""
    with contextlib.suppress(UnreadableFile):
        return _read(source), []
    if format_1.is_one(source):
        raise InvalidOption("only folders of the present format are repaired", hint="restore it from a back-up")
    given_up: list[str] = []
    with contextlib.ExitStack() as stack:
        connection: sqlite3.Connection | None = None
        state: dict[str, Any] = {}
        try:
            place = stack.enter_context(copied(source / NAME))
            connection = stack.enter_context(contextlib.closing(sqlite3.connect(place)))
            state = read_state(connection)
        except (*DAMAGE, UnreadableFile, OSError) as error:
            given_up.append(f"{source / NAME}: {_reason(error)}")
        base = _salvaged_base(source, state, given_up)
        acknowledged = None
        with contextlib.suppress(OSError, UnreadableFile):
            acknowledged = version_of(read_regular(source / ACKNOWLEDGED, 1024))
        if acknowledged is None:
            given_up.append(f"{source / ACKNOWLEDGED}: it does not say how many updates were acknowledged")
        updates = list(_salvaged_updates(connection, base.version, acknowledged, given_up))
    whole = _grown(base, updates)
    return replace(whole, version=max(whole.version, acknowledged or 0)), given_up


def _salvaged_base(source: Path, state: dict[str, Any], given_up: list[str]) -> Base:
    """The newest base that can be read, and if need be one whose checksums do not match."""
    copies = tuple(state.get("copies", ()))
    try:
        places = generations.bases(source)
    except OSError as error:
        raise UnreadableFile(f"{source} cannot be read: {error.strerror or error}") from error
    for place in places:
        try:
            return generations.base_in(place, copies)
        except UnreadableFile as error:
            given_up.append(error.message)
        try:
            splits = graph_folder.load(place / GRAPH)
            manifest = graph_folder.load_manifest(place / GRAPH)
            about, literals = manifest["source"], _salvaged_literals(place / LITERALS, given_up)
            known = about.get("known") if about.get("known") in ("complete", "train") else "complete"
            given_up.append(f"{place}: it was taken as it is, with what is wrong in it")
            origin = str(about.get("origin", ""))
            return Base(int(place.name), splits, manifest["prefixes"], literals, str(known), origin, copies)
        except UnreadableFile:
            continue
    raise UnreadableFile(
        f"{source} cannot be repaired: {'; '.join(given_up) or 'it holds no base'}", hint="restore it from a back-up"
    )


def _salvaged_literals(path: Path, given_up: list[str]) -> tuple[Statement, ...]:
    try:
        return decode(read_regular(path, MAX_LITERALS_BYTES))[1].inserted
    except (UnreadableFile, OSError) as error:
        given_up.append(f"{path}: all literals of the base ({_reason(error)})")
        return ()


def _salvaged_updates(
    connection: sqlite3.Connection | None, after: int, acknowledged: int | None, given_up: list[str]
) -> Iterator[tuple[int, Changes]]:
    """Updates after the base that can be read, one by one."""
    last = acknowledged or 0
    if connection is not None:
        with contextlib.suppress(*DAMAGE):
            last = max(last, int(connection.execute("SELECT max(version) FROM updates").fetchone()[0] or 0))
    for version in range(after + 1, min(last, after + MAX_UPDATES) + 1):
        try:
            if connection is None:
                raise ValueError("its file cannot be read")
            row = connection.execute(
                "SELECT version, changes, checksum FROM updates WHERE version = ?", (version,)
            ).fetchone()
            if row is None:
                raise ValueError("it is missing")
            yield version, decode(checked(*row).changes)[1]
        except (*DAMAGE, UnreadableFile) as error:
            given_up.append(f"update {version:,}: {_reason(error)}")


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, UnreadableFile) else str(error)
