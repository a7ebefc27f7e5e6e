"""TractOR: a mixture of small probabilistic databases, in which every conjunctive query has a closed form.

Friedman and Van den Broeck 2020. A component k of the mixture, drawn with probability w_k, is a database in which
every fact is a conjunction of unary events that are independent of each other:

    r(x, y)  holds  if and only if  S(x) and T(r) and O(y)
    P_k(S(x)), P_k(O(y)), P_k(T(r))     in [0, 1]: the numbers that are learned
    P(r(x, y)) = sum over k of w_k P_k(S(x)) P_k(T(r)) P_k(O(y))

The last line looks like DistMult with non-negative numbers, and is one with ``tied``, where P_k(S(e)) = P_k(O(e)), as
in the original: r(x, y) is then as likely as r(y, x). S(e) and O(e) are two events even so. Were they one, r(e, e)
would be the likeliest fact of every relation. The inverse of r is r read backwards; it has no numbers of its own.

**Queries.** Facts of one component are dependent where they share an entity or a relation, and this is what makes
queries easy: put the definition in for every pattern, and a conjunction is a set of unary events, in which an event
that occurs twice counts once. Let A be those of the constants and relations, and let the target t and a hidden x
need the events that their places as subject or object ask for. Then, inside component k,

    P_k(Q(t)) = prod of P_k over A  *  P_k(events of t)  *  P_k(there are values for the hidden variables | A, t)

No hidden variable speaks to another one but through its own unary events, so each is a statement of its own, and two
of one kind are one statement. "Some x is subject and object" implies "some x is subject" and "some x is object".
Where a constant or the target already is what is asked for, the statement is certain. Otherwise the entities are
independent, and

    P_k(some x is subject and object | A, t) = 1 - prod over e of (1 - P_k(S(e) | A, t) P_k(O(e) | A, t))

where P(S(e) | A, t) is 1 if A or t say so, else P(S(e)). The product over all e is one number for each component;
a constant or candidate changes one of its factors, by (1 - P(O(e))) / (1 - P(S(e)) P(O(e))) if e is known as subject.
So all candidates of a query are scored by two matrix products, exactly: for any conjunctive query, trees and cycles
alike, in time linear in the number of entities. In a large graph nearly every component has some entity that fits, and
hidden variables then change little.

Of several targets each is scored by its marginal: the others are hidden variables to it.

**Learning** is from triples alone; intersections have no parameters. ``loss="softmax"``: the logarithm of
P(r(x, y)) / sum over e of P(r(x, e)), the probability of y if one fact of x and r is drawn. The sum has a closed form
too, sum over k of w_k P_k(S(x)) P_k(T(r)) sum over e of P_k(O(e)), so that nothing need be sampled.
``loss="likelihood"``: the logarithm of P of a true fact, and of 1 - P of facts with sampled entities, each of which
stands for E/n of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from biqe.errors import UnsupportedQuery
from biqe.models._contract import Paper, QueryModel, Support, Targets, TargetTable, check_options, refuse_unknown
from biqe.models._draws import draw_negatives, draw_positives, true_among
from biqe.query.bound import BoundQuery, QuerySet, members
from biqe.query.dag import analyse

SUBJECT, OBJECT, BOTH = 1, 2, 3
"""What a node is in the patterns around it, as bits."""
_GAIN = 16.0
"""Parameters times this are log-odds: rates that suit other models' embeddings then move probabilities too."""
_RARE = -2.0
"""Log-odds of an entity's event where its parameter is 0: most entities have no part in most components."""
_ALMOST_ONE = 1.0 - 1e-6
"""Largest probability of an event, so that no logarithm of its complement is infinite."""


@dataclass(frozen=True)
class Config:
    """What the mixture is; how it is trained belongs to training."""

    components: int = 256
    """Databases in the mixture: K."""
    tied: bool = False
    """Whether an entity is as likely as subject as it is as object; facts are then symmetric, as in the original."""
    loss: str = "softmax"
    """softmax (which entity completes the fact) or likelihood (of true facts, and of sampled ones as false)."""
    negatives: int = 512
    """Entities sampled for each batch, under loss=likelihood."""
    filter_negatives: bool = False
    """Whether sampled entities that are true answers are left out."""
    inverses: bool = True
    """Whether facts are also learned from their object's side; the closed form itself has no direction."""

    def __post_init__(self) -> None:
        sizes = dict.fromkeys(("components", "negatives"), "at least 1")
        check_options(self, {**sizes, "loss": ("softmax", "likelihood")})


@dataclass(frozen=True)
class Events:
    """Events of one kind that evidence rows know of: n of them."""

    rows: torch.Tensor
    """(n,) evidence row."""
    ids: torch.Tensor
    """(n,) entity or relation."""


