"""Rows of RDF terms: what the exact store answers to SPARQL beyond the subset, predicted rows with literals or with
OPTIONAL, and what COUNT comes to.

Such rows have values, not entities. A predicted one has missing links, and is explained by the row of links that it
was made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from biqe.answer.result import (
    KNOWN,
    PREDICTED,
    TABLE_ROWS,
    XSD,
    AnswerRow,
    AnswerRows,
    Cell,
    ResultTable,
    ShownNames,
    TextRow,
    TextTable,
    View,
    data_frame,
    extra_columns,
    head_lines,
    number_term,
    patterns,
    short,
    shown,
    value_of,
)
from biqe.exact.store import Solutions, Term
from biqe.graph.words import HELD, probability, visible

if TYPE_CHECKING:
    import pandas

    from biqe.answer.answers import Distribution, Link, Row


HARDLY_ANY = 0.05
"""Below it, how many rows are expected is not worth a number."""
SUMMED = "the sum of the probabilities of all rows that the model predicts"
"""Why so many more rows are expected."""


class TermRow(AnswerRow[str | int | float | None]):
    """One row. ``row.n`` and ``row["n"]`` give a name, a text or a number, or None where the variable has no value."""

    __slots__ = ("_table", "number")

    def __init__(self, table: TermTable, number: int) -> None:
        self._table = table
        self.number = number

    @property
    def terms(self) -> dict[str, Term | None]:
        """The RDF terms by variable."""
        return dict(zip(self._table.variables, self._table.terms[self.number], strict=True))

    @property
    def values(self) -> dict[str, str | int | float | None]:
        """Names, texts and numbers by variable."""
        return {variable: value_of(term) for variable, term in self.terms.items()}

    @property
    def status(self) -> str:
        """``known``; or ``predicted`` for the number of rows that a model expects."""
        return self._table.statuses[self.number]

    @property
    def probability(self) -> float | None:
        """1 for a known row; None for an expected number, which is no row that could be true or false."""
        if self._table.chances:
            return self._table.chances[self.number]
        return 1.0 if self.status == KNOWN else None

    @property
    def rests_on(self) -> tuple[Row | TermRow, ...]:
        """The predicted rows of links that this row is made of: first that of the question, then those that fill in
        what is optional. None for a known row, and for a number."""
        return self._table.rests_on[self.number] if self._table.rests_on else ()

    @property
    def missing(self) -> tuple[Link, ...]:
        """The links of a predicted row that the graph does not hold."""
        return tuple(link for row in self.rests_on for link in row.missing)

    @property
    def against(self) -> tuple[Link, ...]:
        """Links that would rule the row out by a NOT EXISTS or MINUS, each with the probability of its part."""
        return tuple(link for row in self.rests_on for link in row.against)

    @property
    def filled(self) -> tuple[str, ...]:
        """Variables of OPTIONAL whose values are predicted."""
        columns = self._table.filled[self.number] if self._table.filled else ()
        return tuple(self._table.variables[column] for column in columns)

    @property
    def why(self) -> str:
        """Why it is an answer, in one sentence."""
        if self.rests_on:
            return "; ".join(row.why for row in self.rests_on)
        return HELD if self.status == KNOWN else SUMMED

    @property
    def labels(self) -> dict[str, str]:
        """What to show, by variable: labels of entities, short names, texts and numbers; nothing is empty."""
        return {name: self._table.label(term) for name, term in self.terms.items()}

    def _texts(self) -> list[str]:
        """The labels."""
        return list(self.labels.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TermRow):
            return NotImplemented
        return (self.terms, self.status) == (other.terms, other.status)

    def __hash__(self) -> int:
        return hash((tuple(self.terms.items()), self.status))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.values.items())}, status={self.status!r})"

    __str__ = __repr__


@dataclass(frozen=True, eq=False)
class TermTable(AnswerRows[TermRow]):
    """The answers to a query that gives values rather than entities.

    >>> import biqe
    >>> counted = biqe.open("atlas").ask("SELECT (COUNT(?city) AS ?n) { ?city :located_on :Rhine }", mode="known")
    >>> counted[0].n, counted[0].status
    (11, 'known')
    """

    text: str
    variables: tuple[str, ...]
    terms: tuple[tuple[Term | None, ...], ...]
    """The terms of each row, in the graph's own names."""
    statuses: tuple[str, ...]
    """``known`` or ``predicted``, of each row."""
    holds: bool | None = None
    """For ASK: whether it holds; None for rows."""
    complete: bool = True
    """False where there are more rows than were read."""
    model: str | None = None
    source: str = ""
    seconds: float = 0.0
    why: str = ""
    note: str = ""
    """What to know about what a model expects, if anything."""
    counted: str = ""
    """What COUNT comes to, in words."""
    chances: tuple[float | None, ...] = ()
    """How probable each row is; empty where all are known, or numbers. For ASK, of what is not known."""
    rests_on: tuple[tuple[Row | TermRow, ...], ...] = ()
    """The predicted rows of links that each row is made of, likewise: first that of the question, then those that fill
    in what is optional."""
    filled: tuple[tuple[int, ...], ...] = ()
    """Columns of each row that were left open by OPTIONAL and are predicted, likewise."""
    names: ShownNames | None = None
    """What to show for the names of entities and relations; None: these names."""
    cut_status: bool = False
    """Whether rows with another status were cut off, so that the status is still told."""

    @classmethod
    def of_store(cls, text: str, found: Solutions | bool, **about: Any) -> TermTable:
        """What the exact store found. ``about`` are further fields."""
        if isinstance(found, bool):
            return cls(text, (), (), (), found, **about)
        known = (KNOWN,) * len(found.rows)
        return cls(text, found.variables, found.rows, known, None, found.complete, **about)

    @classmethod
    def of_count(cls, text: str, variable: str, known: int | None, expected: float | None, **about: Any) -> TermTable:
        """The number of known rows, and that of further rows which a model expects; None for one not asked for.
        ``about`` are further fields."""
        rows: list[tuple[Term, str]] = []
        parts: list[str] = []
        if known is not None:
            parts.append(f"{known:,} stored")
            rows.append((Term("literal", str(known), XSD + "integer"), KNOWN))
        if expected is not None:
            so_many = f"{expected:.2g}" if expected < 1 else f"{expected:,.0f}"
            so_many = f"about {so_many}" if expected >= HARDLY_ANY else "hardly any"
            parts.append(f"{so_many} {'more ' if parts else ''}expected")
            rows.append((number_term(expected), PREDICTED))
        terms, statuses = tuple((term,) for term, _ in rows), tuple(status for _, status in rows)
        return cls(text, (variable,), terms, statuses, counted=", ".join(parts), **about)

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def known_count(self) -> int:
        """Rows that the graph alone gives: all but a number that a model expects."""
        return self.statuses.count(KNOWN)

    @property
    def marginals(self) -> Mapping[str, Distribution]:
        """Nothing: the variables have values, and no model has a distribution over those."""
        return {}

    def row(self, number: int) -> TermRow:
        """The row of this number."""
        return TermRow(self, number)

    def __repr__(self) -> str:
        return f"TermTable({self.holds})" if self.holds is not None else f"TermTable({len(self):,} rows)"

    def label(self, term: Term | None) -> str:
        """What to show for a term."""
        if term is None:
            return ""
        return self.names(term.value) if term.kind == "uri" and self.names is not None else shown(term)

    def with_known(self, count: int | None) -> TermTable:
        """The same with the first ``count`` rows."""
        if count is None or count >= len(self):
            return self
        cut = {name: getattr(self, name)[:count] for name in ("terms", "statuses", "chances", "rests_on", "filled")}
        return replace(self, **cut, complete=False, cut_status=self._has_status)

    @property
    def _has_status(self) -> bool:
        """Whether the status is a column: unless all rows are known."""
        return self.cut_status or PREDICTED in self.statuses

    def as_table(self) -> ResultTable:
        """The rows, with their status as one more column unless all are known."""
        if not self._has_status:
            chance = self.chances[0] if self.chances else None
            return ResultTable(self.variables, self.terms, self.holds, chance, complete=self.complete)
        if self.chances:
            extra = extra_columns(self.variables)
            cells = [(*self.terms[row.number], row.status, row.probability, patterns(row.missing)) for row in self]
            return ResultTable((*self.variables, *extra), cells, complete=self.complete)
        rows: list[tuple[Cell, ...]] = [(*row, status) for row, status in zip(self.terms, self.statuses, strict=True)]
        return ResultTable((*self.variables, extra_columns(self.variables)[0]), rows, complete=self.complete)

    def as_text(self, view: View) -> TextTable:
        """Rows of values, as they are shown."""
        head = head_lines(self.source, self._said(), self.seconds, self.model, self.why, self.note)
        if self.holds is not None or self.counted:
            return TextTable(head)
        most = TABLE_ROWS if view.known_rows is None else view.known_rows
        known = min(most, self.known_count) if self.chances else min(most, len(self))
        shown_rows = [*self[:known], *(self[self.known_count :] if self.chances else [])]
        rows = [self._text(row) for row in shown_rows]
        columns = [f"?{name}" for name in self.variables]
        if self._has_status and not self.chances:
            columns.append("status")
        cut = (self.known_count if self.chances else len(self)) - known
        left_out = f"… and {cut:,} more row{'s' * (cut > 1)}" if cut else ""
        return TextTable(head, columns, rows, left_out, known)

    def _text(self, row: TermRow) -> TextRow:
        cells = [self.label(term) for term in self.terms[row.number]]
        if not self.chances:
            return TextRow(cells + ([row.status] if self._has_status else []))
        if row.status == KNOWN or row.probability is None:
            return TextRow(cells, row.status)
        links = [
            [
                *([] if link.probability is None else [probability(link.probability, 2)]),
                *map(short if self.names is None else self.names.last_part, link[:3]),
            ]
            for link in row.missing
        ]
        for column in self.filled[row.number] if self.filled else ():
            cells[column] += " (predicted)"
        links += [
            [
                "against:",
                probability(link.probability or 0.0, 2),
                *map(short if self.names is None else self.names.last_part, link[:3]),
            ]
            for link in row.against
        ]
        return TextRow(cells, row.status, probability(row.probability), links)

    def _said(self) -> str:
        if self.holds is not None:
            if self.chances and self.chances[0] is not None:
                return f"not in the graph; probability {probability(self.chances[0])} by {visible(str(self.model))}"
            return "yes, the graph holds it" if self.holds else "no, the graph does not hold it"
        if self.chances:
            cut = "" if self.complete else " or more"
            predicted = "" if self.model is None else f", {self.predicted_count:,} predicted by {visible(self.model)}"
            return f"{self.known_count:,}{cut} known{predicted}"
        if self.counted:
            return self.counted if self.model is None else f"{self.counted} by {visible(self.model)}"
        return f"{len(self):,}{'' if self.complete else ' or more'} row{'' if len(self) == 1 else 's'}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, strings and numbers."""
        head = {"query": self.text, "source": self.source, "model": self.model, "seconds": round(self.seconds, 6)}
        head |= {name: text for name, text in (("why", self.why), ("note", self.note)) if text}
        if self.holds is not None:
            chance = {"probability": self.chances[0]} if self.chances else {}
            return {**head, "form": "ASK", "holds": self.holds, **chance}
        rows = [_row_dict(row) for row in self]
        return {**head, "variables": list(self.variables), "complete": self.complete, "rows": rows}

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame: a column for each variable, then status; with predicted rows, probability and missing links,
        too, the latter as tuples."""
        extra = extra_columns(self.variables)
        if self.chances:
            told = [(*row.values.values(), row.status, row.probability, row.missing) for row in self]
            return data_frame(told, [*self.variables, *extra])
        return data_frame([(*row.values.values(), row.status) for row in self], [*self.variables, *extra[:1]])


def _row_dict(row: TermRow) -> dict[str, Any]:
    found: dict[str, Any] = {"values": row.values, "status": row.status, "probability": row.probability}
    if row.missing:
        found["missing"] = [link._asdict() for link in row.missing]
    if row.against:
        found["against"] = [link._asdict() for link in row.against]
    return found | ({"filled": list(row.filled)} if row.filled else {})
