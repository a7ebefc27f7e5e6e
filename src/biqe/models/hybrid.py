"""Hybrid: the encoder of BiQE and a link predictor (ComplEx) in one model.

The predictor is trained first, on the triples of the graph, and stays as it is from then on. It serves three times:

    start    the encoder's embeddings begin as the predictor's, in fewer directions: the encoder would take longer to
             learn them from queries
    search   when queries are answered, a search over the predictor's links stands beside the encoder's distributions
             (``search`` is its weight; links/search.py); training never searches
    tuples   rows of several targets are joint assignments that the links hold together

At the end of a run the voices of ComplEx, rules and kinds are weighed on held-out facts (links/probability.py). A
hybrid with this ``knowledge`` searches calibrated probabilities of links; without it, ComplEx's own truth values.

Use it unless you want the paper's encoder by itself: it is what ``biqe train`` makes by default.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from biqe.errors import InvalidOption
from biqe.graph.knowledge_graph import Graph
from biqe.links import search, structures
from biqe.links.beam import Tuples
from biqe.links.complex import ComplEx, principal
from biqe.links.stored import StoredLinks
from biqe.links.structures import StructuredQueries, Support
from biqe.links.truth import Links, ScoredLinks
from biqe.models import _tokens, biqe
from biqe.models._contract import QueryModel, check_options
from biqe.models._device import on_device
from biqe.models._tokens import EncodedQueries
from biqe.query.bound import BoundQuery, QuerySet
from biqe.query.tokens import FIRST_ENTITY

if TYPE_CHECKING:
    from biqe.links.knowledge import Knowledge
    from biqe.links.probability import LinkProbability


WAY = ("search", "search_beam", "stored", "truth")
"""Options of how a single target is ranked."""


@dataclass(frozen=True)
class Config(biqe.Config):
    """What encoder and links are, and how queries are solved with both."""

    dropout: float = 0.15
    """Share of hidden values dropped while training."""
    rank: int = 200
    """Complex numbers in each vector of the link predictor; decided by the one that the model starts from."""
    search: float = 0.5
    """Weight of the search over links beside the encoder when queries are answered, from 0 (no search) to 1 (the
    search alone). Can be changed after training."""
    search_beam: int = 4
    """Entities that the search keeps of each variable. Can be changed after training."""
    known: str = "one"
    """Whether links that the graph holds are certain when rows of several targets are found: one or off. Can be changed
    after training."""
    stored: str = "off"
    """The same for single targets. Can be changed after training."""
    truth: str = "probability"
    """What a link is worth when single targets are ranked: probability (calibrated), or counted, which is by the link
    predictor alone (links/truth.py). Can be changed after training."""
    by_shape: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What a run found best on its held-out questions: search, search_beam, stored and truth by the shape of a
    question (links/structures.py). Forgotten where one of these four is changed by hand."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = dict.fromkeys(("rank", "search_beam"), "at least 1")
        check_options(self, {**least, "search": "in [0, 1]", "known": ("one", "off"), "stored": ("one", "off")})
        check_options(self, {"truth": ("probability", "counted")})
        if not isinstance(self.by_shape, dict):
            raise InvalidOption("'by_shape' of hybrid is chosen by a run", hint=f"change {', '.join(WAY)}")
        for shape, way in self.by_shape.items():
            if shape not in structures.SHAPES or not way.keys() <= set(WAY):
                raise InvalidOption(
                    f"'by_shape' of hybrid must give {', '.join(WAY)} for {', '.join(structures.SHAPES)}. "
                    f"Got {shape}: {', '.join(way)}"
                )
            self.for_shape(shape)

    def for_shape(self, shape: str) -> Config:
        """How questions of this shape are solved."""
        return replace(self, by_shape={}, **self.by_shape[shape]) if shape in self.by_shape else self


@dataclass(frozen=True)
class Batch(_tokens.Batch):
    """Queries as tokens, and as the search solves them."""

    encoded: HybridQueries

    def structured(self) -> structures.Batch:
        """The same queries as the search solves them; only those that it can solve."""
        return on_device(self.encoded.structured.batch(self.rows), self.tokens.device)


class HybridQueries(EncodedQueries):
    """A query set as tokens and, once a search asks for it, by structure."""

    def __init__(self, queries: QuerySet, model: Hybrid) -> None:
        super().__init__(queries, model.entity_count, model.relative_reach)
        self._queries, self._model = queries, model

    @property
    def has_negations(self) -> bool:
        """Whether a query has a negated part, which the search alone can judge."""
        return self._queries.negated is not None

    @cached_property
    def structured(self) -> StructuredQueries:
        """By structure; queries that cannot be solved are left out."""
        model = self._model
        return StructuredQueries(self._queries, model.entity_count, model.relation_count, model.name, leave_out=True)

    def batch(self, rows: NDArray[np.integer]) -> Batch:
        """The queries ``rows``, in this order."""
        return Batch(**vars(super().batch(rows)), encoded=self)


class Hybrid(biqe.BiQE):
    """BiQE's encoder with a link predictor beside it."""

    name = "hybrid"
    summary = "biqe with a link predictor: it begins with the predictor's embeddings, and searches its links"
    tables = {**biqe.BiQE.tables, "links.entities": "entities", "links.relations": "directions"}
    solves_negation = True
    solving_options = (*WAY, "known", "by_shape")
    config: Config

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__(config, entity_count, relation_count)
        self.links = ComplEx(config.rank, entity_count, relation_count).requires_grad_(False)
        self.knowledge: Knowledge | None = None
        """What is known of links beside ComplEx; a model folder has it in a file of its own."""
        self._graph: Graph | None = None

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """What the encoder reads; and with a negated part what the search over links solves."""
        return structures.support(query, self.name) if query.negated else super().supports(query, strict=strict)

    def encode(self, queries: QuerySet) -> HybridQueries:
        return HybridQueries(queries, self)

    @classmethod
    def options_from(cls, predictor: QueryModel) -> dict[str, int]:
        """The rank of ``predictor``, a cqd model."""
        return {"rank": _complex_of(predictor).rank}

    @torch.no_grad()
    def start_from(self, predictor: QueryModel) -> None:
        """Take over the link predictor, and begin with token embeddings that are its own in fewer directions."""
        found = _complex_of(predictor)
        if found.rank != self.config.rank:
            raise InvalidOption(
                f"the link predictor has rank {found.rank}, and this model has room for {self.config.rank}",
                hint=f"use rank={found.rank}, or leave it out",
            )
        self.links.load_state_dict(found.state_dict())
        spread = float(torch.cat([self.embed_others.weight, self.embed_entities.weight]).std())
        self.embed_entities.weight.copy_(principal(found.entities, self.config.width, spread))
        self.embed_others.weight[FIRST_ENTITY:] = principal(found.relations, self.config.width, spread)

    def solving(self, **options: Any) -> Hybrid:
        """The same weights with more or less of the search over links: ``model.solving(search=0.5)``."""
        if other := sorted(options.keys() - set(self.solving_options)):
            raise InvalidOption(
                f"{other[0]!r} of hybrid cannot be changed after training",
                hint=f"these can: {', '.join(self.solving_options)}",
            )
        if options.keys() & set(WAY):
            options = {"by_shape": {}, **options}
        config = replace(self.config, **options)
        if config == self.config:
            return self
        found = copy(self)
        found.config = config
        return found

    def without_search(self) -> Hybrid:
        """The encoder alone."""
        return self.solving(search=0.0)

    @property
    def looks_facts_up(self) -> bool:
        """Where stored links are certain for ``scores``; else they are judged like all others."""
        return any(self.config.for_shape(shape).stored == "one" for shape in structures.SHAPES)

    def use_graph(self, graph: Graph) -> None:
        """Links of ``graph`` say how many tails a pair has, and which links of a row are stored."""
        self._graph = graph
        self.__dict__.pop("link_probability", None)
        self.__dict__.pop("_stored", None)

    @cached_property
    def _stored(self) -> StoredLinks | None:
        return None if self._graph is None else StoredLinks(self._graph)

    @cached_property
    def link_probability(self) -> LinkProbability | None:
        """Probabilities of links over the graph in use; None where nothing was fitted."""
        if self.knowledge is None or self._graph is None:
            return None
        from biqe.links.probability import LinkProbability

        return LinkProbability(self.knowledge, self.links, self._graph)

    def _links(self, certain: bool, truth: str = "probability") -> Links:
        """What the search works on."""
        if self.link_probability is not None and truth == "probability":
            return self.link_probability.believing(certain)
        return ScoredLinks(self.links, "counted", self._stored, certain=certain)

    def logits(self, batch: _tokens.Batch, keep: list[torch.Tensor] | None = None) -> torch.Tensor:
        """(V, E) log-probabilities, up to a number that the entities of a target share: the encoder's, with the search
        beside them. Where the search alone decides, the encoder is not asked."""
        searches = self.config.search or self.config.by_shape
        if not isinstance(batch, Batch) or not (searches or batch.encoded.has_negations):
            return super().logits(batch, keep)
        ways = self._ways(batch)
        searched = sum(group.rows.numel() for groups in ways.values() for group in groups)
        links_decide = searched == len(batch.targets.gold) and all(weight == 1.0 for weight, *_ in ways)
        if keep is None and links_decide:
            own = self.entity_bias.new_zeros(searched, self.entity_count)
        else:
            own = super().logits(batch, keep)
        found = own.clone()
        for (weight, width, stored, truth), groups in ways.items():
            links = self._links(stored == "one", truth)
            for rows, scores in search.beside_encoder(groups, links, own, weight, width):
                found[rows] = scores
        return found

    def _ways(self, batch: Batch) -> dict[tuple[float, int, str, str], list[structures.Group]]:
        """Queries that are searched, by the weight, the beam, what is certain and what a link is worth."""
        ways: dict[tuple[float, int, str, str], list[structures.Group]] = {}
        for group in batch.structured().groups:
            way = self.config.for_shape(group.structure.shape)
            if group.structure.negations:  # which the encoder cannot read
                way = replace(way, search=1.0, stored="one")
            if way.search:
                ways.setdefault((way.search, way.search_beam, way.stored, way.truth), []).append(group)
        return ways

    def raw_scores(self, batch: _tokens.Batch) -> torch.Tensor:
        """(V, E) truths where the links alone decide, which can be compared between the rows of a union; else as
        ``scores``. The two rows of a union have one shape, so both are of one sort."""
        found = self.logits(batch)
        scores = torch.log_softmax(found, 1)
        if isinstance(batch, Batch):
            decided = [group for way, groups in self._ways(batch).items() if way[0] == 1.0 for group in groups]
            for rows in (group.rows.flatten() for group in decided):
                scores[rows] = found[rows]
        return scores

    def tuples(
        self, queries: QuerySet, count: int, marginals: torch.Tensor | None = None, width: int | None = None
    ) -> list[Tuples] | None:
        """Rows of entities that the model expects and that its links join."""
        if not all(structures.support(query, self.name) for query in queries):
            return None
        own = self.scores(self.encoder(queries)) if marginals is None else marginals.to(self.entity_bias.device)
        solved = StructuredQueries(queries, self.entity_count, self.relation_count, self.name)
        batch = on_device(solved.batch(np.arange(len(queries))), own.device)
        links = self._links(certain=self.config.known == "one")
        return search.tuples_beside_encoder(batch, links, own, count, width or self.config.search_beam)


def _complex_of(predictor: QueryModel) -> ComplEx:
    found = getattr(predictor, "links", None)
    if not isinstance(found, ComplEx):
        raise InvalidOption(
            f"a hybrid can start from the link predictor cqd. Got {predictor.name}",
            hint="train one with: biqe train GRAPH --model cqd --out RUN",
        )
    return found


MODEL = Hybrid
