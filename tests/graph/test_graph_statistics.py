"""What a graph looks like."""

from __future__ import annotations

from pathlib import Path

from biqe.graph import folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.statistics import statistics, unseen_entities
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary


def test_statistics_of_a_small_graph() -> None:
    vocabulary = Vocabulary(["a", "b", "c", "d", "e"], ["r", "s", "unused"], {0: "A"})
    train = as_triples([(0, 0, 1), (0, 0, 2), (0, 0, 0), (1, 1, 2)])
    found = statistics(Splits(vocabulary, train, as_triples([(0, 0, 3), (0, 0, 1)]), as_triples([(1, 2, 2)])))
    assert (found.entities, found.relations, found.triples, found.labels, found.loops) == (5, 3, 6, 1, 1)
    degrees = found.degrees
    assert (degrees.mean, degrees.median, degrees.most, degrees.most_entity, degrees.isolated) == (2.4, 3.0, 5, 0, 1)
    assert degrees.histogram == [(1, 1, 1), (2, 3, 2), (4, 7, 1)]
    assert [
        (item.name, item.triples, item.subjects, item.objects, item.kind) for item in found.relation_statistics
    ] == [("r", 4, 1, 4, "1-N"), ("s", 1, 1, 1, "1-1"), ("unused", 1, 1, 1, "1-1")]
    assert found.kinds == {"1-1": 2, "1-N": 1, "N-1": 0, "N-N": 0}
    valid, test = found.splits[1], found.splits[2]
    assert (valid.unseen_entities, valid.triples_with_unseen, valid.in_train) == (1, 1, 1)
    assert (test.unseen_relations, test.triples_with_unseen, test.unseen_entities) == (1, 1, 0)


def test_published_counts(benchmark_data, tmp_path: Path) -> None:
    from biqe.graph.read import read_graph

    for name, entities, relations, triples, unseen in (
        ("FB15k-237", 14_541, 237, [272_115, 17_535, 20_466], [8, 29]),
        ("WN18RR", 41_105, 11, [86_835, 3_034, 3_134], [205, 210]),
        ("NELL-995", 63_361, 200, [114_213, 14_324, 14_267], [0, 0]),
    ):
        graph = read_graph([benchmark_data(name)])
        folder.save(graph.splits, tmp_path / name)
        splits = folder.load(tmp_path / name)
        assert (len(splits.vocabulary.entities), len(splits.vocabulary.relations)) == (entities, relations)
        assert [len(splits[split].triples) for split in ("train", "valid", "test")] == triples
        assert [len(unseen_entities(splits, split)) for split in ("valid", "test")] == unseen
        assert graph.counts.duplicates == 0
    labels = folder.load(tmp_path / "FB15k-237").vocabulary.labels
    assert len(labels) == 14_515
