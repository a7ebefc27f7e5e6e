"""CQD: a link predictor answers complex queries by fuzzy logic, without having seen any.

Arakelyan et al. 2021, "Complex Query Answering with Neural Link Predictors". A query is as true as the t-norm of
its links, and its answers are the entities with which it is truest:

    truth(answer) = max over hidden variables of  T(link_1, ..., link_m)        T: product or minimum

The links come from ComplEx (links/complex.py), trained on the triples of the graph and on nothing else; their scores
become truth values (links/truth.py), and the maximum is searched for among entities (the paper's beam search).

Several targets are no special case. A target's score for an entity is its max-marginal: the truth of the best
assignment of all other variables, hidden or asked for, with this entity in the target's place. Where the variables form
a tree, which covers every shape of the benchmarks, messages find it (links/max_product.py); where they form a ring, a
joint beam over all variables does (links/beam.py). ``tuples`` gives the joint beam itself.

Use it when questions are small and truths of links are what counts: it needs no training queries, and every answer
can be traced to its links. With ``known="one"`` and ``link="counted"`` it comes near to QTO (Bai et al. 2023), which
searches trees exactly.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch

from biqe.errors import InvalidOption, UnsupportedQuery, VocabularyMismatch
from biqe.graph.knowledge_graph import Graph
from biqe.links.beam import Tuples, joint_tuples
from biqe.links.complex import ComplEx
from biqe.links.search import marginals as search_marginals
from biqe.links.search import only_possible
from biqe.links.stored import StoredLinks
from biqe.links.structures import Batch, StructuredQueries, support
from biqe.links.truth import RULES, ScoredLinks
from biqe.models._contract import Paper, QueryModel, Support, check_options
from biqe.query.bound import BoundQuery, QuerySet


@dataclass(frozen=True)
class Config:
    """What the link predictor is, and how queries are solved with it."""

    rank: int = 200
    """Complex numbers in each vector."""
    n3: float = 0.05
    """Weight of the nuclear 3-norm while training."""
    relation_weight: float = 1.0
    """Weight of predicting the relation of a pair while training; 0 leaves it out."""
    spread: float = 1e-3
    """Standard deviation of the vectors before training."""
    t_norm: str = "product"
    """How the truths of links become that of a query: product or minimum. Can be changed after training."""
    beam: int = 64
    """Entities kept of each variable that leads on to others. Can be changed after training."""
    link: str = "counted"
    """How scores become truths: softmax, peak, counted, sigmoid, minmax or raw. Can be changed after training."""
    known: str = "off"
    """Whether links that the graph holds are certain: off or one. Can be changed after training."""

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                "rank": "at least 1",
                "n3": "at least 0",
                "relation_weight": "at least 0",
                "spread": "above 0",
                "t_norm": ("product", "minimum"),
                "beam": "at least 1",
                "link": RULES,
                "known": ("off", "one"),
            },
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
    summary = "ComplEx link predictor with fuzzy logic over the links of a query"
    paper = Paper("Arakelyan, Daza, Minervini, Cochez", 2021, "Complex Query Answering with Neural Link Predictors")
    tables = {"links.entities": "entities", "links.relations": "directions"}
    uses_answers = uses_all_weights = draws_only_weights = True
    learns_from = "triples"
    solves_negation = True
    solving_options = ("t_norm", "beam", "link", "known")
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
        self.links = ComplEx(config.rank, entity_count, relation_count, config.spread)
        self._stored: StoredLinks | None = None

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Connected queries with a constant. The direction of edges does not matter."""
        return support(query, self.name)

    def encode(self, queries: QuerySet) -> StructuredQueries:
        return StructuredQueries(queries, self.entity_count, self.relation_count, self.name)

    @property
    def looks_facts_up(self) -> bool:
        """Where links that the graph holds are certain; else it only counts the tails of a pair."""
        return self.config.known == "one"

    def use_graph(self, graph: Graph) -> None:
        """Links of ``graph`` are known from now on, for ``known="one"`` and for ``link="counted"``."""
        if (graph.entity_count, graph.relation_count) != (self.entity_count, self.relation_count):
            raise VocabularyMismatch(
                f"the model knows {self.entity_count:,} entities and {self.relation_count:,} relations, this graph has "
                f"{graph.entity_count:,} and {graph.relation_count:,}"
            )
        self._stored = StoredLinks(graph)

    def solving(self, **options: Any) -> CQD:
        """A model with the same weights and graph that solves queries by other options: ``model.solving(beam=256)``."""
        known = {field.name for field in fields(self.config)}
        unknown = [name for name in options if name not in known]
        if unknown:
            raise InvalidOption(f"cqd has no option {unknown[0]!r}; it has {', '.join(sorted(known))}")
        if options.get("rank", self.config.rank) != self.config.rank:
            raise InvalidOption(f"'rank' of a trained cqd stays as it is. Got {options['rank']} for {self.config.rank}")
        other = copy(self)
        other.config = replace(self.config, **options)
        return other

    def loss(self, batch: Batch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """Loss of the link predictor on single links; other queries are refused."""
        if len(batch.groups) != 1 or not batch.groups[0].structure.is_single_link:
            raise UnsupportedQuery(
                "cqd learns from triples alone, and this batch holds queries of several links",
                hint="train it on the triples of the graph, in both directions",
            )
        group = batch.groups[0]
        link = group.structure.links[0]
        offsets, tails = batch.targets.known_answers(self.name)
        return self.links.loss(
            group.entities[:, link.start],
            group.relations[:, link.edge],
            offsets,
            tails,
            n3=self.config.n3,
            relation_weight=self.config.relation_weight,
            smoothing=label_smoothing,
        )

    def compare_with_sample(self, negatives: int) -> None:
        """From now on training compares with so many entities at each step, and with the tails of the step."""
        self.links.negatives = negatives

    @property
    def sparse_weights(self) -> tuple[str, ...]:
        """Names of the weights whose gradients are sparse."""
        return ("links.entities",) if self.links.negatives else ()

    @torch.no_grad()
    def scores(self, batch: Batch) -> torch.Tensor:
        """(V, E) logarithms of truths, comparable between queries; not normalised over the entities."""
        scores = self.links.entities.new_empty(len(batch.targets.gold), self.entity_count)
        for group in batch.groups:
            found = search_marginals(group, self.truths(), self.config.t_norm, self.config.beam)
            scores[group.rows.flatten()] = found.flatten(0, 1)
        return scores

    def truths(self) -> ScoredLinks:
        """Truth values of all links, by the options of solving."""
        return ScoredLinks(self.links, self.config.link, self._stored, certain=self.config.known == "one")

    @torch.no_grad()
    def tuples(
        self, queries: QuerySet, count: int, marginals: torch.Tensor | None = None, width: int | None = None
    ) -> list[Tuples]:
        """The best joint answers of each query that a beam over all variables finds, at most ``count``, all different;
        hidden variables are maximised out. Of ``marginals``, which come from the same links, only what is impossible
        counts."""
        if count < 1:
            raise InvalidOption(f"the number of tuples must be at least 1. Got {count}")
        config = self.config
        device = self.links.entities.device
        beside = None if marginals is None else only_possible(marginals.to(device), config.t_norm)
        kept = max(config.beam, width or count)
        return joint_tuples(self.encoder(queries), self.truths(), config.t_norm, kept, count, beside)


MODEL = CQD
