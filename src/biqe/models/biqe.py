"""BiQE: a bidirectional transformer reads the whole query and fills in all of its targets at once.

Paper: section "The Bidirectional Query Encoder". A query is the set of its root-to-leaf paths. Each path is written
tail first, targets are [MASK], hidden variables are dropped, and positions restart at 0 on every path, so that
permuting the paths permutes the outputs and nothing else:

    h_0     = embed(token) + embed(position)
    h_(l+1) = layer(h_l)                 full attention over all paths of one query
    p(e)    = softmax(head(h_mask) . embed(e) + b_e)     the entity embeddings are those of the input

A target that occurs on several paths has several masks. The paper averages their output distributions
(``mask_average="probability"``); averaging their hidden states (``mask_average="hidden"``) costs fewer logits.

``positions="paper"`` tells tokens apart by their distance from the path's end, so two targets at equal distance on two
branches get the same output. ``positions="structure"`` adds to every attention logit a learned number that depends on
how the two tokens stand to each other: on one path, with signed distance; the same node or edge seen on two paths; or
on two paths, with signed difference. It is as equivariant, and tells such targets apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biqe.errors import InvalidOption, TooManyPaths
from biqe.links.softmax import repeat_rows, soft_cross_entropy, with_all
from biqe.models._contract import ENTITY_ROWS, EntityLoss, Paper, QueryModel, Support, Trace, check_options
from biqe.models._draws import PooledDropout
from biqe.models._tokens import Batch, EncodedQueries, Places, embed, relative_buckets
from biqe.query.bound import BoundQuery, Outline, QuerySet
from biqe.query.dag import analyse
from biqe.query.tokens import FIRST_ENTITY, token_table, tokens

REMEMBERED = 4096
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
    attention_dropout: float = 0.0
    """Share of attention weights dropped while training; as much as of hidden values in BERT."""
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

    def __post_init__(self) -> None:
        sizes = dict.fromkeys(("width", "layers", "heads", "feed_forward", "max_position"), "at least 1")
        words = {"positions": ("paper", "structure"), "context": ("full", "past"), "norm": ("pre", "post")}
        average = {"mask_average": ("hidden", "probability")}
        shares = dict.fromkeys(("dropout", "attention_dropout"), "in [0, 1)")
        check_options(self, {**sizes, **words, **average, **shares})
        if self.width % self.heads:
            raise InvalidOption(
                f"'heads' must divide 'width'. Got {self.heads} heads and width {self.width}",
                hint=f"use a width of {self.heads * max(1, round(self.width / self.heads))}",
            )


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
        self.attention_dropout = PooledDropout(config.attention_dropout)

    def forward(self, x: Tensor, bias: Tensor | None, places: Places, keep: list[Tensor] | None, last: bool) -> Tensor:
        """(N, D) -> (N, D); or in the ``last`` layer (n, D), the masks alone, which is cheaper and all that is
        projected. Attention weights are appended to ``keep``."""
        y = self._attend(self.attention_norm(x) if self.pre else x, bias, places, keep, last)
        if last:
            x = x.index_select(0, places.mask_rows)
        x = x + self.dropout(y)
        if self.pre:
            return x + self.dropout(self.feed_out(F.gelu(self.feed_in(self.feed_norm(x)))))
        x = self.attention_norm(x)
        return self.feed_norm(x + self.dropout(self.feed_out(F.gelu(self.feed_in(x)))))

    def _attend(self, x: Tensor, bias: Tensor | None, places: Places, keep: list[Tensor] | None, last: bool) -> Tensor:
        (B, T), D, H = places.shape, x.shape[-1], self.heads
        q, k, v = places.spread(self.attention_in(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)  # (B, H, T, D/H)
        if bias is None and keep is None and not (self.training and self.attention_dropout.share):
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            # The fused attention has no gradient for a bias; this is the same, written out.
            scale = (D // H) ** -0.5
            q, k, v = (part.reshape(B * H, T, D // H) for part in (q, k, v))
            added = x.new_zeros(()) if bias is None else bias.expand(B, H, T, T).reshape(-1, T, T)
            weights = torch.softmax(torch.baddbmm(added, q, k.transpose(1, 2), alpha=scale), -1)  # (B * H, T, T)
            if keep is not None:
                keep.append(weights.view(B, H, T, T))
            y = torch.bmm(self.attention_dropout(weights), v).view(B, H, T, D // H)
        y = y.transpose(1, 2).reshape(B * T, D)
        return self.attention_out(y.index_select(0, places.masks) if last else places.gather(y))


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
    uses_answers = uses_all_weights = draws_only_weights = layers_in_bfloat16 = True
    train_defaults = {"batch_tokens": 2000, "batch_queries": 400}
    tables = dict.fromkeys(ENTITY_ROWS, "entities") | {"embed_others.weight": "mask and directions"}

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.config = config
        self.entity_count = entity_count
        self.relation_count = relation_count
        self.entity_loss: EntityLoss = soft_cross_entropy
        self._supported: set[tuple[Outline, bool]] = set()
        width = config.width
        self.embed_entities = nn.Embedding(entity_count, width)
        self.embed_others = nn.Embedding(FIRST_ENTITY + 2 * relation_count, width)  # [MASK], relations, inverses
        self.embed_positions = nn.Embedding(config.max_position, width)
        self.embed_norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(width, eps=1e-12) if config.norm == "pre" else nn.Identity()
        self.dropout = PooledDropout(config.dropout)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.entity_bias = nn.Parameter(torch.zeros(entity_count))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self.relative_reach = min(config.max_position - 1, 12) if config.positions == "structure" else None
        if self.relative_reach is not None:
            self.relative_bias = nn.Embedding(relative_buckets(self.relative_reach), config.heads)
            nn.init.zeros_(self.relative_bias.weight)

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Acyclic, connected queries whose targets it can tell apart."""
        key = query.outline, strict  # which entities and relations the query names does not matter
        found = Support(True) if key in self._supported else self._support(query, strict)
        if found and len(self._supported) < REMEMBERED:
            self._supported.add(key)
        return found

    def _support(self, query: BoundQuery, strict: bool) -> Support:
        dag = analyse(query)
        if not dag.is_acyclic:
            reason = f"{self.name} reads root-to-leaf paths, and this query has a cycle"
            return Support(False, reason, "drop one pattern of the cycle, or ask in known mode")
        if not dag.is_connected:
            reason = f"{self.name} reads one connected query, and this one has separate parts"
            return Support(False, reason, "ask the parts one at a time")
        try:
            table = token_table(QuerySet.of([query]), self.entity_count)
        except TooManyPaths as error:
            return Support(False, error.message, error.hint)
        longest, most = int(table.positions.max(initial=0)) + 1, self.config.max_position
        if longest > most:
            reason = f"{self.name} reads paths of up to {most} tokens, not {longest}"
            return Support(False, reason, "ask for a shorter path, or train with a larger max_position")
        twins = tokens(query).twins if strict and self.config.positions == "paper" else ()
        if twins:
            first, second = (f"?{query.names[n]}" if query.names else f"target {n}" for n in twins[0][:2])
            return Support(
                False,
                f"{self.name} with positions='paper' cannot predict {first} and {second} together: their masks stand "
                "at the same distance from the end of their paths, and that is how it tells targets apart",
                "ask for one of them, or use a model trained with positions='structure'",
            )
        return Support(True)

    def encode(self, queries: QuerySet) -> EncodedQueries:
        return EncodedQueries(queries, self.entity_count, self.relative_reach)

    def hidden(self, batch: Batch, keep: list[Tensor] | None = None, *, at_masks: bool = False) -> Tensor:
        """(B, T, D) hidden states after the last layer; or (n, D), those of the masks alone, which is cheaper.
        Attention weights are appended to ``keep``."""
        # Without padding there is less to compute; in training, whose batches have little, copying would cost more.
        places = Places.of(batch, packed=not self.training)
        ids, positions = (places.gather(part.view(-1, 1)).view(-1) for part in (batch.tokens, batch.positions))  # (N,)
        x = embed(ids, self.embed_entities, self.embed_others) + self.embed_positions(positions)  # (N, D)
        x = self.dropout(self.embed_norm(x))
        bias = self._attention_bias(batch)
        for layer in self.layers:
            x = layer(x, bias, places, keep, at_masks and layer is self.layers[-1])
        x = self.final_norm(x)
        return x if at_masks else places.spread(x).view(*places.shape, -1)

    def _attention_bias(self, batch: Batch) -> Tensor | None:
        """(B, H, T, T), or broadcastable to it; None where every token sees every other alike."""
        hidden = None  # where token j is not seen by token i
        if batch.padding is not None:
            hidden = batch.padding[:, None, None, :]  # (B, 1, 1, T)
        if self.config.context == "past":
            # Paths are written tail first, so what comes later on a path stands at a smaller position.
            later = batch.positions[:, None, None, :] < batch.positions[:, None, :, None]  # (B, 1, T, T)
            hidden = later if hidden is None else hidden | later
        bias = None if batch.relative is None else self.relative_bias(batch.relative).permute(0, 3, 1, 2).contiguous()
        if hidden is None:
            return bias
        hide = torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, float("-inf"))
        return hide if bias is None else bias + hide

    def _projected(self, batch: Batch, keep: list[Tensor] | None = None) -> Tensor:
        """What is compared with the entities: (V, D), one row for each target, or, where probabilities are averaged,
        (n, D), one for each mask."""
        at_masks = self.hidden(batch, keep, at_masks=True)
        return self.head(batch.mean_over_masks(at_masks) if self.config.mask_average == "hidden" else at_masks)

    def predictions(self, batch: Batch) -> int:
        """One for each target, or one for each mask where probabilities are averaged."""
        return len(batch.targets.gold) if self.config.mask_average == "hidden" else len(batch.masks)

    def loss(self, batch: Batch, *, label_smoothing: float = 0.0) -> Tensor:
        """Cross-entropy over the entities at the targets, with an equal share for each true one."""
        offsets, answers = batch.targets.known_answers(self.name)
        if self.config.mask_average == "probability":
            offsets, answers = repeat_rows(offsets, answers, batch.mask_targets)
        projected, weight = self._projected(batch), self.embed_entities.weight
        return self.entity_loss(projected, weight, self.entity_bias, offsets, answers, label_smoothing)

    def scores(self, batch: Batch) -> Tensor:
        """(V, E) log-probabilities."""
        return torch.log_softmax(self.logits(batch), 1)

    def trace(self, batch: Batch) -> Trace:
        """Scores with attention."""
        attention: list[Tensor] = []
        return Trace(torch.log_softmax(self.logits(batch, attention), 1), tuple(attention), batch)

    def logits(self, batch: Batch, keep: list[Tensor] | None = None) -> Tensor:
        """(V, E) log-probabilities, up to a constant of each target."""
        logits = with_all(self._projected(batch, keep), self.embed_entities.weight, self.entity_bias)  # (V or n, E)
        if self.config.mask_average == "hidden":
            return logits
        mean = batch.mean_over_masks(torch.softmax(logits, 1))
        # Probabilities below the smallest float would be -inf, and equal; they still must be finite.
        return mean.clamp_min_(torch.finfo(mean.dtype).tiny).log()


MODEL = BiQE
