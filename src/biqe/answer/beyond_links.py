"""Questions of which links are only a part: with literals, with conditions on them, with variables for relations.

Known rows are the exact store's, whatever the text asks. Predicted rows come from the part that is links: it is asked
as a question of its own, once for each relation that a variable may stand for, among the entities that the rest allows.
Its rows are then joined with the rest, which has to hold in the graph as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from biqe.answer.answers import Row
from biqe.answer.execute import UNLIKELY, least_listed
from biqe.answer.result import KNOWN, PREDICTED, ShownNames, entity_term
from biqe.answer.terms import TermRow, TermTable
from biqe.errors import InvalidOption, UnsupportedQuery
from biqe.exact.store import Cut, Solutions, Term, iri_of, is_blank
from biqe.graph.knowledge_graph import Graph
from biqe.predict.config import AskConfig
from biqe.predict.rows import join_notes
from biqe.query.patterns import listed
from biqe.query.question import (
    ASK,
    COUNT,
    PROBABILITY,
    SELECT,
    Among,
    Branch,
    Divided,
    Entity,
    Optional,
    Pattern,
    Question,
    Variable,
    variables,
)
from biqe.query.question import Term as PatternTerm

if TYPE_CHECKING:
    from biqe.answer.answers import Answers
    from biqe.links.probability import LinkProbability

LIKELY = 0.5
"""How probable the links of an OPTIONAL must be, so that it is filled in."""
FILLED, FILLS = 100, 5
"""Rows for which a model is asked what an OPTIONAL may be, and answers that are taken of each."""
LISTED = 500
"""Predicted rows of links that the rest is checked for, where it restricts several of their entities together."""
COUNTED = 1_000
"""Predicted rows whose probabilities are added up for COUNT."""
RELATIONS = 300
"""Relations that are tried for a variable: those with most links."""

AskStore = Callable[..., Solutions | bool]
AskModel = Callable[[Question, AskConfig], "Answers | TermTable"]


@dataclass
class _Found:
    """Predicted rows, each a value for every variable, with what they rest on."""

    values: list[dict[str, str]] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    rows: list[Row | TermRow] = field(default_factory=list)
    """The answers to the part that is links."""
    notes: list[str] = field(default_factory=list)
    model: str | None = None
    why: str = ""


@dataclass(frozen=True)
class _Joined:
    """One predicted row of the whole question."""

    terms: tuple[Term | None, ...]
    chance: float
    rests_on: tuple[Row | TermRow, ...] = ()
    """The predicted rows of links that it is made of."""
    filled: tuple[int, ...] = ()
    """Columns of OPTIONAL whose values are predicted."""
    is_known: bool = False
    """Whether all but what was filled in is stored."""

    def filled_with(self, columns: Sequence[int], fill: _Joined) -> _Joined:
        """This row with the values of another in some columns."""
        terms = tuple(fill.terms[place] if place in columns else term for place, term in enumerate(self.terms))
        return replace(
            self,
            terms=terms,
            chance=self.chance * fill.chance,
            rests_on=self.rests_on + fill.rests_on,
            filled=(*self.filled, *columns),
        )


@dataclass(frozen=True)
class BeyondLinks:
    """A question whose parts are links and more."""

    text: str
    question: Question
    parts: Sequence[Divided]
    """Its conjunctions."""
    graph: Graph
    store: AskStore
    """Asks the exact store a text."""
    model: AskModel
    """Asks a question of links for predicted rows."""
    config: AskConfig
    judge: LinkProbability | None = None
    """Knows which relations fit the kind of an entity."""
    names: ShownNames | None = None
    """What to show for the names of entities and relations."""

    def answer(self, **about: Any) -> TermTable:
        """Known rows, then predicted ones; ``about`` are further fields of the table."""
        if self.config.coverage is not None:
            raise InvalidOption(
                "--coverage is for rows of entities, and this question asks for more", hint="leave --coverage out"
            )
        known = self._known()
        if known is True:  # what the graph holds is true in every mode
            return TermTable(self.text, (), (), (), True, names=self.names, **about)
        found = [self._predicted(part) for part in self.parts]
        rows: list[_Joined] = []
        for part, each in zip(self.parts, found, strict=True):
            own = list(self._joined(part, each))
            rows += self._filled(part, each, own, known) if isinstance(known, Solutions) else own
        about |= {
            "names": self.names,
            "model": next((each.model for each in found if each.model), None),
            "note": join_notes([note for each in found for note in each.notes]),
        }
        if isinstance(known, bool):
            best = max(rows, key=lambda row: row.chance, default=None)
            chances, rows_on = ((), ()) if best is None else ((best.chance,), (best.rests_on,))
            return TermTable(self.text, (), (), (), False, chances=chances, rests_on=rows_on, **about)
        if self.question.form == COUNT:
            return self._counted(known, rows, about)
        return self._listed(known, rows, about)

    # Known

    def _known(self) -> Solutions | bool:
        """What the graph holds, in the order that the question asks for; LIMIT and OFFSET count predicted rows, too."""
        order = tuple(key for key in self.question.order if key.variable != PROBABILITY)
        text = str(replace(self.question, order=order, limit=None, offset=0))
        # Rows of a prediction are distinct, and so are those that they stand beside.
        return self.store(text.replace("SELECT ", "SELECT DISTINCT ", 1) if self.question.form == SELECT else text)

    # Predicted

    def _predicted(self, part: Divided) -> _Found:
        """Rows of the links of one conjunction."""
        found = _Found()
        names = {variable.name for variable in part.entities}
        wanted = set(self.question.targets)
        for each in (*part.rest, *part.checks):
            wanted |= set(Branch((each,)).variables if isinstance(each, Pattern) else variables(each))
        wanted |= {variable for each in part.optional for variable in Branch(each.patterns).variables}
        targets = tuple(variable for variable in part.entities if variable in wanted or self.question.form == COUNT)
        filters = list(part.links.filters)
        for variable in part.entities:
            allowed = self._allowed(part, variable)
            if allowed is not None:
                filters.append(Among(variable, allowed))
                if not allowed:
                    return found
        top = COUNTED if self.question.form == COUNT else self.config.top + self.question.offset
        several = sum(variable.name in names for variable in Branch(part.rest).variables) > 1
        top = max(top, LISTED) if several or part.checks else top
        config = replace(self.config, mode="predicted", top=top)
        if not part.links.patterns:
            found.notes.append("from the graph alone: models predict links between entities, and no pattern is one")
            return found
        for relations in self._relations(part, found):
            patterns = tuple(
                replace(each, relation=relations[each.relation]) if isinstance(each.relation, Variable) else each
                for each in part.links.patterns
            )
            form = SELECT if targets else ASK
            question = Question(form, targets, (Branch(patterns, tuple(filters)),))
            try:
                answers = self.model(question, config)
            except UnsupportedQuery as refusal:
                found.notes.append(f"from the graph alone: {refusal.message}")
                continue
            found.model, found.why = answers.model, answers.why
            found.notes.append(answers.note)
            for row in answers:
                if row.status == PREDICTED and row.probability is not None:
                    fixed = {variable.name: name for variable, name in relations.items()}
                    found.values.append({**fixed, **{name: str(value) for name, value in row.values.items()}})
                    found.chances.append(row.probability)
                    found.rows.append(row)
        return found

    def _allowed(self, part: Divided, variable: Variable) -> frozenset[int] | None:
        """The entities that the rest allows a variable; None where it does not say."""
        text = part.restricting(variable)
        if text is None:
            return None
        found = self.store(f"SELECT DISTINCT {variable} {{ {text} }}", max_rows=2 * self.graph.entity_count + 1)
        assert isinstance(found, Solutions)
        ids = (self.graph.vocabulary.entities.find(row[0].value) for row in found.rows if row[0] is not None)
        return frozenset(id_ for id_ in ids if id_ is not None)

    def _relations(self, part: Divided, found: _Found) -> Iterator[dict[Variable, str]]:
        """What the variables for relations may stand for."""
        if not part.relations:
            yield {}
            return
        if len(part.relations) > 1 or set(part.relations) & set(part.entities):
            found.notes.append("from the graph alone: one variable for a relation is predicted, and no more")
            return
        (variable,) = part.relations
        sizes = np.bincount(self.graph.triples[:, 1], minlength=self.graph.relation_count)
        order = np.argsort(-sizes, kind="stable").tolist()
        checks = [check for check in part.checks if set(variables(check)) == {variable}]
        if checks:
            rows = [({variable.name: self.graph.vocabulary.relations[id_]}) for id_ in order]
            only = replace(part, links=Branch(), rest=(), checks=tuple(checks))
            left = {number for _, number in self._ask_rest(only, (variable,), rows)}
            order = [id_ for number, id_ in enumerate(order) if number in left]
        if len(order) > RELATIONS:
            found.notes.append(f"{variable} is one of the {RELATIONS} relations with most links, of {len(order):,}")
        ends = [
            (entity, inverse)
            for pattern in part.links.patterns
            if pattern.relation == variable
            for end, inverse in ((pattern.subject, 0), (pattern.object, self.graph.relation_count))
            if isinstance(end, Entity) and (entity := self.graph.vocabulary.entities.find(end.name)) is not None
        ]
        for id_ in order[:RELATIONS]:
            if self.judge is not None and not all(self.judge.is_of_kind(end, id_ + inverse) for end, inverse in ends):
                continue
            yield {variable: self.graph.vocabulary.relations[id_]}

    # Together

    def _joined(self, part: Divided, found: _Found) -> Iterator[_Joined]:
        """The predicted rows of one conjunction with all that the rest adds to them."""
        selected = self._selected(part)
        if not (part.rest or part.checks or part.optional):
            for number, values in enumerate(found.values):
                entities = tuple(entity_term(values[variable.name]) for variable in selected)
                yield _Joined(entities, found.chances[number], (found.rows[number],))
            return
        # A blank node has no name that a query could say.
        named = [number for number, values in enumerate(found.values) if not any(map(is_blank, values.values()))]
        for terms, place in self._ask_rest(part, selected, [found.values[number] for number in named]):
            yield _Joined(terms, found.chances[named[place]], (found.rows[named[place]],))

    # OPTIONAL

    def _filled(self, part: Divided, found: _Found, rows: list[_Joined], known: Solutions) -> list[_Joined]:
        """The predicted rows of one conjunction, with what is likely where the graph has nothing for an OPTIONAL; and
        beside them known rows that can be filled so, which are predicted then."""
        rows = sorted(rows, key=lambda row: -row.chance)
        current = [*rows, *(_Joined(terms, 1.0, is_known=True) for terms in known.rows)]
        for optional in part.predictable:
            current = self._filled_by(optional, current, found)
        return [row for row in current if row.filled or not row.is_known]

    def _filled_by(self, optional: Optional, rows: list[_Joined], found: _Found) -> list[_Joined]:
        targets = self.question.targets
        left = [place for place, variable in enumerate(targets) if variable in optional.own]
        shared = [variable for variable in Branch(optional.patterns).variables if variable not in optional.own]
        if not left:
            return rows
        if not set(shared) <= set(targets):
            found.notes.append(f"OPTIONAL is filled from the graph alone, unless {listed(shared)} is selected")
            return rows
        likely: dict[tuple[str, ...], list[_Joined]] = {}
        after: list[_Joined] = []
        for row in rows:
            ends = tuple(term.value for variable in shared if (term := row.terms[targets.index(variable)]) is not None)
            is_open = all(row.terms[place] is None for place in left) and not any(map(is_blank, ends))
            if is_open and ends not in likely and len(likely) < FILLED:
                likely[ends] = self._likely(optional, dict(zip(shared, ends, strict=True)), found)
            after += [row.filled_with(left, fill) for fill in likely.get(ends, ())] if is_open else []
            after += [row] if not (is_open and likely.get(ends)) else []
        if len(likely) == FILLED:
            found.notes.append(
                f"OPTIONAL was filled by predictions in the first {FILLED} rows that lack it, in no other"
            )
        return after

    def _likely(self, optional: Optional, given: Mapping[Variable, str], found: _Found) -> list[_Joined]:
        """What an optional part is likely to be beside these entities."""

        def end(term: PatternTerm) -> PatternTerm:
            return Entity(given[term]) if isinstance(term, Variable) and term in given else term

        patterns = tuple(
            replace(each, subject=end(each.subject), object=end(each.object)) for each in optional.patterns
        )
        targets = tuple(variable for variable in self.question.targets if variable in optional.own)
        config = replace(self.config, mode="predicted", top=FILLS, min_probability=LIKELY)
        try:
            answers = self.model(Question(SELECT, targets, (Branch(patterns),)), config)
        except UnsupportedQuery as refusal:
            found.notes.append(f"OPTIONAL is filled from the graph alone: {refusal.message}")
            return []
        found.model = found.model or answers.model
        columns = self.question.targets
        return [
            _Joined(
                tuple(entity_term(row[variable.name]) if variable in targets else None for variable in columns),
                row.probability,
                (row,),
            )
            for row in answers
            if isinstance(row, Row)
        ]

    def _selected(self, part: Divided) -> tuple[Variable, ...]:
        if self.question.form == ASK:
            return ()
        everything = (*part.entities, *part.relations, *Branch(part.rest).variables)
        return self.question.targets or tuple(dict.fromkeys(everything))

    def _ask_rest(
        self, part: Divided, selected: Sequence[Variable], rows: Sequence[Mapping[str, str]]
    ) -> list[tuple[tuple[Term | None, ...], int]]:
        """Rows of ``selected`` for which the rest holds, each with the number of its row of links."""
        if not rows:
            return []
        taken = {variable.name for branch in self.question.branches for variable in branch.variables}
        number = next(name for name in map("row{}".format, itertools.count()) if name not in taken)
        columns = list(rows[0])
        lines = (
            f"({' '.join(f'<{iri_of(row[name]).value}>' for name in columns)} {place})"
            for place, row in enumerate(rows)
        )
        values = f"VALUES ({' '.join(f'?{name}' for name in columns)} ?{number}) {{ {' '.join(lines)} }}"
        head = f"SELECT DISTINCT {' '.join(map(str, selected))} ?{number} {{ "
        # The rows are cut in, so that a text may have no more words than people write, and yet this many rows.
        text = f"{head}. {part.text} }}"
        found = self.store(text, cuts=[Cut(len(head), len(head) + 1, values)])
        assert isinstance(found, Solutions)
        return [(row[:-1], int(row[-1].value)) for row in found.rows if row[-1] is not None]

    def _listed(self, known: Solutions, rows: list[_Joined], about: dict[str, Any]) -> TermTable:
        is_shown = self.config.mode != "predicted"
        there = set(known.rows)
        least = self.config.min_probability
        if any(part.relations for part in self.parts):
            # Relations are asked one by one, so that what is unlikely beside the others shows only now.
            most = max((row.chance for row in rows), default=0.0)
            least = max(least, UNLIKELY * most, least_listed(self.graph))
        best: dict[tuple[Term | None, ...], _Joined] = {}
        for row in sorted(rows, key=lambda row: -row.chance):
            if row.terms not in there and row.chance >= least:
                best.setdefault(row.terms, row)
        start, limit = self.question.offset, self.question.limit
        predicted = list(best.values())[: self.config.top + (0 if self.question.order else start)]
        predicted = self._ordered(predicted)
        shown = list(known.rows) if is_shown else []
        stop = None if limit is None else start + limit
        first = min(len(shown), start)
        kept = shown[start:stop]
        left = None if limit is None else limit - len(kept)
        more = predicted[start - first :][:left]
        return TermTable(
            self.text,
            tuple(variable.name for variable in self.question.targets),
            (*kept, *(row.terms for row in more)),
            (KNOWN,) * len(kept) + (PREDICTED,) * len(more),
            complete=known.complete,
            chances=(1.0,) * len(kept) + tuple(row.chance for row in more),
            rests_on=((),) * len(kept) + tuple(row.rests_on for row in more),
            filled=((),) * len(kept) + tuple(row.filled for row in more),
            **about,
        )

    def _ordered(self, rows: list[_Joined]) -> list[_Joined]:
        """Predicted rows by ORDER BY, in the store's own order of terms."""
        order, targets = self.question.order, self.question.targets
        if not order or not rows:
            return rows
        ranks: dict[Variable, dict[Term | None, int]] = {}
        for key in order:
            if key.variable == PROBABILITY:
                continue
            column = targets.index(key.variable)
            terms = list(dict.fromkeys(row.terms[column] for row in rows))
            lines = " ".join(f"({_written(term)} {place})" for place, term in enumerate(terms) if _can_be_said(term))
            head = "SELECT ?x ?row { "
            cut = Cut(len(head), len(head) + 1, f"VALUES (?x ?row) {{ {lines} }}")
            found = self.store(f"{head}. }} ORDER BY ?x", cuts=[cut])
            assert isinstance(found, Solutions)
            ordered = [terms[int(row[1].value)] for row in found.rows if row[1] is not None]
            ranks[key.variable] = {term: place for place, term in enumerate(ordered)}
        for key in reversed(order):
            if key.variable == PROBABILITY:
                rows = sorted(rows, key=lambda row: row.chance, reverse=key.descending)
            else:
                rank, column = ranks[key.variable], targets.index(key.variable)
                places = [rank.get(row.terms[column], -1) for row in rows]
                order_of = sorted(range(len(rows)), key=places.__getitem__, reverse=key.descending)
                rows = [rows[place] for place in order_of]
        return rows

    def _counted(self, known: Solutions, rows: list[_Joined], about: dict[str, Any]) -> TermTable:
        (total,) = known.rows[0]
        assert total is not None
        if self.question.targets:
            head = " ".join(map(str, self.question.targets))
            sides = " UNION ".join(f"{{ {branch} }}" for branch in self.question.branches)
            listed = self.store(f"SELECT DISTINCT {head} {{ {sides} }}")
            there = set(listed.rows) if isinstance(listed, Solutions) else set()
            best: dict[tuple[Term | None, ...], float] = {}
            for row in rows:
                if row.terms not in there:
                    best[row.terms] = max(row.chance, best.get(row.terms, 0.0))
            expected = sum(best.values())
        else:
            expected = sum(row.chance for row in rows)
        assert self.question.counted_as is not None
        stored = None if self.config.mode == "predicted" else int(total.value)
        return TermTable.of_count(self.text, self.question.counted_as.name, stored, expected, **about)


def _can_be_said(term: Term | None) -> bool:
    return term is not None and term.kind != "bnode"


def _written(term: Term | None) -> str:
    """A term in SPARQL."""
    from pyoxigraph import Literal, NamedNode

    assert term is not None
    if term.kind == "uri":
        return str(iri_of(term.value))
    if term.language:
        return str(Literal(term.value, language=term.language))
    return str(Literal(term.value, datatype=NamedNode(term.datatype) if term.datatype else None))
