"""AnyCQ's query answer retrieval (QAR): large, mostly cyclic conjunctive queries with one to three free variables.

    anycq/NELL-QAR/
    ├── qar_valid_3hub_efo1.json …     formula -> list of [ids by name, answers, kind]
    └── kgindex.json                   not read: ids are those of Query2Box's files, q2b/NELL-995/

A formula is a conjunction such as ``(r1(s2,e3))&(r2(e3,f1))``: ``r`` and ``s`` are relations and constants, whose ids
stand in the entry, ``e`` hidden and ``f`` free variables. Answers are all tuples of the graph up to the split. Kinds:
e, the graph before the split holds an answer; h, it holds none; n, there is no answer. Paper: Olejniczak, Huang,
Galkin, Ceylan 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biqe.benchmarks.query2box import Binding
from biqe.benchmarks.restricted_pickle import brief
from biqe.errors import EmptyResult, UnreadableFile
from biqe.graph.whole_folder import cannot_be_read, read_json
from biqe.query.bound import HIDDEN, TARGET, BoundQuery, QuerySet

EASY, HARD, NONE = "e", "h", "n"
MOST_BYTES = 1 << 28
MOST_ATOMS = 1_000
_FILE = re.compile(r"qar_(?P<split>\w+?)_(?P<shape>\w+)_efo(?P<free>\d+)\.json")
_ATOM = re.compile(r"\(?(r\d+)\(([sef]\d+),([sef]\d+)\)\)?")


@dataclass(frozen=True)
class TupleQuestions:
    """Questions for one tuple each."""

    queries: QuerySet
    """Nodes of the free variables stand first, f1 before f2."""
    sets: tuple[str, ...]
    """Names of the files' groups, such as ``3hub efo2``."""
    set_of: NDArray[np.int8]
    """(N,) index into ``sets``."""
    kinds: NDArray[np.str_]
    """(N,) EASY, HARD or NONE."""
    answers: tuple[NDArray[np.int32], ...]
    """For each question its (n, k) tuples."""

    def __len__(self) -> int:
        return len(self.set_of)

    def take(self, questions: NDArray[np.integer]) -> TupleQuestions:
        """These questions, in this order."""
        numbers = np.asarray(questions, np.int64)
        return TupleQuestions(
            self.queries.take(numbers),
            self.sets,
            self.set_of[numbers],
            self.kinds[numbers],
            tuple(self.answers[number] for number in numbers.tolist()),
        )


def files_of(folder: Path, split: str) -> list[Path]:
    """The question files of a split, by shape and number of free variables."""
    found = [path for path in folder.glob(f"qar_{split}_*.json") if _FILE.fullmatch(path.name)]
    return sorted(found, key=lambda path: _FILE.fullmatch(path.name).group("free", "shape"))  # type: ignore[union-attr]


def read_split(folder: Path, split: str, binding: Binding) -> TupleQuestions:
    """The questions of all files of ``split``, in the ids of a graph."""
    files = files_of(folder, split)
    if not files:
        raise EmptyResult(
            f"{folder} has no {split} questions: no file qar_{split}_SHAPE_efoK.json",
            hint="the test questions are not part of every copy of these files; evaluate on valid"
            if split == "test"
            else "put AnyCQ's files there",
        )
    queries, names, set_of, kinds, answers = [], [], [], [], []
    for path in files:
        match = _FILE.fullmatch(path.name)
        assert match is not None
        names.append(f"{match['shape']} efo{match['free']}")
        for query, kind, tuples in _read(path, int(match["free"]), binding):
            queries.append(query)
            set_of.append(len(names) - 1)
            kinds.append(kind)
            answers.append(tuples)
    if not queries:
        raise EmptyResult(f"the {split} files of {folder} hold no question")
    return TupleQuestions(
        QuerySet.of(queries), tuple(names), np.array(set_of, np.int8), np.array(kinds), tuple(answers)
    )


def _read(path: Path, free: int, binding: Binding) -> Iterator[tuple[BoundQuery, str, NDArray[np.int32]]]:
    try:
        held = read_json(path, MOST_BYTES)
    except OSError as error:
        raise cannot_be_read(path, error) from error
    if not isinstance(held, dict):
        raise UnreadableFile(f"{path} must hold an object from formula to questions. Got {type(held).__name__}")
    for formula, entries in held.items():
        atoms = _atoms(path, formula)
        if not isinstance(entries, list):
            raise UnreadableFile(f"{path}: the questions of a formula must be a list. Got {brief(entries)}")
        for entry in entries:
            try:
                ids, answers, kind = entry
                ((key, tuples),) = answers.items()
                if kind not in (EASY, HARD, NONE) or key != "&".join(f"f{n + 1}" for n in range(free)):
                    raise TypeError
                yield _bound(path, atoms, ids, free, binding), kind, _tuples(path, tuples, free, binding)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise UnreadableFile(
                    f"{path}: {brief(entry)} is no question with {free} free variables: [ids, answers, kind]"
                ) from error


def _atoms(path: Path, formula: str) -> list[tuple[str, str, str]]:
    parts = formula.split("&")
    found = [_ATOM.fullmatch(part) for part in parts[: MOST_ATOMS + 1]]
    if len(parts) > MOST_ATOMS or not all(found):
        raise UnreadableFile(
            f"{path}: a formula must be a conjunction of at most {MOST_ATOMS:,} atoms such as r1(s2,e3). "
            f"Got {formula[:80]!r}"
        )
    return [(match[1], match[2], match[3]) for match in found if match]


def _bound(
    path: Path, atoms: Sequence[tuple[str, str, str]], ids: dict[str, Any], free: int, binding: Binding
) -> BoundQuery:
    used = dict.fromkeys(name for _, subject, object_ in atoms for name in (subject, object_))
    asked = [f"f{n + 1}" for n in range(free)]
    if {name for name in used if name[0] == "f"} != set(asked):
        raise UnreadableFile(f"{path}: a formula of this file must have the free variables {', '.join(asked)}")
    names = [*asked, *(name for name in used if name[0] != "f")]
    numbers = {name: number for number, name in enumerate(names)}
    nodes = [
        TARGET if name[0] == "f" else HIDDEN if name[0] == "e" else _id(path, ids[name], binding.entities)
        for name in names
    ]
    edges = dict.fromkeys(
        (numbers[subject], _id(path, ids[relation], binding.relations), numbers[object_])
        for relation, subject, object_ in atoms
    )
    return BoundQuery(tuple(nodes), tuple(edges), tuple(range(free)))


def _id(path: Path, id_: Any, table: NDArray[np.int32]) -> int:
    if type(id_) is not int or not 0 <= id_ < len(table):
        raise UnreadableFile(f"{path}: {brief(id_)} is none of the {len(table):,} ids that the release names")
    return int(table[id_])


def _tuples(path: Path, tuples: Any, free: int, binding: Binding) -> NDArray[np.int32]:
    if not isinstance(tuples, list) or not all(isinstance(row, list) and len(row) == free for row in tuples):
        raise TypeError
    return np.array([[_id(path, id_, binding.entities) for id_ in row] for row in tuples], np.int32).reshape(-1, free)
