"""A graph and the models that were trained on it, in one handle: ``biqe.open(...).ask(...)``.

What may be opened is told by ``locate``. A model, and torch with it, is loaded when something is predicted for the
first time; known answers need neither.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from biqe.answer.answers import Answers, Row
from biqe.answer.beyond_links import BeyondLinks
from biqe.answer.execute import count, select_rows, verdict
from biqe.answer.explain_request import behind, explain_options, row_of
from biqe.answer.result import ShownNames
from biqe.answer.terms import TermRow, TermTable
from biqe.errors import (
    InvalidOption,
    NotPredictableYet,
    SparqlSyntax,
    UnknownName,
    UnreadableFile,
    UnsupportedQuery,
)
from biqe.exact.store import ExactStore, Rewritten
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Graph, Splits, counted
from biqe.graph.vocabulary import Names, Vocabulary
from biqe.graph.words import for_notebook, html_table
from biqe.knowledge_base import listing
from biqe.knowledge_base.listing import Finds, Schema
from biqe.knowledge_base.locate import AUTO, check_vocabulary, locate
from biqe.knowledge_base.model_selection import Selection
from biqe.predict.config import MODES, TOP, WIDTH, AskConfig
from biqe.predict.predictor import Predictor
from biqe.predict.rows import join_notes
from biqe.query.bind import BoundQuestion, bind_question, relation_called, spellings
from biqe.query.question import ASK, COUNT, Divided, Entity, Question, divided
from biqe.query.shapes import shape_of
from biqe.query.sparql import parse_question
from biqe.query.subset import OUTSIDE
from biqe.suggest import Suggester, Suggestions

if TYPE_CHECKING:
    from biqe.explain import Explanation

KNOWN = ("complete", "train")


class ChangedGraph(Protocol):
    """A version of a graph that changes; serve/live has such views."""

    @property
    def splits(self) -> Splits: ...
    @property
    def known(self) -> str: ...
    @property
    def store(self) -> ExactStore: ...
    @property
    def literal_relations(self) -> frozenset[str]: ...


@dataclass(frozen=True)
class KnowledgeBase:
    """A graph, and perhaps a model that predicts what the graph does not hold. Made by ``open`` and ``train``.

    It may be asked from several threads at once. ``close`` frees the model; so does the end of a ``with`` block.

    >>> from biqe.knowledge_base import open
    >>> with open("atlas") as kb:
    ...     print(kb)
    KnowledgeBase('atlas', 4,304 entities, 16 relations, model hybrid)
    """

    name: str
    """What was opened, as it was written."""
    splits: Splits
    known: str = "complete"
    """The triples that count as known: ``complete`` (train, valid and test) or ``train``."""
    model_folder: Path | None = None
    """The main model; None where there is no model."""
    prefixes: Mapping[str, str] | None = None
    """Prefixes that queries may use without declaring them."""
    models: Mapping[str, Path] = field(default_factory=dict)
    """Folders of all models by name, the main one first; empty stands for ``model_folder`` alone."""
    selection: Selection | None = None
    """Which model was best on validation queries of which shape."""
    device: str = "cpu"
    """Where models compute: cpu, cuda, mps, or auto, which takes a GPU where there is one."""
    literal_relations: frozenset[str] = frozenset()
    """Relations with literals as objects; only the exact store knows those statements."""
    _loading: RLock = field(default_factory=RLock, compare=False)
    """Held while a model or the store is made, so that threads do not make it twice."""

    def __repr__(self) -> str:
        counts = [counted(len(names), noun) for names, noun in self._names()]
        return f"KnowledgeBase({', '.join([repr(self.name), *counts, self._models_in_words()])})"

    def _repr_html_(self) -> str:
        rows = [[noun, f"{len(names):,}"] for names, noun in self._names()]
        return for_notebook(
            html_table(
                [f"{self.name}: {self._models_in_words()}"], [], [*rows, ["known triple", f"{len(self.graph):,}"]]
            )
        )

    def _names(self) -> list[tuple[Names, str]]:
        return [(self.vocabulary.entities, "entity"), (self.vocabulary.relations, "relation")]

    def _models_in_words(self) -> str:
        names = list(self.models) or ([str(self.model_folder)] if self.model_folder else [])
        return f"model{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no model: known answers only"

    def close(self) -> None:
        """Free the models and the store. What was answered stays; nothing more can be asked."""
        self.__dict__["is_closed"] = True
        for name in ("_loaded", "_read", "_suggesters", "store", "_newer"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @cached_property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return False

    def _check_open(self) -> None:
        if self.is_closed:
            raise InvalidOption(
                f"the knowledge base {self.name} is closed", hint=f"open it again: biqe.open({self.name!r})"
            )

    @property
    def vocabulary(self) -> Vocabulary:
        """Names, ids and labels of the graph."""
        return self.splits.vocabulary

    @property
    def graph(self) -> Graph:
        """The triples that count as known."""
        return self.splits[self.known]

    @cached_property
    def store(self) -> ExactStore:
        """All of SPARQL 1.1 over the known triples; built on first use."""
        with self._loading:
            self._check_open()
            return ExactStore(self.graph)

    @property
    def predictor(self) -> Predictor:
        """The main model, loaded on first use."""
        return self.predictor_of(None)

    def predictor_of(self, model: str | None) -> Predictor:
        """The model of this name, loaded on first use; the main one for None."""
        folder = self.model_folder if model is None else self._folder(model)
        if folder is None:
            raise InvalidOption(
                f"{self.name} is a graph without a model, so nothing can be predicted",
                hint=f"train one: biqe train {self.name}; what the graph holds, mode 'known' tells",
            )
        with self._loading:
            self._check_open()
            if folder not in self._loaded:
                self._loaded[folder] = self._load(folder)
            return self._loaded[folder]

    @cached_property
    def _loaded(self) -> dict[Path, Predictor]:
        return {}

    def _folder(self, model: str) -> Path:
        if model not in self.models:
            there = ", ".join(self.models) or "none"
            raise UnknownName(
                f"{self.name} has no model {model!r}; it has {there}",
                hint=f"--model {AUTO} takes the best one for each query",
            )
        return self.models[model]

    def at(self, view: ChangedGraph) -> KnowledgeBase:
        """The same over another version of its graph, one that a live graph has come to; models are shared.

        Known answers are those of that version. Models go on predicting among the entities that they know; a question
        that names a newer one is answered from the graph alone, and says so.
        """
        changed = replace(self, splits=view.splits, known=view.known, literal_relations=view.literal_relations)
        changed.__dict__["store"] = view.store
        changed.__dict__["_read"] = self._read
        return changed

    @cached_property
    def _read(self) -> dict[Path, Any]:
        """Models as they lie in their folders."""
        return {}

    def _load(self, folder: Path) -> Predictor:
        # The only place where asking needs torch.
        from biqe.models._grown_graph import over_graph

        if folder not in self._read:
            self._read[folder] = self._read_model(folder)
        return Predictor(over_graph(self._read[folder], self.graph))

    def _read_model(self, folder: Path) -> Any:
        if not (folder / "manifest.json").is_file():
            raise UnreadableFile(
                f"{self.name} has no model yet: {folder} has no manifest.json",
                hint="a run writes its first model after its first validation; --mode known does without",
            )
        from biqe.models._device import CPU, device_named
        from biqe.models.store import for_few_rows, load

        place = device_named(self.device)
        loaded = load(folder, place)
        check_vocabulary(folder, loaded.manifest, self.vocabulary)
        return for_few_rows(loaded.model) if place == CPU else loaded.model

    def ask(
        self,
        text: str,
        *,
        mode: str = MODES[0],
        top: int = TOP,
        min_probability: float = 0.0,
        joint: str | None = None,
        width: int = WIDTH,
        model: str | None = None,
        coverage: float | None = None,
        injective: bool = False,
        links: bool = True,
    ) -> Answers | TermTable:
        """Answers to a SPARQL query: known rows first and complete, then up to ``top`` predicted ones.

        >>> from biqe.knowledge_base import open
        >>> answers = open("atlas").ask("SELECT ?country { :Danube :flows_through ?country }")
        >>> answers
        Answers(7 known, 20 predicted)
        >>> answers.predicted[0].country, answers.predicted[0].why
        ('Slovakia', 'Bratislava located on Danube, and Bratislava located in Slovakia: then “flows through” ...')

        ``mode`` is ``both``, ``known`` or ``predicted``. A graph without a model gives known rows only, and refuses
        ``predicted``. ``joint`` and ``width`` say how rows of several variables are found (see AskConfig). ``model``
        is the name of one of several models, or ``auto`` for the best one on queries of this shape, with the others to
        fall back on; left out, it is the main model, or ``auto`` where there is a selection. A query that no model can
        answer is answered from the graph, with a note that gives the reason; in mode ``predicted`` it raises
        UnsupportedQuery. ``coverage``, such as 0.9, asks a
        model with calibrated probabilities for an answer set: as many rows as it takes for a missing answer to be among
        them so often.
        With ``injective``, no entity stands twice in a predicted row. With ``links=False`` the same rows come
        sooner, and the model is not asked how probable their missing links are.

        A text beyond the subset goes to the exact store, as all of SPARQL 1.1, unless the mode is ``predicted``. Its
        rows hold values rather than entities (TermTable), and so do those of COUNT; in mode ``both`` a note says what
        no model predicts.
        """
        self._check_open()
        start = time.perf_counter()
        config = AskConfig(mode, top, min_probability, joint, width, coverage, injective, links)
        if not isinstance(text, str):
            raise InvalidOption(f"a query is a text. Got {type(text).__name__}")
        if model not in (None, AUTO):
            self._folder(model)
        predict = mode != "known" and not (mode == "both" and self.model_folder is None)
        try:
            parsed = parse_question(text, prefixes=self.prefixes, wide=predict)
            is_about_literals = self._is_about_literals(parsed)
            if is_about_literals and not predict:
                return self._from_store(text, config, start, "")
            if predict:
                parts = divided(parsed, self.leads_to_literals)
                if is_about_literals or not all(part.is_plain for part in parts):
                    return self._beyond_links(text, parsed, parts, config, start, model)
            question = bind_question(parsed, self.vocabulary)
        except SparqlSyntax as refusal:
            beyond = OUTSIDE in refusal.message
            if mode == "predicted" or (mode == "both" and not beyond and not self.literal_relations):
                raise
            try:
                return self._from_store(text, config, start, refusal.message.replace(OUTSIDE, "not predicted"))
            except SparqlSyntax as error:
                # Of two complaints about one text, the one about the part that both read.
                raise (error if beyond else refusal) from None
        if not predict:
            return self._answered(text, question, None, config, start, "")
        return self._predicted(text, question, config, start, model)

    def _from_store(self, text: str, config: AskConfig, start: float, why: str) -> TermTable:
        """What the exact store answers; with a note of ``why`` where a model might have been expected to."""
        found = self.store.query(text, prefixes=self.prefixes)
        notes = [f"from the graph alone: {why}"] if config.mode == "both" and self.model_folder is not None else []
        unknown = list(Rewritten(text, self.prefixes or {}, self.vocabulary, literals=self.graph.literals).unknown)
        notes += [f"not in this graph: {', '.join(unknown[:5])}"] if unknown else []
        return TermTable.of_store(
            text,
            found,
            source=self.name,
            seconds=time.perf_counter() - start,
            note=join_notes(notes),
            names=self._shown_names,
        )

    @cached_property
    def _shown_names(self) -> ShownNames:
        return ShownNames(self.vocabulary, self.prefixes or {})

    def _beyond_links(
        self,
        text: str,
        question: Question,
        parts: Sequence[Divided],
        config: AskConfig,
        start: float,
        model: str | None,
    ) -> TermTable:
        """The answer to a question of which links are a part."""
        loading = time.perf_counter()
        # The first question waits for it.
        links = self.predictor_of(None if model == AUTO else model).links
        start += time.perf_counter() - loading

        def of_links(part: Question, config: AskConfig) -> Answers | TermTable:
            return self._predicted(text, bind_question(part, self.vocabulary), config, time.perf_counter(), model)

        store = partial(self.store.query, prefixes=self.prefixes)
        beyond = BeyondLinks(text, question, parts, self.graph, store, of_links, config, links, self._shown_names)
        found = beyond.answer(source=self.name)
        return replace(found, seconds=time.perf_counter() - start)

    def leads_to_literals(self, name: str) -> bool:
        """Whether a relation, in any of its spellings, has literals as objects and no entities."""
        there = not self.literal_relations.isdisjoint(spellings(name))
        return there and relation_called(name, self.vocabulary) is None

    def _is_about_literals(self, question: Question) -> bool:
        """Whether a pattern has a relation that leads to literals, or an entity without links: the graph's own rows
        would be too few."""
        if not self.literal_relations:
            return False
        patterns = [pattern for branch in question.branches for pattern in branch.patterns]
        relations = {pattern.relation for pattern in patterns if isinstance(pattern.relation, str)}
        if any(not self.literal_relations.isdisjoint(spellings(relation)) for relation in relations):
            return True
        literals = self.splits.literals
        names = {end.name for each in patterns for end in (each.subject, each.object) if isinstance(end, Entity)}
        return literals is not None and any(
            literals.subjects.find(name) is not None and self.vocabulary.entities.find(name) is None for name in names
        )

    def _predicted(
        self, text: str, question: BoundQuestion, config: AskConfig, start: float, model: str | None
    ) -> Answers | TermTable:
        """The answer of the first model that can read the question."""
        refusals: list[UnsupportedQuery] = []
        for name, why in self._candidates(question, model):
            loading = time.perf_counter()
            predictor = self.predictor_of(name)
            # The first question waits for the model; that is not what the question took.
            start += time.perf_counter() - loading
            if refusals:
                why = f"instead of {len(refusals)} that cannot read this query"
            try:
                self._refuse_unseen(question, predictor)
                return self._answered(text, question, predictor, config, start, why, name)
            except UnsupportedQuery as refusal:
                refusals.append(refusal)
        if config.mode == "both":
            note = f"from the graph alone: {refusals[0].message}"
            return self._answered(text, question, None, config, start, "", note=note)
        raise refusals[0]

    def _refuse_unseen(self, question: BoundQuestion, predictor: Predictor) -> None:
        """NotPredictableYet for a question that names what came to the graph after the model was trained."""
        if predictor.seen is None:
            return
        vocabulary = self.vocabulary
        wide = [branch.wide for branch in question.branches]
        nodes = {node for query in wide for node in query.nodes if node >= 0 and not predictor.knows(node, 0)}
        relations = {edge[1] for query in wide for edge in query.edges if not predictor.knows(0, edge[1])}
        named = [f"entity {vocabulary.entities[node]!r}" for node in nodes]
        named += [f"relation {vocabulary.relations[relation]!r}" for relation in relations]
        if named:
            raise NotPredictableYet(
                f"{', '.join(sorted(named))}: not predictable yet, because {predictor.name} was trained before it came",
                hint="take it in with: biqe train --continue RUN --graph GRAPH --out NEW; "
                "mode 'known' (--mode known) answers from the graph alone",
            )

    def _candidates(self, question: BoundQuestion, model: str | None) -> Iterator[tuple[str | None, str]]:
        """Names of the models to try, in this order, each with why; None for the main one."""
        if model is None and self.selection is not None and len(self.models) > 1:
            model = AUTO
        if model != AUTO:
            yield model, ""
            return
        if not self.models:
            yield None, ""
            return
        selection = self.selection or Selection()
        shape = shape_of(question.branches[0].wide)
        for name in selection.order(shape, list(self.models)):
            yield name, selection.reason(shape, name)

    def _newer_than(self, seen: int) -> int:
        """Entities of the graph's triples beyond the first ``seen``; those that every triple has left do not count."""
        if seen not in self._newer:
            ends = self.graph.triples[:, [0, 2]]
            self._newer[seen] = len(np.unique(ends[ends >= seen]))
        return self._newer[seen]

    @cached_property
    def _newer(self) -> dict[int, int]:
        return {}

    def _answered(
        self,
        text: str,
        question: BoundQuestion,
        predictor: Predictor | None,
        config: AskConfig,
        start: float,
        why: str,
        name: str | None = None,
        note: str = "",
    ) -> Answers | TermTable:
        model = name or (predictor.name if predictor else None)
        if predictor is not None and predictor.seen is not None and predictor.links is None:
            newer = self._newer_than(predictor.seen[0])
            newer_ones = f"{newer:,} entities are" if newer > 1 else "1 entity is"
            note = f"{newer_ones} newer than the model, and in no predicted row" if newer else ""
        numbers = "" if predictor is None else predictor.note
        if question.form == COUNT:
            counted = count(self.graph, question, predictor, config)
            return TermTable.of_count(
                text,
                question.counted_as,
                None if config.mode == "predicted" else counted.known,
                counted.expected,
                model=model,
                source=self.name,
                seconds=time.perf_counter() - start,
                why=why,
                note=join_notes([counted.note, numbers, note]),
            )
        answer = verdict if question.form == ASK else select_rows
        rows = answer(self.graph, question, predictor, config)
        return Answers(
            text,
            question.branches[0].query,
            self.graph,
            rows,
            config,
            model,
            self.name,
            time.perf_counter() - start,
            question.branches,
            question.form,
            why,
            join_notes([numbers if len(rows) > rows.known_count else "", note]),
            self.explain,
            self.prefixes or {},
        )

    def explain(
        self,
        row_or_query: Row | TermRow | str,
        *,
        row: int | None = None,
        views: Sequence[str] | None = None,
        **options: Any,
    ) -> Explanation:
        """Why a row is an answer: in a ``sentence``, then what it rests on and what speaks for its missing links.

        The row is one that ``ask`` gave; or it is given by a query and its place among the answers, from 0, as in
        ``answers[row]``; ``options`` are then those of ``ask``. Of a row with values beside links, the links are
        explained. ``views`` are some of witness, attention (what each
        unknown looked at) and counterfactual (what would change the row); left out, the witness.

        >>> from biqe.knowledge_base import open
        >>> kb, query = open("atlas"), "SELECT ?country { :Danube :flows_through ?country }"
        >>> kb.explain(query, row=8).sentence == kb.explain(kb.ask(query)[8]).sentence
        True
        """
        self._check_open()
        chosen: Any = row_or_query
        if isinstance(row_or_query, str):
            chosen = row_of(self.ask(row_or_query, **options), 0 if row is None else row)
        elif row is not None or options:
            given = ", ".join(["row"] * (row is not None) + list(options))
            raise InvalidOption(f"{given} goes with a query; a row was given itself")
        if isinstance(chosen, TermRow):
            chosen = behind(chosen)
        if not isinstance(chosen, Row):
            raise InvalidOption(
                "only rows of entities can be explained: these are values, with nothing behind them",
                hint="explain a row of a SELECT over the supported subset",
            )
        from biqe import explain

        answers = chosen.answers
        predictor = None
        if answers.model is not None:
            predictor = self.predictor_of(answers.model if answers.model in self.models else None)
        options = explain_options(chosen, predictor)
        if views is not None:
            options["views"] = views
        query = answers.branch_of(chosen).query
        return explain.explain(
            predictor,
            answers.graph,
            query,
            dict(zip(query.targets, chosen.ids, strict=True)),
            self.vocabulary,
            probability=None if chosen.status == "known" else chosen.probability,
            **options,
        )

    def find(self, text: str, limit: int = 10) -> Finds:
        """Entities and relations whose name, label or alias fits ``text``, whatever its case and accents.

        Equal ones come first, then beginnings, then parts; ``limit`` of each at most. ``query`` is what to write in a
        query.

        >>> from biqe.knowledge_base import open
        >>> [found.query for found in open("atlas").find("ZURICH")], open("atlas").find("located on")[0].query
        ([':Zürich'], ':located_on')
        """
        self._check_open()
        return listing.find(self.vocabulary, self.prefixes or {}, text, limit)

    def suggest(
        self, relation: str | None = None, entity: str | None = None, *, model: str | None = None, **options: Any
    ) -> Suggestions:
        """The likeliest missing links of the graph, of a relation, of an entity at either end, or of both.

        Names are as in a query, or labels. ``options`` are those of ``Suggester.suggest``: ``top`` (20), ``skip``,
        ``each`` (at most so many of each relation), ``min_probability``, ``seconds``.

        >>> from biqe.knowledge_base import open
        >>> first = open("atlas").suggest(relation=":on_continent", top=3)[0]
        >>> first.relation, 0 < first.probability < 1
        ('on_continent', True)
        """
        self._check_open()
        predictor = self.predictor_of(model)
        with self._loading:
            if predictor not in self._suggesters:
                self._suggesters[predictor] = Suggester(predictor, self.prefixes)
            return self._suggesters[predictor].suggest(relation, entity, **options)

    @cached_property
    def _suggesters(self) -> dict[Predictor, Suggester]:
        return {}

    def schema(self) -> Schema:
        """The relations of the graph, most frequent first: how many triples, and which kinds of entities they join.

        >>> from biqe.knowledge_base import open
        >>> row = next(row for row in open("atlas").schema() if row.relation == "flows_into")
        >>> row.query, row.triples, dict(row.objects.kinds)
        (':flows_into', 615, {'River': 181, 'Sea': 48, 'Lake': 18})
        """
        self._check_open()
        return listing.schema(self.name, self.graph, self.prefixes or {})


