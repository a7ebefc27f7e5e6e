"""What a user gets: rows in the graph's own names, known ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from biqe.answer.result import (
    KNOWN,
    PREDICTED,
    TABLE_ROWS,
    AnswerRow,
    AnswerRows,
    Cell,
    ResultTable,
    ShownNames,
    TextRow,
    TextTable,
    View,
    data_frame,
    entity_term,
    extra_columns,
    head_lines,
    patterns,
    short,
)
from biqe.errors import InvalidOption
from biqe.exact.answers import answers
from biqe.graph.knowledge_graph import Graph
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.words import fit, probability, visible
from biqe.predict.config import AskConfig
from biqe.predict.evidence import Evidence, EvidenceSearch, IdLink
from biqe.predict.rows import Rows, join_notes
from biqe.query.bind import BoundBranch
from biqe.query.bound import BoundQuery
from biqe.query.question import ASK, SELECT

if TYPE_CHECKING:
    import pandas

    from biqe.explain import Explanation

LISTED = 20
"""Entities that are listed for each variable alone, unless more are asked for."""


class Link(NamedTuple):
    """One pattern of the query with the row's entities in it.

    >>> link = Link("Bonn", "located_on", "Rhine", 0.22)
    >>> print(link)
    Bonn located_on Rhine
    >>> subject, relation, object_, probability = link
    """

    subject: str
    """Name of an entity; or a variable such as ``?h`` where no entity fits."""
    relation: str
    object: str
    probability: float | None = None
    """1.0 where the graph holds it; the model's where it is missing; None where an end is not known."""

    def __str__(self) -> str:
        return f"{self.subject} {self.relation} {self.object}"


class Row(AnswerRow[str]):
    """One answer. ``row.river``, ``row["river"]`` and ``row.values`` give names; ``row.labels`` what to show.

    A variable that is called like an attribute of Row, such as ``?status``, is reached by ``row["status"]``.

    >>> import biqe
    >>> row = biqe.open("atlas").ask("SELECT ?country { :Danube :flows_through ?country }").predicted[0]
    >>> row.country, row["country"], row.status, 0 < row.probability < 1
    ('Slovakia', 'Slovakia', 'predicted', True)
    >>> print(row.missing[0])
    Danube flows_through Slovakia
    >>> row.why
    'Bratislava located on Danube, and Bratislava located in Slovakia: then “flows through” holds in ...'
    """

    __slots__ = ("_answers", "ids", "number")

    def __init__(self, answers: Answers, number: int, ids: tuple[int, ...]) -> None:
        self._answers = answers
        self.number = number
        """Place among all rows, from 0."""
        self.ids = ids
        """Entity ids, in SELECT order."""

    @property
    def answers(self) -> Answers:
        """The answers that the row belongs to."""
        return self._answers

    @property
    def status(self) -> str:
        """``known`` (the graph holds all patterns) or ``predicted``."""
        return KNOWN if self.number < self._answers.known_count else PREDICTED

    @property
    def probability(self) -> float:
        """1.0 for a known row; else the model's joint probability of this row."""
        return float(self._answers.rows.probabilities[self.number])

    @property
    def values(self) -> dict[str, str]:
        """Names of the entities by variable."""
        return dict(zip(self._answers.variables, map(self._answers.name, self.ids), strict=True))

    @property
    def labels(self) -> dict[str, str]:
        """What to show for the entities, by variable: their labels, or their names where they have none."""
        return dict(zip(self._answers.variables, map(self._answers.label, self.ids), strict=True))

    def _texts(self) -> list[str]:
        """The cells of the row in a table: labels, or names as short as prefixes make them."""
        return [self._answers.names.prefixed(label) for label in self.labels.values()]

    def _facts(self) -> list[list[str]]:
        return [["holds", str(link)] for link in self.held] if self.status == KNOWN else super()._facts()

    @property
    def evidence(self) -> Evidence:
        """The assignment of all variables that the row rests on, in ids."""
        return self._answers.evidence_of(self)

    @property
    def held(self) -> tuple[Link, ...]:
        """The patterns of this row that the graph holds."""
        return tuple(self._answers.link(link, self, 1.0) for link in self.evidence.held)

    @property
    def missing(self) -> tuple[Link, ...]:
        """The patterns of this row that the graph does not hold, with their own probability, which is None where nobody
        asked for it (``links=False``); () if known."""
        if self.status == KNOWN:
            return ()
        chances = self._answers.rows.link_probabilities
        return tuple(self._answers.link(link, self, chances.get(link)) for link in self.evidence.missing)

    @property
    def against(self) -> tuple[Link, ...]:
        """Links that would rule the row out by a NOT EXISTS or MINUS, each with the probability of its part; () for a
        known row and where nothing does."""
        said = self._answers.rows.against
        parts = said[self.number] if said else ()
        return tuple(self._answers.link(link, self, part.probability) for part in parts for link in part.links)

    @property
    def why(self) -> str:
        """Why it is an answer, in one sentence; ``kb.explain(row)`` tells more."""
        explain = self._answers.explain
        if explain is None:
            raise InvalidOption("these answers are of no knowledge base, so nothing can explain their rows")
        return explain(self).sentence

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return (self.values, self.status, self.probability) == (other.values, other.status, other.probability)

    def __hash__(self) -> int:
        return hash(tuple(self.values.items()))

    def __str__(self) -> str:
        """One line, its columns aligned with those of the other rows: ``Rhine  Bonn  predicted  0.83``."""
        widths = self._answers.label_widths
        cells = [fit(visible(text), width) for text, width in zip(self._texts(), widths, strict=True)]
        end = [KNOWN] if self.status == KNOWN else [self.status, probability(self.probability, 2)]
        return "  ".join([*cells, *end])

    def __repr__(self) -> str:
        fields = [*self.values.items(), ("status", self.status)]
        values = ", ".join(f"{name}={value!r}" for name, value in fields)
        return f"Row({values}, probability={self.probability:.4g})"


