"""Predictions inside a SPARQL query: ``SERVICE <urn:biqe:predict> { ... }``.

Such a block is cut out of the text and answered on its own, and its rows replace it as VALUES; the exact store then
joins, filters, groups and orders them with the rest of the query. As in SPARQL's algebra, a block does not see what the
patterns around it bind: conditions that should narrow a prediction belong inside the block.

    SELECT ?city ?sea ?probability WHERE {
      SERVICE <urn:biqe:predict?mode=predicted&top=50> { ?city :located_on :Rhine FILTER(?probability > 0.2) }
      :Rhine :flows_into ?sea
    }

All variables of a block are targets; a sub-SELECT inside the block selects some of them. ``?probability`` and
``?status`` of each row are bound if the query mentions them; ``BIND(<urn:biqe:probability> AS ?p)`` in a block renames
them, which is needed for two blocks in one query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from biqe.errors import SparqlSyntax, UnsupportedQuery
from biqe.exact.store import Cut, Term
from biqe.query.scan import Scan, Word, scan
from biqe.serve.query_checks import FORMS, Prologue
from biqe.serve.results import node, table_of

if TYPE_CHECKING:
    from biqe.answer.answers import Answers
    from biqe.answer.terms import TermTable

PREDICT = "urn:biqe:predict"
PROBABILITY, STATUS = "probability", "status"
NAMES = {f"urn:biqe:{name}": name for name in (PROBABILITY, STATUS)}
OPTIONS = {"mode": str, "top": int, "min-probability": float, "model": str}
_CLOSING = {"{": "}", "(": ")", "[": "]"}


@dataclass(frozen=True)
class PredictBlock:
    """One SERVICE block: its question, and which parts of the text its rows replace."""

    question: str
    """The block as a query of its own. Words keep their column, and are one line further down (see ``head_line``)."""
    head_line: int
    """The line of ``question`` that was inserted."""
    options: dict[str, Any]
    """Options of ``ask``, from the block's IRI."""
    is_silent: bool
    """SERVICE SILENT: an error becomes a row without values."""
    extra: dict[str, str]
    """Variables for ``probability`` and ``status``, if the query uses them."""
    open: tuple[int, int]
    """Position of ``SERVICE <...> {`` in the text; the rows replace it."""
    taken: tuple[tuple[int, int], ...] = field(default=())
    """Positions of what the model answers. Filters on probabilities between them stay in the text."""

    def cuts(self, answers: Answers | TermTable | None) -> list[Cut]:
        """Replacements in the text: the rows, or a row without values for None."""
        rows = " " if answers is None else _values(answers, self.extra)
        return [Cut(*self.open, f"{{ {rows}"), *(Cut(start, end, " ") for start, end in self.taken)]

    def in_the_whole(self, error: SparqlSyntax) -> SparqlSyntax:
        """The same error with its position in the whole text."""
        if error.line is None or error.column is None:
            return error
        message = error.message.removeprefix(f"line {error.line}, column {error.column}: ")
        line = error.line - 1 if error.line > self.head_line else error.line
        return SparqlSyntax(message, line=line, column=error.column, hint=error.hint)


def blocks(text: str) -> list[PredictBlock]:
    """The predict blocks of a query, in order. SparqlSyntax for any other SERVICE."""
    scanned = scan(text)
    found = list(_Finder(scanned).blocks()) if "SERVICE" in text.upper() else []
    for name in (PROBABILITY, STATUS):
        wanted = [block for block in found if block.extra.get(name) == name]
        if len(wanted) > 1:
            raise scanned.error(
                wanted[1].open[0],
                f"two predict blocks bind ?{name}",
                hint=f"rename it in one of them: BIND(<urn:biqe:{name}> AS ?p) inside the block",
            )
    return found


