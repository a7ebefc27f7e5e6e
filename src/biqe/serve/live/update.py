"""SPARQL 1.1 Update on a live graph, without named graphs, files and other servers.

    INSERT DATA, DELETE DATA
    DELETE WHERE, and DELETE {...} INSERT {...} WHERE {...} with either part left out

pyoxigraph checks the whole text first, so that an update with an error at its end changes nothing. Each operation is
then evaluated as a CONSTRUCT of what it deletes and inserts; the store itself is changed only from the log. Names
are the graph's names; labels are not accepted as names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from biqe.errors import InvalidOption, SparqlSyntax, UnsupportedQuery
from biqe.exact.store import DEPTH, Rewritten, iri_of
from biqe.query.scan import Scan, Word, scan
from biqe.serve.live.changes import Changes, Statement, Text, name_of_node
from biqe.serve.live.upload import MAX_STATEMENTS, BlankNames
from biqe.serve.query_checks import declaration, refuse_undeclared

if TYPE_CHECKING:
    from biqe.graph.vocabulary import Vocabulary
    from biqe.serve.live.versions import View

MAX_CHARACTERS = 4_000_000
"""Characters of an update; more statements are uploaded as a file."""
MAX_WORDS = 1_000_000
SUPPORTED = "INSERT DATA, DELETE DATA, DELETE WHERE and DELETE/INSERT WHERE are supported; see docs/serve/live.md"

_ONE_GRAPH = "there is one graph, without a name; leave the name out"
_QUERY = "this is a query, not an update; send it as a query"
_REFUSED = {
    "LOAD": "updates read no file and no address; upload the file instead",
    "SERVICE": "no other server is asked",
    **dict.fromkeys(("GRAPH", "WITH", "USING", "NAMED", "FROM", "CREATE", "COPY", "MOVE", "ADD"), _ONE_GRAPH),
    **dict.fromkeys(("CLEAR", "DROP"), "delete with DELETE WHERE what has to go"),
    **dict.fromkeys(("SELECT", "CONSTRUCT", "DESCRIBE", "ASK"), _QUERY),
}
_INNER = frozenset({"SELECT"})
"""Keywords that are refused only at the beginning of an operation: a WHERE may have a sub-SELECT."""
_READ_ONLY = "CREATE GRAPH <urn:biqe:read>;"

Ask = Callable[[Sequence[Changes], str], Iterable[Any]]
"""Evaluates a CONSTRUCT on the graph after the given steps of the same update."""


@dataclass(frozen=True)
class Operation:
    """One operation; its parts are texts in braces."""

    prologue: str
    deleted: str | None
    inserted: str | None
    where: str | None
    """None for INSERT DATA and DELETE DATA."""


def update_steps(
    update: str, view: View, prefixes: Mapping[str, str], is_taken: Callable[[str], bool], ask: Ask | None = None
) -> list[Changes]:
    """What each operation of a SPARQL Update deletes and inserts. SparqlSyntax for what is not supported.

    ``is_taken`` tells whether the graph has an entity of that name.
    """
    from pyoxigraph import Store

    blank = BlankNames(view.version + 1, is_taken)
    steps: list[Changes] = []
    renamed = _Renamed(update, prefixes, view.vocabulary)
    refuse_undeclared(renamed.scanned, prefixes)
    for operation in operations(renamed):
        parts: list[tuple[Statement, ...]] = []
        for template in (operation.deleted, operation.inserted):
            if template is None:
                parts.append(())
                continue
            text = f"{operation.prologue} CONSTRUCT {template} WHERE {operation.where or '{}'}"
            # INSERT DATA and DELETE DATA do not depend on the graph.
            found: Any = Store().query(text) if operation.where is None else (ask or view.ask_after)(steps, text)
            parts.append(_statements(found, blank, is_taken))
        steps.append(Changes(*parts))
    return steps


def _statements(found: Iterable[Any], blank: BlankNames, is_taken: Callable[[str], bool]) -> tuple[Statement, ...]:
    from pyoxigraph import BlankNode, Literal, NamedNode

    def named(node: Any) -> str:
        name = name_of_node(node)
        return name if not isinstance(node, BlankNode) or is_taken(name) or blank.gave(name) else blank.of(name)

    statements: dict[Statement, None] = {}
    for triple in found:
        object_ = triple.object
        if not isinstance(object_, NamedNode | BlankNode | Literal):
            raise UnsupportedQuery(
                "statements about statements are not supported",
                hint="give the statement a name of its own, and make statements about that name",
            )
        value = Text.of(object_) if isinstance(object_, Literal) else named(object_)
        statements[Statement(named(triple.subject), name_of_node(triple.predicate), value)] = None
        if len(statements) > MAX_STATEMENTS:
            raise InvalidOption(
                f"the update changes more than {MAX_STATEMENTS:,} statements",
                hint="send it in parts; a WHERE part can hold a SELECT with a LIMIT",
            )
    return tuple(statements)


class _Renamed(Rewritten):
    """An update with the names of the exact store."""

    def _scanned(self, text: str) -> Scan:
        if len(text) > MAX_CHARACTERS:
            raise SparqlSyntax(
                f"the update has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read",
                hint="upload the statements as a file",
            )
        scanned = scan(text)
        if not scanned.words:
            return scanned  # an empty update changes nothing
        try:
            scanned.refuse_sizes(MAX_WORDS)
            scanned.refuse_brackets(DEPTH)
        except SparqlSyntax as error:
            message = error.message.removeprefix(f"line {error.line}, column {error.column}: ")
            raise SparqlSyntax(
                message.replace("the query", "the update"), line=error.line, column=error.column, hint=SUPPORTED
            ) from None
        return scanned

    def _refuse(self) -> None:
        depth = 0
        for word in self._words:
            depth += (word.text == "{") - (word.text == "}")
            name = word.text.upper()
            if word.kind == "keyword" and name in _REFUSED and not (depth and name in _INNER):
                hint = f"{_REFUSED[name]}; {SUPPORTED}"
                raise self.scanned.error(word.start, f"{name} is not supported", hint=hint)

    def _name(self, written: str) -> str:
        """A plain name as an IRI, in the graph's spelling if it has such a name."""
        return f"<{iri_of(spelt(written, self._vocabulary)).value}>"


