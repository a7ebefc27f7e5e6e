"""TSV, N-Triples and N-Quads through the compiled scanners; the strict readers take the lines that are not plain.

The result is the same as that of the strict readers alone, ids and errors included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Thread

import numpy as np

from biqe.graph.blocks import BLOCK_BYTES, MAX_NAME_BYTES, Block, blocks
from biqe.graph.collect import Collector
from biqe.graph.files import Source
from biqe.graph.intern_kernels import HashInterner
from biqe.graph.read_rdf import blank_prefix, read_lines
from biqe.graph.read_table import data_rows, note_header, read_tsv, read_tsv_lines
from biqe.graph.scan_kernels import (
    COMMENTS,
    DEFERRED,
    FULL,
    GRAPHS,
    LITERALS,
    ODD,
    POSITION,
    ROWS,
    STATUS,
    scan_rdf_lines,
    scan_tsv,
)
from biqe.graph.table_shape import header_columns


def read_fast(source: Source, into: Collector, *, scope: int = 0, block_bytes: int = BLOCK_BYTES) -> None:
    """All triples of a TSV, N-Triples or N-Quads file. The interners of ``into`` must be HashInterners."""
    header_line = 0
    if source.format == "tsv":
        probe = Collector(skip_bad=True)
        line, row = _first_row(source, probe)
        header = header_columns(row)
        if header is not None and (not header.plain or probe.counts.bad_lines):
            # Rare, so it is left to the strict reader: columns in another order, or bad lines before the header.
            read_tsv(source, into)
            return
        if header is not None:
            header_line = line
            note_header(source.path, row, header, into)
            into.counts.comments += probe.counts.comments
    with _Ahead(blocks(source.path, advance=into.advance, size=block_bytes, refuse=into.refuse)) as ready:
        for block in ready:
            _Scan(source, block, into, scope).run(after_line=header_line)


def _first_row(source: Source, probe: Collector) -> tuple[int, list[str]]:
    """Line number and columns of the first row of a TSV file; (0, []) where there is none."""
    for block in blocks(source.path, size=1 << 16, refuse=probe.refuse):
        for row in data_rows(source.path, block, probe):
            return row
    return 0, []


class _Scan:
    """One block on its way through a scanner."""

    def __init__(self, source: Source, block: Block, into: Collector, scope: int) -> None:
        self.source, self.block, self.into, self.scope = source, block, into, scope
        lines = block.data.count(b"\n") + 1
        self.data = np.frombuffer(block.data, np.uint8)
        self.rows = np.empty((lines, 3), np.int32)
        self.deferred = np.empty((lines, 2), np.int64)
        self.state = np.zeros(7, np.int64)
        prefix = blank_prefix(scope).encode() if scope else b""
        self.prefix = len(prefix)
        self.scratch = np.frombuffer(prefix.ljust(MAX_NAME_BYTES + 1 if scope else 1, b"\0"), np.uint8).copy()
        self._counted_to, self._line = 0, block.first_line

    def run(self, after_line: int = 0) -> None:
        """Read the block to its end, without the lines up to number ``after_line``."""
        for _ in range(self.block.first_line, after_line + 1):
            self.state[POSITION] = self.block.data.find(b"\n", self.state[POSITION]) + 1 or len(self.data)
        entities, relations = self.into.entities, self.into.relations
        assert isinstance(entities, HashInterner) and isinstance(relations, HashInterner)
        while self.state[POSITION] < len(self.data):
            self._scan(entities, relations)
            self._read_deferred()
            if self.state[STATUS] == ODD:
                self._read_odd_line()
            elif self.state[STATUS] == FULL:
                size = 2 * MAX_NAME_BYTES + 64
                entities.grow(size)
                relations.grow(size)
        counts = self.into.counts
        counts.comments += int(self.state[COMMENTS])
        counts.literals += int(self.state[LITERALS])
        counts.named_graph += int(self.state[GRAPHS])
        self.into.add_rows(self.source.split, self.rows[: self.state[ROWS]].copy())

    def _scan(self, entities: HashInterner, relations: HashInterner) -> None:
        tables = entities.table, relations.table
        if self.source.format == "tsv":
            scan_tsv(self.data, *tables, self.rows, self.state, MAX_NAME_BYTES)
            return
        quads = self.source.format == "nquads"
        # The limit leaves room for what is put before blank node labels, so that no name grows past the maximum.
        longest = MAX_NAME_BYTES - self.prefix
        scan_rdf_lines(
            self.data, *tables, self.rows, self.deferred, self.state, longest, quads, self.scratch, self.prefix
        )

    def _read_deferred(self) -> None:
        count = int(self.state[DEFERRED])
        if not count:
            return
        starts = self.deferred[:count, 0]
        data = self.block.data
        lines = b"".join(data[start:stop] + b"\n" for start, stop in self.deferred[:count].tolist())
        read_lines(
            self.source, lines, self.into, scope=self.scope, line_of=lambda line: self._line_at(int(starts[line - 1]))
        )
        self.state[DEFERRED] = 0

    def _read_odd_line(self) -> None:
        start = int(self.state[POSITION])
        stop = self.block.data.find(b"\n", start) + 1 or len(self.data)
        line, text = self._line_at(start), self.block.data[start:stop]
        if self.source.format == "tsv":
            read_tsv_lines(self.source, Block(text, line), self.into)
        else:
            read_lines(self.source, text, self.into, scope=self.scope, line_of=lambda inner: line + inner - 1)
        self.state[POSITION] = stop

    def _line_at(self, position: int) -> int:
        """Number of the line that starts at ``position``; positions mostly ascend, so counting goes on."""
        if position < self._counted_to:
            self._counted_to, self._line = 0, self.block.first_line
        self._line += self.block.data.count(b"\n", self._counted_to, position)
        self._counted_to = position
        return self._line


class _Ahead:
    """Iterate over blocks that another thread reads, unpacks and checks meanwhile, at most two of them ahead."""

    def __init__(self, source: Iterator[Block]) -> None:
        self._source = source
        self._queue: Queue[Block | BaseException | None] = Queue(maxsize=2)
        self._stopped = Event()
        self._thread = Thread(target=self._fill, name="biqe-read-ahead", daemon=True)

    def __enter__(self) -> Iterator[Block]:
        self._thread.start()
        return self._blocks()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        # A place in the queue lets a waiting thread go on at once and see that it is to stop.
        with suppress(Empty):
            while True:
                self._queue.get_nowait()
        self._thread.join()

    def _blocks(self) -> Iterator[Block]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def _fill(self) -> None:
        try:
            for block in self._source:
                if not self._put(block):
                    return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - handed to the reading thread, which raises it
            self._put(error)

    def _put(self, item: Block | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except Full:
                continue
            return True
        return False
