"""What a user gets: rows in the graph's own names, known ones first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biqe.answer import formats
from biqe.answer.combine import KNOWN, PREDICTED, AskConfig, Combined
from biqe.answer.evidence import EvidenceFinder, IdLink
from biqe.answer.marginals import Distribution
from biqe.answer.rank import together
from biqe.answer.rows import Rows, data_frame
from biqe.exact.answers import answers
from biqe.graph.knowledge_graph import Graph
from biqe.query.bind_question import BoundBranch
from biqe.query.bound import BoundQuery
from biqe.query.question import ASK, SELECT

if TYPE_CHECKING:
    import pandas


class Link(NamedTuple):
    """One pattern of the query with the row's entities in it."""

    subject: str
    """Name of an entity; or a variable such as ``?h`` where no entity fits."""
    relation: str
    object: str
    probability: float | None = None
    """1.0 where the graph holds it; the model's where it is missing; None where an end is not known."""

    def __str__(self) -> str:
        return f"{self.subject} {self.relation} {self.object}"


class Row:
    """One answer. ``row.river``, ``row["river"]`` and ``row.values`` give names; ``row.labels`` what to show.

    A variable that is called like an attribute of Row, such as ``?status``, is reached by ``row["status"]``.
    """

    __slots__ = ("_answers", "ids", "number")

    def __init__(self, answers: Answers, number: int, ids: tuple[int, ...]) -> None:
        self._answers = answers
        self.number = number
        """Place among all rows, from 0."""
        self.ids = ids
        """Entity ids, in SELECT order."""

    @property
    def status(self) -> str:
        """``known`` (the graph holds all patterns) or ``predicted``."""
        return KNOWN if self.number < self._answers.known_count else PREDICTED

    @property
    def probability(self) -> float:
        """1.0 for a known row; else the model's joint probability of this tuple."""
        place = self.number - self._answers.known_count
        return 1.0 if place < 0 else float(self._answers.rows.probabilities[place])

    @property
    def values(self) -> dict[str, str]:
        """Names of the entities by variable."""
        return dict(zip(self._answers.variables, map(self._answers.name, self.ids), strict=True))

    @property
    def labels(self) -> dict[str, str]:
        """What to show for the entities, by variable: their labels, or their names where they have none."""
        return dict(zip(self._answers.variables, map(self._answers.label, self.ids), strict=True))

    @property
    def held(self) -> tuple[Link, ...]:
        """The patterns of this row that the graph holds."""
        return self._answers.links(self)[0]

    @property
    def missing(self) -> tuple[Link, ...]:
        """The patterns of this row that the graph does not hold, with their own probability, which is None where nobody
        asked for it (``links=False``); () if known."""
        return () if self.status == KNOWN else self._answers.links(self)[1]

    def __getitem__(self, variable: str) -> str:
        try:
            return self._answers.name(self.ids[self._answers.variables.index(variable.removeprefix("?"))])
        except ValueError:
            raise KeyError(variable) from None

    def __getattr__(self, variable: str) -> str:
        if variable in Row.__slots__ or variable.startswith("__"):
            # Python itself asks for these, on copies that have no fields yet.
            raise AttributeError(variable)
        try:
            return self[variable]
        except KeyError:
            variables = ", ".join(self._answers.variables)
            raise AttributeError(f"this row has no variable {variable!r}; it has {variables}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return (self.values, self.status, self.probability) == (other.values, other.status, other.probability)

    def __hash__(self) -> int:
        return hash(tuple(self.values.items()))

    def __str__(self) -> str:
        return formats.row_line(self)

    def __repr__(self) -> str:
        values = ", ".join(f"{variable}={value!r}" for variable, value in self.values.items())
        return f"Row({values}, status={self.status!r}, probability={self.probability:.4g})"


@dataclass(frozen=True, eq=False)
class Answers(Rows[Row]):
    """The answers to one query: a sequence of rows, known ones first, then predicted ones, likely first."""

    text: str
    """The query as it was asked."""
    query: BoundQuery
    graph: Graph
    """What *known* means: the graph that was searched."""
    rows: Combined
    config: AskConfig
    model: str | None = None
    """Name of the model that predicted; None where none was asked."""
    source: str = ""
    """What was opened: ``atlas``, or a folder."""
    seconds: float = 0.0
    """From the text to the rows, without the time to load the model."""
    branches: tuple[BoundBranch, ...] = ()
    """Sides of the UNION, the first of which has ``query``; empty stands for ``query`` alone."""
    form: str = SELECT
    """SELECT, or ASK: then there is one row without variables, or none."""
    why: str = ""
    """Why this model answered, where there was a choice."""
    told: str = ""
    """What whoever asked has to say about the probabilities, if anything."""

    @property
    def note(self) -> str:
        """What to know about the probabilities, if anything."""
        return together([self.rows.remark, self.told])

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the projected variables, in SELECT order, without question marks."""
        return tuple(self.query.names[node] for node in self.query.targets)

    @property
    def known_count(self) -> int:
        return len(self.rows.known)

    @property
    def predicted_count(self) -> int:
        return len(self.rows.predicted)

    @property
    def known_complete(self) -> bool:
        """Whether all known rows are there; false where LIMIT or the cap on known rows cut some off."""
        return self.rows.known_complete

    def __len__(self) -> int:
        return self.known_count + self.predicted_count

    def row(self, number: int) -> Row:
        """The row of this number: known rows first, then predicted ones."""
        known = self.known_count
        ids = self.rows.known[number] if number < known else self.rows.predicted[number - known]
        return Row(self, number, tuple(ids.tolist()))

    @property
    def holds(self) -> bool:
        """For ASK: whether the graph holds what was asked. For SELECT: whether it holds any row."""
        return self.known_count > 0

    def __repr__(self) -> str:
        return f"Answers({self.known_count:,} known, {self.predicted_count:,} predicted)"

    def __str__(self) -> str:
        return formats.table(self)

    def branch_of(self, row: Row) -> BoundBranch:
        """The side of the UNION that a row comes from."""
        sides = self.rows.branches
        if not self.branches:
            return BoundBranch(self.query, self.query)
        if sides is None:
            return self.branches[0]
        place = row.number - self.known_count
        return self.branches[int(sides[0][row.number] if place < 0 else sides[1][place])]

    def name(self, entity: int, row: Row | None = None) -> str:
        """Name of an entity; ``?h`` for a hidden variable of the row's query that nothing fills (``-1 - node``)."""
        if entity >= 0:
            return self.graph.vocabulary.entities[entity]
        query = self.query if row is None else self.branch_of(row).query
        return f"?{query.names[-1 - entity]}"

    def label(self, entity: int, row: Row | None = None) -> str:
        """What to show for an entity: its label, or its name where it has none."""
        return self.graph.vocabulary.label(entity) if entity >= 0 else self.name(entity, row)

    def id_links(self, row: Row) -> tuple[tuple[IdLink, ...], tuple[IdLink, ...]]:
        """The patterns of the row that the graph holds, and those that are missing, in ids."""
        place = row.number - self.known_count
        if place >= 0 and self.rows.evidence:
            evidence = self.rows.evidence[place]
        else:
            evidence = self._finder(self.branch_of(row).wide).evidence(self._wide(row))
        return evidence.held, evidence.missing

    def hidden_of(self, row: Row) -> dict[int, int]:
        """Entities of the hidden variables that conditions name, by node of the row's query: what makes it pass."""
        if self.form == ASK:
            return {}
        wide, width = self.branch_of(row).wide, len(row.ids)
        return dict(zip(wide.targets[width:], self._wide(row)[width:], strict=True))

    def _wide(self, row: Row) -> tuple[int, ...]:
        """Entities of the targets of the wide query of the row's side."""
        place = row.number - self.known_count
        table = self.rows.known_wide if place < 0 else self.rows.predicted_wide
        if table is None:
            return row.ids
        found = table[row.number if place < 0 else place].tolist()
        return tuple(found[: len(self.branch_of(row).wide.targets)])

    def links(self, row: Row) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
        """The patterns of the row that the graph holds, and those that are missing, in names."""
        held, missing = self.id_links(row)
        relations = self.graph.vocabulary.relations
        probabilities = self.rows.link_probabilities

        def link(ids: IdLink, probability: float | None) -> Link:
            return Link(self.name(ids.subject, row), relations[ids.relation], self.name(ids.object, row), probability)

        return tuple(link(ids, 1.0) for ids in held), tuple(link(ids, probabilities.get(ids)) for ids in missing)

    @cached_property
    def label_widths(self) -> list[int]:
        """Columns that each variable needs when rows are printed."""
        return formats.label_widths(self)

    def with_known(self, count: int | None) -> Answers:
        """The same answers with at most ``count`` known rows."""
        if count is None or count >= self.known_count:
            return self
        rows = self.rows
        cut = replace(
            rows,
            known=rows.known[:count],
            known_complete=False,
            known_wide=None if rows.known_wide is None else rows.known_wide[:count],
            branches=None if rows.branches is None else (rows.branches[0][:count], rows.branches[1]),
        )
        return replace(self, rows=cut)

    def _finder(self, query: BoundQuery) -> EvidenceFinder:
        return self._finders.setdefault(query, EvidenceFinder(self.graph, query))

    @cached_property
    def _finders(self) -> dict[BoundQuery, EvidenceFinder]:
        return {}

    @cached_property
    def marginals(self) -> Mapping[str, Distribution]:
        """For each variable, the model's own distribution over all entities, whatever the other variables are:
        ``answers.marginals["city"]["Bonn"]`` is a share of 1. Empty where no model was asked."""
        tables = self.rows.marginals
        return {
            variable: Distribution(
                self.graph.vocabulary,
                None if tables is None else tables[column],
                lambda column=column: self._known_values[column],  # type: ignore[misc]
            )
            for column, variable in enumerate(self.variables)
        }

    @cached_property
    def _known_values(self) -> list[NDArray[np.int32]]:
        """For each variable, the entities that some known match of some side gives it."""
        sides = [answers(self.graph, branch.query) for branch in self.branches] or [answers(self.graph, self.query)]
        return [np.unique(np.concatenate(values)) for values in zip(*sides, strict=True)]

    def write(self, form: str, *, width: int = 80, colour: bool = False, known_rows: int | None = None) -> str:
        """The answers in one of the formats of ``biqe.answer.formats``; ``width`` and ``colour`` are for a table.

        ``known_rows`` are the known rows to show, at most; a table says how many more there are.
        """
        if form == "table":
            rows = formats.TABLE_ROWS if known_rows is None else known_rows
            return formats.table(self, width=width, colour=colour, known_rows=rows) + "\n"
        return formats.write(self.with_known(known_rows), form)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, strings and numbers; see docs/concepts/known-and-predicted.md."""
        names = {entity for row in (self.rows.known, self.rows.predicted) for entity in np.unique(row).tolist()}
        labels = {self.name(entity): self.label(entity) for entity in sorted(names)}
        return {
            "query": self.text,
            "source": self.source,
            "model": self.model,
            "graph": self.graph.fingerprint,
            "mode": self.config.mode,
            **({"form": self.form, "holds": self.holds} if self.form == ASK else {}),
            **({"why": self.why} if self.why else {}),
            **({"note": self.note} if self.note else {}),
            "variables": list(self.variables),
            "known": self.known_count,
            "known_complete": self.known_complete,
            "predicted": self.predicted_count,
            "seconds": round(self.seconds, 6),
            "rows": [_row_dict(row) for row in self],
            "labels": {name: label for name, label in labels.items() if name != label},
            "marginals": {
                variable: [entry._asdict() for entry in entries.best()] for variable, entries in self.marginals.items()
            },
        }

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame: a column for each variable, then status, probability and missing (a tuple of links)."""
        rows = [(*row.values.values(), row.status, row.probability, row.missing) for row in self]
        return data_frame(rows, [*self.variables, *formats.extra_columns(self.variables)])


def _row_dict(row: Row) -> dict[str, Any]:
    entry: dict[str, Any] = {"values": row.values, "status": row.status, "probability": row.probability}
    if row.status == PREDICTED:
        entry["held"] = [_link_dict(link) for link in row.held]
        entry["missing"] = [_link_dict(link) for link in row.missing]
    return entry


def _link_dict(link: Link) -> dict[str, Any]:
    return link._asdict()
