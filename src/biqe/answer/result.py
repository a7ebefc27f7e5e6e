"""What every answer is to a writer: a table of terms for programs, a table of texts for people, a dict for JSON."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from biqe.answer import formats
from biqe.errors import InvalidOption
from biqe.exact.store import Term, iri_of, is_blank, node_of
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.words import escaped_json, for_notebook, html_table, probability, visible
from biqe.query.question import is_absolute
from biqe.query.scan import STANDARD

if TYPE_CHECKING:
    import pandas

    from biqe.answer.answers import Link

KNOWN = "known"
"""Status of a row that the graph holds."""
PREDICTED = "predicted"
"""Status of a row that the graph does not hold, and the model proposes."""
EXTRA = ("status", "probability", "missing")
"""Columns after the variables: known or predicted; the row's probability; its missing links as patterns."""
TABLE_ROWS = 50
"""Known rows that a table for people shows by default."""
SHORT = 9
"""Numbers of at most so many characters are shown as they are written; longer ones are rounded."""
NOTEBOOK_ROWS = 20
"""Known rows that a notebook shows."""
XSD = "http://www.w3.org/2001/XMLSchema#"

R = TypeVar("R")
V = TypeVar("V")
Cell = Term | str | float | None
"""A term in the graph's own names, a text, a number that biqe computed, such as a probability, or nothing."""


@dataclass(frozen=True)
class View:
    """How a table for people is laid out."""

    width: int = 80
    colour: bool = False
    known_rows: int | None = None
    """Known rows to show, at most; None: TABLE_ROWS in a table for people, else all."""


@dataclass(frozen=True)
class TextRow:
    """One row of a table for people."""

    cells: Sequence[str]
    status: str = ""
    chance: str = ""
    links: Sequence[Sequence[str]] = ()
    """Missing links, each in words that may be shortened: probability, subject, relation, object."""


@dataclass(frozen=True)
class TextTable:
    """A table for people: nothing in it is escaped or cut to a width yet."""

    head: Sequence[str]
    """Lines above the table: who answered, and what to know about it."""
    columns: Sequence[str] = ()
    rows: Sequence[TextRow] = ()
    left_out: str = ""
    """A line that says how many rows are not shown."""
    left_out_at: int = 0
    """Number of the row before which this line stands."""
    facts: Sequence[tuple[str, Sequence[str]]] = ()
    """Links that a verdict rests on, each with a word before it."""


class Result(ABC):
    """What can be written in every format."""

    @abstractmethod
    def as_table(self) -> ResultTable:
        """Rows of terms, for the formats of SPARQL."""

    @abstractmethod
    def as_text(self, view: View) -> TextTable:
        """Rows of texts, for people."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, strings and numbers."""

    def with_known(self, count: int | None) -> Result:
        """The same with at most ``count`` known rows."""
        return self

    def write(self, form: str, *, width: int = 80, colour: bool = False, known_rows: int | None = None) -> str:
        """The answers in one of the formats of ``formats.names()``; ``width`` and ``colour`` are for a table.

        ``known_rows`` are the known rows to show, at most; a table says how many more there are.
        """
        return formats.write(self, form, View(width, colour, known_rows))

    def _repr_html_(self) -> str:
        return for_notebook(self.write("html", known_rows=NOTEBOOK_ROWS))

    def to_json(self, *, indent: int | None = 2) -> str:
        """One JSON document, in the form of ``to_dict``."""
        return escaped_json(json.dumps(self.to_dict(), ensure_ascii=False, indent=indent))


