"""Query2Box's files: small ones written here in the same form, and the published ones where they are at hand."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from biqe.benchmarks import query2box
from biqe.benchmarks.query2box import intersections
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import BiqeError, EmptyResult, InvalidOption, UnknownName, UnreadableFile
from biqe.exact.answers import answers
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.read import read_graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.query.shapes import shape_of

ENTITIES, RELATIONS = 14, 3
ALONE = 13
"""An entity of the graph that the release does not have: only a valid triple mentions it."""
TYPE_NAMES = {
    "1c": "1-chain",
    "2c": "2-chain",
    "3c": "3-chain",
    "2i": "2-inter",
    "3i": "3-inter",
    "ic": "inter-chain",
    "ci": "chain-inter",
    "2u": "2-union",
    "uc": "union-chain",
}


@pytest.fixture(scope="module")
def splits() -> Splits:
    rng = np.random.default_rng(5)
    rows = np.stack([rng.integers(0, 13, 70), rng.integers(0, RELATIONS, 70), rng.integers(0, 13, 70)], 1)
    rows = rng.permutation(as_triples(rows))
    names = [f"e{entity}" for entity in range(ENTITIES)]
    valid = [*rows[45:55].tolist(), (ALONE, 0, 2)]
    return Splits(
        Vocabulary(names, ["r0", "r1", "r2"]), as_triples(rows[:45]), as_triples(valid), as_triples(rows[55:])
    )


class Walker:
    """Answers in the ids and the words of the files, by plain loops: the reference."""

    def __init__(self, splits: Splits, parts: tuple[str, ...]) -> None:
        self.edges: set[tuple[int, int, int]] = set()
        for part in parts:
            for head, relation, tail in getattr(splits, part).tolist():
                if ALONE not in (head, tail):
                    # The files number the entities backwards here, so that ids must be matched by name.
                    self.edges |= {(12 - head, 2 * relation, 12 - tail), (12 - tail, 2 * relation + 1, 12 - head)}

    def step(self, starts: set[int], relation: int) -> set[int]:
        return {tail for head, r, tail in self.edges if r == relation and head in starts}

    def walk(self, entity: int, relations: tuple[int, ...]) -> set[int]:
        found = {entity}
        for relation in relations:
            found = self.step(found, relation)
        return found

    def __call__(self, code: str, key: tuple) -> set[int]:
        if code in ("ic", "uc"):
            first, second = (self.walk(*branch) for branch in key[:2])
            return self.step(first & second if code == "ic" else first | second, key[2])
        sets = [self.walk(*branch) for branch in key]
        return set.union(*sets) if code == "2u" else set.intersection(*sets)


def keys_of(code: str, rng: np.random.Generator) -> Iterator[tuple]:
    def branch(length: int) -> tuple:
        return int(rng.integers(0, 13)), tuple(int(r) for r in rng.integers(0, 2 * RELATIONS, length))

    lengths = {"1c": [1], "2c": [2], "3c": [3], "2i": [1, 1], "3i": [1, 1, 1], "ci": [2, 1], "2u": [1, 1]}
    for _ in range(3_000):
        key = tuple(branch(length) for length in lengths.get(code, [1, 1]))
        yield (*key, int(rng.integers(0, 2 * RELATIONS))) if code in ("ic", "uc") else key


def write(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(value, 4))


@pytest.fixture(scope="module")
def release(splits, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("q2b")
    write(folder / "ind2ent.pkl", {id_: f"e{12 - id_}" for id_ in range(13)})
    write(folder / "ind2rel.pkl", {id_: f"r{id_ // 2}" + "_reverse" * (id_ % 2) for id_ in range(6)})
    rng = np.random.default_rng(0)
    known, upto = Walker(splits, ("train",)), Walker(splits, ("train", "valid"))
    for code, name in TYPE_NAMES.items():
        entries, every, hard = [], {}, {}
        for key in keys_of(code, rng):
            everything = upto(code, key)
            if key not in every and (missing := everything - known(code, key)):
                entries.append(((*key[0], 0), name) if code in ("1c", "2c", "3c") else (*key, 0, name))
                every[key], hard[key] = everything, missing
            if len(entries) == 25:
                break
        assert len(entries) > 5, code
        write(folder / f"valid_triples_{code}.pkl", entries)
        write(folder / f"valid_ans_{code}.pkl", every)
        write(folder / f"valid_ans_{code}_hard.pkl", hard)
        if code in ("1c", "2c", "3c", "2i"):
            write(folder / f"train_triples_{code}.pkl", entries)
    return folder


def members(sets) -> list[list[int]]:
    return [sets[place].tolist() for place in range(len(sets))]


def same(a: ShapedQueries, b: ShapedQueries) -> None:
    assert a.shapes == b.shapes and len(a) == len(b)
    for name in ("node_offsets", "nodes", "gold", "roles", "edge_offsets", "edges", "kinds"):
        np.testing.assert_array_equal(getattr(a.rows, name), getattr(b.rows, name))
    for kind in ("answers", "hard"):
        assert members(getattr(a, kind)) == members(getattr(b, kind))


def test_published_answers_are_those_of_our_own_traversal(release, splits):
    """Two roads: the files, whose answers plain loops computed, and the exact engine on the queries as bound."""
    published = query2box.read_split(release, "valid", splits)
    assert published.shapes == tuple(query2box.FILE_CODES)
    same(published, query2box.read_split(release, "valid", splits, published=False))


def test_every_row_has_the_shape_it_should(release, splits):
    questions = query2box.read_split(release, "valid", splits)
    rows_of = {"2u": "1p", "up": "2p"}
    for shape in questions.shapes:
        some = questions.of_shape(shape)
        assert {shape_of(query) for query in some.rows} == {rows_of.get(shape, shape)}
        assert len(some.rows) == len(some) * (2 if shape in rows_of else 1)


def test_hard_answers_need_the_new_triples(release, splits):
    questions = query2box.read_split(release, "valid", splits)
    binding = query2box.bind(release, splits.vocabulary)
    train = query2box.benchmark_graph(splits, ("train",), binding)
    for question in range(0, len(questions), 7):
        one = questions.take(np.array([question]))
        known = set(np.concatenate([answers(train, query)[0] for query in one.rows]).tolist())
        assert set(one.hard[0].tolist()) and not set(one.hard[0].tolist()) & known


@pytest.mark.parametrize("missing", ["ans_ic", "ans_ic_hard", "ans_2u"])
def test_missing_answer_files_are_recomputed(missing, release, splits, tmp_path):
    for path in release.iterdir():
        if path.name != f"valid_{missing}.pkl":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    same(query2box.read_split(release, "valid", splits), query2box.read_split(tmp_path, "valid", splits))


def test_candidates_are_the_published_entities(release, splits):
    binding = query2box.bind(release, splits.vocabulary)
    assert binding.candidates.tolist() == list(range(13))
    # Odd ids are the inverse of the one before.
    assert binding.relations.tolist() == [0, 3, 1, 4, 2, 5]


def test_training_queries_have_no_answers_and_the_missing_shape(release, splits):
    train = query2box.read_train(release, splits, seed=3)
    assert train.shapes == query2box.TRAIN_SHAPES and train.answers is None and train.hard is None
    sampled = train.of_shape("3i")
    assert len(sampled) == max(len(train.of_shape(shape)) for shape in ("1p", "2p", "3p", "2i"))
    graph = query2box.benchmark_graph(splits, ("train",), query2box.bind(release, splits.vocabulary))
    assert all(len(answers(graph, query)[0]) for query in sampled.rows)
    again = query2box.read_train(release, splits, seed=3).of_shape("3i")
    np.testing.assert_array_equal(sampled.rows.nodes, again.rows.nodes)
    other = query2box.read_train(release, splits, seed=4).of_shape("3i")
    assert not np.array_equal(sampled.rows.nodes, other.rows.nodes)


@pytest.mark.parametrize("branches", [2, 3])
def test_sampled_intersections_are_all_that_a_small_graph_has(branches):
    """Asked for exactly as many as there are, the sampler gives each of them: counted by plain loops."""
    graph = Graph(Vocabulary("abcde", "rs"), as_triples([(0, 0, 1), (2, 0, 1), (3, 1, 1), (1, 1, 4), (2, 1, 4)]))
    into: dict[int, list[tuple[int, int]]] = {}
    for head, relation, tail in graph.triples.tolist():
        into.setdefault(tail, []).append((head, relation))
        into.setdefault(head, []).append((tail, relation + 2))
    expected = {
        choice for ways in into.values() for choice in product(ways, repeat=branches) if len(set(choice)) == branches
    }
    sources, relations = intersections(graph, branches, len(expected))
    found = [tuple(zip(a, b, strict=True)) for a, b in zip(sources.tolist(), relations.tolist(), strict=True)]
    assert len(found) == len(expected) and set(found) == expected
    with pytest.raises(EmptyResult, match=f"only {len(expected)} of {len(expected) + 1}"):
        intersections(graph, branches, len(expected) + 1)


def test_sampling_options_are_checked(splits):
    with pytest.raises(InvalidOption):
        intersections(splits["train"], 1, 5)


def changed(release: Path, folder: Path, name: str, value: object) -> Path:
    for path in release.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    write(folder / name, value)
    return folder


BAD = {
    "names are no dict": ("ind2ent.pkl", ["e0"], "dict from the ids"),
    "a name is missing": ("ind2ent.pkl", {0: "e0", 2: "e2"}, "dict from the ids"),
    "a name is no text": ("ind2ent.pkl", dict.fromkeys(range(3), 7), "one name for each id"),
    "a name comes twice": ("ind2ent.pkl", {0: "e0", 1: "e0"}, "none of them twice"),
    "a relation without inverse": ("ind2rel.pkl", {0: "r0", 1: "r1"}, "its inverse 'r0_reverse' must follow"),
    "an odd number of relations": ("ind2rel.pkl", {0: "r0"}, "one is missing"),
    "no list": ("valid_triples_2i.pkl", {"a": 1}, "must hold a list of queries"),
    "no query": ("valid_triples_2i.pkl", [], "must hold a list of queries. Got an empty one"),
    "another shape": ("valid_triples_2i.pkl", [((1, (0, 0), 0), "2-chain")], "entry 0, .* is no query of shape 2i"),
    "numbers for queries": ("valid_triples_1c.pkl", [5], "entry 0, 5, is no query of shape 1p"),
    "text for ids": ("valid_triples_1c.pkl", [(("1", ("2",), 0), "1-chain")], "whole numbers"),
    "fractions for ids": ("valid_triples_1c.pkl", [((1.5, (2,), 0), "1-chain")], "whole numbers"),
    "an id too large": ("valid_triples_1c.pkl", [((13, (2,), 0), "1-chain")], "id 13 is none of the 13"),
    "a negative id": ("valid_triples_1c.pkl", [((1, (-2,), 0), "1-chain")], "id -2 is none of the 6"),
    "answers are no dict": ("valid_ans_1c.pkl", [1], "dict from query to answers"),
    "answers of other queries": ("valid_ans_1c.pkl", {((1, (9,)),): {1}}, "no set of answers for"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files_are_refused_by_name(name, release, splits, tmp_path):
    file, value, message = BAD[name]
    with pytest.raises(UnreadableFile, match=message) as caught:
        query2box.read_split(changed(release, tmp_path, file, value), "valid", splits)
    assert file in str(caught.value)


LAUGHS: list = [1]
for _ in range(40):
    LAUGHS = [LAUGHS] * 10
"""10^41 leaves: whoever writes them out, or makes an array of them, never ends."""
LAUGHING = {
    "a query": ("valid_triples_1c.pkl", [LAUGHS], "is no query of shape 1p"),
    "its ids": ("valid_triples_1c.pkl", [((LAUGHS, (LAUGHS,), 0), "1-chain")], "whole numbers .* Got list"),
    "its key": ("valid_triples_1c.pkl", [[[1, [2], LAUGHS], LAUGHS]], "that are no tuples"),
    "a query that is a set": ("valid_triples_1c.pkl", [{(1, (2,), 0), "1-chain"}], "is no query of shape 1p"),
    "an answer": ("valid_ans_1c.pkl", {((1, (2,)),): LAUGHS}, "no set of answers"),
}


@pytest.mark.parametrize("name", LAUGHING)
def test_a_message_about_endless_lists_comes_at_once(name, release, splits, tmp_path, monkeypatch):
    file, value, message = LAUGHING[name]
    folder = changed(release, tmp_path, file, value)
    # load_pickle refuses such a file; the reader must not rely on it.
    monkeypatch.setattr("biqe.benchmarks.query2box.load_pickle", lambda path: pickle.loads(path.read_bytes()))
    with pytest.raises(UnreadableFile, match=message) as caught:
        query2box.read_split(folder, "valid", splits)
    assert len(str(caught.value)) < 600


def test_hard_answers_must_be_answers(release, splits, tmp_path):
    hard = pickle.loads((release / "valid_ans_1c.pkl").read_bytes())
    every = {key: set(list(some)[:1]) for key, some in hard.items()}
    folder = changed(release, tmp_path, "valid_ans_1c.pkl", every)
    with pytest.raises(UnreadableFile, match="hard valid answers of shape 1p are not among the answers"):
        query2box.read_split(folder, "valid", splits, shapes=["1p"])


def test_unknown_names_are_counted_with_an_example(release, splits):
    other = Splits(Vocabulary(["e0", "e1"], ["r0", "r1", "r2"]), as_triples([(0, 0, 1)]))
    with pytest.raises(UnknownName, match="11 of the 13 entities of .* are not in this graph, such as 'e12'"):
        query2box.read_split(release, "valid", other)


def test_absent_queries_are_named(release, splits, tmp_path):
    with pytest.raises(EmptyResult, match="has no test queries"):
        query2box.read_split(release, "test", splits)
    with pytest.raises(InvalidOption):
        query2box.read_split(release, "train", splits)
    with pytest.raises(BiqeError, match=r"ind2ent\.pkl"):
        query2box.read_train(tmp_path, splits)


@pytest.fixture(scope="module")
def nell(benchmark_data) -> tuple[Path, Splits]:
    return benchmark_data("q2b/NELL-995"), read_graph([benchmark_data("NELL-995")]).splits


@pytest.mark.data
def test_published_answers_are_recomputed_exactly(nell):
    folder, splits = nell
    published = query2box.read_split(folder, "valid", splits, shapes=("2i", "2u"))
    same(published, query2box.read_split(folder, "valid", splits, shapes=("2i", "2u"), published=False))


@pytest.mark.data
def test_sampled_queries_look_like_the_published_ones(nell):
    """NELL-995 has its intersections: ours have as many inverse relations, shared constants and other orders."""
    folder, splits = nell
    binding = query2box.bind(folder, splits.vocabulary)
    count = len(splits.vocabulary.relations)
    sources, relations, _ = query2box._read_queries(folder, "train", "2i", binding)
    ours = intersections(query2box.benchmark_graph(splits, ("train",), binding), 2, len(sources))
    figures = []
    for anchors, ways in ((sources, relations), ours):
        pairs = np.sort(anchors.astype(np.int64) * 2 * count + ways, axis=1)
        other_orders = len(np.unique(pairs[:, 0] * (1 << 31) + pairs[:, 1])) / len(pairs)
        figures.append([(ways >= count).mean(), (anchors[:, 0] == anchors[:, 1]).mean(), other_orders])
    np.testing.assert_allclose(figures[0], figures[1], atol=0.02)
