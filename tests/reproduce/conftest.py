"""A toy benchmark in a registry of its own, toy recipes, and a watcher that remembers and can stop the queue."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from biqe import benchmarks
from biqe.benchmarks.anycq import TupleQuestions
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import InvalidOption, UnreadableFile
from biqe.exact.answers import answer_sets, tuples
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.triples import as_triples, difference, union
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.dataset import MineConfig, mine_split
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet
from biqe.reproduce import recipe as recipes
from biqe.reproduce.work import Places
from biqe.training.queries import triple_queries


def town(towns: int = 12, streets: int = 5) -> Splits:
    """Streets in towns on a ring road, and the inverses; a few facts held out whose answers follow."""
    triples = []
    for t in range(towns):
        triples += [(t, 2, (t + 1) % towns), ((t + 1) % towns, 3, t)]
        for s in range(streets):
            street = towns + t * streets + s
            triples += [(street, 0, t), (t, 1, street)]
    everything = as_triples(triples)
    held = as_triples(everything[np.random.default_rng(0).choice(len(everything), len(everything) // 5, replace=False)])
    names = [f"town{t}" for t in range(towns)] + [f"street{s}" for s in range(towns * streets)]
    half = len(held) // 2
    vocabulary = Vocabulary(names, ["in", "has", "next", "previous"])
    return Splits(vocabulary, difference(everything, held), held[:half], held[half:])


@dataclass(frozen=True)
class Toy:
    """As a benchmark of the registry, on the toy town."""

    name: str
    protocol: str
    splits: Splits
    fingerprint: str = "0123456789abcdef"
    candidates: None = None
    types: None = None

    def queries(self, split):
        if self.protocol == "qar":
            return self.tuples(split)
        if split == "test" and self.name == "toy-untested":
            raise InvalidOption("toy-untested has no test queries")
        if self.name == "toy-dags":
            whole = Splits(self.splits.vocabulary, self.splits["complete"].triples)
            found = mine_split(whole, "train", MineConfig(paths=20, dags=20, seed=("valid", "test").index(split)))
            complete = answer_sets(self.splits["complete"], found)
            return found.with_filters(complete=complete, split=complete)
        found = triple_queries(self.splits[split], np.random.default_rng(0))
        complete, own = (answer_sets(self.splits[graph], found) for graph in ("complete", split))
        if self.protocol == "cq":
            return found.with_filters(complete=complete, split=own)
        count = len(found)
        shape = np.zeros(count, np.int8)
        return ShapedQueries(found, np.arange(count), ("1p",), shape, answers=complete, hard=own)

    def tuples(self, split):
        """Streets of the town next to a street's own: stored, missing, or none."""
        known = self.splits["train"]
        complete = Graph(self.splits.vocabulary, union(known.triples, self.splits[split].triples))
        queries, answers, kinds = [], [], []
        for street in range(12, len(self.splits.vocabulary.entities)):
            query = BoundQuery((TARGET, street, HIDDEN), ((1, 0, 2), (2, 2, 0)), (0,))
            found, there = tuples(complete, query), tuples(known, query)
            queries.append(query)
            answers.append(found)
            kinds.append("e" if len(there) else "h" if len(found) else "n")
        sets = np.zeros(len(queries), np.int8)
        return TupleQuestions(QuerySet.of(queries), ("3hub efo1",), sets, np.array(kinds), tuple(answers))

    def train_queries(self):
        if self.protocol != "cq":
            return None
        found = mine_split(self.splits, "train", MineConfig(recipe="paths", paths=40))
        return found.with_filters(complete=answer_sets(self.splits["complete"], found))


TOYS = {
    "toy-cq": "cq",
    "toy-q2b": "q2b",
    "toy-broken": "cq",
    "toy-absent": "cq",
    "toy-untested": "cq",
    "toy-dags": "cq",
    "toy-qar": "qar",
}


@pytest.fixture
def registry(monkeypatch):
    """The toy benchmarks in place of the real ones; the list of those that were opened."""
    opened, splits = [], town()

    def open_(name, *, data=None, splits_=splits, **more):
        opened.append(name)
        if name == "toy-broken":
            raise UnreadableFile(f"{os.getcwd()}/broken.pkl is damaged", hint="fetch it again")
        return Toy(name, TOYS[name], more.get("splits") or splits_)

    monkeypatch.setattr(benchmarks, "names", lambda: list(TOYS), raising=False)
    monkeypatch.setattr(benchmarks, "open", open_, raising=False)
    absent = {"toy-absent": [Path("nowhere/toy/train.txt"), Path("nowhere/toy/valid.txt")]}
    monkeypatch.setattr(benchmarks, "missing", lambda name, *, data=None: absent.get(name, []), raising=False)
    return opened


TABLE = """
title = "A toy table"
recipes = [{recipes}]
headline = {{ group = "complete", metric = "mrr" }}
rows = [{{ group = "split", label = "released" }}, {{ group = "complete", label = "complete" }}]
columns = [{{ metric = "mrr", label = "MRR" }}, {{ metric = "hits@10", label = "HITS@10" }}]
notes = ["Nothing is learnt here."]

[quick]
sample = 3

[quick.train]
epochs = 0.5
"""
RECIPE = """
label = "{label}"
benchmark = "{benchmark}"
model = "biqe"
filters = ["split", "complete"]

[model_config]
width = {width}
layers = 1
heads = 2
feed_forward = 32

[train]
epochs = {epochs}
paths = 100
dags = 50
batch_tokens = 300
warmup_steps = 10
validations = 2
threads = 1

[quick.model_config]
width = 8

[published]
source = "Nobody 2021, table 1"

[published.figures]
split = {{ mrr = 0.5, "hits@10" = 0.75 }}
"""


@pytest.fixture
def toy_recipes(tmp_path, monkeypatch):
    """Function that writes a table of recipes, name to benchmark, and gives the table."""
    folder = tmp_path / "recipes"
    monkeypatch.setattr(recipes, "FOLDER", folder)

    def write(name="toy", epochs=1, **of):
        (folder / name).mkdir(parents=True, exist_ok=True)
        listed = ", ".join(f'"{recipe}"' for recipe in of)
        (folder / name / "table.toml").write_text(TABLE.format(recipes=listed))
        for number, (recipe, benchmark) in enumerate(of.items()):
            text = RECIPE.format(label=recipe.upper(), benchmark=benchmark, width=16 + 2 * number, epochs=epochs)
            (folder / name / f"{recipe}.toml").write_text(text)
        return recipes.load(name)

    return write


@pytest.fixture
def places(tmp_path):
    return Places(tmp_path / "work", tmp_path / "results")


class Remembers:
    """A watcher that keeps what it is told, and interrupts where it is asked to."""

    def __init__(self, *, stop_at_job=None, stop_in_training_of=None):
        self.told = []
        self._stop_at_job, self._stop_in = stop_at_job, stop_in_training_of

    def began(self, job, number, total):
        self.told.append(("began", job.name))
        self._now = job.recipe.name
        if self._stop_at_job == job.recipe.name:
            raise KeyboardInterrupt

    def doing(self, step):
        self.told.append(("doing", step))

    def stepped(self, fraction, facts):
        pass

    def validated(self, facts):
        self.told.append(("validated", facts["step"]))
        if self._stop_in == self._now:
            self._stop_in = None
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C; the loop ends after the step under way

    def ranked(self, done, total):
        self.told.append(("ranked", done == total))

    def ended(self, job, state, reason):
        self.told.append((state, job.name))


@pytest.fixture
def remembers():
    return Remembers
