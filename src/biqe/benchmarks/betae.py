"""BetaE's files: fourteen shapes of questions, five of them with a negation, on a graph in ids.

    wn18rr-qa/
    ├── id2ent.pkl id2rel.pkl                  names by id; even relation ids are forward, odd ones inverse
    ├── train.txt valid.txt test.txt           triples of ids, in both directions
    └── valid-queries.pkl valid-easy-answers.pkl valid-hard-answers.pkl

Queries are nested tuples, sorted by shape; -2 behind a relation is a negation, -1 a union. Easy answers follow from the
graph before the split, hard ones need a link of it. Paper: Ren, Leskovec 2020; WN18RR-QA: Huang, Chiang, Lee 2022.

A graph fits where it has the published names, or, imported as the files are, the ids as names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from biqe.benchmarks.query2box import REVERSE, Binding, mapped, names_by_id, whole_numbers
from biqe.benchmarks.restricted_pickle import MAX_BYTES, brief, load_pickle
from biqe.benchmarks.set_operations import sorted_sets
from biqe.benchmarks.shaped import LAYOUTS, UNIONS, ShapedQueries, join_shapes, rows_of
from biqe.errors import EmptyResult, UnknownName, UnreadableFile
from biqe.graph.knowledge_graph import SPLITS, Splits
from biqe.graph.triples import Triples, as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.whole_folder import read_regular
from biqe.query.bound import AnswerSets

_E1, _E2, _E3 = ("e", ("r",)), ("e", ("r", "r")), ("e", ("r", "r", "r"))
_N1, _N2, _U = ("e", ("r", "n")), ("e", ("r", "r", "n")), ("u",)
SHAPES: dict[str, Any] = {
    "1p": _E1,
    "2p": _E2,
    "3p": _E3,
    "2i": (_E1, _E1),
    "3i": (_E1, _E1, _E1),
    "pi": (_E2, _E1),
    "ip": ((_E1, _E1), ("r",)),
    "2u": (_E1, _E1, _U),
    "up": ((_E1, _E1, _U), ("r",)),
    "2in": (_E1, _N1),
    "3in": (_E1, _E1, _N1),
    "inp": ((_E1, _N1), ("r",)),
    "pin": (_E2, _N1),
    "pni": (_N2, _E1),
}
"""Our name of each shape, in the order of the published table, and its key in the files."""
NEEDED = ("id2ent.pkl", "id2rel.pkl", "valid-queries.pkl", "valid-easy-answers.pkl", "valid-hard-answers.pkl")
GRAPH_FILES = ("train.txt", "valid.txt", "test.txt")
_NEGATION, _UNION = -2, -1
_ANCHORS = {shape: layout.anchors for shape, layout in LAYOUTS.items()} | dict.fromkeys(UNIONS, 2)


def files_of(folder: Path, split: str) -> list[Path]:
    """The files that reading ``split`` looks at."""
    names = (*NEEDED[:2], f"{split}-queries.pkl", f"{split}-easy-answers.pkl", f"{split}-hard-answers.pkl")
    return [folder / name for name in names]


def bind(folder: Path, vocabulary: Vocabulary) -> Binding:
    """The published ids in the ids of a graph that has their names, or themselves as names."""
    entities, relations = names_by_id(folder / "id2ent.pkl"), names_by_id(folder / "id2rel.pkl")
    forward = [_plain(name) for name in _pairs(relations, folder)]
    inverse = {name: vocabulary.inverse(id_) for id_, name in enumerate(vocabulary.relations)}
    if all(name in inverse for name in forward):
        own = [vocabulary.relations.find(name) for name in forward]
        turned = [inverse[name] for name in forward]
        found = [vocabulary.entities.find(name) for name in entities]
        relation_ids = [id_ for pair in zip(own, turned, strict=True) for id_ in pair]
    else:
        found = [vocabulary.entities.find(str(id_)) for id_ in range(len(entities))]
        relation_ids = [vocabulary.relations.find(str(id_)) for id_ in range(len(relations))]
    unknown = [name for name, id_ in zip(entities, found, strict=True) if id_ is None]
    unknown += [name for name, id_ in zip(relations, relation_ids, strict=True) if id_ is None]
    if unknown:
        raise UnknownName(
            f"{len(unknown):,} of the names of {folder} are not in this graph, such as {unknown[0]!r}",
            hint="train on the benchmark's own graph, which biqe benchmarks NAME --graph FOLDER writes",
        )
    return Binding(np.array(found, np.int32), np.array(relation_ids, np.int32))


def read_graph(folder: Path) -> Splits:
    """The graph of the release, under the published names, each triple once."""
    entities, relations = names_by_id(folder / "id2ent.pkl"), names_by_id(folder / "id2rel.pkl")
    vocabulary = Vocabulary(entities, [_plain(name) for name in _pairs(relations, folder)])
    train, valid, test = (_triples(folder / name, len(entities), len(relations)) for name in GRAPH_FILES)
    return Splits(vocabulary, train, valid, test)


def _pairs(relations: Sequence[str], folder: Path) -> Sequence[str]:
    """The forward relations."""
    if len(relations) % 2:
        raise UnreadableFile(f"{folder / 'id2rel.pkl'} must hold a relation and its inverse in turn; one is missing")
    for forward, inverse in zip(relations[::2], relations[1::2], strict=True):
        if inverse not in (forward + REVERSE, "-" + forward[1:]):
            raise UnreadableFile(f"{folder / 'id2rel.pkl'}: after {forward!r} its inverse must follow. Got {inverse!r}")
    return relations[::2]


def _plain(name: str) -> str:
    """A relation without the sign of its direction."""
    return name.removeprefix("+")


def _triples(path: Path, entities: int, relations: int) -> Triples:
    """Triples of a file of ids, those of the odd relations turned round."""
    try:
        text = read_regular(path, MAX_BYTES).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}") from error
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if len(parts) != 3 or not all(part.isdecimal() and len(part) < 10 for part in parts):
            raise UnreadableFile(f"{path}, line {number:,}: three ids must stand there. Got {line[:80]!r}")
        head, relation, tail = map(int, parts)
        if max(head, tail) >= entities or relation >= relations:
            raise UnreadableFile(f"{path}, line {number:,}: id beyond the {entities:,} entities that are named")
        rows.append((tail, relation // 2, head) if relation % 2 else (head, relation // 2, tail))
    return as_triples(rows)


def read_split(folder: Path, split: str, binding: Binding) -> ShapedQueries:
    """The questions of ``valid`` or ``test`` with all their answers and the hard ones."""
    if split not in SPLITS[1:] or not (folder / f"{split}-queries.pkl").is_file():
        raise EmptyResult(
            f"{folder} has no {split} queries: no file {split}-queries.pkl",
            hint="training queries are not part of every copy of these files, nor are test queries; evaluate on valid",
        )
    path = folder / f"{split}-queries.pkl"
    by_shape = load_pickle(path)
    if not isinstance(by_shape, dict):
        raise UnreadableFile(f"{path} must hold a dict from shape to queries. Got {type(by_shape).__name__}")
    answers = {kind: _dict(folder / f"{split}-{kind}-answers.pkl") for kind in ("easy", "hard")}
    known = {key: name for name, key in SHAPES.items()}
    unknown = [key for key in by_shape if key not in known]
    if unknown:
        raise UnreadableFile(f"{path}: {brief(unknown[0])} is none of the {len(SHAPES)} shapes that are read")
    parts = [
        _read_shape(path, name, sorted(_collection(by_shape[key], path), key=repr), answers, binding)
        for name, key in SHAPES.items()
        if by_shape.get(key)
    ]
    if not parts:
        raise EmptyResult(f"{path} holds no query")
    return join_shapes(parts)


def _read_shape(
    path: Path, shape: str, queries: list[Any], answers: dict[str, dict[Any, Any]], binding: Binding
) -> ShapedQueries:
    rows = []
    for query in queries:
        anchors: list[Any] = []
        relations: list[Any] = []
        if not _flatten(query, SHAPES[shape], anchors, relations):
            raise UnreadableFile(f"{path}: {brief(query)} is no query of shape {shape}")
        rows.append([*anchors, *relations])
    flat = whole_numbers(list(chain.from_iterable(rows)), "entities and relations", path).reshape(len(rows), -1)
    count = _ANCHORS[shape]
    anchors_of = mapped(flat[:, :count], binding.entities, path)
    relations_of = mapped(flat[:, count:], binding.relations, path)
    sets = {kind: _answers(path, kind, queries, answers[kind], binding) for kind in ("easy", "hard")}
    owner = np.repeat(np.arange(len(queries)), np.diff(sets["easy"].offsets))
    own = np.repeat(np.arange(len(queries)), np.diff(sets["hard"].offsets))
    everything = sorted_sets(
        np.concatenate([owner, own]), np.concatenate([sets["easy"].values, sets["hard"].values]), len(queries)
    )
    queries_of, question = rows_of(shape, anchors_of, relations_of)
    return ShapedQueries(
        queries_of, question, (shape,), np.zeros(len(queries), np.int8), answers=everything, hard=sets["hard"]
    )


def _flatten(query: Any, shape: Any, anchors: list[Any], relations: list[Any]) -> bool:
    """Collect the constants and relations of a nested query, in order; False where it has another shape."""
    if shape == "e":
        anchors.append(query)
    elif shape == "r":
        relations.append(query)
    elif shape in ("n", "u"):
        return type(query) is int and query == (_NEGATION if shape == "n" else _UNION)
    else:
        return (
            isinstance(query, tuple)
            and len(query) == len(shape)
            and all(_flatten(part, own, anchors, relations) for part, own in zip(query, shape, strict=True))
        )
    return True


def _dict(path: Path) -> dict[Any, Any]:
    found = load_pickle(path)
    if not isinstance(found, dict):
        raise UnreadableFile(f"{path} must hold a dict from query to answers. Got {type(found).__name__}")
    return found


def _collection(found: Any, path: Path) -> list[Any]:
    if not isinstance(found, set | frozenset | list):
        raise UnreadableFile(f"{path} must hold a set of queries for each shape. Got {type(found).__name__}")
    return list(found)


def _answers(path: Path, kind: str, queries: list[Any], by_query: dict[Any, Any], binding: Binding) -> AnswerSets:
    sets = [by_query.get(query, ()) for query in queries]
    wrong = next((some for some in sets if not isinstance(some, set | frozenset | tuple | list)), None)
    if wrong is not None:
        raise UnreadableFile(f"{path}: {kind} answers must be sets. Got {brief(wrong)}")
    values = whole_numbers(list(chain.from_iterable(sets)), "entities", path)
    lengths = np.fromiter(map(len, sets), np.int64, len(sets))
    return sorted_sets(np.repeat(np.arange(len(sets)), lengths), mapped(values, binding.entities, path), len(sets))
