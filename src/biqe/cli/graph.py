"""``biqe stats``, ``biqe schema`` and ``biqe find``: a look at what a graph holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from biqe.cli._options import Graph, Json, graph_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from biqe.graph.knowledge_graph import Graph as KnowledgeGraph
    from biqe.graph.statistics import Statistics
    from biqe.graph.vocabulary import Names, Vocabulary

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
    _show_statistics(graph, found, splits.vocabulary.label(hub) if hub >= 0 else "-")


def _show_statistics(name: str, found: Statistics, hub: str) -> None:
    from biqe.cli._console import out, table

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
    out.print(f"degree: mean {degrees.mean:,.1f}, median {degrees.median:,.10g}, most {degrees.most:,} ({hub})")
    if degrees.isolated:
        out.print(f"entities without a triple: {degrees.isolated:,}")
    most = max((count for _, _, count in degrees.histogram), default=1) or 1
    for low, high, count in degrees.histogram:
        span = f"{low:,}" if low == high else f"{low:,}-{high:,}"
        # At least one mark for what is not zero, so that rare hubs stay visible.
        bar = "#" * max(round(_BAR * count / most), count > 0)
        out.print(f"  {span:>19}  {count:>10,}  {bar}".rstrip())
    out.print()
    table(
        ["most frequent relations", "triples", "subjects", "objects", "kind"],
        [
            [_short(item.name), item.triples, item.subjects, item.objects, item.kind]
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

    place = graph_place(graph)
    whole, prefixes = folder.load(place)["complete"], folder.load_manifest(place)["prefixes"]
    if json:
        print_json({"folder": graph, "relations": _schema_rows(whole, prefixes)})
    else:
        show_schema(graph, whole, prefixes)


def show_schema(name: str, graph: KnowledgeGraph, prefixes: Mapping[str, str]) -> None:
    """Print the table of relations that ``biqe schema`` prints."""
    from biqe.cli._console import listed, out, table

    def shown(end: Mapping[str, Any]) -> str:
        kinds = [f"{_label(graph.vocabulary, kind)} {count:,}" for kind, count in end["kinds"].items()]
        if not kinds:
            return f"{end['entities']:,}, such as {_label(graph.vocabulary, end['example'])}"
        return listed(kinds, most=3)

    rows = _schema_rows(graph, prefixes)
    out.print(f"{name}: {len(rows):,} relations\n")
    table(
        ["relation", "triples", "subjects", "objects"],
        [[row["query"], row["triples"], shown(row["subjects"]), shown(row["objects"])] for row in rows],
        left=(0, 2, 3),
    )


def _schema_rows(graph: KnowledgeGraph, prefixes: Mapping[str, str]) -> list[dict[str, Any]]:
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations

    def end(found: End) -> dict[str, Any]:
        kinds = {entities[kind]: count for kind, count in found.kinds}
        return {"entities": found.entities, "kinds": kinds, "example": entities[found.example]}

    return [
        {
            "relation": relations[ends.relation],
            "query": _in_query(relations, ends.relation, prefixes),
            "triples": ends.triples,
            "subjects": end(ends.subjects),
            "objects": end(ends.objects),
        }
        for ends in relation_ends(graph)
    ]


class End(NamedTuple):
    """The entities at one end of a relation."""

    entities: int
    kinds: list[tuple[int, int]]
    """Each kind with how many of the entities are of it, most frequent first; empty in a graph without types."""
    example: int
    """The entity with most triples of the relation."""


class Ends(NamedTuple):
    """A relation, and what it joins."""

    relation: int
    triples: int
    subjects: End
    objects: End


def relation_ends(graph: KnowledgeGraph) -> list[Ends]:
    """All relations that have triples, most frequent first."""
    import numpy as np

    from biqe.query.bind import RDF_TYPE, relation_called
    from biqe.query.bound import members

    index = graph.index
    type_ = relation_called(RDF_TYPE, graph.vocabulary)
    first, last = (0, 0) if type_ is None else index.relation_offsets[type_ : type_ + 2]
    typed, kinds = index.relation_subjects[first:last], index.relation_objects[first:last]
    kind_offsets = np.searchsorted(typed, np.arange(graph.entity_count + 1))

    def end(ids: NDArray[np.int32]) -> End:
        entities, counts = np.unique(ids, return_counts=True)
        found, numbers = np.unique(kinds[members(kind_offsets, entities)[1]], return_counts=True)
        order = np.argsort(-numbers, kind="stable")
        pairs = list(zip(found[order].tolist(), numbers[order].tolist(), strict=True))
        return End(len(entities), pairs, int(entities[counts.argmax()]))

    sizes = np.diff(index.relation_offsets)
    wanted = [int(relation) for relation in np.argsort(-sizes, kind="stable") if sizes[relation]]
    slices = {relation: slice(*index.relation_offsets[relation : relation + 2]) for relation in wanted}
    return [
        Ends(relation, int(sizes[relation]), end(index.relation_subjects[rows]), end(index.relation_objects[rows]))
        for relation, rows in slices.items()
    ]


def _label(vocabulary: Vocabulary, name: str) -> str:
    """What people call an entity: its label, else the end of its name."""
    from biqe.query.nearest import local_part

    entity = vocabulary.entities.find(name)
    return vocabulary.labels.get(entity, local_part(name)) if entity is not None else name


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
    from biqe.graph import folder, search

    place = graph_place(graph)
    vocabulary, prefixes = folder.load(place).vocabulary, folder.load_manifest(place)["prefixes"]
    relations = [
        {
            "relation": relation,
            "name": vocabulary.relations[relation],
            "query": _in_query(vocabulary.relations, relation, prefixes),
        }
        for relation in search.find_relations(vocabulary, text, limit)
    ]
    entities = [
        {
            "entity": item.entity,
            "name": item.name,
            "query": _in_query(vocabulary.entities, item.entity, prefixes),
            "label": vocabulary.labels.get(item.entity),
            "description": vocabulary.descriptions.get(item.entity),
        }
        for item in search.find(vocabulary, text, limit)
    ]
    if json:
        print_json({"folder": graph, "text": text, "found": entities, "relations": relations})
        return
    for row in relations:
        out.print(f"{row['query']}  relation", soft_wrap=True)
    for row in entities:
        more = ", ".join(part for part in (str(row["label"] or ""), str(row["description"] or "")) if part)
        out.print(f"{row['query']}  {more}".rstrip(), soft_wrap=True)
    if not entities and not relations:
        counts = f"{len(vocabulary.entities):,} entities, {len(vocabulary.relations):,} relations"
        err.print(f"nothing in {graph} fits {text!r} ({counts})")


def _in_query(names: Names, id_: int, prefixes: Mapping[str, str]) -> str:
    """A name as it can be written in a query. An underscore stands for a blank, unless there is such a name, too."""
    from biqe.query.scan import abbreviated

    name = names[id_]
    joined = name.replace(" ", "_")
    return abbreviated(joined if joined == name or names.find(joined) is None else name, prefixes)