def open(
    name: str | os.PathLike[str] | Graph,
    *,
    graph: str | os.PathLike[str] | None = None,
    known: str | None = None,
    device: str = "cpu",
) -> KnowledgeBase:
    """The knowledge base called ``name``: ``atlas``, a run folder, a model folder, a graph folder, or several models.

    A ``Graph`` may be opened as it is, for known answers.

    >>> kb = open(Graph.from_triples([("Bonn", "located_on", "Rhine")]))
    >>> kb.ask("SELECT ?river { :Bonn :located_on ?river }")[0].river
    'Rhine'

    ``graph`` is a graph folder that stands in for the one that a run remembers; it must have the same vocabulary.
    ``known`` says which of its triples count as known, ``complete`` or ``train``; left out, the graph itself decides
    (``complete`` unless its manifest says otherwise, as the atlas does, whose held-out facts are there to be
    predicted). ``device`` is where models compute: cpu, cuda, mps, or auto.
    """
    if known is not None and known not in KNOWN:
        raise InvalidOption(f"'known' must be one of {', '.join(KNOWN)}. Got {known!r}")
    if device != "cpu":
        from biqe.models._device import device_named

        device_named(device)  # refused now, and not at the first prediction
    if isinstance(name, Graph):
        if graph is not None:
            raise InvalidOption("the graph is given twice", hint="leave out graph=")
        splits = name.as_splits()
        return KnowledgeBase("graph", splits, prefixes=name.prefixes, literal_relations=_literal_relations(splits))
    if not isinstance(name, (str, os.PathLike)):
        raise InvalidOption(f"biqe.open takes a folder, 'atlas' or a Graph. Got {type(name).__name__}")
    located = locate(name, graph)
    splits = graph_folder.load(located.graph)
    located.check(splits.vocabulary)
    manifest = graph_folder.load_manifest(located.graph)
    known = known or manifest.get("known") or manifest.get("source", {}).get("known") or "complete"
    return KnowledgeBase(
        os.fspath(name),
        splits,
        known,
        located.main,
        manifest.get("prefixes"),
        located.models,
        located.selection,
        literal_relations=_literal_relations(splits),
        device=device,
    )


def _literal_relations(splits: Splits) -> frozenset[str]:
    """Relations with literals as objects."""
    return frozenset() if splits.literals is None else frozenset(splits.literals.relations)
