"""BetaE's files: small ones written here in the same form, hostile ones, and the published ones where at hand."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from biqe.benchmarks import betae
from biqe.benchmarks.shaped import NEGATIONS
from biqe.benchmarks.storage import data_folder
from biqe.errors import EmptyResult, UnknownName, UnreadableFile
from biqe.graph.knowledge_graph import Graph
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary

ENTITIES, RELATIONS = 6, 2
TRAIN = [(0, 0, 1), (1, 0, 2), (2, 1, 3), (3, 1, 4), (0, 1, 4)]
VALID = [(1, 1, 3), (0, 0, 5)]


@pytest.fixture
def release(tmp_path):
    """Every shape once, its answers by loops over the entities."""
    names = {n: f"e{n}" for n in range(ENTITIES)}
    relations = {2 * n + back: f"{'+-'[back]}r{n}" for n in range(RELATIONS) for back in (0, 1)}
    dump(tmp_path / "id2ent.pkl", names)
    dump(tmp_path / "id2rel.pkl", relations)
    for split, rows in (("train", TRAIN), ("valid", VALID), ("test", [])):
        both = [f"{s}\t{2 * r}\t{o}\n{o}\t{2 * r + 1}\t{s}\n" for s, r, o in rows]
        (tmp_path / f"{split}.txt").write_text("".join(both))
    queries, easy, hard = {}, {}, {}
    for key in betae.SHAPES.values():
        query = filled(key, iter([0, 1, 0]), iter([0, 2, 1]))
        queries[key] = {query}
        known, all_ = (answers(query, key, set(rows)) for rows in (TRAIN, TRAIN + VALID))
        easy[query], hard[query] = known & all_, all_ - known
    for kind, held in (("queries", queries), ("easy-answers", easy), ("hard-answers", hard)):
        dump(tmp_path / f"valid-{kind}.pkl", held)
    return tmp_path


def dump(path, held):
    path.write_bytes(pickle.dumps(held))


def filled(key, entities, relations):
    if key == "e":
        return next(entities)
    if key == "r":
        return next(relations)
    if key in ("n", "u"):
        return -2 if key == "n" else -1
    return tuple(filled(part, entities, relations) for part in key)


def answers(query, key, triples):
    """By what the tuples mean: a pair of a part and relations is a walk, anything else an intersection or a union."""
    if key == "e":
        return {query}
    if isinstance(key[-1], tuple) and all(part in ("r", "n") for part in key[-1]) and len(key) == 2:
        found = answers(query[0], key[0], triples)
        for step in query[1]:
            if step == -2:
                found = set(range(ENTITIES)) - found
            elif step % 2:
                found = {s for s, r, o in triples if r == step // 2 and o in found}
            else:
                found = {o for s, r, o in triples if r == step // 2 and s in found}
        return found
    sets = [answers(part, own, triples) for part, own in zip(query, key, strict=True) if own != ("u",)]
    return set.union(*sets) if key[-1] == ("u",) else set.intersection(*sets)


def test_graph_and_questions_are_read_with_their_answers(release):
    splits = betae.read_graph(release)
    assert list(splits.vocabulary.relations) == ["r0", "r1"]
    assert splits.train.tolist() == as_triples(TRAIN).tolist() and splits.valid.tolist() == as_triples(VALID).tolist()
    found = betae.read_split(release, "valid", betae.bind(release, splits.vocabulary))
    assert found.shapes == tuple(betae.SHAPES) and len(found) == len(betae.SHAPES)
    complete = {tuple(row) for row in (*TRAIN, *VALID)}
    for number, shape in enumerate(found.shapes):
        query = filled(betae.SHAPES[shape], iter([0, 1, 0]), iter([0, 2, 1]))
        expected = answers(query, betae.SHAPES[shape], complete)
        known = answers(query, betae.SHAPES[shape], set(TRAIN))
        assert set(found.answers[number].tolist()) == expected | (known & expected)
        assert set(found.hard[number].tolist()) == expected - known
        rows = found.of_shape(shape).rows
        assert (rows.negated is not None and bool(rows.negated.any())) == (shape in NEGATIONS)


def test_a_graph_that_was_imported_as_the_files_are_fits_too(release):
    numbers = Vocabulary([str(n) for n in reversed(range(ENTITIES))], [str(n) for n in range(2 * RELATIONS)])
    binding = betae.bind(release, numbers)
    assert binding.entities.tolist() == list(reversed(range(ENTITIES)))
    assert binding.relations.tolist() == list(range(2 * RELATIONS))
    with pytest.raises(UnknownName, match="e0"):
        betae.bind(release, Vocabulary(["a"], ["b"]))


@pytest.mark.parametrize(
    ("file", "held"),
    [
        ("valid-queries.pkl", []),
        ("valid-queries.pkl", {("e", ("r", "x")): {(0, (0, 0))}}),
        ("valid-queries.pkl", {betae.SHAPES["1p"]: {(0, (0, 0))}}),
        ("valid-queries.pkl", {betae.SHAPES["1p"]: {(99, (0,))}}),
        ("valid-queries.pkl", {betae.SHAPES["1p"]: {(0.5, (0,))}}),
        ("valid-queries.pkl", {betae.SHAPES["2in"]: {((0, (0,)), (1, (0, -1)))}}),
        ("valid-queries.pkl", {betae.SHAPES["1p"]: 7}),
        ("valid-hard-answers.pkl", [1]),
        ("valid-hard-answers.pkl", {(0, (0,)): 5}),
        ("valid-hard-answers.pkl", {(0, (0,)): {77}}),
        ("id2rel.pkl", {0: "+r0"}),
        ("id2rel.pkl", {0: "+r0", 1: "-r1"}),
        ("id2ent.pkl", {5: "a"}),
    ],
    ids=range(13),
)
def test_what_is_no_such_file_is_refused(release, file, held):
    dump(release / file, held)
    with pytest.raises(UnreadableFile):
        betae.read_split(release, "valid", betae.bind(release, Vocabulary([f"e{n}" for n in range(6)], ["r0", "r1"])))


class Call:
    def __reduce__(self):
        return (print, ("called",))


def test_a_pickle_that_calls_something_is_refused_and_nothing_is_run(release, capsys):
    dump(release / "valid-queries.pkl", {betae.SHAPES["1p"]: Call()})
    with pytest.raises(UnreadableFile, match="nothing of it was run"):
        betae.read_split(release, "valid", betae.bind(release, betae.read_graph(release).vocabulary))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("text", ["0 0", "a b c", "0 0 99", "0 9 1", "-1 0 1", "0\t0\té"])
def test_a_line_that_is_no_triple_of_ids_is_refused(release, text):
    (release / "train.txt").write_text(text)
    with pytest.raises(UnreadableFile, match="train"):
        betae.read_graph(release)


def test_a_split_without_files_is_said(release):
    with pytest.raises(EmptyResult, match="no test queries"):
        betae.read_split(release, "test", betae.bind(release, betae.read_graph(release).vocabulary))


@pytest.mark.data
@pytest.mark.slow
def test_hard_answers_of_the_published_set_are_those_that_the_training_graph_lacks():
    """By exact traversal, for the shapes without a negation."""
    folder = data_folder() / "wn18rr-qa"
    if not (folder / "valid-queries.pkl").is_file():
        pytest.skip("the files of wn18rr-qa are not at hand")
    from biqe.exact.answers import answer_sets

    splits = betae.read_graph(folder)
    found = betae.read_split(folder, "valid", betae.bind(folder, splits.vocabulary))
    assert (len(found), len(splits.train)) == (18_202, 86_835)
    for shape in ("1p", "2p", "2i", "pi"):
        own = found.of_shape(shape)
        own = own.take(np.arange(0, len(own), 20))
        known = answer_sets(Graph(splits.vocabulary, splits.train), own.rows)
        for number in range(len(own)):
            assert not np.isin(own.hard[number], known[number]).any()
            assert np.isin(known[number], own.answers[number]).all()
