"""BiQE: a bidirectional transformer reads the whole query and fills in all of its targets at once.

Paper: section "The Bidirectional Query Encoder". A query is the set of its root-to-leaf paths. Each path is
written tail first, targets are [MASK], hidden variables are dropped, and positions restart at 0 on every path,
so that permuting the paths permutes the outputs and nothing else:

    h_0     = embed(token) + embed(position)
    h_(l+1) = layer(h_l)                 full attention over all paths of one query
    p(e)    = softmax(head(h_mask) . embed(e) + b_e)     the entity embeddings are those of the input

A target that occurs on several paths has several masks. The paper averages their output distributions
(``mask_average="probability"``); averaging their hidden states before the projection
(``mask_average="hidden"``) makes one prediction a target and costs fewer logits.

``positions="paper"`` tells tokens apart by their distance from the path's end, so two targets at equal distance
on two branches get the same output. ``positions="structure"`` adds to every attention logit a learned number
that depends on how the two tokens stand to each other in the query: on one path, with signed distance; the same
node or edge seen on two paths; or on two paths, with signed difference. It is as equivariant, and tells such
targets apart.

With a link predictor (``predictor_rank``; see _predictor.py) each target also has the logits that a trained ComplEx
gives it, walking the query from its constants. The encoder reads them at the masks, and decides for each target
how much they count:

    h_0(mask)  += map(q)                                            q: what arrives at the target
    p(e)        = softmax(head(h_mask) . embed(e) + b_e + gate(h_mask) q . complex(e))

While training, the predictor is silent in a share of the batches, so that the encoder learns to do without; in all of
them, and ever after, with ``predictor_dropout=1``. With ``search`` its links are searched, too, when queries are
answered, beside the encoder's distributions (see _search.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from biqe.errors import InvalidOption, TooManyPaths
from biqe.graph.knowledge_graph import Graph
from biqe.models._complex import ComplEx
from biqe.models._contract import Paper, QueryModel, Support, Trace, Tuples, refuse_unknown
from biqe.models._cqd.structures import StructuredQueries
from biqe.models._cqd.structures import support as solved
from biqe.models._dropout import PooledDropout
from biqe.models._entity_products import with_all
from biqe.models._fused_loss import Expert, fused_soft_cross_entropy, repeat_rows
from biqe.models._plan import EncodedPlans, walkable
from biqe.models._predictor import LinkPredictor, principal
from biqe.models._sampled_softmax import EntitySampler, sampled_soft_cross_entropy
from biqe.models._search import LinkSearch
from biqe.models._sharded import Rows, SplitEmbedding
from biqe.models._split_loss import split_soft_cross_entropy
from biqe.models._token_batches import Batch, EncodedQueries, Places, relative_buckets
from biqe.models._token_embedding import draw, embed, parted
from biqe.query.bound import BoundQuery, Outline
from biqe.query.dag import analyse
from biqe.query.queryset import QuerySet
from biqe.query.token_table import FIRST_ENTITY, token_table
from biqe.query.tokens import tokens

SUPPORTED = 4096
"""Outlines of supported queries that are remembered."""


@dataclass(frozen=True)
class Config:
    """What the encoder is; how it is trained belongs to training."""

    width: int = 256
    """Width of embeddings and of hidden states."""
    layers: int = 4
    """Encoder layers."""
    heads: int = 8
    """Attention heads; they divide the width."""
    feed_forward: int = 1024
    """Width of the layer between the two linear maps of a feed-forward block."""
    dropout: float = 0.1
    """Share of hidden values dropped while training."""
    positions: str = "structure"
    """How tokens know where they stand: paper (distance from the path's end) or structure (also relative)."""
    context: str = "full"
    """What a token sees: full (the whole query) or past (nothing that comes later on a path: the paper's analysis)."""
    norm: str = "pre"
    """Layer normalisation before each block (pre), or after it as in BERT (post)."""
    mask_average: str = "hidden"
    """What is averaged over the masks of one target: hidden (states) or probability (as in the paper)."""
    inverses: bool = True
    """Whether edges may be walked against their direction, so that questions can be turned to start at anchors."""
    max_position: int = 32
    """Longest path in tokens."""
    predictor_rank: int = 0
    """Rank of the link predictor inside; 0 for none. Set by --start-from, which with 0 gives its embeddings alone."""
    predictor_dropout: float = 0.5
    """Share of batches for which the link predictor is silent while training; 1: the encoder never hears it."""
    search: float = 0.0
    """How much a search over the predictor's links counts beside the encoder when queries are answered, from 0 (no
    search) to 1 (nothing else). Can be changed after training, which never searches."""
    search_beam: int = 4
    """Entities that the search keeps of each variable. Can be changed after training."""
    known: str = "one"
    """Whether links that the graph holds are sure when rows of several targets are found by the predictor's links: one
    or off. Can be changed after training."""

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "feed_forward", "max_position", "search_beam"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name!r} of biqe must be at least 1. Got {getattr(self, name)}")
        if self.width % self.heads:
            raise InvalidOption(
                f"'heads' of biqe must divide 'width'. Got {self.heads} heads and width {self.width}",
                hint=f"use a width of {self.heads * max(1, round(self.width / self.heads))}",
            )
        if self.predictor_rank < 0:
            raise InvalidOption(f"'predictor_rank' of biqe must not be negative. Got {self.predictor_rank}")
        if not 0.0 <= self.dropout < 1.0:
            raise InvalidOption(f"'dropout' of biqe must be in [0, 1). Got {self.dropout}")
        for name in ("predictor_dropout", "search"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidOption(f"{name!r} of biqe must be in [0, 1]. Got {getattr(self, name)}")
        if self.search and not self.predictor_rank:
            raise InvalidOption(
                f"'search' of biqe needs a link predictor inside, and there is none. Got {self.search}",
                hint="start from one: biqe train ... --start-from RUN",
            )
        for name, allowed in (
            ("positions", ("paper", "structure")),
            ("context", ("full", "past")),
            ("norm", ("pre", "post")),
            ("mask_average", ("hidden", "probability")),
            ("known", ("one", "off")),
        ):
            if getattr(self, name) not in allowed:
                raise InvalidOption(f"{name!r} of biqe must be {' or '.join(allowed)}. Got {getattr(self, name)!r}")

    @property
    def hears(self) -> bool:
        """Whether the encoder hears the link predictor inside."""
        return self.predictor_rank > 0 and self.predictor_dropout < 1.0


class Layer(nn.Module):
    """Self-attention and a feed-forward block, each with a residual connection."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.pre = config.norm == "pre"
        self.attention_in = nn.Linear(config.width, 3 * config.width)
        self.attention_out = nn.Linear(config.width, config.width)
        self.attention_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.feed_in = nn.Linear(config.width, config.feed_forward)
        self.feed_out = nn.Linear(config.feed_forward, config.width)
        self.feed_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.dropout = PooledDropout(config.dropout)

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        places: Places,
        keep: list[torch.Tensor] | None = None,
        at_masks: bool = False,
    ) -> torch.Tensor:
        """(N, D) all tokens that ``places`` has; or (n, D) the masks, which is cheaper and all that is projected."""
        y = self._attend(self.attention_norm(x) if self.pre else x, bias, places, keep, at_masks)
        if at_masks:
            x = x.index_select(0, places.mask_rows)
        x = x + self.dropout(y)
        if self.pre:
            return x + self.dropout(self.feed_out(F.gelu(self.feed_in(self.feed_norm(x)))))
        x = self.attention_norm(x)
        return self.feed_norm(x + self.dropout(self.feed_out(F.gelu(self.feed_in(x)))))

    def _attend(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        places: Places,
        keep: list[torch.Tensor] | None,
        at_masks: bool,
    ) -> torch.Tensor:
        (B, T), D = places.shape, x.shape[-1]
        q, k, v = (
            places.spread(self.attention_in(x)).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        )  # (B, H, T, D/H)
        if bias is None and keep is None:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            # The library's fused attention has no gradient for a bias, and guards against rows that are masked
            # throughout, which do not occur here; this is the same without the detour.
            scale = (D // self.heads) ** -0.5
            q, k, v = (part.reshape(B * self.heads, T, D // self.heads) for part in (q, k, v))
            if bias is None:
                logits = torch.bmm(q, k.transpose(1, 2)) * scale
            else:
                logits = torch.baddbmm(
                    bias.expand(B, self.heads, T, T).reshape(-1, T, T), q, k.transpose(1, 2), alpha=scale
                )
            weights = torch.softmax(logits, -1)  # (B * H, T, T)
            if keep is not None:
                keep.append(weights.view(B, self.heads, T, T))
            y = torch.bmm(weights, v).view(B, self.heads, T, D // self.heads)
        y = y.transpose(1, 2).reshape(B * T, D)
        return self.attention_out(y.index_select(0, places.masks) if at_masks else places.gather(y))


class BiQE(QueryModel):
    """The bidirectional query encoder.

    **Use it when** several variables are unknown at once, or a query has an arbitrary acyclic shape.
    """

    name = "biqe"
    paper = Paper(
        "Kotnis, Lawrence, Niepert",
        2021,
        "Answering Complex Queries in Knowledge Graphs with Bidirectional Sequence Encoders",
    )

    summary = "a bidirectional transformer reads the whole query and fills in all targets at once"
    uses_answers = True
    can_sample = True
    train_defaults = {"batch_tokens": 2000, "batch_queries": 400}
    solving_options = ("search", "search_beam", "known")
    links_first = {"predictor_dropout": 1.0, "search": 0.5, "dropout": 0.15}
    draws_only_weights = True
    uses_all_weights = True
    entity_rows = ("embed_entities.weight", "entity_bias")
    tables = {
        "embed_entities.weight": "entities",
        "embed_others.weight": "mask and directions",
        "entity_bias": "entities",
        "predictor.entities": "entities",
        "predictor.relations": "directions",
    }

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.config = config
        self.entity_count = entity_count
        self.relation_count = relation_count
        self._supported: set[tuple[Outline, bool]] = set()
        """Queries that were found to be supported, by outline and by whether strictly."""
        self.embed_entities = _undrawn(entity_count, config.width)
        self.embed_others = _undrawn(FIRST_ENTITY + 2 * relation_count, config.width)
        draw(self.embed_entities, self.embed_others, std=1.0)
        self.embed_positions = nn.Embedding(config.max_position, config.width)
        self.embed_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, eps=1e-12) if config.norm == "pre" else nn.Identity()
        self.dropout = PooledDropout(config.dropout)
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width), nn.GELU(), nn.LayerNorm(config.width, eps=1e-12)
        )
        self.entity_bias = nn.Parameter(torch.zeros(entity_count))
        self._graph: Graph | None = None
        self._search: LinkSearch | None = None
        self._sampler: EntitySampler | None = None
        self._rows: Rows | None = None
        self._reach = min(config.max_position - 1, 12) if config.positions == "structure" else None
        if self._reach is not None:
            self.relative_bias = nn.Embedding(relative_buckets(self._reach), config.heads)
        if config.predictor_rank:
            self.predictor = LinkPredictor(config.predictor_rank, entity_count, relation_count)
        if config.hears:
            self.predictor_in = nn.Linear(2 * config.predictor_rank, config.width)
            self.predictor_gate = nn.Linear(config.width, 1)
        draw(self.embed_entities, self.embed_others, std=0.02)
        self.apply(self._initialise)
        if config.hears:
            nn.init.zeros_(self.predictor_in.weight)
            nn.init.constant_(self.predictor_gate.bias, 1.0)
        if self._reach is not None:
            nn.init.zeros_(self.relative_bias.weight)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding) and module not in (self.embed_entities, self.embed_others):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def renamed(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The one table of tokens that earlier versions saved, in two."""
        return parted(tensors, self.entity_count)

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Acyclic, connected queries whose targets it can tell apart."""
        key = query.outline, strict
        if key in self._supported:
            return Support(True)
        found = self._support(query, strict)
        if found.yes and len(self._supported) < SUPPORTED:
            self._supported.add(key)
        return found

    def _support(self, query: BoundQuery, strict: bool) -> Support:
        # Of what is looked at here, nothing depends on which entities and which relations the query names.
        dag = analyse(query)
        if not dag.is_acyclic:
            return Support(
                False,
                "biqe reads root-to-leaf paths, and this query has a cycle",
                "drop one pattern of the cycle, or ask in known mode",
            )
        if not dag.is_connected:
            return Support(
                False, "biqe reads one connected query, and this one has separate parts", "ask the parts one at a time"
            )
        try:
            table = token_table(QuerySet.of([query]), self.entity_count)
        except TooManyPaths as error:
            return Support(False, error.message, error.hint)
        longest = int(table.positions.max(initial=0)) + 1
        if longest > self.config.max_position:
            return Support(
                False,
                f"biqe reads paths of up to {self.config.max_position} tokens, not {longest}",
                "ask for a shorter path, or train with a larger max_position",
            )
        if self.config.hears:
            walked = walkable(query, "biqe with a link predictor", inverses=self.config.inverses)
            if not walked:
                return walked
        twins = tokens(query).twins if strict and self.config.positions == "paper" else ()
        if twins:
            first, second = (f"?{query.names[n]}" if query.names else f"target {n}" for n in twins[0][:2])
            return Support(
                False,
                f"biqe with positions='paper' cannot predict {first} and {second} together: their masks stand at "
                "the same distance from the end of their paths, and that is how it tells targets apart",
                "ask for one of them, or use a model trained with positions='structure'",
            )
        return Support(True)

    def encode(self, queries: QuerySet) -> EncodedQueries:
        plans = EncodedPlans(queries, self.relation_count) if self.config.hears else None
        structured = None
        if self.config.search:
            structured = partial(
                StructuredQueries, queries, self.entity_count, self.relation_count, self.name, leave_out=True
            )
        return EncodedQueries(queries, self.entity_count, self._reach, plans, structured)

    def solving(self, **options: Any) -> BiQE:
        """The same weights with more or less of the search over links: ``model.solving(search=0.5)``."""
        if other := sorted(options.keys() - set(self.solving_options)):
            raise InvalidOption(
                f"{other[0]!r} of biqe cannot be changed after training",
                hint=f"these can: {', '.join(self.solving_options)}",
            )
        found = copy(self)
        found.config, found._supported, found._search = replace(self.config, **options), set(), None
        return found

    def without_search(self) -> BiQE:
        return self.solving(search=0.0) if self.config.search else self

    @property
    def looks_at_graph(self) -> bool:
        """With a predictor inside: the graph tells how many tails a pair has, and which links of a row it holds."""
        return self.config.predictor_rank > 0

    def use_graph(self, graph: Graph) -> None:
        self._graph, self._search = graph, None

    @classmethod
    def options_from(cls, predictor: QueryModel) -> dict[str, int]:
        """Options that make room for ``predictor``, a cqd model, inside."""
        return {"predictor_rank": _complex_of(predictor).rank}

    @torch.no_grad()
    def start_from(self, predictor: QueryModel) -> None:
        """Take over the link predictor, and begin with token embeddings that are its own in fewer directions. Without
        room for it (``predictor_rank=0``) the embeddings are all that is taken."""
        found = _complex_of(predictor)
        room = self.config.predictor_rank
        if room not in (0, found.rank):
            raise InvalidOption(
                f"the link predictor has rank {found.rank}, and this model has room for {room}",
                hint=f"use predictor_rank={found.rank}, or 0 to begin with its embeddings alone",
            )
        if room:
            self.predictor.entities.copy_(found.entities)
            self.predictor.relations.copy_(found.relations)
        spread = float(torch.cat([self.embed_others.weight, self.embed_entities.weight]).std())
        self.embed_entities.weight.copy_(principal(found.entities, self.config.width, spread))
        self.embed_others.weight[FIRST_ENTITY:] = principal(found.relations, self.config.width, spread)

    def hidden(
        self,
        batch: Batch,
        keep: list[torch.Tensor] | None = None,
        arriving: torch.Tensor | None = None,
        *,
        at_masks: bool = False,
    ) -> torch.Tensor:
        """(B, T, D) hidden states after the last layer; or (n, D), those of the masks alone, which is cheaper.
        Attention weights are appended to ``keep``. ``arriving`` (V, F) is what the link predictor says about each
        target."""
        # Without padding there is less to compute; in training, whose batches have little, copying would cost more.
        places = Places.of(batch, packed=not self.training)
        tokens, positions = (places.gather(ids.view(-1, 1)).view(-1) for ids in (batch.tokens, batch.positions))
        x = embed(tokens, self.embed_entities, self.embed_others)  # (N, D)
        x = x + self.embed_positions(positions)
        if arriving is not None:
            said = self.predictor_in(F.normalize(arriving, dim=1))[batch.mask_targets]  # (n, D)
            x = x.index_add(0, places.mask_rows, said)
        x = self.dropout(self.embed_norm(x))
        bias = self._attention_bias(batch)
        for layer in self.layers:
            x = layer(x, bias, places, keep, at_masks and layer is self.layers[-1])
        x = self.final_norm(x)
        return x if at_masks else places.spread(x).view(*places.shape, -1)

    def _attention_bias(self, batch: Batch) -> torch.Tensor | None:
        """(B, H, T, T), or broadcastable to it; None where every token sees every other alike."""
        bias = None
        if batch.relative is not None:
            bias = self.relative_bias(batch.relative).permute(0, 3, 1, 2).contiguous()
        if batch.padding is not None:
            hide = torch.zeros(batch.padding.shape).masked_fill_(batch.padding, float("-inf"))[:, None, None, :]
            bias = hide if bias is None else bias + hide
        if self.config.context == "past":
            # Paths are written tail first, so what comes later on a path stands at a smaller position.
            later = batch.positions[:, None, None, :] < batch.positions[:, None, :, None]  # (B, 1, T, T)
            hide = torch.zeros(later.shape).masked_fill_(later, float("-inf"))
            bias = hide if bias is None else bias + hide
        return bias

    def _said(self, batch: Batch) -> torch.Tensor | None:
        """(V, F) what arrives at each target in the link predictor; None where it is silent."""
        if batch.plan is None:
            return None
        # Silence is drawn for a whole batch, which then costs no more than without a predictor.
        if self.training and float(torch.rand(())) < self.config.predictor_dropout:
            return None
        return self.predictor.arriving(batch.plan)

    def _projected(
        self, batch: Batch, at_masks: torch.Tensor, arriving: torch.Tensor | None
    ) -> tuple[torch.Tensor, Expert | None]:
        """Of (n, D) hidden states at the masks, what is projected: (V, D), one a target, or (n, D), one a mask; and the
        second opinion."""
        if self.config.mask_average == "hidden":
            at_masks = self._sum_by_target(batch, at_masks) / batch.mask_counts.unsqueeze(1)
        elif arriving is not None:
            arriving = arriving[batch.mask_targets]
        expert = None
        if arriving is not None:
            expert = Expert(arriving, self.predictor.entities, F.softplus(self.predictor_gate(at_masks)))
        return self.head(at_masks), expert

    def _sum_by_target(self, batch: Batch, rows: torch.Tensor) -> torch.Tensor:
        total = rows.new_zeros(len(batch.mask_counts), rows.shape[1])
        return total.index_add(0, batch.mask_targets, rows)

    @property
    def entity_weight(self) -> torch.Tensor:
        """(E, D) the entities' embeddings: input and output share them."""
        return self.embed_entities.weight

    def sample_softmax(self, graph: Graph, negatives: int) -> None:
        """From now on, ``loss`` samples entities, and its gradients hold only the rows that it read."""
        if self._rows is None:
            self._sampler = EntitySampler.of(graph, negatives)
        else:  # each rank draws its part of them from its own rows
            rows = self._rows
            self._sampler = EntitySampler.of(graph, -(-negatives // rows.world), rows.first, rows.last)
        self.embed_entities.sparse = True

    def split_entities(self, rows: Rows) -> None:
        """Keep only ``rows`` of the entities' embeddings and biases. To be called before ``sample_softmax``."""
        self._rows = rows
        self.embed_entities = SplitEmbedding(self.embed_entities, rows)
        self.entity_bias = nn.Parameter(rows.of(self.entity_bias.detach()))

    def predictions(self, batch: Batch) -> int:
        """One a target, or one a mask where probabilities are averaged."""
        return len(batch.targets.gold) if self.config.mask_average == "hidden" else len(batch.masks)

    @property
    def row_weights(self) -> tuple[str, ...]:
        """The entities' own weights, while entities are sampled."""
        return () if self._sampler is None else self.entity_rows

    def loss(self, batch: Batch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """Cross-entropy over all entities, or over a sample of them, at the targets only."""
        arriving = self._said(batch)
        hidden = self.hidden(batch, arriving=arriving, at_masks=True)
        if arriving is None and batch.plan is not None:
            # Weights that were not asked have a gradient of 0, not none: an optimiser treats the two differently.
            parts = (*self.predictor_in.parameters(), *self.predictor_gate.parameters())
            hidden = hidden + 0.0 * torch.stack([part.sum() for part in parts]).sum()
        at_masks, expert = self._projected(batch, hidden, arriving)
        targets = batch.targets
        offsets, answers = targets.offsets, targets.answers
        if offsets is None or answers is None:
            refuse_unknown(targets.gold >= 0, self.name)
            offsets, answers = torch.arange(len(targets.gold) + 1), targets.gold
        if self.config.mask_average == "probability":
            offsets, answers = repeat_rows(offsets, answers, batch.mask_targets)
        if self._rows is not None:
            sample = None if self._sampler is None else self._sampler.draw()
            if expert is None and batch.plan is not None:  # heard on other ranks perhaps, and exchanged with them
                nothing = at_masks.new_zeros(len(at_masks), 2 * self.config.predictor_rank)
                expert = Expert(nothing, self.predictor.entities, nothing[:, :1])
            return split_soft_cross_entropy(
                at_masks,
                self.entity_weight,
                self.entity_bias,
                offsets,
                answers,
                label_smoothing,
                expert,
                self._rows,
                sample,
            )
        if self._sampler is not None:
            return sampled_soft_cross_entropy(
                at_masks,
                self.entity_weight,
                self.entity_bias,
                offsets,
                answers,
                self._sampler.draw(),
                label_smoothing,
                expert,
            )
        return fused_soft_cross_entropy(
            at_masks, self.entity_weight, self.entity_bias, offsets, answers, label_smoothing, expert
        )

    def at_targets(self, batch: Batch) -> torch.Tensor:
        """(V, D), one a target, or under mask_average=probability (n, D), one a mask: what entities are compared with.
        Logits are its products with ``entity_weight``, and ``entity_bias``."""
        arriving = self._said(batch)
        return self._projected(batch, self.hidden(batch, arriving=arriving, at_masks=True), arriving)[0]

    def scores(self, batch: Batch) -> torch.Tensor:
        return self._log_probabilities(batch, None)

    def trace(self, batch: Batch) -> Trace:
        attention: list[torch.Tensor] = []
        return Trace(self._log_probabilities(batch, attention), tuple(attention), batch)

    def _log_probabilities(self, batch: Batch, keep: list[torch.Tensor] | None) -> torch.Tensor:
        arriving = self._said(batch)
        at_masks, expert = self._projected(batch, self.hidden(batch, keep, arriving, at_masks=True), arriving)
        logits = with_all(at_masks, self.entity_weight, self.entity_bias)  # (V or n, E)
        if expert is not None:
            logits += expert.logits()
        if self.config.mask_average == "hidden":
            # The search makes shares of what it finds: what all entities of a target have in common is nothing to it.
            return torch.log_softmax(logits, 1) if batch.structured is None else self._with_search(batch, logits)
        mean = self._sum_by_target(batch, torch.softmax(logits, 1)) / batch.mask_counts.unsqueeze(1)
        # Probabilities below the smallest float would be -inf, and equal; they still must be finite.
        return self._with_search(batch, mean.clamp_min_(torch.finfo(mean.dtype).tiny).log())

    def _with_search(self, batch: Batch, own: torch.Tensor) -> torch.Tensor:
        """(V, E) the encoder's distributions ``own``, with a search over links beside them."""
        if batch.structured is None:
            return own
        config = self.config
        return self._link_search().log_probabilities(batch.structured(), own, config.search, config.search_beam)

    def _link_search(self) -> LinkSearch:
        if self._search is None:
            known_is_sure = self.config.known == "one"
            self._search = LinkSearch(self.predictor, self._graph, known_is_sure=known_is_sure)
        return self._search

    def tuples(
        self, queries: QuerySet, count: int, marginals: torch.Tensor | None = None, width: int | None = None
    ) -> list[Tuples] | None:
        """With a link predictor inside: tuples of entities that the model expects and that its links join."""
        if not self.config.predictor_rank or not all(solved(query, self.name) for query in queries):
            return None
        own = self.scores(self.encoder(queries)) if marginals is None else marginals
        batch = StructuredQueries(queries, self.entity_count, self.relation_count, self.name).batch(
            np.arange(len(queries))
        )
        return self._link_search().tuples(batch, count, own, width or self.config.search_beam)

    @property
    def finds_tuples(self) -> bool:
        """Where it has links to join them by."""
        return self.config.predictor_rank > 0


def _complex_of(predictor: QueryModel) -> ComplEx:
    found = getattr(predictor, "predictor", None)
    if not isinstance(found, ComplEx):
        raise InvalidOption(
            f"biqe can start from the link predictor cqd. Got {predictor.name}",
            hint="train one with: biqe train GRAPH --model cqd --out RUN",
        )
    return found


def _undrawn(rows: int, width: int) -> nn.Embedding:
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width))


MODEL = BiQE
