"""Rows of RDF terms: what the exact store answers to SPARQL beyond the subset, and what COUNT comes to.

Such rows have no entities of their own, only values; so they have neither missing links nor an explanation.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from biqe.answer import formats
from biqe.answer.combine import KNOWN, PREDICTED
from biqe.answer.rows import Rows, data_frame
from biqe.errors import InvalidOption
from biqe.exact.store import Solutions, Term, iri_of

if TYPE_CHECKING:
    import pandas

    from biqe.answer.marginals import Distribution

NUMBERS = {"integer": int, "decimal": float, "double": float, "float": float}


class TermRow:
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
        return 1.0 if self.status == KNOWN else None

    @property
    def missing(self) -> tuple[()]:
        """Nothing: these rows do not rest on single links."""
        return ()

    def __getitem__(self, variable: str) -> str | int | float | None:
        return self.values[variable.removeprefix("?")]

    def __getattr__(self, variable: str) -> str | int | float | None:
        if variable in TermRow.__slots__ or variable.startswith("__"):
            raise AttributeError(variable)
        if variable not in self._table.variables:
            raise AttributeError(f"this row has no variable {variable!r}; it has {', '.join(self._table.variables)}")
        return self[variable]

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
class TermTable(Rows[TermRow]):
    """The answers to a query that gives values rather than entities."""

    text: str
    variables: tuple[str, ...]
    terms: tuple[tuple[Term | None, ...], ...]
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
    own_names: bool = False
    """Whether terms have the graph's own names, which the formats of SPARQL write as IRIs; else names are IRIs."""

    @classmethod
    def of_store(cls, text: str, found: Solutions | bool, source: str, seconds: float) -> TermTable:
        """What the exact store found."""
        if isinstance(found, bool):
            return cls(text, (), (), (), found, source=source, seconds=seconds)
        known = (KNOWN,) * len(found.rows)
        return cls(
            text,
            found.variables,
            found.rows,
            known,
            None,
            found.complete,
            source=source,
            seconds=seconds,
            own_names=True,
        )

    @classmethod
    def of_count(
        cls,
        text: str,
        variable: str,
        known: int | None,
        expected: float | None,
        model: str | None,
        source: str,
        seconds: float,
        why: str = "",
        note: str = "",
    ) -> TermTable:
        """The number of known rows, and that of further rows which a model expects; None for one not asked for."""
        rows: list[tuple[Term, str]] = []
        if known is not None:
            rows.append((Term("literal", str(known), formats.XSD + "integer"), KNOWN))
        if expected is not None:
            rows.append((Term("literal", repr(expected), formats.XSD + "double"), PREDICTED))
        return cls(
            text,
            (variable,),
            tuple((term,) for term, _ in rows),
            tuple(status for _, status in rows),
            model=model,
            source=source,
            seconds=seconds,
            why=why,
            note=note,
        )

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def known_count(self) -> int:
        """Rows that the graph alone gives: all but a number that a model expects."""
        return self.statuses.count(KNOWN)

    @property
    def predicted_count(self) -> int:
        return len(self) - self.known_count

    @property
    def marginals(self) -> Mapping[str, Distribution]:
        """Nothing: the variables have values, and no model has a distribution over those."""
        return {}

    def row(self, number: int) -> TermRow:
        """The row of this number."""
        return TermRow(self, number)

    def __repr__(self) -> str:
        return f"TermTable({self.holds})" if self.holds is not None else f"TermTable({len(self):,} rows)"

    def __str__(self) -> str:
        return self.write("table").rstrip("\n")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, strings and numbers."""
        head = {"query": self.text, "source": self.source, "model": self.model, "seconds": round(self.seconds, 6)}
        if self.holds is not None:
            return {**head, "form": "ASK", "holds": self.holds}
        rows = [{"values": row.values, "status": row.status, "probability": row.probability} for row in self]
        head |= {name: text for name, text in (("why", self.why), ("note", self.note)) if text}
        return {**head, "variables": list(self.variables), "complete": self.complete, "rows": rows}

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame: a column for each variable, then status."""
        rows = [(*row.values.values(), row.status) for row in self]
        return data_frame(rows, [*self.variables, *formats.extra_columns(self.variables)[:1]])

    def write(self, form: str, *, width: int = 80, colour: bool = False, known_rows: int | None = None) -> str:
        """The rows in one of the formats of ``biqe.answer.formats``; ``known_rows`` are the rows to show, at most."""
        if form not in formats.FORMATS:
            raise InvalidOption(f"'format' must be one of {', '.join(formats.FORMATS)}. Got {form!r}")
        if form == "table":
            return self._table(width, formats.TABLE_ROWS if known_rows is None else known_rows)
        shown = self if form == "json" else self._with_status()._with_iris()
        if known_rows is not None and known_rows < len(self):
            shown = replace(shown, terms=shown.terms[:known_rows], statuses=self.statuses[:known_rows], complete=False)
        writers = {
            "json": lambda: shown.to_json() + "\n",
            "sparql-json": shown._sparql_json,
            "csv": shown._csv,
            "tsv": shown._tsv,
            "xml": shown._xml,
        }
        return writers[form]()

    def _with_status(self) -> TermTable:
        """The rows with their status as one more column, unless all are known."""
        if PREDICTED not in self.statuses:
            return self
        column = formats.extra_columns(self.variables)[0]
        rows = zip(self.terms, self.statuses, strict=True)
        terms = tuple((*row, Term("literal", status)) for row, status in rows)
        return replace(self, variables=(*self.variables, column), terms=terms)

    def _with_iris(self) -> TermTable:
        """The rows as the formats of SPARQL have them, which know no names but IRIs."""
        if not self.own_names:
            return self
        every = {term for row in self.terms for term in row if term is not None and term.kind == "uri"}
        iris: dict[Term | None, Term] = {term: Term("uri", iri_of(term.value).value) for term in every}
        return replace(
            self, terms=tuple(tuple(iris.get(term, term) for term in row) for row in self.terms), own_names=False
        )

    def _table(self, width: int, most: int) -> str:
        source = f"{formats.visible(self.source)}: " if self.source else ""
        end = f", {self.seconds:.2f} s"
        if self.holds is not None:
            return f"{source}{'yes, the graph holds it' if self.holds else 'no, the graph does not hold it'}{end}\n"
        if self.model is not None:
            counted = "counted in the graph, and " if self.known_count else ""
            counted += f"expected by {formats.visible(self.model)}"
        else:
            counted = f"{len(self):,}{'' if self.complete else ' or more'} row{'' if len(self) == 1 else 's'}"
        lines = [f"{source}{counted}{end}", *formats.chosen(self.model, self.why), *formats.remarked(self.note)]
        if self.terms:
            lines += ["", *self._lines(width, most)]
        if len(self) > most:
            lines.append(f"… and {len(self) - most:,} more rows")
        return "\n".join(lines) + "\n"

    def _lines(self, width: int, most: int) -> list[str]:
        with_status = PREDICTED in self.statuses
        heads = [f"?{formats.visible(name)}" for name in self.variables] + (["status"] if with_status else [])
        body = [
            [formats.visible(_shown(term)) for term in row] + ([status] if with_status else [])
            for row, status in zip(self.terms[:most], self.statuses, strict=False)
        ]
        sizes = [max(cell_len(row[column]) for row in [heads, *body]) for column in range(len(heads))]
        sizes = formats.shrink(sizes, width - 2 * (len(sizes) - 1))
        return [
            "  ".join(formats.fit(cell, size) for cell, size in zip(row, sizes, strict=True)).rstrip()
            for row in [heads, *body]
        ]

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.variables if self.holds is None else ["boolean"])
        if self.holds is not None:
            writer.writerow([str(self.holds).lower()])
        for row in self.terms:
            writer.writerow(["" if term is None else term.value for term in row])
        return text.getvalue()

    def _tsv(self) -> str:
        if self.holds is not None:
            return f"?boolean\n{str(self.holds).lower()}\n"
        lines = ["\t".join(f"?{name}" for name in self.variables)]
        lines += ["\t".join("" if term is None else _turtle(term) for term in row) for row in self.terms]
        return "\n".join(lines) + "\n"

    def _sparql_json(self) -> str:
        document: dict[str, Any] = {"head": {}, "boolean": self.holds}
        if self.holds is None:
            bindings = [
                {name: json_term(term) for name, term in zip(self.variables, row, strict=True) if term is not None}
                for row in self.terms
            ]
            document = {"head": {"vars": list(self.variables)}, "results": {"bindings": bindings}}
        return formats.escaped_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"

    def _xml(self) -> str:
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<sparql xmlns="{formats.RESULTS}">', "<head>"]
        lines += [f'<variable name="{name}"/>' for name in self.variables]
        if self.holds is not None:
            lines += ["</head>", f"<boolean>{str(self.holds).lower()}</boolean>", "</sparql>"]
            return "\n".join(lines) + "\n"
        lines += ["</head>", "<results>"]
        for row in self.terms:
            bound = [(name, term) for name, term in zip(self.variables, row, strict=True) if term is not None]
            cells = [f'<binding name="{name}">{_xml(term)}</binding>' for name, term in bound]
            lines.append(f"<result>{''.join(cells)}</result>")
        return "\n".join([*lines, "</results>", "</sparql>"]) + "\n"


