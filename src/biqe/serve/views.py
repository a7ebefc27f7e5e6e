"""Answers and explanations in the shapes of the JSON API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from biqe.answer.answers import Answers, Link, Row
from biqe.answer.result import PREDICTED, ShownNames, value_of
from biqe.answer.terms import TermRow, TermTable
from biqe.exact.store import Term, iri_of, is_blank
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.words import short
from biqe.predict.evidence import IdLink
from biqe.query.question import written
from biqe.serve import schemas as out
from biqe.serve.results import is_cut

if TYPE_CHECKING:
    from biqe.explain import Explanation

# Answers


def answer(
    found: Answers | TermTable, vocabulary: Vocabulary, limit: int, offset: int, rows: int, *, facts: bool = False
) -> out.AskOut:
    """A page of the answers; ``rows`` are the most that an answer may have. With ``facts``, each row has the stored
    links that it rests on."""
    total = min(len(found), rows)
    page: Sequence[Any] = found[offset : min(offset + limit, total)] if offset < total else []
    notes = [found.note] if found.note else []
    form: Any
    if isinstance(found, Answers):
        vocabulary = found.graph.vocabulary
        shown = [
            _row(
                row,
                [prefixed(entity_value(id_, vocabulary), found.names) for id_ in row.ids],
                _links(found, row, row.missing, row.evidence.missing) if row.status == PREDICTED else [],
                _links(found, row, row.held, row.evidence.held) if facts else [],
            )
            for row in page
        ]
        form, holds = ("ask", found.holds) if found.form == "ASK" else ("select", None)
        if found.model is None and found.config.mode == "both" and not notes:
            notes.append("There is no model here, so nothing was predicted.")
    else:
        names = found.names or ShownNames(vocabulary, {})
        shown = [
            _row(
                row,
                [prefixed(term_value(term, vocabulary), names) for term in row.terms.values()],
                [
                    out.LinkOut(
                        subject=link.subject,
                        predicate=link.relation,
                        object=link.object,
                        labels=[names.last_part(name) for name in link[:3]],
                        probability=link.probability,
                    )
                    for link in row.missing
                ],
            )
            for row in page
        ]
        form = "ask" if found.holds is not None else "count" if found.counted else "values"
        holds = found.holds
    return out.AskOut(
        columns=[out.Column(name=name, target=isinstance(found, Answers)) for name in found.variables],
        rows=shown,
        total=total,
        known=found.known_count,
        predicted=len(found) - found.known_count,
        holds=holds,
        model=found.model,
        why=found.why,
        seconds=found.seconds,
        notes=notes,
        form=form,
        truncated=is_cut(found) or total < len(found),
    )


def prefixed(value: out.Value, names: ShownNames) -> out.Value:
    """With a prefixed name for a label, where an IRI has no other."""
    is_bare = value.name is not None or value.iri is not None
    return value.model_copy(update={"label": names.prefixed(value.label)}) if is_bare else value


def _row(
    row: Row | TermRow, values: list[out.Value], missing: Sequence[out.LinkOut] = (), held: Sequence[out.LinkOut] = ()
) -> out.Row:
    return out.Row(
        values=values,
        probability=row.probability,
        status=row.status,  # type: ignore[arg-type]  # known or predicted
        missing=list(missing),
        held=list(held),
        index=row.number,
    )


def _links(found: Answers, row: Row, links: Sequence[Link], ids: Sequence[IdLink]) -> list[out.LinkOut]:
    """Links of a row, in names and as people read them."""
    return [
        out.LinkOut(
            subject=link.subject,
            predicate=link.relation,
            object=link.object,
            labels=[
                found.names.prefixed(found.label(of.subject, row)),
                short(link.relation),
                found.names.prefixed(found.label(of.object, row)),
            ],
            probability=link.probability,
        )
        for link, of in zip(links, ids, strict=True)
    ]


def entity_value(entity: int, vocabulary: Vocabulary) -> out.Value:
    """An entity of the graph."""
    name = vocabulary.entities[entity]
    iri = None if is_blank(name) else iri_of(name).value
    term = None if iri is None else written(name)
    return out.Value(id=entity, name=name, iri=iri, label=vocabulary.label(entity), term=term)


def term_value(term: Term | None, vocabulary: Vocabulary) -> out.Value:
    """An RDF term; an entity where it names one."""
    if term is None:
        return out.Value(id=None, name=None, iri=None, label="", term=None)
    if term.kind == "literal":
        value = value_of(term)
        label = f"{value:.6g}" if isinstance(value, float) else term.value
        return out.Value(id=None, name=None, iri=None, label=label, term=None)
    entity = vocabulary.entities.find(term.value)
    if entity is not None:
        return entity_value(entity, vocabulary)
    if term.kind == "bnode":
        return out.Value(id=None, name=None, iri=None, label=term.value, term=None)
    return out.Value(id=None, name=None, iri=iri_of(term.value).value, label=term.value, term=written(term.value))


# Explanations

NOT_ASKED = "mode known asks no model; ask in mode both for this."


def explained(found: Explanation, *, is_unasked: bool = False, svg: bool = False) -> out.ExplainOut:
    """An explanation, with the drawing of its witness; and its picture, if ``svg`` says so. ``is_unasked``: there is a
    model, and the client wanted none."""
    if is_unasked and found.model is None:
        found = replace(found, skipped=dict.fromkeys(found.skipped, NOT_ASKED))
    told = found.to_json()
    witness = attention = None
    if told["witness"] is not None:
        nodes = [
            out.GraphNode(
                id=node.entity or node.word,
                label=node.label or node.word,
                kind=_kind(node.kind),
                name=node.entity,
                term=written(node.entity) if node.entity else None,
            )
            for node in found.nodes
        ]
        links = [{name: link[name] for name in out.WitnessLink.model_fields} for link in told["witness"]["links"]]
        unique = list({node.id: node for node in nodes}.values())
        witness = out.WitnessOut(nodes=unique, links=links, complete=told["witness"]["complete"])  # type: ignore[arg-type]
    if told["attention"] is not None:
        part = told["attention"]
        tokens = [str(entry.get("node", entry.get("relation"))) for entry in part["parts"]]
        attention = out.AttentionOut(
            tokens=tokens, **{name: part[name] for name in ("unknowns", "mean", "last", "by_layer")}
        )
    return out.ExplainOut(
        status=told["status"],
        probability=told["probability"],
        model=told["model"],
        sentence=told["sentence"],
        reasons=told["reasons"],
        witness=witness,
        attention=attention,
        counterfactual=list(_changes(told)),
        skipped=told["skipped"],
        text=found.to_text(),
        svg=found.to_svg() if svg else None,
    )


def _kind(kind: str) -> Any:
    return "entity" if kind == "constant" else kind


def _changes(told: Mapping[str, Any]) -> Iterator[out.Counterfactual]:
    found = told["counterfactual"]
    if found is None:
        return
    patterns = {entry["number"]: entry for entry in told["patterns"]}
    for entry in [*found["patterns"], *found["triples"]]:
        triple = entry if "subject" in entry else patterns[entry["pattern"]]
        yield out.Counterfactual(
            what=f"{triple['subject']} {triple['relation']} {triple['object']}",
            how=entry["how"],
            before=found["share"],
            after=entry["share"],
            reason=entry["reason"],
        )
