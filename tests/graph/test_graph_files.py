"""Which files an import reads, in which format and for which split."""

from __future__ import annotations

import contextlib
import gzip
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from biqe.errors import BiqeError, InvalidOption, UnreadableFile
from biqe.graph.read import ReadGraph, read_graph

File = Callable[[str, str | bytes], Path]


def named(graph: ReadGraph, split: str = "train") -> set[tuple[str, str, str]]:
    """The triples of a split in names."""
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    return {(entities[s], relations[r], entities[o]) for s, r, o in graph.splits[split].triples.tolist()}


def test_folder_with_splits_and_labels(file: File) -> None:
    file("g/train.txt", "a\tr\tb\nb\tr\tc\na\tr\tb\n")
    file("g/valid.txt", "a\tr\td\n")
    file("g/test.txt.gz", gzip.compress(b"e\ts\ta\r\n"))
    file("g/labels.tsv", "a\tAlpha\tfirst letter\n# note\nz\tZeta\nb\t\nd\tDelta\r\n")
    file("g/README.md", "not data")
    graph = read_graph([file("g/train.txt", "a\tr\tb\nb\tr\tc\na\tr\tb\n").parent])
    assert graph.has_splits
    assert [len(graph.splits[split].triples) for split in ("train", "valid", "test")] == [2, 1, 1]
    assert named(graph, "test") == {("e", "s", "a")}
    assert list(graph.vocabulary.entities) == ["a", "b", "c", "d", "e"]
    assert dict(graph.vocabulary.labels) == {0: "Alpha", 3: "Delta"}
    assert dict(graph.vocabulary.descriptions) == {0: "first letter"}
    assert (graph.counts.duplicates, graph.counts.labels, graph.counts.labels_unused) == (1, 2, 1)
    assert graph.prefixes == {"": ""}


@pytest.mark.parametrize(
    "empty", [b"", b"\n\n", b"# nothing yet\n", gzip.compress(b"", mtime=0), b"head\trelation\ttail\n"]
)
def test_an_empty_split_counts_as_none(file: File, empty: bytes) -> None:
    folder = file("g/valid.txt", empty).parent
    file("g/train.txt", "a\tr\tb\nb\tr\ta\n")
    assert not read_graph([folder]).has_splits
    file("g/test.txt", "a\tr\ta\n")
    graph = read_graph([folder])
    assert graph.has_splits
    assert [len(graph.splits[split].triples) for split in ("train", "valid", "test")] == [2, 0, 1]
    file("g/train.txt", empty)
    with pytest.raises(BiqeError, match=r"train.txt (is empty|holds no triple)"):
        read_graph([folder])


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[list[bytes]], Path]]:
    """Function that writes pieces into a pipe, one after the other, and returns its path."""
    writers = []

    def write(pieces: list[bytes]) -> Path:
        path = tmp_path / f"pipe{len(writers)}"
        os.mkfifo(path)

        def run() -> None:
            with contextlib.suppress(BrokenPipeError), path.open("wb", buffering=0) as stream:
                for piece in pieces:
                    stream.write(piece)
                    time.sleep(0.01)

        writers.append(threading.Thread(target=run, daemon=True))
        writers[-1].start()
        return path

    yield write
    for writer in writers:
        writer.join(5)


PIPED = "h\tr\tt\n" + "".join(f"e{i}\tr\te{i * 7 % 1000}\n" for i in range(5000))


def test_pipes(file: File, pipe: Callable[[list[bytes]], Path]) -> None:
    data = PIPED.encode()
    wanted = read_graph([file("g.tsv", data)]).splits.fingerprint
    packed = gzip.compress(data)
    for pieces in (
        [data],
        [data[:1], data[1:4], data[4:]],
        [packed],
        [packed[:1], packed[1:]],
        [b"\xef\xbb\xbf", data],
    ):
        told: list[int] = []
        graph = read_graph([pipe(pieces)], format="tsv", advance=told.append)
        assert graph.splits.fingerprint == wanted
        assert sum(told) == sum(map(len, pieces))
    turned = pipe([b"t\tr\th\nb\tr\ta\n"])
    assert named(read_graph([turned], format="tsv", labels=pipe([b"a\tAlpha\n"]))) == {("a", "r", "b")}
    turtle = pipe([b"@prefix : <http://e/> . :a :r", b" :b ."])
    assert named(read_graph([turtle], format="ttl")) == {("http://e/a", "http://e/r", "http://e/b")}


@pytest.mark.parametrize("format", ["parquet", "rdfxml"])
def test_formats_that_pipes_cannot_have(tmp_path: Path, format: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="pipe or a device") as caught:
        read_graph([tmp_path / "pipe"], format=format)
    assert "file first" in (caught.value.hint or "")


def test_folder_without_splits_reads_all_files(file: File) -> None:
    file("g/one.tsv", "a\tr\tb\n")
    graph = read_graph([file("g/two.csv", "b,r,c\n").parent])
    assert not graph.has_splits
    assert named(graph) == {("a", "r", "b"), ("b", "r", "c")}