def value_of(term: Term | None) -> str | int | float | None:
    """A number where the term is one, else its text; None for nothing."""
    if term is None:
        return None
    kind = (term.datatype or "").removeprefix(formats.XSD)
    if term.kind != "literal" or kind not in NUMBERS:
        return term.value
    try:
        return NUMBERS[kind](term.value)
    except ValueError:
        return term.value  # a literal may claim a type that its text does not fit


def _shown(term: Term | None) -> str:
    """Two decimals of a number that has some, or two digits of a very small one."""
    value = value_of(term)
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:.2f}"
    return "" if value is None else str(value)


def _turtle(term: Term) -> str:
    if term.kind != "literal":
        return formats.term(term.value)
    if term.datatype == formats.XSD + "integer" and re.fullmatch(r"[+-]?[0-9]+", term.value):
        return term.value
    escaped = term.value.replace("\\", "\\\\").replace('"', '\\"')
    for character, letter in (("\t", "t"), ("\n", "n"), ("\r", "r")):
        escaped = escaped.replace(character, "\\" + letter)
    escaped = re.sub("[\x00-\x1f\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04X}", escaped)
    plain = term.datatype in (None, formats.XSD + "string")
    return f'"{escaped}"' + (f"@{term.language}" if term.language else "" if plain else f"^^<{term.datatype}>")


def json_term(term: Term) -> dict[str, str]:
    """A term as SPARQL JSON has it."""
    entry = {"type": term.kind, "value": term.value[2:] if term.kind == "bnode" else term.value}
    if term.language:
        entry["xml:lang"] = term.language
    elif term.kind == "literal" and term.datatype and term.datatype != formats.XSD + "string":
        entry["datatype"] = term.datatype
    return entry


def _xml(term: Term) -> str:
    if term.kind != "literal":
        value = term.value[2:] if term.kind == "bnode" else term.value
        return f"<{term.kind}>{formats.xml_text(value)}</{term.kind}>"
    about = ""
    if term.language:
        about = f' xml:lang="{term.language}"'
    elif term.datatype and term.datatype != formats.XSD + "string":
        about = f' datatype="{formats.xml_text(term.datatype)}"'
    return f"<literal{about}>{formats.xml_text(term.value)}</literal>"
