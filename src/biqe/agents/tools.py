"""What agents may ask a knowledge base, as plain dicts: known and predicted apart, with probabilities and reasons.

An agent reads every answer into its context, so each is bounded: so many rows, and so many characters in all. What is
left out is counted.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import Field

from biqe.answer.answers import Answers, Link, Row
from biqe.answer.explain_request import row_of
from biqe.answer.terms import TermRow, TermTable
from biqe.errors import InvalidOption, RunFailed
from biqe.explain import text as words
from biqe.knowledge_base import KnowledgeBase
from biqe.query.bind import find_entity, find_relation
from biqe.query.question import ASK
from biqe.query.scan import name_in

ABSTAIN_BELOW = 0.5
"""Probability below which a prediction is no answer, unless the user says otherwise."""
MOST_ROWS = 100
"""Rows of one kind in one answer."""
MOST_QUERY = 10_000
"""Characters of a query."""
MOST_NAME = 300
"""Characters of a name that is shown; the rest of a longer one is cut."""
MOST_CHARACTERS = 30_000
"""Characters of one answer, as JSON."""
LISTS = ("predicted", "known", "suggestions", "relations", "found", "reasons", "links")
"""Lists of an answer that may be cut, the first of them first."""

REMEMBERED = 32
"""Answers that are kept, so that a row that is explained is the one that was told."""

Rows = Annotated[int, Field(description="How many, at most.", ge=1, le=MOST_ROWS)]
Query = Annotated[
    str,
    Field(
        description="SPARQL: SELECT over triple patterns, ASK, or SELECT (COUNT(...) AS ?n). Write names as `find` and "
        "`schema` give them under `query`; prefixes are declared already.",
        max_length=MOST_QUERY,
    ),
]
Mode = Annotated[
    Literal["both", "known", "predicted"],
    Field(
        description="both; or known: only what the graph holds, by all of SPARQL 1.1; or predicted: only what it lacks."
    ),
]
Name = Annotated[str, Field(description="A name as a query writes it, or a label.")]


class Tools:
    """The tools of one knowledge base. The docstring of a method is what an agent reads about it."""

    def __init__(
        self, kb: KnowledgeBase, *, abstain_below: float = ABSTAIN_BELOW, accepted: Path | None = None
    ) -> None:
        """``accepted`` is the file that ``accept`` appends facts to; None where nothing may be written."""
        if not 0 <= abstain_below <= 1:
            raise InvalidOption(f"the probability to abstain below must be in [0, 1]. Got {abstain_below}")
        self.kb = kb
        self.abstain_below = abstain_below
        self.accepted = accepted
        self._writing, self._asking = Lock(), Lock()
        self._answers: OrderedDict[tuple[str, str], Answers | TermTable] = OrderedDict()

    def warm(self) -> None:
        """Load the model, so that the first question need not wait for it."""
        if self.kb.model_folder is not None:
            _ = self.kb.predictor

    def instructions(self) -> str:
        """What an agent is told before it begins."""
        return (
            f"{self.kb!r}. Facts in it are either known (stored in the graph) or predicted (by a model, each with the "
            "probability that it is true). Never report a prediction as a fact: give its probability, and why. "
            f"Predictions below {self.abstain_below:g} are no basis for an answer. Begin with `schema`, look names up "
            "with `find`, then `ask`; `explain` tells more of a row, `suggest` lists what the graph most likely lacks."
        )

    def schema(self, limit: Rows = 50) -> dict[str, Any]:
        """The relations of the graph: how each is written in a query, how many facts it has, and which kinds of
        entities it joins. Begin here."""
        kb, schema = self.kb, self.kb.schema()
        relations = [
            {
                "query": _cut(item.query),
                "triples": item.triples,
                "subjects": _cut(item.subjects.label),
                "objects": _cut(item.objects.label),
            }
            for item in schema[:limit]
        ]
        return _bounded(
            {
                "graph": kb.name,
                "entities": len(kb.vocabulary.entities),
                "known_facts": len(kb.graph),
                "predicts": kb.model_folder is not None,
                "prefixes": dict(kb.prefixes or {}),
                "relations": relations,
                "relations_in_all": len(schema),
            }
        )

    def find(
        self, text: Annotated[str, Field(description="Part of a name or label.")], limit: Rows = 10
    ) -> dict[str, Any]:
        """Entities and relations whose name or label fits a text, whatever its case and accents. `query` is how to
        write the name in a query."""
        found = [
            {name: _cut(value) for name, value in vars(item).items() if value} for item in self.kb.find(text, limit)
        ]
        more = {} if found else {"advice": "Nothing fits. Try a shorter part of the name, or another spelling."}
        return _bounded({"found": found, **more})

    def ask(self, query: Query, mode: Mode = "both", top: Rows = 10) -> dict[str, Any]:
        """Answer a query. `known` rows are stored in the graph. `predicted` rows are not: each has the probability that
        it is true, the missing links that it rests on, and why the model expects them. Follow `advice`."""
        answers = self._asked(query, mode, top)
        if isinstance(answers, TermTable):
            return self._values(answers)
        known = [self._row(row) for row in answers[: min(answers.known_count, MOST_ROWS)]]
        predicted = [self._row(row) for row in answers.predicted]
        best = max((row["probability"] for row in predicted), default=None)
        return _bounded(
            {
                **(
                    {"holds": answers.holds, "probability": 1.0 if answers.holds else best}
                    if answers.form == ASK
                    else {}
                ),
                "known": known,
                "known_in_all": answers.known_count,
                "known_complete": answers.known_complete,
                "predicted": predicted,
                **self._advice(answers.known_count > 0, best, answers.model),
                **({"note": answers.note} if answers.note else {}),
            }
        )

    def explain(
        self,
        query: Query,
        row: Annotated[int, Field(description="The row's number, as `ask` gave it for the same query and mode.", ge=0)],
        mode: Mode = "both",
    ) -> dict[str, Any]:
        """Why a row is an answer: the links that it rests on, each stored or missing, and what speaks for and against
        the missing ones: rules with their record on this graph, kinds, and rivals."""
        answers = self._answers.get((query, mode)) or self._asked(query, mode, min(row + 1, MOST_ROWS))
        why = self.kb.explain(row_of(answers, row))
        links = [] if why.witness is None else why.to_json()["witness"]["links"]
        reasons = []
        for each in why.reasons:
            reasons.append(
                {
                    "link": _cut(words.about_link(each)),
                    "speaks": [f"{sign} {_cut(sentence)}" for sign, sentence in words.about_reason(each)],
                }
            )
        return _bounded(
            {
                "row": {name: _cut(value) for name, value in why.row.items() if value is not None},
                "status": why.status,
                "probability": 1.0 if why.probability is None else round(why.probability, 4),
                "why": _cut(why.sentence, 2 * MOST_NAME),
                "links": [
                    {name: _cut(value) if isinstance(value, str) else value for name, value in link.items()}
                    for link in links
                ],
                "reasons": reasons,
                **self._advice(why.status == "known", why.probability, why.model),
            }
        )

    def suggest(
        self,
        relation: Name | None = None,
        entity: Name | None = None,
        top: Rows = 10,
        min_probability: Annotated[float, Field(description="Leave out suggestions below it.", ge=0, le=1)] = 0.0,
    ) -> dict[str, Any]:
        """The likeliest facts that the graph lacks: in all of it, of a relation, of an entity at either end, or of
        both; each with its probability and why. They are predictions, to be checked before they are used."""
        found = self.kb.suggest(relation, entity, top=top, min_probability=min_probability)
        rows = [
            {
                "fact": [_cut(name) for name in (row.subject, row.relation, row.object)],
                "labels": [_cut(label) for label in row.labels],
                "probability": round(row.probability, 4),
                "why": _cut(row.why, 2 * MOST_NAME),
            }
            for row in found
        ]
        note = {"note": found.note} if found.note else {}
        likely = sum(row.probability >= self.abstain_below for row in found)
        advice = (
            f"None is known. {likely} of {len(rows)} have probability {self.abstain_below:g} or more; check the others."
        )
        return _bounded({"suggestions": rows, "abstain": likely == 0, "advice": advice, **note})

    def accept(self, subject: Name, relation: Name, object: Name) -> dict[str, Any]:
        """Record that a fact was checked and is true: it is appended to a file of accepted facts, for a person to
        import. The graph that is asked does not change."""
        assert self.accepted is not None
        vocabulary = self.kb.vocabulary
        prefixes = self.kb.prefixes or {}
        ids = (
            find_entity(_own(subject, prefixes, vocabulary.entities), vocabulary),
            find_relation(_own(relation, prefixes, vocabulary.relations), vocabulary),
            find_entity(_own(object, prefixes, vocabulary.entities), vocabulary),
        )
        fact = [vocabulary.entities[ids[0]], vocabulary.relations[ids[1]], vocabulary.entities[ids[2]]]
        if self.kb.graph.holds(*ids):
            return {"fact": fact, "status": "known", "advice": "The graph holds it already; nothing was written."}
        line = "\t".join(fact)
        if line.count("\t") != 2:
            raise InvalidOption("a name with a tab in it cannot be written to a file of tab-separated facts")
        with self._writing:
            try:
                before = self.accepted.read_text("utf-8").splitlines() if self.accepted.exists() else []
                if line in before:
                    return {"fact": fact, "status": "accepted before", "facts_in_file": len(before)}
                with self.accepted.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
            except (OSError, UnicodeDecodeError) as error:
                raise RunFailed(f"the fact could not be written to {self.accepted}: {error}") from error
        return {"fact": fact, "status": "accepted", "facts_in_file": len(before) + 1}

    # How it is told

    def _asked(self, query: str, mode: str, top: int) -> Answers | TermTable:
        answers = self.kb.ask(query, mode=mode, top=top)
        with self._asking:
            self._answers[query, mode] = answers
            while len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        return answers

    def _row(self, row: Row | TermRow) -> dict[str, Any]:
        labels = {
            name: _cut(label) for name, label in row.labels.items() if isinstance(row[name], str) and label != row[name]
        }
        told: dict[str, Any] = {
            "row": row.number,
            "values": {name: _cut(value) if isinstance(value, str) else value for name, value in row.values.items()},
            **({"labels": labels} if labels else {}),
        }
        if row.probability is not None:
            told["probability"] = round(row.probability, 4)
        if row.status != "known":
            if row.missing:
                told["missing"] = [_link(link) for link in row.missing]
            told["why"] = _cut(row.why, 2 * MOST_NAME)
        return told

    def _values(self, table: TermTable) -> dict[str, Any]:
        """Rows of values: counts, and what the exact store answers, maybe beside predicted rows."""
        known = [self._row(row) for row in table[: min(table.known_count, MOST_ROWS)]]
        predicted = [self._row(row) for row in table.predicted]
        best = max((chance for chance in table.chances[table.known_count :] if chance is not None), default=None)
        told: dict[str, Any] = {}
        if table.holds is not None:
            told = {"holds": table.holds, "probability": 1.0 if table.holds else best}
        if table.counted:
            more = "The predicted number is how many more are expected, not a count of facts."
            advice: dict[str, Any] = {"advice": more} if predicted else {}
        else:
            advice = self._advice(bool(known or table.holds), best, table.model)
        return _bounded(
            {
                **told,
                "known": known,
                "known_in_all": table.known_count,
                "known_complete": table.complete,
                "predicted": predicted,
                **advice,
                **({"note": table.note} if table.note else {}),
            }
        )

    def _advice(self, is_known: bool, best: float | None, model: str | None) -> dict[str, Any]:
        """Whether an agent has nothing to answer with, and what to do then."""
        if is_known:
            return {"abstain": False}
        if best is None:
            return {"abstain": True, "advice": "Nothing is known or predicted: say that the graph does not tell."}
        if model is not None and self.kb.predictor_of(model if model in self.kb.models else None).note:
            return {"abstain": True, "advice": "The numbers are scores, not probabilities: do not state a prediction."}
        if best < self.abstain_below:
            return {
                "abstain": True,
                "advice": f"Nothing is known, and the best prediction has probability {best:.2g}, below "
                f"{self.abstain_below:g}: say that you do not know, or name it as a guess with its probability.",
            }
        return {"abstain": False, "advice": "State predictions as such, each with its probability."}


def _own(name: str, prefixes: Any, names: Any) -> str:
    """A name of the graph as it is; else what a query would mean by it."""
    return name if names.find(name) is not None else name_in(name, prefixes)


def _link(link: Link) -> dict[str, Any]:
    chance = {} if link.probability is None else {"probability": round(link.probability, 4)}
    return {"subject": _cut(link.subject), "relation": _cut(link.relation), "object": _cut(link.object), **chance}


def _cut(text: str, most: int = MOST_NAME) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _bounded(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer in MOST_CHARACTERS of JSON, with ``left_out`` rows counted.

    >>> answer = _bounded({"known": ["x" * 1000] * 40})
    >>> len(answer["known"]), answer["left_out"]
    (29, 11)
    """
    size = len(json.dumps(answer, ensure_ascii=False))
    left_out = 0
    for name in LISTS:
        rows: Sequence[Any] = answer.get(name, ())
        kept = list(rows)
        while size > MOST_CHARACTERS - 100 and kept:
            size -= len(json.dumps(kept.pop(), ensure_ascii=False)) + 2
        left_out += len(rows) - len(kept)
        if name in answer:
            answer = {**answer, name: kept}
    return {**answer, "left_out": left_out} if left_out else answer
