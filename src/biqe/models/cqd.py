"""CQD: a link predictor answers complex queries by fuzzy logic, without having seen any.

Arakelyan et al. 2021, "Complex Query Answering with Neural Link Predictors". A query is as true as the t-norm of
its links, and its answers are the entities with which it is truest:

    truth(answer) = max over hidden variables of  T(link_1, ..., link_m)        T: product or minimum

The links come from ComplEx, trained on the triples of the graph and on nothing else (``_complex``), and their
scores are made truth values (``_cqd.links``). The maximum is searched for among entities (``decoding="beam"``) or,
with gradients, among vectors (``decoding="continuous"``).

Several targets are no special case. A target's score for an entity is its max-marginal: the truth of the best
assignment of all other variables, hidden or asked for, with this entity in the target's place. Where the
variables form a tree, which covers every shape of the benchmarks, messages find it (``_cqd.max_product``); where they
form a ring, a joint beam over all variables does (``_cqd.beam``). ``tuples`` gives the joint beam itself.

Use it when questions are small and truths of links are what counts: it needs no training queries, and every answer
can be traced to its links. Relations: with ``known="one"`` and ``link="counted"`` it comes near to QTO (Bai et al.
2023), which searches trees exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.graph.knowledge_graph import Graph
from biqe.models._complex import ComplEx
from biqe.models._contract import Paper, QueryModel, Support, Tuples, refuse_unknown
from biqe.models._cqd import links
from biqe.models._cqd.beam import beam_marginals, joint_tuples
from biqe.models._cqd.continuous import continuous_marginals
from biqe.models._cqd.links import KnownLinks, Links
from biqe.models._cqd.max_product import nothing_said, tree_marginals
from biqe.models._cqd.structures import Batch, Group, StructuredQueries, support
from biqe.query.bound import BoundQuery
from biqe.query.queryset import QuerySet


@dataclass(frozen=True)
class Config:
    """What the link predictor is, and how queries are solved with it. Only ``rank`` shapes the weights: the options
    from ``t_norm`` on can be changed after training (``CQD.solving``)."""

    rank: int = 200
    """Complex numbers in each vector."""
    n3: float = 0.05
    """Weight of the nuclear 3-norm while training."""
    relation_weight: float = 1.0
    """Weight of predicting the relation of a pair while training; 0 leaves it out."""
    spread: float = 1e-3
    """Standard deviation of the vectors before training."""
    t_norm: str = "product"
    """How the truths of links become that of a query: product or minimum."""
    decoding: str = "beam"
    """Where the best hidden variables are searched for: beam (among entities) or continuous (among vectors)."""
    beam: int = 64
    """Entities kept of each variable that leads on to others."""
    link: str = "counted"
    """How scores become truths: softmax, peak, counted, sigmoid, minmax or raw. For decoding=beam."""
    known: str = "off"
    """Whether links that the graph holds are sure: off or one. For decoding=beam."""
    steps: int = 100
    """Steps of Adam, for decoding=continuous."""
    step_size: float = 0.1
    """Rate of Adam, for decoding=continuous."""
    variable_n3: float = 0.0
    """Weight of the nuclear 3-norm of the variables, for decoding=continuous."""

    def __post_init__(self) -> None:
        for name in ("rank", "beam", "steps"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} of cqd must be at least 1. Got {getattr(self, name)}")
        for name in ("n3", "relation_weight", "variable_n3"):
            if not getattr(self, name) >= 0:
                raise InvalidOption(f"{name!r} of cqd must not be negative. Got {getattr(self, name)}")
        for name in ("spread", "step_size"):
            if not getattr(self, name) > 0:
                raise InvalidOption(f"{name!r} of cqd must be above 0. Got {getattr(self, name)}")
        for name, allowed in (
            ("t_norm", ("product", "minimum")),
            ("decoding", ("beam", "continuous")),
            ("link", links.KINDS),
            ("known", ("off", "one")),
        ):
            if getattr(self, name) not in allowed:
                raise InvalidOption(f"{name!r} of cqd must be {' or '.join(allowed)}. Got {getattr(self, name)!r}")
        if self.decoding == "continuous" and self.known == "one":
            raise InvalidOption(
                "'known' of cqd must be off where 'decoding' is continuous: no graph holds vectors",
                hint="use decoding=beam, or known=off",
            )

        if self.link == "raw" and self.known == "one":
            raise InvalidOption(
                "'known' of cqd must be off where 'link' is raw: raw scores have no largest value",
                hint="use link=counted, or known=off",
            )

    @property
    def inverses(self) -> bool:
        """Every relation has a reciprocal one with a vector of its own."""
        return True


class CQD(QueryModel):
    """Truths of links from ComplEx, and the search for the assignment that makes a query truest."""

    name = "cqd"
    summary = "ComplEx link predictor with fuzzy logic over the links of a query (beam or continuous search)"
    tables = {"predictor.entities": "entities", "predictor.relations": "directions"}
    uses_answers = True
    uses_all_weights = True
    paper = Paper("Arakelyan, Daza, Minervini, Cochez", 2021, "Complex Query Answering with Neural Link Predictors")
    learns_from = "triples"
    solving_options = ("t_norm", "decoding", "beam", "link", "known", "steps", "step_size", "variable_n3")
    train_defaults: ClassVar[dict[str, Any]] = {
        "optimizer": "adagrad",
        "learning_rate": 0.1,
        "answers": "one",
        "triple_answers": 16,
        "batch_queries": 1000,
        "batch_tokens": 1000,
        "label_smoothing": 0.0,
        "weight_decay": 0.0,
        "warmup_steps": 0,
        "average": 0.0,
        "clip": 1000.0,
    }

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.config = config
        self.entity_count = entity_count
        self.relation_count = relation_count
        self.predictor = ComplEx(config.rank, entity_count, relation_count, config.spread)
        self._graph: Graph | None = None
        self._known: KnownLinks | None = None

    @property
    def entity_weight(self) -> torch.Tensor:
        """(E, D) vectors of the entities: real parts, then imaginary parts."""
        return self.predictor.entities

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Connected queries with a constant. The direction of edges does not matter."""
        return support(query, self.name)

    def encode(self, queries: QuerySet) -> StructuredQueries:
        return StructuredQueries(queries, self.entity_count, self.relation_count, self.name)

    @property
    def looks_at_graph(self) -> bool:
        return True

    @property
    def looks_facts_up(self) -> bool:
        """Where links that the graph holds are certain; else the tails of a pair are counted at most."""
        return self.config.known == "one"

    def use_graph(self, graph: Graph) -> None:
        """Links of ``graph`` are known from now on: for ``known="one"`` and for ``link="counted"``. Where missing links
        are to be predicted, this is the training graph, without those."""
        if (graph.entity_count, graph.relation_count) != (self.entity_count, self.relation_count):
            raise VocabularyMismatch(
                f"the model knows {self.entity_count:,} entities and {self.relation_count:,} relations, this graph has "
                f"{graph.entity_count:,} and {graph.relation_count:,}"
            )
        self._graph, self._known = graph, None

    def solving(self, **options: Any) -> CQD:
        """A model with the same weights and graph that solves queries by other options: ``model.solving(beam=256)``."""
        known = {field.name for field in fields(self.config)}
        unknown = [name for name in options if name not in known]
        if unknown:
            raise InvalidOption(f"cqd has no option {unknown[0]!r}; it has {', '.join(sorted(known))}")
        config = replace(self.config, **options)
        if config.rank != self.config.rank:
            raise InvalidOption(f"'rank' of a trained cqd stays as it is. Got {config.rank} for {self.config.rank}")
        other = CQD.__new__(CQD)
        super(QueryModel, other).__init__()
        other.config, other.entity_count, other.relation_count = config, self.entity_count, self.relation_count
        other.predictor, other._graph, other._known = self.predictor, self._graph, self._known
        return other.train(self.training)

    def loss(self, batch: Batch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """Loss of the link predictor on single links; other queries teach it nothing."""
        if len(batch.groups) != 1 or not batch.groups[0].structure.is_single_link:
            raise UnsupportedQuery(
                "cqd learns from triples alone, and this batch holds queries of several links",
                hint="train it on the triples of the graph, in both directions",
            )
        group, targets = batch.groups[0], batch.targets
        link = group.structure.links[0]
        offsets, tails = targets.offsets, targets.answers
        if offsets is None or tails is None:
            offsets, tails = torch.arange(len(targets.gold) + 1), targets.gold
            refuse_unknown(tails >= 0, self.name)
        return self.predictor.loss(
            group.entities[:, link.start],
            group.relations[:, link.edge],
            offsets,
            tails,
            n3=self.config.n3,
            relation_weight=self.config.relation_weight,
            smoothing=label_smoothing,
        )

    def scores(self, batch: Batch) -> torch.Tensor:
        """(V, E) logarithms of truths, comparable between queries; not normalised over the entities."""
        scores = torch.empty(len(batch.targets.gold), self.entity_count)
        with torch.no_grad():
            for group in batch.groups:
                scores[group.rows.flatten()] = self._marginals(group).flatten(0, 1)
        return scores

    def _links(self) -> Links:
        known_is_sure = self.config.known == "one"
        if self._known is None and self._graph is not None and (known_is_sure or self.config.link == "counted"):
            self._known = KnownLinks(self._graph)
        return Links(self.predictor, self.config.link, self._known, known_is_sure)

    def _marginals(self, group: Group) -> torch.Tensor:
        """(b, targets, E)"""
        config = self.config
        if config.decoding == "continuous":
            return continuous_marginals(
                group, self.predictor, config.t_norm, steps=config.steps, rate=config.step_size, n3=config.variable_n3
            )
        if group.structure.is_forest:
            return tree_marginals(group, self._links(), config.t_norm, config.beam)
        return beam_marginals(group, self._links(), config.t_norm, config.beam)

    def tuples(
        self, queries: QuerySet, count: int, marginals: torch.Tensor | None = None, width: int | None = None
    ) -> list[Tuples]:
        """The best joint answers of each query that a beam over all variables finds, at most ``count``, all different;
        hidden variables are maximised out. Always by beam: vectors name no entities. Of ``marginals``, which come from
        the same links, only what is impossible counts."""
        if count < 1:
            raise InvalidOption(f"the number of tuples must be at least 1. Got {count}")
        config = self.config
        beside = (
            None if marginals is None else torch.where(marginals.isneginf(), -torch.inf, nothing_said(config.t_norm))
        )
        with torch.no_grad():
            return joint_tuples(
                self.encoder(queries), self._links(), config.t_norm, max(config.beam, width or count), count, beside
            )


MODEL = CQD