class ResultRows(Result, Sequence[R]):
    """A result whose rows are taken by number; each is made when it is asked for."""

    @abstractmethod
    def row(self, number: int) -> R:
        """The row of this number, which is one of the rows there are."""

    @overload
    def __getitem__(self, number: int) -> R: ...
    @overload
    def __getitem__(self, number: slice) -> list[R]: ...
    def __getitem__(self, number: int | slice) -> R | list[R]:
        if isinstance(number, slice):
            return [self.row(place) for place in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        return self.row(number % len(self))

    def __iter__(self) -> Iterator[R]:
        return map(self.row, range(len(self)))


class AnswerRow(ABC, Generic[V]):
    """One row. ``row.city`` and ``row["city"]`` give the value of a variable; one that is called like an attribute of
    the row, such as ``?status``, is reached by ``row["status"]``."""

    __slots__ = ()

    @property
    @abstractmethod
    def values(self) -> dict[str, V]:
        """Names of entities, texts and numbers, by variable."""

    @property
    @abstractmethod
    def status(self) -> str:
        """``known`` or ``predicted``."""

    @property
    @abstractmethod
    def probability(self) -> float | None:
        """1 for a known row; None for what could be neither true nor false."""

    @property
    @abstractmethod
    def missing(self) -> tuple[Link, ...]:
        """The links of a predicted row that the graph does not hold."""

    @abstractmethod
    def _texts(self) -> list[str]:
        """What a table shows for the values."""

    def _facts(self) -> list[list[str]]:
        """Links to show beside them, each behind a word."""
        return [["missing", str(link)] for link in self.missing]

    def __getitem__(self, variable: str) -> V:
        return self.values[variable.removeprefix("?")]

    def __getattr__(self, variable: str) -> V:
        if variable in type(self).__slots__ or variable.startswith("__"):
            # Python itself asks for these, on copies that have no fields yet.
            raise AttributeError(variable)
        try:
            return self[variable]
        except KeyError:
            variables = ", ".join(self.values)
            raise AttributeError(f"this row has no variable {variable!r}; it has {variables}") from None

    def _repr_html_(self) -> str:
        rows = [[f"?{name}", text] for name, text in zip(self.values, self._texts(), strict=True)]
        rows.append(["status", self.status])
        if self.status == PREDICTED and self.probability is not None:
            rows.append(["probability", probability(self.probability)])
        return for_notebook(html_table([], [], [*rows, *self._facts()]))


class AnswerRows(ResultRows[R]):
    """The answers to a query: known rows, then predicted ones."""

    @property
    @abstractmethod
    def known_count(self) -> int:
        """How many rows the graph holds."""

    @property
    def predicted_count(self) -> int:
        return len(self) - self.known_count

    @property
    def known(self) -> list[R]:
        """The rows that the graph holds."""
        return self[: self.known_count]

    @property
    def predicted(self) -> list[R]:
        """The rows that the graph does not hold, and the model proposes, the most probable first."""
        return self[self.known_count :]

    def __str__(self) -> str:
        return self.write("table").rstrip("\n")


@dataclass(frozen=True)
class ResultTable(Result):
    """Columns and rows, or a truth value: what the formats of SPARQL have. Any other table can be written as one."""

    variables: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]] = field(default_factory=tuple)
    holds: bool | None = None
    """For ASK: whether it holds; None for rows."""
    probability: float | None = None
    """For ASK: how probable it is; None where nobody can say."""
    complete: bool = True
    """False where rows are left out that the query asked for."""
    expected: str | None = None
    """For COUNT: how many more the model expects, where the rows do not say so."""
    note: str = ""
    """What to know about the rows, such as that an entity cannot be predicted yet."""
    compact: bool = False
    """Whether JSON is for programs alone, without line breaks."""
    spread: bool = False
    """Whether XML has a line for each cell; else for each row."""

    def as_table(self) -> ResultTable:
        return self

    def as_text(self, view: View) -> TextTable:
        rows = [TextRow(["" if cell is None else shown(cell) for cell in row]) for row in self.rows]
        holds = [] if self.holds is None else [str(self.holds).lower()]
        return TextTable(holds, self.variables, rows)

    def to_dict(self) -> dict[str, Any]:
        if self.holds is not None:
            return {"holds": self.holds, "probability": self.probability}
        rows = [[cell.value if isinstance(cell, Term) else cell for cell in row] for row in self.rows]
        return {"variables": list(self.variables), "complete": self.complete, "rows": rows}


def shown(cell: Term | str | float) -> str:
    """A value as people read it: two decimals of a long number, or two digits of a very small one."""
    if isinstance(cell, Term) and len(cell.value) <= SHORT:
        return cell.value
    value = value_of(cell) if isinstance(cell, Term) else cell
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:.2f}"
    return str(value)


NUMBERS = {"integer": int, "decimal": float, "double": float, "float": float}


def value_of(term: Term | None) -> str | int | float | None:
    """A number where the term is one, else its text; None for nothing."""
    if term is None:
        return None
    kind = (term.datatype or "").removeprefix(XSD)
    if term.kind != "literal" or kind not in NUMBERS:
        return term.value
    try:
        return NUMBERS[kind](term.value)
    except ValueError:
        return term.value  # a literal may claim a type that its text does not fit


# Terms


def number_term(value: float) -> Term:
    """A number as RDF has it."""
    return Term("literal", repr(float(value)), XSD + "double")


def entity_term(name: str) -> Term:
    """An entity of the graph, by its own name."""
    return Term("bnode" if is_blank(name) else "uri", name)


