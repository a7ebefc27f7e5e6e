"""``biqe models`` and ``biqe benchmarks``: lists of what can be trained and evaluated."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.cli._options import DataFolder, Json
from biqe.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from biqe.benchmarks import Facts

WIDTH = 80
_LEARNS = {
    "queries": "triples, paths and DAGs, or a benchmark's own queries",
    "triples": "triples alone, in both directions",
}


def models(
    name: Annotated[str | None, typer.Argument(metavar="MODEL", help="Show only this one.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the models: what each is, which paper it comes from, and what it can answer.

    Examples:

        biqe models
        biqe models gqe
        biqe models --json

    Train any of these names, presets included, with: biqe train GRAPH --model NAME. A model is one file; the guide
    docs/guides/add-a-model.md shows how to add one.
    """
    from biqe.cli._console import out as stdout
    from biqe.cli._console import print_json
    from biqe.models import _catalogue

    presets = _catalogue.presets()
    if name is not None:
        _catalogue.module_of(name)  # refuses a name that is not known
        wanted = [presets[name][0] if name in presets else name]
    else:
        wanted = _catalogue.names()
    found = [model_facts(model, presets) for model in wanted]
    if json:
        print_json(found)
        return
    for facts in found:
        _block(stdout, facts["name"], facts["summary"], dict(_model_lines(facts)))


def model_facts(name: str, presets: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Name, paper and presets of a model, and which shapes of queries it can answer."""
    from biqe.models import _catalogue

    module = _catalogue.module_of(name)
    kind = module.MODEL
    own = {preset: dict(options) for preset, (model, options) in presets.items() if model == name}
    asked = _examples()
    small = _catalogue.build(name, {}, 8, 2)
    answers = {shape: bool(small.supports(query)) for shape, query in asked.items()}
    return {
        "name": name,
        "summary": kind.summary,
        "paper": {"authors": kind.paper.authors, "year": kind.paper.year, "title": kind.paper.title},
        "presets": own,
        "learns_from": getattr(kind, "learns_from", "queries"),
        "shapes": [shape for shape in asked if shape not in _SEVERAL and answers[shape]],
        "several_targets": {shape: answers[shape] for shape in _SEVERAL},
    }


_SEVERAL = ("path", "dag")
"""Examples with several targets."""


def _examples() -> dict[str, Any]:
    """A query of each shape; ``path`` and ``dag`` have several targets."""
    from biqe.query.bound import HIDDEN, TARGET, BoundQuery

    t, h = TARGET, HIDDEN
    return {
        "1p": BoundQuery((0, t), ((0, 0, 1),), (1,)),
        "2p": BoundQuery((0, h, t), ((0, 0, 1), (1, 1, 2)), (2,)),
        "3p": BoundQuery((0, h, h, t), ((0, 0, 1), (1, 1, 2), (2, 0, 3)), (3,)),
        "2i": BoundQuery((0, 1, t), ((0, 0, 2), (1, 1, 2)), (2,)),
        "3i": BoundQuery((0, 1, 2, t), ((0, 0, 3), (1, 1, 3), (2, 0, 3)), (3,)),
        "ip": BoundQuery((0, 1, h, t), ((0, 0, 2), (1, 1, 2), (2, 0, 3)), (3,)),
        "pi": BoundQuery((0, 1, h, t), ((0, 0, 2), (2, 1, 3), (1, 0, 3)), (3,)),
        "path": BoundQuery((0, t, t), ((0, 0, 1), (1, 1, 2)), (1, 2)),
        "dag": BoundQuery((0, 1, t, t), ((0, 0, 2), (1, 1, 2), (2, 0, 3)), (2, 3)),
    }


def _model_lines(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    paper = facts["paper"]
    yield "paper", f"{paper['authors']} {paper['year']}, {paper['title']}"
    if facts["presets"]:
        yield (
            "presets",
            "; ".join(
                f"{preset} ({', '.join(f'{key}={value}' for key, value in options.items())})"
                for preset, options in facts["presets"].items()
            ),
        )
    several = [shape for shape, yes in facts["several_targets"].items() if yes]
    words = {(): "one target at a time", ("path",): "several targets on paths", ("dag",): "several targets in DAGs"}
    targets = words.get(tuple(several), "several targets at once, on paths and in DAGs")
    yield "answers", f"{' '.join(facts['shapes'])}; {targets}"
    yield "learns from", _LEARNS.get(facts["learns_from"], facts["learns_from"])


def benchmarks(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show only this one.", show_default=False)] = None,
    fetch: Annotated[bool, typer.Option("--fetch", help="Download the files of NAME that are missing.")] = False,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", help="Write the graph of NAME to this new folder, to train on.", show_default=False),
    ] = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """List the benchmarks: source, size, whether the files are at hand, and how to get them.

    Examples:

        biqe benchmarks
        biqe benchmarks fb15k237-q2b
        biqe benchmarks fb15k237-q2b --fetch
        biqe benchmarks wn18rr-qa --graph kg/wn18rr-qa
        biqe benchmarks --json

    Train and evaluate on one with --set NAME, or run a whole table with biqe reproduce.
    """
    from biqe import benchmarks as registry
    from biqe.cli._console import out as stdout
    from biqe.cli._console import print_json

    if fetch and name is None:
        raise InvalidOption("--fetch needs the name of a benchmark", hint="biqe benchmarks fb15k237-q2b --fetch")
    if graph is not None and name is None:
        raise InvalidOption("--graph needs the name of a benchmark", hint="biqe benchmarks wn18rr-qa --graph FOLDER")
    if fetch:
        _fetch(str(name), data)
    if graph is not None:
        from biqe.graph import folder as graph_folder

        graph_folder.save(registry.open(str(name), data=data).splits, graph)
        stdout.print(f"graph of {name} written to {graph}", soft_wrap=True)
        return
    found = [registry.describe(one, data=data) for one in ([name] if name is not None else registry.names())]
    if json:
        print_json(found)
        return
    for facts in found:
        _block(stdout, facts.name, "at hand" if facts.at_hand else "NOT at hand", dict(_benchmark_lines(facts)))


def _fetch(name: str, data: Path | None) -> None:
    """Download missing files, with progress in bytes."""
    from biqe.benchmarks import download
    from biqe.cli._console import progress

    held: dict[str, int] = {}
    with progress(f"fetching {name}, bytes") as advance:

        def show(file: str, done: int, size: int) -> None:
            advance(max(0, done - held.get(file, 0)), note=Path(file).name)
            held[file] = done

        download.fetch(name, data=data, on_progress=show)


def _benchmark_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "", facts.summary
    yield "source", facts.source
    yield "graph", facts.graph
    if facts.sizes:
        yield "size", "; ".join(f"{what} {count}" for what, count in facts.sizes.items())
    yield "protocol", facts.protocol
    yield "licence", facts.licence
    yield "files", facts.files
    if not facts.at_hand:
        yield "get them", facts.how


def _block(console: Any, name: str, first: str, lines: Mapping[str, str]) -> None:
    """A name with its lines below it, wrapped."""
    indent = " " * 15
    text = textwrap.wrap(f"{name:<15}{first}", WIDTH, subsequent_indent=indent)
    for title, line in lines.items():
        text += textwrap.wrap(line, WIDTH, initial_indent=f"  {title:<13}", subsequent_indent=indent)
    console.print("\n".join(text) + "\n", soft_wrap=True)