class _Finder:
    """Finds the blocks in the words of a text. Positions are indices of words."""

    def __init__(self, scanned: Scan) -> None:
        self.scanned = scanned
        self.words = scanned.words
        self.prologue = Prologue.of(scanned.words)

    def blocks(self) -> Iterator[PredictBlock]:
        at = 0
        while at < len(self.words):
            opened = self._opening(at)
            if opened is None:
                at += 1
                continue
            iri, brace = opened
            end = self._closing(brace)
            yield self._block(at, iri, brace, end)
            at = end

    def _opening(self, at: int) -> tuple[int, int] | None:
        """Positions of the IRI and the brace of the predict block that begins at word ``at``; None if none does."""
        if not self._is(at, "SERVICE"):
            return None
        iri = at + 2 if self._is(at + 1, "SILENT") else at + 1
        if self._iri(iri).partition("?")[0] != PREDICT:
            hint = f"no other server is asked; <{PREDICT}> asks the model of this server"
            raise self._error(at, f"SERVICE is supported for <{PREDICT}> only", hint)
        if iri + 1 >= len(self.words) or self.words[iri + 1].text != "{":
            raise self._error(iri, "a predict block needs braces", f"write SERVICE <{PREDICT}> {{ ... }}")
        return iri, iri + 1

    def _error(self, at: int, message: str, hint: str | None = None) -> SparqlSyntax:
        return self.scanned.error(self.words[at].start, message, hint=hint)

    def _iri(self, at: int) -> str:
        """The IRI of a word; '' if it is none."""
        return (self.prologue.iri(self.words[at]) or "") if at < len(self.words) else ""

    def _is(self, at: int, keyword: str) -> bool:
        return at < len(self.words) and self.words[at].kind == "keyword" and self.words[at].text.upper() == keyword

    def _closing(self, at: int) -> int:
        """Place of the bracket that closes the one at ``at``."""
        waiting: list[str] = []
        for place in range(at, len(self.words)):
            word = self.words[place]
            if word.kind == "sign" and word.text in _CLOSING:
                waiting.append(_CLOSING[word.text])
            elif word.kind == "sign" and waiting and word.text == waiting[-1]:
                waiting.pop()
                if not waiting:
                    return place
        raise self._error(at, f"this {self.words[at].text} is never closed")

    def _block(self, service: int, iri: int, brace: int, end: int) -> PredictBlock:
        inside = range(brace + 1, end)
        for at in inside:
            if self._is(at, "SERVICE"):
                hint = "write the two blocks one after the other"
                raise self._error(at, "a predict block must not contain another SERVICE", hint)
        renamed, binds = self._renamed(inside)
        extra = dict(renamed)
        mentioned = {word.text[1:] for word in self.words if word.kind == "variable"}
        for name in (PROBABILITY, STATUS):
            if name not in extra and name in mentioned:
                extra[name] = name
        kept = self._conditions(inside, set(extra.values()))
        question, head_line = self._question(inside, binds | kept, set(extra.values()))
        return PredictBlock(
            question,
            head_line,
            self._options(iri),
            self._is(service + 1, "SILENT"),
            extra,
            (self.words[service].start, self._end(brace)),
            tuple(self._runs([at for at in inside if at not in kept])),
        )

    def _renamed(self, inside: range) -> tuple[dict[str, str], set[int]]:
        """Variables that BIND gives to probability and status, and the positions of those BIND clauses."""
        names: dict[str, str] = {}
        places: set[int] = set()
        for at in inside:
            clause = self.words[at : at + 6]
            if not self._is(at, "BIND") or len(clause) != 6 or clause[4].kind != "variable":
                continue
            name = NAMES.get(self._iri(at + 2))
            if name is not None:
                names[name] = clause[4].text[1:]
                places.update(range(at, at + 6))
        return names, places

    def _conditions(self, inside: range, names: set[str]) -> set[int]:
        """Positions of the FILTER clauses on a probability or a status; the exact store evaluates them."""
        places: set[int] = set()
        for at in inside:
            if not self._is(at, "FILTER"):
                continue
            opening = next((n for n in range(at, inside.stop) if self.words[n].text == "("), None)
            if opening is None:
                continue
            clause = range(at, self._closing(opening) + 1)
            if any(self.words[n].kind == "variable" and self.words[n].text[1:] in names for n in clause):
                places.update(clause)
        return places

    def _question(self, inside: range, without: set[int], names: set[str]) -> tuple[str, int]:
        """The block as a query of its own, each word in its column, and the number of the line that was inserted."""
        first = next((at for at, word in enumerate(self.words) if word.text.upper() in FORMS), 0)
        prologue_end = self.words[first].start
        own = [self.words[at] for at in inside if at not in without]
        if not own:
            raise self._error(inside.start - 1, "this predict block has no pattern")
        is_select = own[0].text.upper() == "SELECT"
        if is_select:
            own = list(_without_names(own, names))
            head, tail = "", ""
        else:
            variables = dict.fromkeys(word.text[1:] for word in own if word.kind == "variable")
            selected = " ".join(f"?{name}" for name in variables if name not in names)
            head, tail = (f"SELECT {selected} WHERE {{" if selected else "ASK {"), "}"
        prologue = self.scanned.text[:prologue_end]
        column = prologue_end - (prologue.rfind("\n") + 1)
        body = self._in_place(own, prologue_end)
        return f"{prologue}{head}\n{' ' * column}{body}{tail}", prologue.count("\n") + 1

    def _in_place(self, own: Sequence[Word], start: int) -> str:
        """The words at their positions, with blanks in place of everything else."""
        pieces, at, text = [], start, self.scanned.text
        for word in own:
            pieces += ["".join("\n" if c == "\n" else " " for c in text[at : word.start]), word.text]
            at = word.start + len(word.text)
        return "".join(pieces)

    def _options(self, iri: int) -> dict[str, Any]:
        """Options out of ``<urn:biqe:predict?mode=both&top=20>``."""
        options: dict[str, Any] = {"mode": "both"}
        for name, value in parse_qsl(self._iri(iri).partition("?")[2], keep_blank_values=True):
            if name not in OPTIONS:
                raise self._error(iri, f"a predict block has no option {name!r}", f"it has {', '.join(OPTIONS)}")
            try:
                options[name.replace("-", "_")] = OPTIONS[name](value)
            except ValueError:
                raise self._error(iri, f"{name!r} of a predict block must be a number. Got {value!r}") from None
        return options

    def _runs(self, places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Parts of the text that contain these words and no others."""
        start: int | None = None
        for number, at in enumerate(places):
            start = at if start is None else start
            if number + 1 == len(places) or places[number + 1] != at + 1:
                yield self.words[start].start, self._end(at)
                start = None

    def _end(self, at: int) -> int:
        return self.words[at].start + len(self.words[at].text)


def _without_names(words: Sequence[Word], names: set[str]) -> Iterator[Word]:
    """The words of a sub-SELECT without probability and status in its head."""
    in_head = True
    for word in words:
        in_head = in_head and word.text.upper() != "WHERE" and word.text != "{"
        if not (in_head and word.kind == "variable" and word.text[1:] in names):
            yield word


def _values(answers: Answers | TermTable, extra: dict[str, str]) -> str:
    """VALUES with the rows, in terms of the store."""
    wanted = [name for name in (PROBABILITY, STATUS) if name in extra]
    table = table_of(answers, wanted)
    if table.holds is not None:
        if wanted:
            raise UnsupportedQuery(
                "a predict block without variables is true or false, and has no probability or status",
                hint="use at least one variable in the block",
            )
        return " " if table.holds else "FILTER(false)"
    own = table.variables[: len(table.variables) - len(wanted)]
    head = " ".join(f"?{name}" for name in [*own, *(extra[name] for name in wanted)])
    lines = [f"({' '.join(map(_written, row))})" for row in table.rows]  # type: ignore[arg-type]  # all are terms
    return f"VALUES ({head}) {{ {' '.join(lines)} }}"


def _written(term: Term | None) -> str:
    """A term in SPARQL; UNDEF for None."""
    if term is None:
        return "UNDEF"
    if term.kind == "bnode":
        raise UnsupportedQuery(
            f"a predict block found the blank node {term.value}, which a query cannot name, so it cannot be joined",
            hint="give the node an IRI and import the graph again",
        )
    return str(node(term))
