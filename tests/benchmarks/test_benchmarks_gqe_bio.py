"""GQE's Bio format: a small set written here in that form, and what is wrong with others."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from biqe.benchmarks import gqe_bio
from biqe.benchmarks.typed_queries import TYPES
from biqe.errors import BiqeError, EmptyResult, InvalidOption, UnreadableFile
from biqe.exact.answers import answers
from biqe.query.shapes import shape_of

TREATS, CAUSED, BINDS = (
    ("drug", "treats", "disease"),
    ("disease", "caused_by", "protein"),
    ("protein", "binds", "protein"),
)


def reverse(key):
    return key[2], key[1], key[0]


class Bio:
    """A graph as GQE holds it, and its questions: edges lead from the target to the constants."""

    def __init__(self) -> None:
        rng = np.random.default_rng(2)
        self.nodes = {"drug": list(range(8)), "disease": [f"D{i}" for i in range(8)], "protein": list(range(100, 112))}
        self.edges = set()
        for key, count in ((TREATS, 30), (CAUSED, 30), (BINDS, 20)):
            for _ in range(count):
                head, tail = (self.nodes[kind][rng.integers(0, len(self.nodes[kind]))] for kind in (key[0], key[2]))
                self.edges.add((head, key, tail))
        ordered = sorted(self.edges, key=str)
        self.valid, self.test = ordered[:6], ordered[6:14]
        self.rng = rng

    def adjacency(self, factory=set):
        lists = {
            key: defaultdict(factory) for key in {*(e[1] for e in self.edges), *(reverse(e[1]) for e in self.edges)}
        }
        for head, key, tail in self.edges:
            for start, way, end in ((head, key, tail), (tail, reverse(key), head)):
                lists[way][start].add(end) if factory is set else lists[way][start].append(end)
        return lists

    def ways(self, node, kind):
        """Edges that lead on from a node, both directions."""
        both = [edge for h, k, t in sorted(self.edges, key=str) for edge in ((h, k, t), (t, reverse(k), h))]
        return [edge for edge in both if edge[0] == node and edge[1][0] == kind]

    def on(self, edge):
        ways = self.ways(edge[2], edge[1][2])
        return ways[self.rng.integers(0, len(ways))]

    def question(self, kind: str):
        while True:
            start = sorted(self.edges, key=str)[self.rng.integers(0, len(self.edges))]
            ways = self.ways(start[0], start[1][0])
            picked = [ways[i] for i in self.rng.permutation(len(ways))[:3]]
            if kind in ("3-inter", "2-inter") and len(picked) >= int(kind[0]):
                return (kind, *picked[: int(kind[0])])
            if kind.endswith("-chain"):
                edges = [start]
                while len(edges) < int(kind[0]):
                    edges.append(self.on(edges[-1]))
                return (kind, *edges)
            if kind == "3-inter_chain" and len(picked) >= 2:
                return (kind, picked[0], (picked[1], self.on(picked[1])))
            if kind == "3-chain_inter":
                further = self.ways(start[2], start[1][2])
                if len(further) >= 2:
                    return (kind, start, (further[0], further[1]))

    def write(self, folder: Path, protocol: int = 2) -> None:
        relations = {kind: [(key[2], key[1]) for key in self.adjacency() if key[0] == kind] for kind in self.nodes}

        def dump(name: str, value: object) -> None:
            (folder / name).write_bytes(pickle.dumps(value, protocol))

        dump("graph_data.pkl", (relations, self.adjacency(), self.nodes))
        for word, edges in (("val", self.valid), ("test", self.test)):
            dump(f"{word}_edges.pkl", [(("1-chain", edge), self.negatives(edge), None) for edge in edges])
        for word in ("train", "val", "test"):
            for size in (2, 3):
                kinds = [kind for kind in TYPES if kind[0] == str(size)]
                graphs = [self.question(kind) for kind in kinds for _ in range(4)]
                dump(f"{word}_queries_{size}.pkl", [self.serialised(graph) for graph in graphs])

    def negatives(self, edge):
        return self.nodes[edge[1][0]][:3]

    def serialised(self, graph):
        easy = self.negatives(graph[1])
        return graph, easy, easy[:1] if "inter" in graph[0] else None


@pytest.fixture(scope="module")
def bio() -> Bio:
    return Bio()


@pytest.fixture
def folder(bio, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BIQE_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "bio"
    place.mkdir()
    bio.write(place)
    return place


def named(graph: gqe_bio.TypedSplits, part: str) -> set[tuple[str, str, str]]:
    names, relations = graph.splits.vocabulary.entities, graph.splits.vocabulary.relations
    return {(names[h], relations[r], names[t]) for h, r, t in getattr(graph.splits, part).tolist()}


def expected(edges) -> set[tuple[str, str, str]]:
    found = set()
    for head, key, tail in edges:
        (a, r, b), h, t = key, f"{key[0]}/{head}", f"{key[2]}/{tail}"
        found |= {(h, f"{a}/{r}/{b}", t)} if a <= b else {(t, f"{b}/{r}/{a}", h)}
        if a == b:
            found |= {(t, f"{a}/{r}/{b}", h)}
    return found


def test_the_graph_is_the_edges_that_were_written(bio, folder):
    graph = gqe_bio.read_graph(folder)
    valid, test = expected(bio.valid), expected(bio.test)
    assert named(graph, "test") == test and named(graph, "valid") == valid - test
    assert named(graph, "train") == expected(bio.edges) - valid - test
    assert graph.type_names == ("disease", "drug", "protein")
    for name, kind in zip(graph.splits.vocabulary.entities, graph.types, strict=True):
        assert name.startswith(graph.type_names[kind] + "/")


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_questions_ask_what_was_written(split, bio, folder):
    graph = gqe_bio.read_graph(folder)
    questions = gqe_bio.read_split(folder, split, graph.splits.vocabulary)
    assert questions.shapes == (tuple(TYPES) if split != "train" else tuple(TYPES)[1:])
    names = graph.splits.vocabulary.entities
    written = [entry for path in gqe_bio.question_files(folder, split) for entry in pickle.loads(path.read_bytes())]
    written.sort(key=lambda entry: list(TYPES).index(entry[0][0]))
    assert len(questions) == len(written)
    for place, (query, (asked, easy, hard)) in enumerate(zip(questions.rows, written, strict=True)):
        kind = asked[1][1][0]
        gold = questions.rows.gold[questions.rows.target_nodes[place]]
        assert names[gold] == f"{kind}/{asked[1][0]}"
        assert shape_of(query) == TYPES[asked[0]]
        # The question was sampled from the complete graph, so its target must be an answer there.
        assert gold in answers(graph.splits["complete"], query)[0]
        # A constant may stand in the question twice, and an edge may lead back.
        assert {names[v] for v in query.nodes if v >= 0} == constants(asked)
        assert {names[v] for v in questions.negatives[place]} == {f"{kind}/{node}" for node in easy}
        assert {names[v] for v in questions.hard_negatives[place]} == {f"{kind}/{node}" for node in hard or ()}


def constants(asked) -> set[str]:
    def end(edge) -> str:
        return f"{edge[1][2]}/{edge[2]}"

    if asked[0].endswith("-chain"):
        return {end(asked[-1])}
    if asked[0] in ("2-inter", "3-inter"):
        return {end(edge) for edge in asked[1:]}
    if asked[0] == "3-inter_chain":
        return {end(asked[1]), end(asked[2][1])}
    return {end(asked[2][0]), end(asked[2][1])}


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_any_protocol_reads_the_same(protocol, bio, folder, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    bio.write(again, protocol)
    assert gqe_bio.read_graph(again).splits.fingerprint == gqe_bio.read_graph(folder).splits.fingerprint


def test_bare_edges_and_lists_are_read_too(bio, folder):
    before = gqe_bio.read_graph(folder).splits.fingerprint
    (folder / "val_edges.pkl").write_bytes(pickle.dumps(bio.valid))
    relations = {}
    (folder / "graph_data.pkl").write_bytes(pickle.dumps((relations, bio.adjacency(list), bio.nodes)))
    assert gqe_bio.read_graph(folder).splits.fingerprint == before


def test_the_folder_opens_and_is_kept(folder, monkeypatch):
    opened = gqe_bio.open_folder(folder)
    assert opened.protocol == "bio" and len(opened.types) == len(opened.splits.vocabulary.entities)
    valid, train = opened.queries("valid"), opened.train_queries()
    monkeypatch.setattr("biqe.benchmarks.gqe_bio.load_pickle", lambda *_: pytest.fail("read again"))
    again = gqe_bio.open_folder(folder)
    assert (again.fingerprint, again.splits.fingerprint) == (opened.fingerprint, opened.splits.fingerprint)
    np.testing.assert_array_equal(again.queries("valid").rows.nodes, valid.rows.nodes)
    np.testing.assert_array_equal(again.queries("valid").negatives.values, valid.negatives.values)
    assert again.type_names == opened.type_names and len(again.train_queries()) == len(train)


E1, E2 = (1, TREATS, "D1"), ("D1", CAUSED, 100)
BAD = {
    "no triple of things": ("graph_data.pkl", [1, 2], "three things"),
    "no dicts": ("graph_data.pkl", (1, 2, 3), "as dicts"),
    "a relation without types": ("graph_data.pkl", ({}, {"treats": {}}, {"drug": [1]}), "a relation is"),
    "neighbours in no list": ("graph_data.pkl", ({}, {TREATS: {1: 5}}, {"drug": [1]}), "must be a list or a set"),
    "an adjacency that is no dict": ("graph_data.pkl", ({}, {TREATS: [1]}, {"drug": [1]}), "dict from node"),
    "a node that is unknown": ("graph_data.pkl", ({}, {TREATS: {1: ["D1"]}}, {"drug": [1]}), "unknown part"),
    "nodes of no type": ("graph_data.pkl", ({}, {TREATS: {}}, {3: [1]}), "by the type's name"),
    "nodes named twice": ("graph_data.pkl", ({}, {TREATS: {}}, {"drug": [1, 1]}), "twice"),
    "an edge of two": ("val_edges.pkl", [(1, 2)], "an edge is"),
    "edges in no list": ("val_edges.pkl", {1: 2}, "list of edges"),
    "an edge that is not in the graph": (
        "val_edges.pkl",
        [
            (0, TREATS, "D0"),
            (1, TREATS, "D0"),
            (2, TREATS, "D0"),
            (3, TREATS, "D0"),
            (4, TREATS, "D0"),
            (5, TREATS, "D0"),
            (6, TREATS, "D0"),
            (7, TREATS, "D0"),
        ],
        "are not in",
    ),
    "questions in no list": ("val_queries_2.pkl", "text", "list of questions"),
    "a question of two parts": ("val_queries_2.pkl", [(1, 2)], "a question is"),
    "an unknown type": ("val_queries_2.pkl", [(("4-chain", E1), [], None)], "the type of a question"),
    "an empty question": ("val_queries_2.pkl", [((), [], None)], "the type of a question"),
    "an edge too few": ("val_queries_2.pkl", [(("2-chain", E1), [], None)], "needs 2 edges"),
    "edges that do not meet": ("val_queries_2.pkl", [(("2-chain", E1, ("D2", CAUSED, 100)), [], None)], "do not meet"),
    "targets that differ": ("val_queries_2.pkl", [(("2-inter", E1, E2), [], None)], "do not meet"),
    "an unknown negative": ("val_queries_2.pkl", [(("2-chain", E1, E2), [99], None)], "is no 2-chain"),
    "negatives in no list": ("val_queries_2.pkl", [(("2-chain", E1, E2), 5, None)], "is no 2-chain"),
    "an edge without relation": ("val_queries_2.pkl", [(("2-chain", E1, ("D1", 5, 100)), [], None)], "is no 2-chain"),
    "a branch that is no pair": ("val_queries_3.pkl", [(("3-inter_chain", E1, E2), [], None)], "is no 3-inter_chain"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files_are_refused_by_name(name, folder):
    vocabulary = gqe_bio.read_graph(folder).splits.vocabulary
    file, value, message = BAD[name]
    (folder / file).write_bytes(pickle.dumps(value))
    with pytest.raises(UnreadableFile, match=message) as caught:
        gqe_bio.read_graph(folder)
        gqe_bio.read_split(folder, "valid", vocabulary)
    assert file in str(caught.value)


LAUGHS: list = [1]
for _ in range(40):
    LAUGHS = [LAUGHS] * 10
"""10^41 leaves: whoever writes them out, or compares them with others, never ends."""
OTHER: list = [1]
for _ in range(40):
    OTHER = [OTHER] * 10
LAUGHING = {
    "a node": ("graph_data.pkl", ({}, {TREATS: {}}, {"drug": [LAUGHS]}), "a node is a whole number or a text"),
    "a neighbour": ("graph_data.pkl", ({}, {TREATS: {1: [LAUGHS]}}, {"drug": [1]}), "a node is a whole number"),
    "a held-out edge": ("val_edges.pkl", [LAUGHS], "an edge is"),
    "an end of it": ("val_edges.pkl", [(("1-chain", (LAUGHS, TREATS, "D1")), None, None)], "a node is a whole number"),
    "its relation": ("val_edges.pkl", [(1, LAUGHS, "D1")], "a relation is"),
    "a question": ("val_queries_2.pkl", [LAUGHS], "a question is"),
    "its type": ("val_queries_2.pkl", [((LAUGHS, E1), [], None)], "the type of a question"),
    "its edges": ("val_queries_2.pkl", [(("2-chain", LAUGHS), [], None)], "is no 2-chain"),
    "its target": ("val_queries_2.pkl", [(("2-chain", (LAUGHS, TREATS, "D1"), E2), [], None)], "is no 2-chain"),
    "where it meets": (
        "val_queries_2.pkl",
        [(("2-chain", (1, TREATS, LAUGHS), (OTHER, CAUSED, 100)), [], None)],
        "is no 2-chain",
    ),
    "a way of it": (
        "val_queries_2.pkl",
        [(("2-chain", (1, ("drug", LAUGHS, "disease"), "D1"), E2), [], None)],
        "is no relation",
    ),
    "a negative": ("val_queries_2.pkl", [(("2-chain", E1, E2), [LAUGHS], None)], "is no 2-chain"),
}


@pytest.mark.parametrize("name", LAUGHING)
def test_a_message_about_endless_lists_comes_at_once(name, folder, monkeypatch):
    vocabulary = gqe_bio.read_graph(folder).splits.vocabulary
    file, value, message = LAUGHING[name]
    (folder / file).write_bytes(pickle.dumps(value))
    # load_pickle refuses such a file; the reader must not rely on it.
    monkeypatch.setattr("biqe.benchmarks.gqe_bio.load_pickle", lambda path: pickle.loads(path.read_bytes()))
    with pytest.raises(UnreadableFile, match=message) as caught:
        gqe_bio.read_graph(folder)
        gqe_bio.read_split(folder, "valid", vocabulary)
    assert len(str(caught.value)) < 600


def test_a_hostile_file_is_refused(folder):
    (folder / "graph_data.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(UnreadableFile, match=r"it wants os\.system"):
        gqe_bio.read_graph(folder)


def test_absent_questions_are_named(folder):
    vocabulary = gqe_bio.read_graph(folder).splits.vocabulary
    for path in folder.glob("train_*"):
        path.unlink()
    with pytest.raises(EmptyResult, match="no train questions"):
        gqe_bio.read_split(folder, "train", vocabulary)
    assert gqe_bio.open_folder(folder).train_queries() is None
    with pytest.raises(InvalidOption):
        gqe_bio.read_split(folder, "dev", vocabulary)
    (folder / "graph_data.pkl").unlink()
    with pytest.raises(BiqeError, match="graph_data.pkl"):
        gqe_bio.open_folder(folder)