def test_labels_option_stands_above_the_folder(file: File) -> None:
    file("g/train.tsv", "a\tr\tb\n")
    file("g/labels.tsv", "a\tOld\n")
    graph = read_graph([file("g/valid.tsv", "b\tr\ta\n").parent], labels=file("mine.tsv", "a\tNew\n"))
    assert dict(graph.vocabulary.labels) == {0: "New"}


@pytest.mark.parametrize("name", ["labels.tsv", "labels.tsv.gz"])
def test_labels_beside_the_files(file: File, name: str) -> None:
    triples, text = file("g/facts.tsv", "a\tr\tb\n"), b"a\tAlpha\tthe first letter\n"
    labels = file(f"g/{name}", gzip.compress(text) if name.endswith(".gz") else text)
    # As a folder, as a file, and as the shell writes out g/*: what labels.tsv says is never a triple.
    for paths in ([triples.parent], [triples], [triples, labels], [labels, triples]):
        graph = read_graph(paths)
        assert (named(graph), dict(graph.vocabulary.labels)) == ({("a", "r", "b")}, {0: "Alpha"}), paths
        assert graph.counts.ignored_files == []
    graph = read_graph([triples, labels], labels=file("mine.tsv", "a\tNew\n"))
    assert dict(graph.vocabulary.labels) == {0: "New"}
    assert dict(read_graph([triples], labels=file("mine.tsv", "b\tNew\n")).vocabulary.labels) == {1: "New"}
    assert named(read_graph([labels])) == {("a", "Alpha", "the first letter")}  # it alone is what was asked for


def test_files_of_a_folder_that_are_not_read_are_listed(file: File) -> None:
    folder = file("g/train.txt", "a\tr\tb\n").parent
    for name in ("valid.txt", "entity2id.txt", "README.md", "labels.tsv", ".hidden", "raw/more.tsv"):
        file(f"g/{name}", "a\tb\n" if name == "labels.tsv" else "b\tr\ta\n")
    assert read_graph([folder]).counts.ignored_files == ["README.md", "entity2id.txt", "raw/"]
    (folder / "valid.txt").unlink()
    assert read_graph([folder]).counts.ignored_files == ["README.md", "entity2id.txt", "raw/"]
    (folder / "train.txt").unlink()
    assert read_graph([folder]).counts.ignored_files == ["README.md", "raw/"]


def test_what_is_not_there_or_not_clear(file: File, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="does not exist") as caught:
        read_graph([file("graph.tsv", "a\tr\tb\n").with_name("grph.tsv")])
    assert "graph.tsv?" in (caught.value.hint or "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableFile, match="holds no file to read"):
        read_graph([tmp_path / "empty"])
    with pytest.raises(UnreadableFile, match="the extension tells no format"):
        read_graph([file("g.dat", "a\tr\tb\n")])
    assert named(read_graph([tmp_path / "g.dat"], format="TSV")) == {("a", "r", "b")}
    with pytest.raises(InvalidOption, match="format must be one of"):
        read_graph([tmp_path / "g.dat"], format="xls")
    with pytest.raises(InvalidOption, match="given twice"):
        read_graph([tmp_path / "g.dat", tmp_path / "g.dat"], format="tsv")
    with pytest.raises(InvalidOption, match="nothing to import"):
        read_graph([])
    with pytest.raises(UnreadableFile, match="labels file"):
        read_graph([tmp_path / "g.dat"], format="tsv", labels=tmp_path / "none.tsv")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read_graph([tmp_path / ("long" * 100)])


def test_a_given_format_reads_a_folder_whatever_the_names(file: File) -> None:
    folder = file("g/train", "a\tr\tb\n").parent
    file("g/valid.del", "b\tr\ta\n")
    file("g/README.md", "not data")
    with pytest.raises(UnreadableFile, match="holds no file to read") as caught:
        read_graph([folder])
    assert "--format" in (caught.value.hint or "")
    graph = read_graph([folder], format="tsv")
    assert (named(graph), named(graph, "valid")) == ({("a", "r", "b")}, {("b", "r", "a")})
    assert graph.counts.ignored_files == ["README.md"]
    parts = file("h/part-0", "a\tr\tb\n").parent
    file("h/part-1", "b\tr\tc\n")
    assert named(read_graph([parts], format="tsv")) == {("a", "r", "b"), ("b", "r", "c")}


@pytest.mark.parametrize("name", ["valid", "validation", "val", "dev", "Valid"])
def test_names_of_the_valid_split(file: File, name: str) -> None:
    file("g/train.txt", "a\tr\tb\n")
    graph = read_graph([file(f"g/{name}.txt", "b\tr\ta\n").parent])
    assert (named(graph, "valid"), graph.counts.ignored_files) == ({("b", "r", "a")}, [])


def test_folders_of_splits_must_be_clear(file: File) -> None:
    folder = file("g/valid.txt", "a\tr\tb\n").parent
    with pytest.raises(UnreadableFile, match="no train file"):
        read_graph([folder])
    file("g/train.txt", "a\tr\tb\n")
    file("g/dev.tsv", "a\tr\tb\n")
    with pytest.raises(InvalidOption, match="two files for the valid split"):
        read_graph([folder])
    (folder / "dev.tsv").unlink()
    with pytest.raises(InvalidOption, match="cannot be joined"):
        read_graph([folder, file("other.tsv", "a\tr\tb\n")])
