"""``biqe import``: files of triples into a graph folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from biqe.cli._options import Json, default_folder
from biqe.errors import InvalidOption

if TYPE_CHECKING:
    from biqe.graph.importer import Imported

_DEFAULT_SPLIT = "0.05,0.05"


def read(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files of triples, folders of them, or the address of a SPARQL endpoint.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Graph folder to write. Default: kg/NAME, as the input is called.", show_default=False
        ),
    ] = None,
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
    seed: Annotated[int, typer.Option("--seed", help="The same seed splits the same graph the same way.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a graph that is already there.")] = False,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Leave out lines of TSV, CSV, N-Triples and N-Quads that cannot be read, and report them.",
        ),
    ] = False,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            help="Encoding of lines of TSV and CSV that are not UTF-8, such as windows-1252.",
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        bool,
        typer.Option(
            "--values/--no-values",
            help="Whether relations of tables that lead to numbers or dates have values, or links to entities.",
        ),
    ] = True,
    json: Json = False,
) -> None:
    """Read graph files into a graph folder, which the other commands take.

    The format of a file is known from its extension, which may be followed by .gz: .tsv .txt .csv .nt .nq .ttl .trig
    .rdf .parquet. A folder with train, valid and test files keeps these splits; other files in it are ignored and
    listed. Any other input is split at random into 90 % train, 5 % valid and 5 % test, with every entity and relation
    kept in train.

        biqe import films.csv
        biqe import FB15k-237/ --out kg/fb15k237
        biqe import facts.nt.gz more.ttl --out kg/facts --split 0.1,0.1 --seed 7
        biqe import triples.txt --format csv --labels names.tsv --out kg/mine

    TSV and CSV have the columns subject, relation, object; a header with words such as head,relation,tail or
    Subject,Property,Value (also h,r,t and s,p,o) may give them in another order. A table with other headers has one row
    an entity: its first column names it, and each other column is a relation. Numbers, dates and texts that hardly
    repeat are values there; in a table of facts, relations that lead to numbers or dates alone have values. Semicolons
    and vertical bars between columns are recognised, too. Lines that start with # are comments. Literals are kept for
    SPARQL and not for models, in TSV those written as "Rhein"@de or "42"^^<type>; a plain "Rhine" in TSV is a name with
    its quotation marks. Labels of entities come from rdfs:label, and from a labels.tsv beside the files. A file may be
    a pipe, or - for standard input, with --format; Parquet and RDF/XML must be files.

    All triples of a SPARQL endpoint's default graph are fetched page by page. An import that was stopped goes on where
    it ended when the same command is given again.

        biqe import http://localhost:7878/sparql --out kg/served
    """
    from biqe.cli._console import print_json, progress
    from biqe.graph.files import find_sources
    from biqe.graph.import_process import import_in_child

    out = out or default_folder("kg", urlsplit(inputs[0]).hostname or inputs[0])
    pages = _fetch_pages(inputs, out, force=force)
    if pages is not None:
        inputs, format = [str(pages)], "ntriples"
    size = find_sources(inputs, format=format, labels=labels).size
    with progress("bytes read", total=size) as advance:
        imported = import_in_child(
            inputs,
            out,
            format=format,
            labels=labels,
            shares=_shares(split),
            asked_to_split=split is not None,
            seed=seed,
            force=force,
            skip_bad=skip_bad,
            encoding=encoding,
            values=values,
            advance=advance,
        )
    if pages is not None:
        shutil.rmtree(pages.parent)
    if json:
        print_json({"folder": str(out), **{key: value for key, value in imported.manifest.items() if key != "files"}})
    else:
        show_import(out, imported)


def _fetch_pages(inputs: list[str], out: Path, *, force: bool) -> Path | None:
    """The file of all triples of an endpoint; None where the inputs are files."""
    if not any(text.startswith(("http://", "https://")) for text in inputs):
        return None
    from biqe.cli._console import progress
    from biqe.graph import folder
    from biqe.graph.endpoint import fetch, pages_of

    if len(inputs) > 1:
        raise InvalidOption("an endpoint is imported alone", hint="give its address, and no other input")
    folder.check_target(out, force=force)
    with progress("triples fetched", total=None) as advance:
        so_far = 0

        def told(count: int, _: int | None) -> None:
            nonlocal so_far
            advance(count - so_far)
            so_far = count

        return fetch(inputs[0], pages_of(out), told=told)


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


def show_import(out_folder: Path, imported: Imported) -> None:
    """Print what was read, how it was understood, and what was left out."""
    from biqe.cli._console import err, listed, out
    from biqe.graph.words import visible, wrapped

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
        ("literals", "values: texts, numbers, dates; no model sees them"),
        ("nested", "statements about statements, left out"),
        ("named_graph", "statements from named graphs; the graph names are dropped"),
        ("comments", "comment lines"),
        ("labels_unused", "labels of names that are no entity"),
        ("other_encoding", "lines in another encoding than UTF-8"),
        ("bad_lines", "lines that cannot be read, left out"),
    ):
        if counts[key]:
            out.print(f"  {counts[key]:>10,}  {what}")
    for message in counts["bad_line_messages"]:
        err.print(f"skipped: {message}", soft_wrap=True)
    if counts["bad_lines"] > len(counts["bad_line_messages"]):
        err.print(f"skipped: {counts['bad_lines'] - len(counts['bad_line_messages']):,} more")
    for text in (
        *(f"header line of {header}" for header in counts["headers"]),
        *counts["tables"],
        *([f"ignored columns: {', '.join(counts['ignored_columns'])}"] if counts["ignored_columns"] else []),
    ):
        for line in wrapped(visible(text), out.width, first="  ", rest="    "):
            out.print(line, soft_wrap=True)
    if counts["ignored_files"]:
        out.print(f"  ignored files: {listed(counts['ignored_files'])}")
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