@lru_cache(maxsize=4096)  # rows repeat their entities
def absolute(term: Term) -> Term:
    """The term as other programs read it: ``Rhine`` is no IRI, and becomes ``urn:biqe:name:Rhine``."""
    if term.kind == "uri":
        return Term("uri", iri_of(term.value).value)
    return Term("bnode", f"_:{node_of(term.value).value}") if term.kind == "bnode" else term


def as_term(cell: Term | str | float) -> Term:
    """A cell as the formats of SPARQL have it."""
    if isinstance(cell, Term):
        return absolute(cell)
    return Term("literal", cell) if isinstance(cell, str) else number_term(cell)


def patterns(links: Sequence[Link]) -> str:
    """Links as triple patterns, ``<s> <r> <o> . <s> <r> <o>``; a hidden variable without an entity is ``?h``."""

    def end(name: str, link: Link) -> str:
        # Only such a link has no probability; an entity may be called ?h.
        return name if link.probability is None and re.fullmatch(r"\?\w+", name) else turtle_name(name)

    return " . ".join(
        f"{end(link.subject, link)} {turtle_name(link.relation)} {end(link.object, link)}" for link in links
    )


_NOT_IN_IRI = re.compile('[\x00-\x20<>"{}|^`\\\\\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]')


def turtle_name(name: str) -> str:
    """A name as Turtle writes it: ``<name>``, with what may not stand there as an escape; a blank node bare."""
    if is_blank(name):
        return f"_:{node_of(name).value}"
    escaped = _NOT_IN_IRI.sub(lambda match: f"\\u{ord(match[0]):04X}", name)
    return f"<{escaped}>"


def short(name: str) -> str:
    """The last part of an IRI; any other name as it is."""
    return re.split(r"[/#]", name)[-1] or name if re.match(r"[a-z][a-z0-9+.-]*://", name) else name


def extra_columns(variables: Sequence[str]) -> list[str]:
    """Names of the three columns after the variables; a variable of the same name keeps it."""
    names = []
    for name in EXTRA:
        while name in variables:
            name += "_"
        names.append(name)
    return names


# Names for people


_LOCAL = re.compile(r"[\w-]+(?:\.[\w-]+)*")


@dataclass(frozen=True)
class ShownNames:
    """What to show for names: the label of an entity, a prefixed name, or the name itself.

    >>> from biqe.graph.vocabulary import Vocabulary
    >>> shown = ShownNames(Vocabulary(["http://ex.org/a"], [], {0: "Ann"}), {"": "http://ex.org/"})
    >>> [shown(f"http://ex.org/{name}") for name in ("a", "b", "b/c")]
    ['Ann', ':b', 'http://ex.org/b/c']
    """

    vocabulary: Vocabulary
    prefixes: Mapping[str, str]

    def __call__(self, name: str) -> str:
        entity = self.vocabulary.entities.find(name)
        label = None if entity is None else self.vocabulary.labels.get(entity)
        return label or self.prefixed(name)

    def last_part(self, name: str) -> str:
        """The label of an entity, or the last part of a name: for links, which are long enough."""
        entity = self.vocabulary.entities.find(name)
        return short(name if entity is None else self.vocabulary.label(entity))

    def prefixed(self, name: str) -> str:
        """A name with a prefix, where one fits."""
        for prefix, namespace in self._namespaces:
            if name.startswith(namespace) and _LOCAL.fullmatch(name, len(namespace)):
                return f"{prefix}:{name[len(namespace) :]}"
        return name

    @cached_property
    def _namespaces(self) -> list[tuple[str, str]]:
        every = [(prefix, text) for prefix, text in {**STANDARD, **self.prefixes}.items() if is_absolute(text)]
        return sorted(every, key=lambda each: (-len(each[1]), each[0]))


# Lines above a table


def head_lines(source: str, said: str, seconds: float, model: str | None, why: str, note: str) -> list[str]:
    """Who answered what in how much time; why this model, where there was a choice; and a note."""
    lines = [f"{visible(source)}: {said}, {seconds:.2f} s" if source else f"{said}, {seconds:.2f} s"]
    lines += [f"model {visible(str(model))}: {why}"] if why else []
    return lines + ([f"note: {note}"] if note else [])


def data_frame(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> pandas.DataFrame:
    """A DataFrame of pandas; InvalidOption where that is not installed."""
    try:
        import pandas
    except ImportError:
        raise InvalidOption(
            "to_pandas needs the package 'pandas', which is not installed",
            hint="pip install 'biqe[pandas]'; or use to_json(), or list(answers)",
        ) from None
    return pandas.DataFrame(rows, columns=list(columns))
