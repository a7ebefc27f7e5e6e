"""Predictions inside a SPARQL query: ``SERVICE <urn:biqe:predict> { ... }``.

Such a block is taken out of the text, asked on its own, known and predicted rows together, and its rows stand in its
place as VALUES; so the rest of the query joins, filters, groups and orders them as SPARQL says. As in SPARQL's
algebra, a block does not see what the patterns around it bind: what should narrow a prediction belongs into the block.

    SELECT ?city ?sea ?probability WHERE {
      SERVICE <urn:biqe:predict?mode=predicted&top=50> { ?city :located_on :Rhine FILTER(?probability > 0.2) }
      :Rhine :flows_into ?sea
    }

All variables of a block are asked for together; a sub-SELECT inside the block asks for some of them. ``?probability``
and ``?status`` of the row are there for a query that names them; ``BIND(<urn:biqe:probability> AS ?p)`` in a block
gives them other names, which two blocks in one query need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from biqe.errors import SparqlSyntax, UnsupportedQuery
from biqe.exact.store import Cut, Term
from biqe.query.scan import Scan, Word, scan
from biqe.query.subset import syntax_error
from biqe.serve.prologue import Prologue
from biqe.serve.results import node, table_of

if TYPE_CHECKING:
    from biqe.answer.answers import Answers
    from biqe.answer.terms import TermTable

PREDICT = "urn:biqe:predict"
PROBABILITY, STATUS = "probability", "status"
NAMES = {f"urn:biqe:{name}": name for name in (PROBABILITY, STATUS)}
OPTIONS = {"mode": str, "top": int, "min-probability": float, "model": str}
FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_CLOSING = {"{": "}", "(": ")", "[": "]"}


@dataclass(frozen=True)
class Block:
    """One SERVICE block: what it asks, and which pieces of the text its rows stand in for."""

    question: str
    """A query of its own, its words on the line after the one that they stand on in the whole text."""
    head_line: int
    """Line of ``question`` that the whole text does not have: what follows it is one line further down."""
    options: dict[str, Any]
    """Options of ``ask``, as the block's IRI gives them."""
    is_silent: bool
    """SERVICE SILENT: what cannot be answered is a row without values, not an error."""
    extra: dict[str, str]
    """``probability`` and ``status``, where wanted, with the variable that each is given to."""
    open: tuple[int, int]
    """Place of ``SERVICE <...> {`` in the scanned text; the rows are put there."""
    taken: tuple[tuple[int, int], ...] = field(default=())
    """Places of what the model has read. What is left between them, conditions on probabilities, stays."""

    def cuts(self, answers: Answers | TermTable | None) -> list[Cut]:
        """The rows in the block's place; None for nothing that could be answered."""
        rows = " " if answers is None else _values(answers, self.extra)
        return [Cut(*self.open, f"{{ {rows}"), *(Cut(start, end, " ") for start, end in self.taken)]

    def in_the_whole(self, error: SparqlSyntax) -> SparqlSyntax:
        """The same complaint, at its place in the whole text."""
        if error.line is None or error.column is None:
            return error
        message = error.message.removeprefix(f"line {error.line}, column {error.column}: ")
        line = error.line - 1 if error.line > self.head_line else error.line
        return SparqlSyntax(message, line=line, column=error.column, hint=error.hint)


def blocks(text: str) -> list[Block]:
    """The predict blocks of a query, in order. Any other SERVICE is refused, at its place."""
    scanned = scan(text)
    found = list(_Finder(scanned).blocks()) if "SERVICE" in text.upper() else []
    for name in (PROBABILITY, STATUS):
        wanted = [block for block in found if block.extra.get(name) == name]
        if len(wanted) > 1:
            raise syntax_error(
                scanned,
                wanted[1].open[0],
                f"two predict blocks would give ?{name} a value",
                hint=f"give one of them another name: BIND(<urn:biqe:{name}> AS ?p) inside the block",
            )
    return found