@dataclass(frozen=True)
class Batch:
    """V targets, and X of their candidates that are also constants of the query: V + X rows of evidence."""

    subjects: Events
    objects: Events
    relations: Events
    needed: torch.Tensor
    """(V+X, 3) whether some entity that is subject, object, both must exist and nothing known implies it."""
    roles: torch.Tensor
    """(V,) what the target is: SUBJECT, OBJECT or BOTH."""
    twin_rows: torch.Tensor
    """(X,) target whose candidate is one of the query's constants, and shares events with it."""
    twin_entities: torch.Tensor
    """(X,) that constant."""
    targets: Targets


class EncodedQueries:
    """A query set as unary events, cut into batches on demand."""

    def __init__(self, queries: QuerySet, entities: int, relations: int) -> None:
        self._targets = TargetTable(queries)
        self.sizes = np.diff(queries.node_offsets) + np.diff(queries.edge_offsets)
        count = len(queries)
        owners = np.repeat(np.arange(count), np.diff(queries.node_offsets))
        edge_owners = np.repeat(np.arange(count), np.diff(queries.edge_offsets))
        edges = queries.edges.astype(np.int64)
        turned = edges[:, 1] >= relations
        first = queries.node_offsets[edge_owners]
        roles = np.zeros(len(owners), np.int64)
        roles[first + np.where(turned, edges[:, 2], edges[:, 0])] |= SUBJECT
        roles[first + np.where(turned, edges[:, 0], edges[:, 2])] |= OBJECT
        target_nodes = queries.target_nodes
        if (roles[target_nodes] == 0).any():
            raise UnsupportedQuery(
                "a target stands in no pattern, so nothing is said about it", hint="ask supports() first"
            )

        keys = np.unique(edge_owners * relations + edges[:, 1] % relations)
        self._relation_offsets = np.searchsorted(keys, np.arange(count + 1) * relations)
        self._relations = keys % relations
        anchors = np.flatnonzero(queries.nodes >= 0)
        keys, inverse = np.unique(owners[anchors] * entities + queries.nodes[anchors], return_inverse=True)
        self._constant_offsets = np.searchsorted(keys, np.arange(count + 1) * entities)
        self._constants = keys % entities
        self._constant_roles = np.zeros(len(keys), np.int64)
        np.bitwise_or.at(self._constant_roles, inverse, roles[anchors])

        self._roles = roles[target_nodes]
        home = owners[target_nodes]
        variables = np.flatnonzero(queries.nodes < 0)
        hidden = np.bincount(owners[variables] * 4 + roles[variables], minlength=4 * count).reshape(count, 4)[home]
        hidden[np.arange(len(home)), self._roles] -= 1
        known = np.zeros((count, 4), bool)
        known[keys // entities, self._constant_roles] = True
        # What is both is also one of the two.
        is_known = [known[home, role] | known[home, BOTH] | ((self._roles & role) > 0) for role in (SUBJECT, OBJECT)]
        is_known.append(known[home, BOTH] | (self._roles == BOTH))
        self._needed = (hidden[:, 1:] > 0) & ~np.stack(is_known, 1)
        self._needed[hidden[:, BOTH] > 0, :2] = False

    def batch(self, rows: NDArray[np.integer]) -> Batch:
        """The queries ``rows``, in this order."""
        rows = np.asarray(rows, np.int64)
        home, places = members(self._targets.offsets, rows)
        queries = rows[home]  # (V,)
        roles, needed = self._roles[places], self._needed[places]
        owners, numbers = members(self._constant_offsets, queries)
        constants, constant_roles = self._constants[numbers], self._constant_roles[numbers]
        # A candidate that is a constant of its query repeats its events, or may itself fill a hidden variable.
        twins = np.flatnonzero(((constant_roles & roles[owners]) > 0) | needed[owners, 2])
        twin_rows = owners[twins]
        again, twin_numbers = members(self._constant_offsets, queries[twin_rows])
        twin_constants, twin_roles = self._constants[twin_numbers], self._constant_roles[twin_numbers]
        twin_roles = twin_roles | np.where(twin_constants == constants[twins][again], roles[twin_rows][again], 0)
        twin_needed = needed[twin_rows]
        twin_needed[again[twin_roles == BOTH], 2] = False

        owners = np.concatenate([owners, len(places) + again])
        constants = np.concatenate([constants, twin_constants])
        constant_roles = np.concatenate([constant_roles, twin_roles])
        relation_owners, relation_numbers = members(
            self._relation_offsets, np.concatenate([queries, queries[twin_rows]])
        )
        as_subject, as_object = (np.flatnonzero(constant_roles & role) for role in (SUBJECT, OBJECT))
        return Batch(
            _events(owners[as_subject], constants[as_subject]),
            _events(owners[as_object], constants[as_object]),
            _events(relation_owners, self._relations[relation_numbers]),
            torch.from_numpy(np.concatenate([needed, twin_needed])),
            torch.from_numpy(roles),
            torch.from_numpy(twin_rows),
            torch.from_numpy(constants[twins]),
            self._targets.batch(rows),
        )


def _events(rows: NDArray[np.int64], ids: NDArray[np.int64]) -> Events:
    return Events(torch.from_numpy(rows), torch.from_numpy(ids))


class TractOR(QueryModel):
    """A mixture of tuple-independent databases.

    **Use it when** scores should be probabilities, and exact ones, of whatever the mixture has learned.
    """

    name = "tractor"
    paper = Paper(
        "Friedman, Van den Broeck",
        2020,
        "Symbolic Querying of Vector Spaces: Probabilistic Databases Meets Relational Embeddings",
    )
    summary = "a mixture of probabilistic databases; the probability of a query has a closed form"
    tables = {"as_subject": "entities", "own_as_object": "entities", "of_relation": "relations"}
    learns_from = "triples"
    train_defaults = {
        "learning_rate": 2e-2,
        "label_smoothing": 0.0,
        "weight_decay": 0.0,
        "batch_queries": 2048,
        "batch_tokens": 8192,
    }

    def __init__(self, config: Config, entity_count: int, relation_count: int) -> None:
        super().__init__()
        self.config = config
        self.entity_count = entity_count
        self.relation_count = relation_count
        self.as_subject = nn.Parameter(torch.empty(entity_count, config.components))
        if not config.tied:
            self.own_as_object = nn.Parameter(torch.empty(entity_count, config.components))
        self.of_relation = nn.Parameter(torch.empty(relation_count, config.components))
        self.weights = nn.Parameter(torch.zeros(config.components))
        for table in (self.as_subject, self.as_object, self.of_relation):
            nn.init.normal_(table, std=1.0 / _GAIN)

    @property
    def as_object(self) -> torch.Tensor:
        """(E, K) parameters of entities as objects."""
        return self.as_subject if self.config.tied else self.own_as_object

    def supports(self, query: BoundQuery, *, strict: bool = True) -> Support:
        """Connected queries with at least one edge, cyclic ones among them: the closed form asks for no order."""
        if not query.edges:
            return Support(
                False,
                "tractor gives probabilities of facts, and this query states none",
                "ask for a pattern with a relation",
            )
        if not analyse(query).is_connected:
            return Support(
                False,
                "tractor scores one connected query, and this one has separate parts",
                "ask the parts one at a time",
            )
        return Support(True)

    def encode(self, queries: QuerySet) -> EncodedQueries:
        return EncodedQueries(queries, self.entity_count, self.relation_count)

    def loss(self, batch: Batch, *, label_smoothing: float = 0.0) -> torch.Tensor:
        """Mean over the targets; facts are true or false, so labels are not smoothed."""
        positives = draw_positives(batch.targets)
        refuse_unknown(positives >= 0, self.name)
        log_c, log_z = self._evidence(batch)
        if len(batch.twin_rows) or log_z is not None:
            everything = self._log_probabilities(batch, log_c, log_z, None)
            true = everything.gather(1, positives.unsqueeze(1)).squeeze(1)
            if self.config.loss == "softmax":
                return (everything.logsumexp(1) - true).mean()
        else:
            # Without hidden variables in between, and without twins, a row is log c + log P(events of t).
            log_s, log_o = (F.logsigmoid(_odds(table[positives])) for table in (self.as_subject, self.as_object))
            roles = batch.roles.unsqueeze(1)
            true = (log_c + log_s * (roles & SUBJECT > 0) + log_o * (roles & OBJECT > 0)).logsumexp(1)
            if self.config.loss == "softmax":
                sums = self._log_sums(batch.roles.unique().tolist())  # (3, K)
                return ((log_c + sums[batch.roles - 1]).logsumexp(1) - true).mean()
        negatives = draw_negatives(self.config.negatives, self.entity_count, log_c.device)  # (n,)
        false = self._log_probabilities(batch, log_c, log_z, negatives).clamp_max(np.log(_ALMOST_ONE))  # (V, n)
        doubts = torch.log1p(-false.exp())
        if self.config.filter_negatives:
            doubts = doubts.masked_fill(true_among(batch.targets, negatives, self.entity_count), 0.0)
        return -(true + doubts.sum(1) * (self.entity_count / len(negatives))).mean()

    def scores(self, batch: Batch) -> torch.Tensor:
        """(V, E) log P(Q(t)): probabilities that the query holds of t, which do not add up to 1 over t. Those of
        different queries can be compared as they are."""
        return self._log_probabilities(batch, *self._evidence(batch), None)

    def _tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(E, K) P(S(e)) and P(O(e))."""
        return _probability(self.as_subject), _probability(self.as_object)

    def _log_sums(self, roles: Sequence[int]) -> torch.Tensor:
        """(3, K) log of the expected number of entities that are subject, object, both; 0 for those not asked for.

        A component that no entity has a part in any more has a sum of 0, whose logarithm no gradient survives.
        """
        s, o = self._tables()
        ones = torch.ones_like(self.weights)
        sums = torch.stack(
            [
                s.sum(0) if SUBJECT in roles else ones,
                o.sum(0) if OBJECT in roles else ones,
                torch.einsum("ek,ek->k", s, o) if BOTH in roles else ones,
            ]
        )
        return sums.clamp_min(torch.finfo(sums.dtype).tiny).log()

    def _evidence(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(V+X, K) log of w times P of all that is known but the candidate; and log of the probability that no
        entity is both subject and object, 0 where nobody asks, None where no row does."""
        log_c = torch.log_softmax(self.weights, 0).expand(len(batch.needed), -1)
        for events, table, rare in (
            (batch.subjects, self.as_subject, _RARE),
            (batch.objects, self.as_object, _RARE),
            (batch.relations, self.of_relation, 0.0),
        ):
            log_c = log_c.index_add(0, events.rows, F.logsigmoid(_odds(table.index_select(0, events.ids), rare)))
        if not batch.needed.any():
            return log_c, None
        s, o = self._tables()
        none = torch.stack([torch.log1p(-p).sum(0) for p in (s, o)])  # (2, K)
        log_c = log_c + batch.needed[:, :2].to(log_c) @ _log_complement(none)
        if not batch.needed[:, 2].any():
            return log_c, None
        both = s * o
        log_z = torch.log1p(-both).sum(0).expand_as(log_c)
        for events, other in ((batch.subjects, o), (batch.objects, s)):
            factors = torch.log1p(-other[events.ids]) - torch.log1p(-both[events.ids])
            log_z = log_z.index_add(0, events.rows, factors)
        # Where nothing is needed P(some) is 1, so P(none) is 0: a number small enough to vanish, yet finite.
        return log_c, torch.where(batch.needed[:, 2:], log_z, -100.0)

    def _log_probabilities(
        self, batch: Batch, log_c: torch.Tensor, log_z: torch.Tensor | None, candidates: torch.Tensor | None
    ) -> torch.Tensor:
        """(V, n) log P(Q(t)) for the candidates; (V, E) for all entities."""
        count = len(batch.roles)
        tables = [self.as_subject, self.as_object]
        if candidates is not None:
            tables = [table.index_select(0, candidates) for table in tables]
        s, o = (_probability(table) for table in tables)  # (n, K)
        top = log_c.detach().amax(1, keepdim=True)
        evidence = (log_c - top).exp()
        value = log_c.new_zeros(count, len(s))
        for role in batch.roles.unique().tolist():
            rows = torch.nonzero(batch.roles == role).squeeze(1)
            fits = (s, o, s * o)[role - 1]
            known = evidence.index_select(0, rows)
            if log_z is None or role == BOTH:  # a target that is both leaves nothing to be needed
                part = known @ fits.t()
            else:
                none = log_z.index_select(0, rows)
                # The candidate fits where somebody else does, or else it does itself, given what it is already.
                itself = (o, s)[role - 1] * (1.0 - (s, o)[role - 1]) / (1.0 - s * o)
                part = (known * -torch.expm1(none)) @ fits.t() + (known * none.exp()) @ (fits * itself).t()
            value = value.index_copy(0, rows, part)
        logs = value.clamp_min(torch.finfo(value.dtype).tiny).log() + top[:count]
        if len(batch.twin_rows):
            of_twins = log_c[count:] if log_z is None else log_c[count:] + _log_complement(log_z[count:])
            column = torch.full((self.entity_count,), -1, device=logs.device)
            column[slice(None) if candidates is None else candidates] = torch.arange(len(s), device=logs.device)
            found = torch.nonzero(column[batch.twin_entities] >= 0).squeeze(1)
            where = (batch.twin_rows[found], column[batch.twin_entities[found]])
            logs = logs.index_put(where, of_twins.logsumexp(1)[found])
        return logs


def _odds(parameters: torch.Tensor, rare: float = _RARE) -> torch.Tensor:
    """Log-odds of events."""
    return parameters * _GAIN + rare


def _probability(parameters: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(_odds(parameters)).clamp_max(_ALMOST_ONE)


def _log_complement(log_p: torch.Tensor) -> torch.Tensor:
    """log(1 - p), without loss of digits where p is close to 1."""
    return torch.log(-torch.expm1(log_p.clamp_max(-1e-30)))


MODEL = TractOR
