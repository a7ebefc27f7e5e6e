"""``biqe stats``, ``biqe schema`` and ``biqe find``: a look at what a graph holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from biqe.cli._options import Graph, Json, graph_place

if TYPE_CHECKING:
    from biqe.graph.statistics import Statistics
    from biqe.graph.vocabulary import Vocabulary
    from biqe.knowledge_base.listing import Schema

_BAR = 30


def stats(graph: Graph, json: Json = False) -> None:
    """Show counts, degrees, relations and splits of a graph.

        biqe stats kg/fb15k237
        biqe stats kg/fb15k237 --json

    Degrees and relations are those of all splits together. A relation is 1-N where a subject has 1.5 objects or more
    on average, N-1 where an object has 1.5 subjects or more, N-N where both.
    """
    from biqe.cli._console import print_json
    from biqe.graph import folder
    from biqe.graph.statistics import statistics

    place = graph_place(graph)
    splits = folder.load(place)
    found = statistics(splits)
    hub = found.degrees.most_entity  # -1 in a graph without entities, which no file can give but a program can write
    if json:
        from dataclasses import asdict

        report = asdict(found)
        report["degrees"]["most_entity"] = splits.vocabulary.entities[hub] if hub >= 0 else None
        print_json({"folder": graph, **report})
        return
    _show_statistics(graph, found, hub, splits.vocabulary, folder.load_manifest(place)["prefixes"])


def _show_statistics(
    name: str, found: Statistics, hub: int, vocabulary: Vocabulary, prefixes: Mapping[str, str]
) -> None:
    from biqe.answer.result import ShownNames
    from biqe.cli._console import out, table

    shown = ShownNames(vocabulary, prefixes)
    out.print(f"{name}: {found.entities:,} entities, {found.relations:,} relations, {found.triples:,} triples")
    out.print(f"labels {found.labels:,}; loops {found.loops:,}; fingerprint {found.fingerprint}\n")
    table(
        ["split", "triples", "entities", "relations", "unseen entities", "in train"],
        [
            [
                *(part.name, part.triples, part.entities, part.relations),
                *([None, None] if part.name == "train" else [part.unseen_entities, part.in_train]),
            ]
            for part in found.splits
        ],
    )
    for part in found.splits:
        if part.unseen_relations:
            out.print(f"relations of {part.name} without a triple in train: {part.unseen_relations:,}")
    degrees = found.degrees
    most = shown(vocabulary.entities[hub]) if hub >= 0 else "-"
    out.print(f"degree: mean {degrees.mean:,.1f}, median {degrees.median:,.10g}, most {degrees.most:,} ({most})")
    if degrees.isolated:
        out.print(f"entities without a triple: {degrees.isolated:,}")
    longest = max((count for _, _, count in degrees.histogram), default=1) or 1
    for low, high, count in degrees.histogram:
        span = f"{low:,}" if low == high else f"{low:,}-{high:,}"
        # At least one mark for what is not zero, so that rare hubs stay visible.
        bar = "#" * max(round(_BAR * count / longest), count > 0)
        out.print(f"  {span:>19}  {count:>10,}  {bar}".rstrip())
    out.print()
    table(
        ["most frequent relations", "triples", "subjects", "objects", "kind"],
        [
            [_short(shown.prefixed(item.name)), item.triples, item.subjects, item.objects, item.kind]
            for item in found.relation_statistics[:10]
        ],
    )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.items())
    out.print(f"kinds of relations: {kinds}")


def _short(name: str, width: int = 38) -> str:
    """The end of a long name, which tells relations apart better than its start."""
    return name if len(name) <= width else "..." + name[-(width - 3) :]


def schema(graph: Graph, json: Json = False) -> None:
    """List the relations of a graph: how many triples each has, and which kinds of entities it joins.

        biqe schema atlas
        biqe schema runs/mine --json

    The kind of an entity is what its rdf:type (or type, or a) says; beside it stands how many subjects or objects of
    the relation are of this kind. Where a graph has no types, an example stands there. All splits are counted. The
    first column can be pasted into a query.
    """
    from biqe.cli._console import print_json
    from biqe.graph import folder
    from biqe.knowledge_base.listing import schema as of_graph

    place = graph_place(graph)
    found = of_graph(graph, folder.load(place)["complete"], folder.load_manifest(place)["prefixes"])
    if json:
        print_json({"folder": graph, "relations": found.items})
    else:
        show_schema(found)


def show_schema(found: Schema, most: int | None = None) -> None:
    """Print the table of relations that ``biqe schema`` prints, or the first ``most`` of them."""
    from biqe.cli._console import out, table

    out.print(f"{found.title}\n")
    rows = [[item.query, item.triples, item.subjects.label, item.objects.label] for item in found[:most]]
    table(found.columns, rows, left=(0, 2, 3))
    if len(found) > len(rows):
        out.print(f"… and {len(found) - len(rows):,} more: biqe schema {found.name}", soft_wrap=True)


def find(
    graph: Graph,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Part of a name or label.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most entities, and most relations, to show.")] = 10,
    json: Json = False,
) -> None:
    """Look entities and relations up by name or label: equal ones first, then beginnings, then parts.

        biqe find kg/fb15k237 germany
        biqe find atlas rhin --json

    Case and accents do not matter. What is printed first on a line can be pasted into a query; the label of an entity,
    and a description, follow. Exit code 0 also where nothing is found.
    """
    from biqe.cli._console import err, out, print_json
    from biqe.graph import folder
    from biqe.knowledge_base import listing

    place = graph_place(graph)
    vocabulary = folder.load(place).vocabulary
    found = listing.find(vocabulary, folder.load_manifest(place)["prefixes"], text, limit)
    if json:
        rows = {kind: [item for item in found if item.kind == kind] for kind in ("entity", "relation")}
        print_json({"folder": graph, "text": text, "found": rows["entity"], "relations": rows["relation"]})
        return
    for item in found:
        more = ", ".join(filter(None, (item.label, item.description)))
        out.print(f"{item.query}  {'relation' if item.kind == 'relation' else more}".rstrip(), soft_wrap=True)
    if not found:
        counts = f"{len(vocabulary.entities):,} entities, {len(vocabulary.relations):,} relations"
        err.print(f"nothing in {graph} fits {text!r} ({counts})")