@dataclass(frozen=True, eq=False)
class Answers(AnswerRows[Row]):
    """The answers to one query: a sequence of rows, known ones first, then predicted ones, likely first.

    >>> import biqe
    >>> answers = biqe.open("atlas").ask("SELECT ?country { :Danube :flows_through ?country }", top=3)
    >>> len(answers.known), len(answers.predicted), answers[0].status
    (7, 3, 'known')
    >>> [row.country for row in answers.predicted]
    ['Slovakia', 'Serbia', 'Hungary']
    >>> list(answers.to_pandas().columns)
    ['country', 'status', 'probability', 'missing']
    """

    text: str
    """The query as it was asked."""
    query: BoundQuery
    graph: Graph
    """What *known* means: the graph that was searched."""
    rows: Rows
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
    remark: str = ""
    """What to know about the probabilities, beside what the rows themselves say."""
    explain: Callable[[Row], Explanation] | None = None
    """Explains a row; None where nobody can."""
    prefixes: Mapping[str, str] = field(default_factory=dict)
    """By which names without a label are shortened."""

    @property
    def note(self) -> str:
        """What to know about the probabilities, if anything."""
        return join_notes([self.rows.note, self.remark])

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the projected variables, in SELECT order, without question marks."""
        return tuple(self.query.names[node] for node in self.query.targets)

    @property
    def known_count(self) -> int:
        return self.rows.known_count

    @property
    def known_complete(self) -> bool:
        """Whether all known rows are there; false where LIMIT or the cap on known rows cut some off."""
        return self.rows.known_complete

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, number: int) -> Row:
        """The row of this number: known rows first, then predicted ones."""
        return Row(self, number, tuple(self.rows.entities[number, : len(self.query.targets)].tolist()))

    @property
    def holds(self) -> bool:
        """For ASK: whether the graph holds what was asked. For SELECT: whether it holds any row."""
        return self.known_count > 0

    def __repr__(self) -> str:
        return f"Answers({self.known_count:,} known, {self.predicted_count:,} predicted)"

    # Names

    def name(self, entity: int, row: Row | None = None) -> str:
        """Name of an entity; ``?h`` for a hidden variable of the row's query that nothing fills (``-1 - node``)."""
        if entity >= 0:
            return self.graph.vocabulary.entities[entity]
        query = self.query if row is None else self.branch_of(row).query
        return f"?{query.names[-1 - entity]}"

    def label(self, entity: int, row: Row | None = None) -> str:
        """What to show for an entity: its label, or its name where it has none."""
        return self.graph.vocabulary.label(entity) if entity >= 0 else self.name(entity, row)

    @cached_property
    def names(self) -> ShownNames:
        """What to show for the names of entities and relations."""
        return ShownNames(self.graph.vocabulary, self.prefixes)

    def link(self, ids: IdLink, row: Row, chance: float | None) -> Link:
        """A link of a row in names."""
        relation = self.graph.vocabulary.relations[ids.relation]
        return Link(self.name(ids.subject, row), relation, self.name(ids.object, row), chance)

    @cached_property
    def label_widths(self) -> list[int]:
        """Columns that each variable needs when rows are printed, judged by the first rows."""
        widths = [1] * len(self.variables)
        for row in self[:1000]:
            widths = list(map(max, widths, (cell_len(visible(text)) for text in row._texts())))
        return [min(width, 40) for width in widths]

    # What rows rest on

    def branch_of(self, row: Row) -> BoundBranch:
        """The side of the UNION that a row comes from."""
        if not self.branches:
            return BoundBranch(self.query, self.query)
        sides = self.rows.sides
        return self.branches[0 if sides is None else int(sides[row.number])]

    def assigned(self, row: Row) -> dict[int, int]:
        """Entities of the variables that are selected or that conditions name, by node of the row's query."""
        wide = self.branch_of(row).wide
        return dict(zip(wide.targets, self.rows.entities[row.number].tolist(), strict=False))

    def evidence_of(self, row: Row) -> Evidence:
        """The assignment that a row rests on; found now where no model was asked about links."""
        found = self.rows.evidence[row.number] if self.rows.evidence else None
        if found is None:
            wide = self.branch_of(row).wide
            search = self._searches.setdefault(wide, EvidenceSearch(self.graph, wide))
            assigned = self.assigned(row)
            (found,), _ = search.find([[assigned[node] for node in wide.targets]])
        return found

    @cached_property
    def _searches(self) -> dict[BoundQuery, EvidenceSearch]:
        return {}

    @cached_property
    def marginals(self) -> Mapping[str, Distribution]:
        """For each variable, the model's own distribution over all entities, whatever the other variables are:
        ``answers.marginals["city"]["Bonn"]`` is a share of 1. Empty where no model was asked."""
        tables = None if self.rows.marginals is None else self.rows.marginals()
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

    # For writers

    def with_known(self, count: int | None) -> Answers:
        """The same answers with at most ``count`` known rows."""
        if count is None or count >= self.known_count:
            return self
        places = np.delete(np.arange(len(self)), np.s_[count : self.known_count])
        return replace(self, rows=replace(self.rows.take(places), known_complete=False))

    def as_table(self) -> ResultTable:
        """Rows of terms: a column for each variable, then status, probability and missing links."""
        rows: list[tuple[Cell, ...]] = [
            (*map(entity_term, row.values.values()), row.status, row.probability, patterns(row.missing)) for row in self
        ]
        columns = (*self.variables, *extra_columns(self.variables))
        if self.form != ASK:
            return ResultTable(columns, rows, spread=True)
        chance = max((row.probability for row in self), default=0.0)
        return ResultTable(columns, rows, self.holds, chance)

    def as_text(self, view: View) -> TextTable:
        """Rows of labels with their missing links; a verdict for ASK."""
        said = self._verdict() if self.form == ASK else self._counts()
        head = head_lines(self.source, said, self.seconds, self.model, self.why, self.note)
        if self.form == ASK:
            return TextTable(head, facts=list(self._facts()))
        most = TABLE_ROWS if view.known_rows is None else view.known_rows
        shown = min(most, self.known_count)
        rows = [
            TextRow(
                row._texts(),
                row.status,
                "" if row.status == KNOWN else probability(row.probability),
                [] if row.status == KNOWN else [*self._missing_words(row), *self._against_words(row)],
            )
            for row in [*self[:shown], *self[self.known_count :]]
        ]
        cut = self.known_count - shown
        left_out = f"… and {cut:,} more known row{'s' if cut > 1 else ''}" if cut else ""
        return TextTable(head, [f"?{name}" for name in self.variables], rows, left_out, shown)

    def _missing_words(self, row: Row) -> Iterator[list[str]]:
        return (self._words(row, link) for link in row.evidence.missing)

    def _against_words(self, row: Row) -> Iterator[list[str]]:
        for part in self.rows.against[row.number] if self.rows.against else ():
            for link in part.links:
                yield ["against:", probability(part.probability, 2), *self._words(row, link)[-3:]]

    def _counts(self) -> str:
        model = None if self.model is None else visible(self.model)
        least = self.config.min_probability
        if len(self) == 0:
            with_least = f" with probability {least:g} or more" if least else ""
            return "no answers" + (f"{with_least} (model {model})" if model is not None else "")
        counts = []
        if self.config.mode != "predicted":
            counts.append(f"{self.known_count:,}{'' if self.known_complete else ' or more'} known")
        if model is not None:
            counts.append(f"{self.predicted_count:,} predicted by {model}")
        elif self.config.mode == "both":
            counts.append("no model to predict more")
        return ", ".join(counts)

    def _verdict(self) -> str:
        """ASK in words: whether the graph holds it, and how probable it is if not."""
        model = visible(str(self.model))
        if self.holds:
            return "yes, the graph holds it"
        if self.predicted_count:
            return f"not in the graph; probability {probability(self[0].probability)} by {model}"
        if self.model is None:
            return "no, the graph does not hold it"
        least = self.config.min_probability
        reason = f"gives it less than {probability(least)}" if least else "finds no way in which it could hold"
        return f"not in the graph; {model} {reason}"

    def _facts(self) -> Iterator[tuple[str, list[str]]]:
        for row in self:
            yield from (("holds  ", self._words(row, link)) for link in row.evidence.held)
            yield from (("missing", self._words(row, link)) for link in row.evidence.missing)

    def _words(self, row: Row, link: IdLink) -> list[str]:
        """Probability where there is one, subject, relation and object, as a table shows them."""
        relation = self.graph.vocabulary.relations[link.relation]
        # Freebase writes a relation as a path; its last part is the one that says something.
        relation = short(relation) if not relation.startswith("/") else relation.rstrip("/").split("/")[-1] or relation
        chance = self.rows.link_probabilities.get(link)
        subject, object_ = (short(self.label(end, row)) for end in (link.subject, link.object))
        return [*([probability(chance, 2)] if chance is not None else []), subject, relation, object_]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, strings and numbers; see docs/concepts/known-and-predicted.md."""
        shown = np.unique(self.rows.entities[:, : len(self.query.targets)]).tolist()
        labels = {self.name(entity): self.label(entity) for entity in shown}
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
        return data_frame(rows, [*self.variables, *extra_columns(self.variables)])


def _row_dict(row: Row) -> dict[str, Any]:
    entry: dict[str, Any] = {"values": row.values, "status": row.status, "probability": row.probability}
    if row.status == PREDICTED:
        entry["held"] = [link._asdict() for link in row.held]
        entry["missing"] = [link._asdict() for link in row.missing]
        if row.against:
            entry["against"] = [link._asdict() for link in row.against]
    return entry


# One variable alone


class Marginal(NamedTuple):
    """One entity as the value of one variable, whatever the others are."""

    name: str
    probability: float
    status: str
    """``known`` where a known row has it; else ``predicted``."""


class Distribution(Mapping[str, float]):
    """Probability of each entity as the value of one variable, by name, the most probable first.

    These are the model's shares: over all entities they add up to 1, but for those that a condition excludes. Empty
    where no model was asked.
    """

    def __init__(
        self, vocabulary: Vocabulary, scores: NDArray[np.float32] | None, known: Callable[[], NDArray[np.int32]]
    ) -> None:
        self._vocabulary = vocabulary
        self._scores = np.zeros(0, np.float32) if scores is None else scores
        self._known = known

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(-self._scores, kind="stable")

    def __getitem__(self, name: str) -> float:
        entity = self._vocabulary.entities.find(name)
        if entity is None or entity >= len(self._scores):
            raise KeyError(name)
        return float(np.exp(self._scores[entity]))

    def __iter__(self) -> Iterator[str]:
        return (self._vocabulary.entities[int(entity)] for entity in self._order)

    def __len__(self) -> int:
        return len(self._scores)

    def __repr__(self) -> str:
        shown = ", ".join(f"{entry.name!r}: {entry.probability:.3g}" for entry in self.best(5))
        return f"{{{shown}{', ...' if len(self) > 5 else ''}}}"

    def best(self, count: int = LISTED) -> list[Marginal]:
        """The ``count`` most probable entities, each with whether a known row has it."""
        if len(self) == 0:
            return []
        chosen = self._order[:count]
        statuses = np.where(np.isin(chosen, self._known()), KNOWN, PREDICTED).tolist()
        return [
            Marginal(self._vocabulary.entities[entity], float(np.exp(self._scores[entity])), status)
            for entity, status in zip(chosen.tolist(), statuses, strict=True)
        ]