class _Finder:
    """Walks over the words of a text."""

    def __init__(self, scanned: Scan) -> None:
        self.scanned = scanned
        self.words = scanned.words
        self.prologue = Prologue.of(scanned.words)

    def blocks(self) -> Iterator[Block]:
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
        """Places of the IRI and the brace of a predict block that begins with the word ``at``."""
        if not self._is(at, "SERVICE"):
            return None
        iri = at + 2 if self._is(at + 1, "SILENT") else at + 1
        if self._iri(iri).partition("?")[0] != PREDICT:
            raise syntax_error(
                self.scanned,
                self.words[at].start,
                f"SERVICE is answered for <{PREDICT}> alone",
                hint=f"no other server is asked; <{PREDICT}> asks the model here",
            )
        if iri + 1 >= len(self.words) or self.words[iri + 1].text != "{":
            raise syntax_error(
                self.scanned,
                self.words[iri].start,
                "a predict block is a group in braces",
                hint=f"write SERVICE <{PREDICT}> {{ ... }}",
            )
        return iri, iri + 1

    def _iri(self, at: int) -> str:
        """The IRI that a word is, or stands for; '' where it is none."""
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
        raise syntax_error(self.scanned, self.words[at].start, f"this {self.words[at].text} is never closed")

    def _block(self, service: int, iri: int, brace: int, end: int) -> Block:
        inside = range(brace + 1, end)
        for at in inside:
            if self._is(at, "SERVICE"):
                raise syntax_error(
                    self.scanned,
                    self.words[at].start,
                    "a predict block holds no other SERVICE",
                    hint="put the two blocks beside each other",
                )
        renamed, binds = self._renamed(inside)
        extra = dict(renamed)
        mentioned = {word.text[1:] for word in self.words if word.kind == "variable"}
        for name in (PROBABILITY, STATUS):
            if name not in extra and name in mentioned:
                extra[name] = name
        kept = self._conditions(inside, set(extra.values()))
        question, head_line = self._question(inside, binds | kept, set(extra.values()))
        return Block(
            question,
            head_line,
            self._options(iri),
            self._is(service + 1, "SILENT"),
            extra,
            (self.words[service].start, self._end(brace)),
            tuple(self._runs([at for at in inside if at not in kept])),
        )

    def _renamed(self, inside: range) -> tuple[dict[str, str], set[int]]:
        """Names that BIND gives, and the places of those BIND clauses."""
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
        """Places of the FILTER clauses that look at a probability or a status: the exact store runs them."""
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
        """The block as a query of its own, every word in its own column; and the line that was put in."""
        first = next((at for at, word in enumerate(self.words) if word.text.upper() in FORMS), 0)
        prologue_end = self.words[first].start
        own = [self.words[at] for at in inside if at not in without]
        if not own:
            raise syntax_error(self.scanned, self.words[inside.start - 1].start, "this predict block holds no pattern")
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
        """The words where they stand, and blanks where everything else stood."""
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
                raise syntax_error(
                    self.scanned,
                    self.words[iri].start,
                    f"a predict block has no option {name!r}",
                    hint=f"it has {', '.join(OPTIONS)}",
                )
            try:
                options[name.replace("-", "_")] = OPTIONS[name](value)
            except ValueError:
                raise syntax_error(
                    self.scanned, self.words[iri].start, f"{name!r} of a predict block must be a number. Got {value!r}"
                ) from None
        return options

    def _runs(self, places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Stretches of text that hold these words and no others."""
        start: int | None = None
        for number, at in enumerate(places):
            start = at if start is None else start
            if number + 1 == len(places) or places[number + 1] != at + 1:
                yield self.words[start].start, self._end(at)
                start = None

    def _end(self, at: int) -> int:
        return self.words[at].start + len(self.words[at].text)


def _without_names(words: Sequence[Word], names: set[str]) -> Iterator[Word]:
    """The words of a sub-SELECT, without the probability and the status in its head."""
    in_head = True
    for word in words:
        in_head = in_head and word.text.upper() != "WHERE" and word.text != "{"
        if not (in_head and word.kind == "variable" and word.text[1:] in names):
            yield word


def _values(answers: Answers | TermTable, extra: dict[str, str]) -> str:
    """VALUES with the rows, in the store's own terms."""
    wanted = [name for name in (PROBABILITY, STATUS) if name in extra]
    table = table_of(answers, wanted)
    if table.holds is not None:
        if wanted:
            raise UnsupportedQuery(
                "a predict block without variables is true or false, and has no rows to tell of",
                hint="name at least one variable in the block",
            )
        return " " if table.holds else "FILTER(false)"
    own = table.variables[: len(table.variables) - len(wanted)]
    head = " ".join(f"?{name}" for name in [*own, *(extra[name] for name in wanted)])
    lines = [f"({' '.join(map(_written, row))})" for row in table.rows]  # type: ignore[arg-type]  # all are terms
    return f"VALUES ({head}) {{ {' '.join(lines)} }}"


def _written(term: Term | None) -> str:
    """A term as the store's parser reads it; UNDEF where there is none."""
    if term is None:
        return "UNDEF"
    if term.kind == "bnode":
        raise UnsupportedQuery(
            f"a predict block found {term.value}, which a query cannot name, so it cannot be joined",
            hint="give what has no name an IRI before it is imported",
        )
    return str(node(term))
