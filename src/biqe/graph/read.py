"""Files in, graph out: chooses the reader of each file and puts their results together.

    >>> graph = read_graph(["facts.nt", "more.ttl.gz"])        # doctest: +SKIP
    >>> graph.vocabulary, graph.counts.literals                # doctest: +SKIP

Blank nodes are entities. Their name is ``_:label``, as the file spells it; a label means one node within one file,
or within one folder of splits. A node without a label, and a label of a second or later file, get a name that
starts with ``_:-``, which no file can spell.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from biqe.errors import EmptyResult, InvalidOption
from biqe.graph.blocks import Advance
from biqe.graph.collect import Collector, Counts
from biqe.graph.files import RDF_FORMATS, Source, Sources, find_sources
from biqe.graph.knowledge_graph import SPLITS, Splits
from biqe.graph.read_table import USUAL_SEPARATORS, read_csv, read_labels, read_shaped, read_tsv
from biqe.graph.search import namespace_of
from biqe.graph.table_shape import Shape, shape_of
from biqe.graph.triples import Triples, as_triples
from biqe.graph.values import take_values
from biqe.graph.vocabulary import Aliases, Labels, Names, Vocabulary

_SAMPLE = 100_000


@dataclass(frozen=True)
class ReadGraph:
    """What the files hold."""

    splits: Splits
    """Everything stands in train where the input had no splits."""
    has_splits: bool
    prefixes: dict[str, str]
    """Prefix -> namespace, for writing queries; ``""`` is the default one."""
    counts: Counts
    files: tuple[Path, ...]

    @property
    def vocabulary(self) -> Vocabulary:
        return self.splits.vocabulary


def read_graph(
    paths: Sequence[str | Path],
    *,
    format: str | None = None,
    labels: str | Path | None = None,
    advance: Advance | None = None,
    skip_bad: bool = False,
    encoding: str | None = None,
    values: bool = True,
) -> ReadGraph:
    """The graph in files and folders.

    ``format`` stands above the extensions, ``labels`` above a labels.tsv beside the files. ``advance`` is told of every
    few bytes read, for a progress bar. Refused: whatever cannot be read, with file and line, and an input without a
    single triple. With ``skip_bad``, bad lines of TSV, CSV, N-Triples and N-Quads are left out and counted. Lines of
    tables that are not UTF-8 are read in ``encoding``, where one is given. Without ``values``, numbers and dates of
    tables are names of entities.
    """
    sources = find_sources(paths, format=format, labels=labels)
    into = Collector(advance=advance, skip_bad=skip_bad, encoding=_known(encoding))
    into.values = values
    into.counts.ignored_files = [path.name + "/" * path.is_dir() for path in sources.ignored]
    for number, source in enumerate(sources.files):
        statements = into.counts.triples + into.counts.literals
        _read_file(source, into, scope=0 if sources.has_splits else number)
        held = into.counts.triples + into.counts.literals + into.counts.nested > statements
        if not held and source.split == "train":
            raise EmptyResult(f"{source.path} holds no triple", hint=f"it was read as {source.format}")
    for path in sources.labels:
        read_labels(path, into.labels)
    if values and not sources.has_splits:  # a benchmark keeps all that its files have
        taken = take_values(into)
        if taken:
            into.counts.tables.append(f"numbers and dates, kept as values: {', '.join(taken)}")
    return _finish(into, sources)


def _known(encoding: str | None) -> str | None:
    try:
        return None if encoding is None else codecs.lookup(encoding).name
    except LookupError:
        raise InvalidOption(
            f"there is no encoding {encoding!r}", hint="for example windows-1252, latin-1, cp1250 or shift_jis"
        ) from None


def _read_file(source: Source, into: Collector, *, scope: int) -> None:
    """Readers are imported on first need where the libraries behind them are slow to load."""
    usual = USUAL_SEPARATORS.get(source.format)
    shape = shape_of(source.path, usual, into.encoding) if usual and source.path.is_file() else None
    if shape is not None and shape.wide is not None and not into.values:
        shape = replace(shape, wide=shape.wide.without_values())
    if shape is not None and shape != Shape(str(usual)):
        read_shaped(source, into, shape)
    elif source.format == "csv":
        read_csv(source, into)
    elif source.format == "parquet":
        from biqe.graph.read_parquet import read_parquet

        read_parquet(source, into)
    elif source.format == "tsv":
        read_tsv(source, into)
    else:
        from biqe.graph.read_rdf import read_rdf

        read_rdf(source, into, scope=scope)


def _finish(into: Collector, sources: Sources) -> ReadGraph:
    if not any(into.parts.values()):
        names = ", ".join(str(source.path) for source in sources.files[:3])
        raise EmptyResult(
            f"no triple between entities in {names}",
            hint=f"{into.counts.literals:,} statements have a literal as object, which no entity can stand for"
            if into.counts.literals
            else "is it the right file, and the right --format?",
        )
    if not into.parts["train"]:
        raise EmptyResult(
            f"{sources.files[0].path} holds no triple between entities: the train split would be empty",
            hint="train needs triples whose object is an entity",
        )
    has_splits = sources.has_splits and bool(into.parts["valid"] or into.parts["test"])
    parts = {split: _join(into.parts.pop(split)) for split in SPLITS}
    into.counts.duplicates = into.counts.triples - sum(len(part) for part in parts.values())
    entities, relations = into.entities.names(), into.relations.names()
    labels, descriptions = {}, {}
    for name, label in into.labels.items():
        entity = entities.find(name)
        if entity is not None and label != name:
            labels[entity] = label
        elif entity is None:
            into.counts.labels_unused += 1
    for name, description in into.labels.descriptions.items():
        entity = entities.find(name)
        if entity is not None:
            descriptions[entity] = description
    aliases = [
        (entity, text)
        for name, text in into.labels.others()
        if text != name and (entity := entities.find(name)) is not None
    ]
    into.counts.labels = len(labels)
    vocabulary = Vocabulary(
        entities, relations, Labels.of(labels), Labels.of(descriptions), Aliases.of(aliases) if aliases else ()
    )
    is_rdf = any(source.format in RDF_FORMATS for source in sources.files)
    prefixes = choose_prefixes(vocabulary, into.prefixes) if is_rdf else {"": ""}
    return ReadGraph(
        Splits(vocabulary, **parts, literals=into.literals.finished()),
        has_splits,
        prefixes,
        into.counts,
        tuple(source.path for source in sources.files),
    )


def _join(pieces: list[Triples]) -> Triples:
    if not pieces:
        return as_triples([])
    rows = np.concatenate(pieces)
    pieces.clear()
    return as_triples(rows)


def choose_prefixes(vocabulary: Vocabulary, declared: Mapping[str, str]) -> dict[str, str]:
    """The declared prefixes, and two that the graph itself suggests.

    The default prefix ``""``, where no file declares it, is the namespace that most entities share, so that
    ``:Germany`` can be written. ``rel`` is the namespace that most relations share, where it is another and has
    no prefix yet.
    """
    prefixes = dict(declared)
    if "" not in prefixes:
        prefixes[""] = _most_common(vocabulary.entities) or ""
    relations = _most_common(vocabulary.relations)
    if relations and "rel" not in prefixes and relations not in prefixes.values():
        prefixes["rel"] = relations
    return prefixes


def _most_common(names: Names) -> str | None:
    # A sample spread evenly over the ids is enough to find the largest namespace, and cheap for millions.
    step = max(1, len(names) // _SAMPLE)
    sample = [name for id_ in range(0, len(names), step) if not (name := names[id_]).startswith("_:")]
    found = Counter(namespace_of(name) for name in sample)
    if 2 * found.pop(None, 0) >= len(sample):  # mostly plain names: a colon in a few of them makes no namespace
        return None
    return min(found, key=lambda name: (-found[name], name or ""))
