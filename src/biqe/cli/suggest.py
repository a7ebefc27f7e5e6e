"""``biqe suggest``: the likeliest missing links of a graph, listed, written to a file, or reviewed one by one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biqe.cli._options import GraphFolder, Json, Known, Target
from biqe.errors import InvalidOption, RunFailed

if TYPE_CHECKING:
    from biqe.graph.vocabulary import Vocabulary
    from biqe.knowledge_base import KnowledgeBase
    from biqe.suggest import Suggester, Suggestion, Suggestions
    from biqe.suggest.rejections import Rejections

BATCH = 20
"""Suggestions that a review looks for at a time."""
QUESTION = "[a]ccept, [r]eject, [s]kip, [q]uit? "


def suggest(
    target: Target,
    relation: Annotated[
        str | None, typer.Option("--relation", "-r", help="Only links of this relation.", show_default=False)
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="Only links from or to this entity.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(help="Suggestions, at most.")] = 20,
    skip: Annotated[int, typer.Option(help="Leave out the first so many.")] = 0,
    each: Annotated[int | None, typer.Option(help="Of each relation, at most so many.", show_default=False)] = None,
    min_probability: Annotated[float, typer.Option(help="Leave out links below this probability.")] = 0.0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File to write: .tsv, .ttl or .json. With --review: accepted links.", show_default=False
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="tsv, turtle, rdf12 or json. Default: as FILE ends.", show_default=False),
    ] = None,
    review: Annotated[bool, typer.Option("--review", help="Decide one by one: accept, reject, skip.")] = False,
    server: Annotated[
        str | None,
        typer.Option(help="With --review: insert accepted links into the graph served here.", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="End the search after this time, with what was found.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which of several models.", show_default=False)] = None,
    graph: GraphFolder = None,
    known: Known = None,
    json: Json = False,
) -> None:
    """List the likeliest links that the graph is missing, with probabilities and reasons.

    The probability of a link is the one that 'biqe ask' shows.

        biqe suggest atlas --relation :located_on

        biqe suggest runs/mine --entity :Bonn --top 5

        biqe suggest runs/mine --each 10 --top 500 --out new.tsv

        biqe suggest runs/mine --relation :near --review

    Files: TSV, which 'biqe import' reads; Turtle (.ttl), the links as facts; with --format rdf12, RDF 1.2 that states
    probability, model and reason of each link, and not the link itself. A review appends accepted links to --out, by
    default accepted.tsv, or inserts them into a served graph (--server http://127.0.0.1:7878; a token in BIQE_TOKEN).
    Rejected links are remembered for this graph and not suggested again, neither here nor on the page.
    """
    from biqe.knowledge_base import open as open_knowledge_base
    from biqe.suggest import Suggester

    if not 0 <= min_probability <= 1:
        raise InvalidOption(f"--min-probability must be in [0, 1]. Got {min_probability}")
    if seconds is not None and not 0 < seconds < 1e9:
        raise InvalidOption(f"--seconds must be above 0. Got {seconds}")
    form = _form(format, out, review, json)
    if server is not None and not review:
        raise InvalidOption("--server goes with --review", hint="biqe suggest RUN --review --server URL")
    kb = open_knowledge_base(target, graph=graph, known=known)
    suggester = Suggester(kb.predictor_of(model), kb.prefixes)
    rejections = _rejections(kb)
    options: dict[str, Any] = {"each": each, "min_probability": min_probability, "seconds": seconds}
    if review:
        accepted = Path("accepted.tsv") if out is None and server is None else out
        _review(kb, suggester, rejections, relation, entity, top, skip, accepted, server, options)
        return
    from biqe.cli._console import err, progress

    shown = progress("judging links", 100) if entity is None and relation is None and err.is_terminal else None
    without = rejections.ids(suggester.vocabulary)

    def search(advance=lambda share: None) -> Suggestions:  # type: ignore[no-untyped-def]
        return suggester.suggest(
            relation,
            entity,
            top=top,
            skip=skip,
            without=without,
            progress=lambda share: advance(100 * share),
            **options,
        )

    if shown is None:
        found = search()
    else:
        with shown as advance:
            found = search(advance)
    _write(found, suggester, form, out, target)


def _form(format: str | None, out: Path | None, review: bool, json: bool) -> str | None:
    """The format to write; None for the list that people read."""
    from biqe.suggest.export import FORMATS

    if review:
        if json or format is not None or (out is not None and out.suffix.lower() != ".tsv"):
            raise InvalidOption("a review writes accepted links to a .tsv file", hint="leave --format and --json out")
        return "tsv"
    if json and format not in (None, "json"):
        raise InvalidOption(f"--json and --format {format} do not go together")
    if json:
        return "json"
    if format is not None and format not in FORMATS:
        raise InvalidOption(f"--format must be one of {', '.join(FORMATS)}. Got {format!r}")
    if format is None and out is not None:
        format = next((name for name, (ending, _) in FORMATS.items() if out.suffix.lower() == ending), None)
        if format is None:
            raise InvalidOption(
                f"the name of --out must end in .tsv, .ttl or .json. Got {out.name!r}",
                hint=f"or say the format with --format ({', '.join(FORMATS)})",
            )
    return format


def _rejections(kb: KnowledgeBase) -> Rejections:
    """Links of this graph that were rejected, here or on the page."""
    from biqe.serve.start import default_folder
    from biqe.suggest.rejections import Rejections

    return Rejections(default_folder(kb) / "rejected.jsonl")


def _write(found: Suggestions, suggester: Suggester, form: str | None, out: Path | None, target: str) -> None:
    from biqe.cli._console import err
    from biqe.suggest.export import FORMATS

    if form is None:
        _show(found, target)
        return
    text = FORMATS[form][1](found, suggester.prefixes)
    if out is None:
        sys.stdout.write(text)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    err.print(f"{out}: {len(found):,} suggestions{f'; note: {found.note}' if found.note else ''}", soft_wrap=True)


def _show(found: Suggestions, target: str) -> None:
    from biqe.cli._console import out

    count = f"{len(found):,} missing link{'s' * (len(found) != 1)}"
    out.print(f"{target}: {count if found else 'no likely missing link'}, {found.seconds:.1f} s", soft_wrap=True)
    if found.note:
        out.print(f"note: {found.note}")
    for one in found:
        out.print()
        for line in lines_of(one, out.width):
            out.print(line, soft_wrap=True)


def lines_of(one: Suggestion, width: int) -> list[str]:
    """A suggestion as people read it: the link with its probability, then the reason."""
    from biqe.graph.words import probability, visible, wrapped

    link = visible("  ".join(one.labels))
    head = f"{probability(one.probability)}  "
    gap = " " * len(head)
    return [*wrapped(link, width, first=head, rest=gap), *wrapped(visible(one.why), width, first=gap)]


def _review(
    kb: KnowledgeBase,
    suggester: Suggester,
    rejections: Rejections,
    relation: str | None,
    entity: str | None,
    top: int,
    skip: int,
    accepted: Path | None,
    server: str | None,
    options: dict[str, Any],
) -> None:
    """Show one link after the other and keep what is decided."""
    from biqe.cli._console import out

    without = rejections.ids(suggester.vocabulary) | _accepted_before(suggester.vocabulary, accepted)
    found = suggester.suggest(relation, entity, top=top, skip=skip, without=without, **options)
    counts = {"accepted": 0, "rejected": 0, "skipped": 0}
    if found.note:
        out.print(f"note: {found.note}")
    for number, one in enumerate(found, 1):
        out.print(f"\n{number} of {len(found):,}")
        for line in lines_of(one, out.width):
            out.print(line, soft_wrap=True)
        verdict = _verdict()
        if verdict == "q":
            break
        if verdict == "a":
            _accept(one, found.model, accepted, server)
            counts["accepted"] += 1
        elif verdict == "r":
            _reject(kb, rejections, one)
            counts["rejected"] += 1
        else:
            counts["skipped"] += 1
    out.print("\n" + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    if counts["accepted"] and accepted is not None:
        out.print(f"accepted links are in {accepted}; 'biqe import' takes it beside your files", soft_wrap=True)
    if counts["rejected"]:
        out.print(f"rejected links are remembered in {rejections.path}", soft_wrap=True)


def _reject(kb: KnowledgeBase, rejections: Rejections, one: Suggestion) -> None:
    """Remember it in the folder of the live graph, which a server of this graph uses, too."""
    from biqe.serve.start import open_live

    if not rejections.path.parent.is_dir():
        live = open_live(kb, None, read_only=False)  # makes the folder as a server would
        assert live is not None
        live.close()
    rejections.add((one.subject, one.relation, one.object))


def _verdict() -> str:
    """What is typed: a, r, s or q; the end of the input quits."""
    while True:
        try:
            typed = input(QUESTION).strip().casefold()
        except EOFError:
            print()
            return "q"
        words = {"accept": "a", "reject": "r", "skip": "s", "quit": "q", "yes": "a", "no": "r", "y": "a", "n": "r"}
        typed = words.get(typed, typed)
        if typed in ("a", "r", "s", "q"):
            return typed


def _accepted_before(vocabulary: Vocabulary, accepted: Path | None) -> set[tuple[int, int, int]]:
    """The links, in ids, that the file has from earlier reviews."""
    from biqe.suggest.export import links_of

    if accepted is None or not accepted.is_file():
        return set()
    entities, relations = vocabulary.entities, vocabulary.relations
    lines = accepted.read_text("utf-8", errors="replace").split("\n")
    found = {(entities.find(s), relations.find(r), entities.find(o)) for s, r, o in links_of(lines)}
    return {link for link in found if None not in link}  # type: ignore[misc]


def _accept(one: Suggestion, model: str, accepted: Path | None, server: str | None) -> None:
    from biqe.suggest import Suggestions
    from biqe.suggest.export import tsv

    if server is not None:
        _insert(one, server)
    if accepted is not None:
        text = tsv(Suggestions((one,), model, "", 0.0), {})
        is_new = not accepted.is_file() or accepted.stat().st_size == 0
        accepted.parent.mkdir(parents=True, exist_ok=True)
        with accepted.open("a", encoding="utf-8") as file:
            file.write(text if is_new else text.partition("\n")[2])


def _insert(one: Suggestion, server: str) -> None:
    """Put a link into the graph that a server keeps."""
    import urllib.error
    import urllib.parse
    import urllib.request

    from biqe.query.question import written

    update = f"INSERT DATA {{ {' '.join(map(written, (one.subject, one.relation, one.object)))} }}"
    token = os.environ.get("BIQE_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = urllib.parse.urlencode({"update": update}).encode()
    try:
        address = f"{server.rstrip('/')}/update"
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            raise InvalidOption(f"--server must be an http address. Got {server!r}", hint="http://127.0.0.1:7878")
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=30):
            pass
    except urllib.error.HTTPError as error:
        said = error.read(2_000).decode(errors="replace").strip()
        raise RunFailed(f"{server} did not take the link: {error.code} {said}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RunFailed(
            f"{server} cannot be reached: {reason}", hint="is it running? biqe serve RUN prints its address"
        ) from error
