"""What was learnt about links beside ComplEx's vectors: rules, kinds, the weights that join the voices; and its file.

``links.safetensors`` in a model folder holds all of it. Nothing in the file can execute code, and arrays that do not
fit together are refused.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from biqe.errors import UnreadableFile
from biqe.graph.whole_folder import open_regular
from biqe.links.kinds import Kinds
from biqe.links.link_rules import LinkRules
from biqe.links.rules import Rules

FILE = "links.safetensors"
FORMAT, VERSION = "biqe-links", 1
WIDTH = 16
"""Of the hidden layers."""
LIMIT = 6.0
"""Features are cut at so many standard deviations."""

FEATURES = (
    "share of the object",
    "share of the subject",
    "score",
    "best rule",
    "all rules",
    "subject fits best",
    "subject fits on average",
    "subject fits least",
    "object fits best",
    "object fits on average",
    "object fits least",
    "known objects",
    "known subjects",
    "objects a subject",
    "subjects an object",
    "triples",
)
LINK_RULES = ("bodies", "heads", "hits", "totals", "confidences")
"""Arrays of the rules with constants."""
COMPLEX_FEATURES = 3
"""The first features are ComplEx's; they are 0 for entities that it does not know."""

Ids = NDArray[np.int64]


class Weigher(nn.Module):
    """Features of links in, logits of their probability out."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, relation_count: int, *, hidden: bool = True) -> None:
        super().__init__()
        size = len(FEATURES)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.linear = nn.Linear(size, 1)
        self.relation_bias = nn.Parameter(torch.zeros(relation_count))
        self.relation_weights = nn.Parameter(torch.zeros(relation_count, size))
        self.hidden = None
        if hidden:
            last = nn.Linear(WIDTH, 1)
            nn.init.zeros_(last.weight)
            self.hidden = nn.Sequential(nn.Linear(size, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), last)

    def forward(self, features: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        """(n,) logits of (n, FEATURES) features of links of (n,) relations."""
        x = ((features - self.mean) / self.scale).clamp(-LIMIT, LIMIT)
        logits = (
            self.linear(x).squeeze(1) + self.relation_bias[relations] + (self.relation_weights[relations] * x).sum(1)
        )
        return logits if self.hidden is None else logits + self.hidden(x).squeeze(1)


@dataclass(frozen=True)
class Record:
    """How well held-out facts were found, each by weights that were fitted on the others."""

    facts: int
    questions: int
    hits_1: float
    hits_3: float
    hits_10: float
    mrr: float
    guess_1: float
    """HITS@1 of guessing: the entities that the relation has most often."""
    guess_10: float
    error: float
    """Expected calibration error of the ten most probable new links of each question."""
    calibrated: bool
    """False where there were too few held-out facts: then links have scores, not probabilities."""
    bins: list[list[float]] = field(default_factory=list)
    """Those links by their probability, in bins of a tenth: how many, their mean probability, and the share that is
    true."""
    coverage: dict[str, float] = field(default_factory=dict)
    """By share of hidden facts, as "0.9": the probability that so many of them reach."""


@dataclass(frozen=True)
class Knowledge:
    """What was learnt about links beside ComplEx's vectors: all that is saved."""

    rules: Rules
    kinds: Kinds
    pairs: Ids
    """Keys, direction * E + head, of the pairs that have tails in the training graph; ascending."""
    normalisers: NDArray[np.float32]
    """Of each pair: the logarithm of the sum of exp(score) over the entities that are not its tails."""
    usual: NDArray[np.float32]
    """(2R,) the mean of these by direction, for pairs without tails."""
    has_loops: NDArray[np.bool_]
    """(R,) whether a relation joins some entity to itself."""
    weigher: Weigher
    """For entities that ComplEx knows."""
    plain_weigher: Weigher
    """For entities that came after training: rules and kinds alone."""
    kind_doubt: float
    """Odds by which kinds may be wrong, learnt like the weights: an entity that never had a link of some kind may have
    one so many times as likely as its least fitting trait says."""
    curve: NDArray[np.float32]
    """(k, 2) ascending: what logits of the weights become, by straight lines between these points, where the held-out
    facts showed them to be off; empty where they were not. Outside of the points nothing but a shift is made."""
    record: Record
    link_rules: LinkRules
    """Rules with constants."""
    figures: NDArray[np.float32] | None = None
    """(R, 3) what kind of relation each is, features of its links. Kept as they were when the weights were fitted:
    where all relations are alike, weights know nothing of a graph that has grown. None in files of former versions."""

    def straightened(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logits by the curve; none changes its place in their order."""
        return straighten(logits, self.curve)


def straighten(logits: NDArray[np.float64], curve: NDArray[np.floating]) -> NDArray[np.float64]:
    """Logits by straight lines between the points of ``curve``, (k, 2)."""
    if len(curve) == 0:
        return logits
    x, y = curve[:, 0].astype(np.float64), curve[:, 1].astype(np.float64)
    outside = np.minimum(0.0, logits - x[0]) + np.maximum(0.0, logits - x[-1])
    return np.interp(logits, x, y) + outside  # type: ignore[no-any-return]


def save(knowledge: Knowledge, folder: str | os.PathLike[str]) -> None:
    """Write FILE into a model folder."""
    from safetensors.numpy import save_file

    arrays: dict[str, NDArray[Any]] = {
        f"rules.{name}": getattr(knowledge.rules, name) for name in ("relations", "bodies", "hits", "totals")
    }
    arrays |= {f"link_rules.{name}": getattr(knowledge.link_rules, name) for name in LINK_RULES}
    arrays |= {f"kinds.{name}": getattr(knowledge.kinds, name) for name in ("links", "sizes", "together")}
    arrays |= {name: getattr(knowledge, name) for name in ("pairs", "normalisers", "usual", "has_loops", "curve")}
    if knowledge.figures is not None:
        arrays["figures"] = knowledge.figures
    for which in ("weigher", "plain_weigher"):
        arrays |= {f"{which}.{name}": value.numpy() for name, value in getattr(knowledge, which).state_dict().items()}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "entities": knowledge.kinds.entity_count,
        "relations": knowledge.kinds.relation_count,
        "kind_doubt": knowledge.kind_doubt,
        "record": asdict(knowledge.record),
    }
    path = Path(folder) / FILE
    new = path.with_suffix(".new")
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, new, {"biqe": json.dumps(head)})
    os.chmod(new, 0o644)  # safetensors makes files that only their owner can read
    os.replace(new, path)


def load(folder: str | os.PathLike[str]) -> Knowledge | None:
    """What ``save`` wrote into a model folder; None where there is none."""
    from safetensors import SafetensorError, safe_open

    path = Path(folder) / FILE
    if not os.path.lexists(path):
        return None
    try:
        os.close(open_regular(path))
        with safe_open(path, framework="numpy") as file:
            head = json.loads((file.metadata() or {})["biqe"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if head["format"] != FORMAT or head["version"] != VERSION:
            raise UnreadableFile(f"{path} is no {FORMAT} file of version {VERSION}", hint="train the model anew")
        E, R = int(head["entities"]), int(head["relations"])
        if arrays["usual"].shape != (2 * R,):  # before anything of that size is made
            raise UnreadableFile(f"{path} is damaged: it is not of {R:,} relations", hint="train the model anew")
        rules = Rules(R, *(arrays[f"rules.{name}"] for name in ("relations", "bodies", "hits", "totals")))
        kinds = Kinds(R, E, *(arrays[f"kinds.{name}"] for name in ("links", "sizes", "together")))
        weighers = []
        for which in ("weigher", "plain_weigher"):
            state = {
                name.removeprefix(f"{which}."): torch.from_numpy(array)
                for name, array in arrays.items()
                if name.startswith(f"{which}.")
            }
            weigher = Weigher(R, hidden="hidden.0.weight" in state)
            weigher.load_state_dict(state)
            weighers.append(weigher.eval().requires_grad_(False))
        knowledge = Knowledge(
            rules,
            kinds,
            arrays["pairs"],
            arrays["normalisers"],
            arrays["usual"],
            arrays["has_loops"],
            weighers[0],
            weighers[1],
            float(head["kind_doubt"]),
            arrays["curve"],
            Record(**head["record"]),
            LinkRules(R, E, *(arrays[f"link_rules.{name}"] for name in LINK_RULES))
            if "link_rules.hits" in arrays
            else LinkRules.none(R, E),
            arrays.get("figures"),
        )
        _check(knowledge, path)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise UnreadableFile(f"{path} is damaged: {error}", hint="train the model anew") from error
    return knowledge


def _check(knowledge: Knowledge, path: Path) -> None:
    """UnreadableFile where arrays do not fit together: they are used as places in other arrays."""
    R, n, rules, kinds = knowledge.kinds.relation_count, len(knowledge.rules), knowledge.rules, knowledge.kinds
    of_links, E = knowledge.link_rules, kinds.entity_count
    fits = [
        rules.bodies.shape == (n, 2),
        rules.hits.shape == rules.totals.shape == (n, 4),
        n == 0
        or (0 <= rules.relations.min() and rules.relations.max() < R and bool((np.diff(rules.relations) >= 0).all())),
        n == 0 or (-1 <= rules.bodies.min() and rules.bodies[:, 0].min() >= 0 and rules.bodies.max() < 2 * R),
        n == 0 or (rules.hits.min() >= 0 and bool((rules.hits <= rules.totals).all())),
        of_links.bodies.shape == of_links.heads.shape == (len(of_links), 2),
        of_links.hits.shape == of_links.totals.shape == of_links.confidences.shape,
        all(bool(((links >= 0) & (links < [2 * R, E])).all()) for links in (of_links.bodies, of_links.heads)),
        bool((np.diff(of_links.heads[:, 0].astype(np.int64) * E + of_links.heads[:, 1]) >= 0).all()),
        bool(((of_links.hits >= 0) & (of_links.hits <= of_links.totals)).all()),
        bool(((of_links.confidences >= 0) & (of_links.confidences <= 1)).all()),
        kinds.sizes.shape == (2 * R + len(kinds.links),),
        kinds.together.shape == (2 * R + len(kinds.links), 2 * R),
        knowledge.pairs.shape == knowledge.normalisers.shape,
        knowledge.curve.ndim == 2
        and knowledge.curve.shape[1] == 2
        and bool(np.isfinite(knowledge.curve).all() and (np.diff(knowledge.curve, axis=0) > 0).all()),
        0.0 < knowledge.kind_doubt < float("inf"),
        knowledge.figures is None or (knowledge.figures.shape == (R, 3) and bool(np.isfinite(knowledge.figures).all())),
        knowledge.usual.shape == (2 * R,) and knowledge.has_loops.shape == (R,),
        bool(np.isfinite(knowledge.normalisers).all() and np.isfinite(knowledge.usual).all()),
        all(
            bool(torch.isfinite(w).all())
            for part in (knowledge.weigher, knowledge.plain_weigher)
            for w in part.state_dict().values()
        ),
    ]
    if not all(fits):
        raise UnreadableFile(f"{path} is damaged: its arrays do not fit together", hint="train the model anew")
