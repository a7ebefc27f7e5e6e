"""What the page shows of a graph before anything is asked: counts, names to complete words with, example queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from biqe.graph.knowledge_graph import Graph
from biqe.graph.search import find, local_name
from biqe.graph.vocabulary import Vocabulary
from biqe.query.ast import written
from biqe.serve import schemas as out

EXAMPLES = 4
Used = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Whether each entity, and each relation, is in a triple."""


def completions(
    text: str,
    kind: str,
    limit: int,
    prefixes: Mapping[str, str] | None,
    vocabulary: Vocabulary,
    used: Used | None = None,
) -> list[out.Completion]:
    """Ways to finish a word with names of this graph, by name or by label; only with those that are in use."""
    if kind == "prefix":
        known = {"": "", **(prefixes or {})}
        begun = text.rstrip(":")
        return [
            out.Completion(insert=f"{name}:", label=f"{name}:", kind="prefix", detail=iri)
            for name, iri in sorted(known.items())
            if name.startswith(begun)
        ][:limit]
    begun = text.partition(":")[2] if ":" in text and not text.startswith("<") else text.lstrip("<")
    if kind == "relation":
        found = _relations(begun.casefold(), vocabulary, None if used is None else used[1])
        return [_completion("relation", name, local_name(name), prefixes) for name in found[:limit]]
    if not begun.strip():
        return []
    unused = 0 if used is None else int((~used[0]).sum())
    entries = find(vocabulary, begun, limit=limit + unused)
    shown = [entry for entry in entries if used is None or used[0][entry.entity]][:limit]
    return [_completion("entity", entry.name, entry.label, prefixes) for entry in shown]


def _completion(
    kind: Literal["entity", "relation"], name: str, label: str, prefixes: Mapping[str, str] | None
) -> out.Completion:
    detail = "" if label == name else name
    return out.Completion(insert=short(name, prefixes), label=label, kind=kind, detail=detail)


def _relations(folded: str, vocabulary: Vocabulary, used: NDArray[np.bool_] | None) -> list[str]:
    """Relations whose name begins so; then those that hold the text somewhere."""
    ranked = []
    for number, name in enumerate(vocabulary.relations):
        if used is not None and not used[number]:
            continue
        forms = (local_name(name).casefold(), name.casefold())
        if any(folded in form for form in forms):
            ranked.append((not any(form.startswith(folded) for form in forms), name))
    return [name for _, name in sorted(ranked, key=lambda entry: entry[0])]


def short(name: str, prefixes: Mapping[str, str] | None) -> str:
    """A name as a query writes it, behind a prefix where that is possible."""
    for prefix, namespace in sorted((prefixes or {"": ""}).items(), key=lambda item: -len(item[1])):
        if name.startswith(namespace):
            local = name[len(namespace) :]
            if local and all(part.isalnum() or part in "_-" for part in local) and not local.startswith("-"):
                return f"{prefix}:{local}"
    return written(name)


def graph_facts(
    graph: Graph,
    name: str,
    prefixes: Mapping[str, str] | None,
    version: int | str | None,
    live: bool,
    used: Used | None = None,
) -> out.GraphOut:
    """Counts, relations with their frequencies, and queries to begin with."""
    counts = np.bincount(graph.triples[:, 1], minlength=graph.relation_count) if len(graph.triples) else None
    relations = [
        out.RelationOut(name=relation, label=local_name(relation), count=0 if counts is None else int(counts[number]))
        for number, relation in enumerate(graph.vocabulary.relations)
        if used is None or used[1][number]
    ]
    return out.GraphOut(
        name=Path(name).name,
        entities=graph.entity_count if used is None else int(used[0].sum()),
        relations=sorted(relations, key=lambda relation: -relation.count),
        triples=len(graph.triples),
        prefixes=dict(prefixes or {}),
        examples=examples(graph, tuple(sorted((prefixes or {"": ""}).items()))),
        version=version,
        live=live,
    )


def examples(graph: Graph, prefixes: tuple[tuple[str, str], ...]) -> list[out.Example]:
    """Queries that this graph has answers to; those of the paper's own question where it has its names."""
    return list(islice(_found_examples(graph, dict(prefixes)), EXAMPLES))


PAPER = (
    (
        "Cities on rivers that flow through Germany and France",
        "SELECT ?river ?city WHERE {\n  ?river :flows_through :Germany, :France .\n  ?city :located_on ?river\n}",
    ),
    ("Cities on the Rhine", "SELECT ?city WHERE { ?city :located_on :Rhine }"),
)


def _found_examples(graph: Graph, prefixes: Mapping[str, str]) -> Iterator[out.Example]:
    vocabulary = graph.vocabulary
    if all(vocabulary.entities.find(name) is not None for name in ("Germany", "France", "Rhine")):
        yield from (out.Example(title=title, query=query) for title, query in PAPER)
    triples = graph.triples
    if not len(triples):
        return
    # The most common (relation, object) pairs and a second step from them make questions with several answers.
    pairs = Counter(map(tuple, triples[:: max(1, len(triples) // 20_000), 1:].tolist()))
    middle = [pair for pair, count in pairs.most_common(200) if count <= 50] or list(pairs)
    by_relation: dict[int, int] = {}
    for relation, entity in middle:
        by_relation.setdefault(relation, entity)
    for relation, entity in by_relation.items():
        subject, link = short(vocabulary.entities[entity], prefixes), short(vocabulary.relations[relation], prefixes)
        yield out.Example(
            title=f"{local_name(vocabulary.relations[relation])} {vocabulary.label(entity)}",
            query=f"SELECT ?x WHERE {{ ?x {link} {subject} }}",
        )