def spelt(written: str, vocabulary: Vocabulary) -> str:
    """The graph's name for a written one: the same, or with blanks for underscores; otherwise it is a new name."""
    name = unquote(written)
    for spelling in (name, name.replace("_", " ")):
        if vocabulary.entities.find(spelling) is not None or vocabulary.relations.find(spelling) is not None:
            return spelling
    return name


def operations(rewritten: Rewritten) -> list[Operation]:
    """The operations of a text; SparqlSyntax with its position for what is not one."""
    # The text begins with the graph's declarations, on a line of their own.
    text = rewritten.text
    found: list[Operation] = []
    prologue: list[str] = []
    line, line_start = 1, 0
    for words in _parts(scan(text).words):
        at = 0
        while (count := declaration(words[at : at + 3])) > 0:
            prologue.append(" ".join(word.text for word in words[at : at + count]))
            at += count
        if at == len(words):
            continue
        start, last = words[at].start, words[-1]
        line += text.count("\n", line_start, start)
        line_start = text.rfind("\n", 0, start) + 1
        place = "\n" * (line - 1) + " " * (start - line_start)
        _check(rewritten, " ".join(prologue), place + text[start : last.start + len(last.text)])
        found.append(_operation(text, words[at:], " ".join(prologue)))
    return found


def _parts(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """The words between semicolons outside of all brackets."""
    depth = first = 0
    for number, word in enumerate(words):
        depth += (word.text in ("{", "(", "[")) - (word.text in ("}", ")", "]"))
        if word.text == ";" and depth == 0:
            yield words[first:number]
            first = number + 1
    yield words[first:]


def _check(rewritten: Rewritten, prologue: str, operation: str) -> None:
    """SparqlSyntax with its position unless the text is one operation.

    The store parses a text to its end before it does anything, and then fails because a graph is made twice. (It
    allows declarations at the beginning only, where SPARQL allows them before each operation.)
    """
    from pyoxigraph import Store

    try:
        Store().update(f"{prologue} {_READ_ONLY} {_READ_ONLY} {operation}")
    except SyntaxError as error:
        found = rewritten.error(str(error))
        found.hint = SUPPORTED
        raise found from error
    except (OSError, RuntimeError, ValueError):
        return


def _operation(text: str, words: Sequence[Word], prologue: str) -> Operation:
    first, second = words[0].text.upper(), words[1].text.upper()
    if second in ("DATA", "WHERE"):
        block, _ = _block(text, words, 2)
        where = block if second == "WHERE" else None
        return Operation(prologue, None, block, where) if first == "INSERT" else Operation(prologue, block, None, where)
    parts: dict[str, str] = {}
    at = 0
    while "WHERE" not in parts:
        if words[at].text == "{":
            parts["WHERE"], at = _block(text, words, at)  # the keyword may be left out
        else:
            parts[words[at].text.upper()], at = _block(text, words, at + 1)
    return Operation(prologue, parts.get("DELETE"), parts.get("INSERT"), parts["WHERE"])


def _block(text: str, words: Sequence[Word], at: int) -> tuple[str, int]:
    """The group in braces that begins at this word, and the index of the word after it."""
    depth = 0
    for number in range(at, len(words)):
        depth += (words[number].text == "{") - (words[number].text == "}")
        if depth == 0:
            return text[words[at].start : words[number].start + 1], number + 1
    raise SparqlSyntax("the update cannot be read: a group in braces is not closed", hint=SUPPORTED)
