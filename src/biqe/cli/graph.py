"""``biqe import``, ``biqe stats`` and ``biqe find``: files into a graph folder, and a look at what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.cli._options import Graph, Json, graph_place
from biqe.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from biqe.graph.importer import Imported
    from biqe.graph.statistics import Statistics
    from biqe.graph.vocabulary import Names

_BAR = 30
_DEFAULT_SPLIT = "0.05,0.05"


def import_graph(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER_OR_FILE...", help="Files of triples, or folders of them.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", help="Graph folder to write.", show_default=False)],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Format of all files, whatever their extensions: tsv, csv, ntriples, nquads, turtle, trig, rdfxml or "
            "parquet.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="TSV file of names, labels and, optionally, descriptions. Overrides labels.tsv.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            help=f"Shares of valid and test, or none. Default: the splits of the input, or else {_DEFAULT_SPLIT}.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random split.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the graph in that folder.")] = False,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Leave out lines of TSV, CSV, N-Triples and N-Quads that cannot be read, and report them.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Read graph files into a graph folder, which the other commands take.

    The format of a file is known from its extension, which may be followed by .gz: .tsv .txt .csv .nt .nq .ttl .trig
    .rdf .parquet. A folder with train, valid and test files keeps these splits; other files in it are ignored and
    listed. Any other input is split at random into 90 % train, 5 % valid and 5 % test, with every entity and relation
    kept in train.

        biqe import FB15k-237/ --out kg/fb15k237
        biqe import facts.nt.gz more.ttl --out kg/facts --split 0.1,0.1 --seed 7
        biqe import triples.txt --format csv --labels names.tsv --out kg/mine

    TSV and CSV have the columns subject, relation, object; a header with words such as head,relation,tail or
    Subject,Property,Value (also h,r,t and s,p,o) may give them in another order. Lines that start with # are comments.
    Literals are left out of the graph and counted; in TSV they are written as "Rhein"@de or "42"^^<type>, while "Rhine"
    is a name that contains quotation marks. Labels of entities come from rdfs:label, and from a labels.tsv beside the
    files. With --format, a file may be a pipe, or - for standard input; Parquet and RDF/XML must be files.
    """
    from biqe.cli._console import print_json, progress
    from biqe.graph.files import find_sources
    from biqe.graph.importer import import_files

    size = find_sources(inputs, format=format, labels=labels).size
    with progress("bytes read", total=size) as advance:
        imported = import_files(
            inputs,
            out,
            format=format,
            labels=labels,
            shares=_shares(split),
            asked_to_split=split is not None,
            seed=seed,
            force=force,
            skip_bad=skip_bad,
            advance=advance,
        )
    if json:
        print_json({"folder": str(out), **{key: value for key, value in imported.manifest.items() if key != "files"}})
    else:
        _show_import(out, imported)


def _shares(text: str | None) -> tuple[float, float] | None:
    """Shares of valid and test; None for ``none``."""
    if text is None:
        text = _DEFAULT_SPLIT
    if text.strip().lower() == "none":
        return None
    try:
        valid, test = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidOption(
            f"--split must be two shares or none. Got {text!r}", hint=f"for example: --split {_DEFAULT_SPLIT}"
        ) from None
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise InvalidOption(f"the shares of valid and test must be 0 or more and sum to less than 1. Got {text!r}")
    return valid, test


def _show_import(out_folder: Path, imported: Imported) -> None:
    from biqe.cli._console import err, out

    manifest = imported.manifest
    counts: dict[str, Any] = manifest["source"]["counts"]
    triples: dict[str, int] = manifest["triples"]
    # As biqe stats counts them: a triple that several of the given splits hold is one.
    total = len(imported.splits["complete"].triples) if imported.how_split == "given" else sum(triples.values())
    out.print(
        f"{out_folder}: {manifest['entities']:,} entities, {manifest['relations']:,} relations, {total:,} triples"
    )
    how = {
        "given": "as the files give them",
        "random": "drawn at random; --split none keeps all in train",
        "none": "everything in train",
    }[imported.how_split]
    out.print(f"  splits      {', '.join(f'{name} {count:,}' for name, count in triples.items())}")
    out.print(f"              {how}")
    if manifest["labels"]:
        out.print(f"  labels      {manifest['labels']:,}")
    for key, what in (
        ("duplicates", "repeated triples, kept once"),
        ("literals", "statements with a literal, left out"),
        ("nested", "statements about statements, left out"),
        ("named_graph", "statements from named graphs; the graph names are dropped"),
        ("comments", "comment lines"),
        ("labels_unused", "labels of names that are no entity"),
        ("bad_lines", "lines that cannot be read, left out"),
    ):
        if counts[key]:
            out.print(f"  {counts[key]:>10,}  {what}")
    for message in counts["bad_line_messages"]:
        err.print(f"skipped: {message}", soft_wrap=True)
    if counts["bad_lines"] > len(counts["bad_line_messages"]):
        err.print(f"skipped: {counts['bad_lines'] - len(counts['bad_line_messages']):,} more")
    for header in counts["headers"]:
        out.print(f"  header line of {header}", soft_wrap=True)
    if counts["ignored_columns"]:
        out.print(f"  ignored columns: {', '.join(counts['ignored_columns'])}")
    if counts["ignored_files"]:
        out.print(f"  ignored files: {_listed(counts['ignored_files'])}")
    default = manifest["prefixes"].get("")
    if default:
        out.print(f"  in queries, :Name stands for <{default}Name>", soft_wrap=True)
    for name in ("valid", "test"):
        if imported.how_split != "none" and not triples[name]:
            err.print(f"note: the {name} split is empty")
    from biqe.graph.statistics import unseen_entities
    from biqe.graph.triples import contains

    splits = imported.splits
    unseen = {name: len(unseen_entities(splits, name)) for name in ("valid", "test")}
    if any(unseen.values()):
        shown = ", ".join(f"{count:,} of {name}" for name, count in unseen.items())
        err.print(f"note: entities without a triple in train: {shown}; they are kept")
    if imported.how_split == "given":
        repeated = {name: int(contains(splits.train, splits[name].triples).sum()) for name in ("valid", "test")}
        if any(repeated.values()):
            shown = ", ".join(f"{count:,} of {name}" for name, count in repeated.items())
            err.print(f"note: triples that train holds, too: {shown}; mining queries needs splits that do not overlap")


def _listed(names: list[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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


def find(
    graph: Graph,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Part of a name or label.", show_default=False)],
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of entities, and of relations, to show.")
    ] = 10,
    json: Json = False,
) -> None:
    """Find entities and relations by name or label: exact matches first, then prefixes, then substrings.

        biqe find kg/fb15k237 germany
        biqe find atlas rhin --json

    Case and accents do not matter. Each line begins with what can be pasted into a query; the label of an entity and
    its description follow. The exit code is 0 even if nothing is found.
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
    from biqe.query.names import abbreviated

    name = names[id_]
    joined = name.replace(" ", "_")
    return abbreviated(joined if joined == name or names.find(joined) is None else name, prefixes)
