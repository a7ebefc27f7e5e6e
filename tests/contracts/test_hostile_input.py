"""10,000 hostile inputs with a fixed seed: files that are nearly right, and command lines that are nearly right.

Each is made of a good one by a change that respects its structure: a value of a JSON document, a field of a header, a
number of an array, a word of a command line; or bytes flipped, cut, zeroed, repeated. It ends in an answer or in a
BiqeError, within SECONDS of processor time and MEMORY bytes, and with exit code 0 or 2 where it is a command.

``BIQE_FUZZ_CASES=100000`` tries more, ``pytest -s`` prints the slowest case of each kind.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biqe import atlas
from biqe.benchmarks.restricted_pickle import load_pickle
from biqe.cli import main
from biqe.errors import BiqeError
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary

CASES = int(os.environ.get("BIQE_FUZZ_CASES", "10000"))
SECONDS = 10
"""Of processor time; the slowest case takes a small part of it."""
MEMORY = 1 << 30

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    10**40,
    -(2**63),
    0.5,
    1e308,
    float("inf"),
    float("nan"),
]
VALUES += [
    "",
    "x",
    "x" * 70_000,
    "\x00",
    "\ud800",
    "../../etc",
    "é",
    "0",
    "1e9",
    [],
    {},
    [[]],
    {"": {}},
    [None],
    ["x"] * 50,
]
DEEP = "[" * 100_000


class Limit(BaseException):
    """Too much processor time; no handler for exceptions may take it."""


def too_long(*_: object) -> None:
    raise Limit


# Changes


def changed_json(rng: random.Random, data: bytes) -> bytes:
    """A JSON document with a value replaced, removed, renamed, moved or nested deeply."""
    try:
        document = json.loads(data)
    except ValueError:
        return changed_bytes(rng, data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        document = changed_value(rng, document)
    text = json.dumps(document)
    if rng.random() < 0.05:
        text = text.replace(rng.choice(["1", '"', "{", "["]), DEEP, 1)
    return text.encode(errors="surrogatepass")


def changed_value(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.2:
            return {(str(rng.choice(VALUES)) if k == key else k): v for k, v in value.items()}
        if kind < 0.3:
            return {**value, key: rng.choice(list(value.values()))}
        return {**value, key: changed_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], changed_value(rng, value[at]), *value[at + rng.choice([0, 1, 1, 1]) :]]
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 2**31, 10**12, -value * 2 - 1])
    if isinstance(value, str) and value and rng.random() < 0.3:
        return value[: rng.randrange(len(value))] + rng.choice(["\x00", "/", "é", "9"])
    return rng.choice(VALUES)


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes flipped, cut, zeroed, repeated or inserted."""
    if not data:
        return rng.randbytes(rng.randrange(40))
    at, length = rng.randrange(len(data)), rng.choice([1, 1, 2, 4, 8, 100])
    return rng.choice(
        [
            data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :],
            data[:at],
            data[:at] + bytes(min(length, len(data) - at)) + data[at + length :],
            data[:at] + b"\xff" * min(length, len(data) - at) + data[at + length :],
            data[:at] + rng.randbytes(length) + data[at:],
            data + data,
            data[:at] + data[at + length :],
            b"",
        ]
    )


SHAPES = [(0,), (1,), (10**12,), (2**62,), (-1,), (3, 3), (0, 3), (5, 3), (2**31, 3), (), (10**9, 10**9), (1,) * 40]


def changed_array(rng: random.Random, data: bytes) -> bytes:
    """A .npy file with another header, or other numbers."""
    array = np.load(io.BytesIO(data))
    kind = rng.random()
    if kind < 0.4 and array.size:
        flat = array.reshape(-1).copy()
        info = np.iinfo(array.dtype)
        for _ in range(rng.choice([1, 1, 3])):
            at = rng.randrange(len(flat))
            flat[at] = rng.choice([info.min, info.max, 0, 1, max(info.min, min(info.max, int(flat[at]) + 1))])
        return npy(flat.reshape(array.shape))
    if kind < 0.7:
        header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
        field = rng.choice(["shape", "descr", "fortran_order"])
        header[field] = {
            "shape": rng.choice(SHAPES),
            "descr": rng.choice(
                ["|O", "<f8", "<i4", "<i8", "|S1000000000", "|V0", "<U9", [("a", "<i4")] * 2, 5, "<M8"]
            ),
            "fortran_order": rng.choice([True, 1, "x", None]),
        }[field]
        text = repr(header).encode() + b" " * rng.randrange(40) + b"\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes()
    if kind < 0.8:
        return npy(rng.choice([array[:-1], array[:0], np.concatenate([array, array]), array.astype(np.float64)]))
    return changed_bytes(rng, data)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def changed_tensors(rng: random.Random, data: bytes) -> bytes:
    """A safetensors file with another header, or other numbers."""
    size = struct.unpack("<Q", data[:8])[0]
    if rng.random() < 0.6:
        header = changed_json(rng, data[8 : 8 + size])
        length = rng.choice([len(header)] * 8 + [0, 2**40, 2**63])
        return struct.pack("<Q", length) + header + data[8 + size :]
    at = 8 + size + 4 * rng.randrange((len(data) - 8 - size) // 4)
    if rng.random() < 0.5:
        bad = rng.choice([b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", b"\xff\xff\xff\xff"])
        return data[:at] + bad + data[at + 4 :]
    return changed_bytes(rng, data)


def changed(rng: random.Random, name: str, data: bytes) -> bytes:
    """The file with one change, by its kind."""
    if rng.random() < 0.1:
        return changed_bytes(rng, data)
    for ending, change in ((".json", changed_json), (".npy", changed_array), (".safetensors", changed_tensors)):
        if name.endswith(ending):
            return change(rng, data)
    return changed_bytes(rng, data)


# Folders: how each is made, and what opening and using it means


def toy() -> Splits:
    names, relations = [f"e{number} é" for number in range(12)], ["r", "s", "t"]
    rows = [(number, number % 3, (5 * number + 2) % 12) for number in range(12)]
    return Splits(
        Vocabulary(names, relations, {1: "One", 2: "Two"}, {3: "a text"}), as_triples(rows), as_triples([(0, 1, 5)])
    )


def use_graph(folder: Path) -> None:
    splits = graph_folder.load(folder)
    _ = list(splits.vocabulary.entities), dict(splits.vocabulary.labels), splits["complete"].index
    splits.vocabulary.entities.find("e3 é")


def make_model(folder: Path) -> None:
    from biqe.models import _catalogue, store

    splits = toy()
    model = _catalogue.build("biqe", {"width": 8, "layers": 1, "heads": 2, "feed_forward": 8}, 12, 3)
    store.save(model, folder, vocabulary=splits.vocabulary, graph_fingerprint=splits.fingerprint)


def use_model(folder: Path) -> None:
    from biqe.models import store

    loaded = store.load(folder)
    store.is_model_folder(folder)
    _ = list(loaded.vocabulary.entities)


def make_links(folder: Path) -> None:
    from biqe.models.store import LINKS_FILE

    folder.mkdir()
    shutil.copy(atlas.model_path() / LINKS_FILE, folder)


def use_links(folder: Path) -> None:
    from biqe.links import knowledge

    knowledge.load(folder)


def make_live(folder: Path) -> None:
    from biqe.serve.live import Changes, LiveGraph, Statement, Text

    live = LiveGraph(folder, toy())
    live.apply(Changes(inserted=(Statement("new", "r", "e1 é"), Statement("new", "s", Text("text")))))
    live.close()


def use_live(folder: Path) -> None:
    from biqe.serve.live import LiveGraph

    with contextlib.closing(LiveGraph(folder, read_only=True)) as live:
        assert live.version == 1, "it is damaged, and nobody noticed"
        _ = live.snapshot().graph.index, list(live.snapshot().vocabulary.entities)


def make_queries(folder: Path) -> None:
    from biqe.mine import dataset
    from biqe.mine import folder as mined_folder

    mined_folder.save(dataset.mine(toy(), dataset.MineConfig("cq", paths=4, dags=4, seed=1)), folder)


def use_queries(folder: Path) -> None:
    from biqe.mine import folder as mined_folder

    for queries in mined_folder.load(folder).queries.values():
        _ = [queries[number] for number in range(len(queries))]


def make_run(folder: Path) -> None:
    from biqe.training import checkpoint

    folder.mkdir()
    graph_folder.save(toy(), folder / "graph")
    record = {
        "format": "biqe-run",
        "version": 1,
        "model": "biqe",
        "model_config": {"width": 8},
        "train": {"epochs": 1.0},
        "graph": {"path": "graph", "name": "graph", "fingerprint": toy().fingerprint},
    }
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "trace.jsonl").write_text('{"event": "validation", "mrr": 0.5}\n')
    (folder / "held_out.npy").write_bytes(npy(toy().train[:2]))
    (folder / "models.json").write_text(json.dumps({"metric": "mrr", "models": {"a": {"mrr": 0.5}}}))
    model, optimizer = trained()
    checkpoint.save(folder / "checkpoints", checkpoint.Place(step=3), model, {}, optimizer)


@cache
def trained() -> tuple[Any, Any]:
    """A small model that has made a step."""
    import torch

    from biqe.models import _catalogue

    model = _catalogue.build("gqe", {"width": 4}, 12, 3)
    optimizer = torch.optim.Adam(model.parameters())
    sum(weight.sum() for weight in model.parameters()).backward()  # type: ignore[union-attr]
    optimizer.step()
    return model, optimizer


def use_run(folder: Path) -> None:
    from biqe.knowledge_base.model_selection import read_selection
    from biqe.training import checkpoint, held_out
    from biqe.training.run import Run

    for use in (
        lambda: Run.open(folder).train_config,
        lambda: held_out.load(folder, toy(), 2),
        lambda: read_selection(folder),
        lambda: Run.open(folder).trace(),
        lambda: checkpoint.load(folder / "checkpoints" / "step-000000003.safetensors", *trained()),
    ):
        with contextlib.suppress(BiqeError):
            use()


def make_tokens(folder: Path) -> None:
    folder.mkdir()
    (folder / "tokens").write_text(
        "# who may what\nread abcdefghijklmnopqrstuvwxyz\nwrite zyxwvutsrqponmlkjihgfedcba\n"
    )


def use_tokens(folder: Path) -> None:
    from biqe.serve.guard import Tokens

    Tokens.of_file(folder / "tokens").allows("abcdefghijklmnopqrstuvwxyz")


def make_pickle(folder: Path) -> None:
    folder.mkdir()
    value: dict[Any, Any] = defaultdict(set)
    for number in range(5):
        value[(number, (1, 2))] = {number, (3, "x")}
    (folder / "queries.pkl").write_bytes(pickle.dumps([value, {"a": [1.5, None]}], protocol=2))
    (folder / "more.pkl").write_bytes(pickle.dumps(dict(value), protocol=4))


def use_pickle(folder: Path) -> None:
    for name in ("queries.pkl", "more.pkl"):
        with contextlib.suppress(BiqeError):
            load_pickle(folder / name)


def make_triples(folder: Path) -> None:
    folder.mkdir()
    (folder / "facts.tsv").write_text("subject\trelation\tobject\na\tr\tb\nb\tr\tc\n")
    (folder / "facts.csv").write_text('a,r,"b, c"\nb,r,c\n')
    (folder / "facts.nt").write_text('<http://a> <http://r> <http://b> .\n_:x <http://r> "text"@en .\n')
    (folder / "facts.ttl").write_text('@prefix : <http://x/> .\n:a :r :b, [ :s "1"^^:t ] .\n')
    (folder / "facts.rdf").write_text(
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://x/">'
        '<rdf:Description rdf:about="http://x/a"><r rdf:resource="http://x/b"/></rdf:Description></rdf:RDF>'
    )


def use_triples(folder: Path) -> None:
    from biqe.graph.importer import import_files

    for path in sorted(folder.iterdir()):
        with contextlib.suppress(BiqeError):
            import_files([path], folder.parent / "imported", force=True)


FOLDERS: dict[str, tuple[int, Callable[[Path], object], Callable[[Path], object]]] = {
    "graph": (1800, lambda folder: graph_folder.save(toy(), folder), use_graph),
    "model": (1200, make_model, use_model),
    "live": (800, make_live, use_live),
    "links": (600, make_links, use_links),
    "queries": (900, make_queries, use_queries),
    "run": (1200, make_run, use_run),
    "tokens": (300, make_tokens, use_tokens),
    "pickle": (1000, make_pickle, use_pickle),
    "triples": (1000, make_triples, use_triples),
}
"""Number of cases out of 10,000, how a good one is made, and what it is to use one."""
COMMANDS = 1200
assert sum(count for count, _, _ in FOLDERS.values()) + COMMANDS == 10_000


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """No more than SECONDS of processor time a case, and MEMORY bytes more than now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, too_long)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGVTALRM, handler)


class Report:
    """What went wrong, and the slowest case."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.wrong: list[str] = []
        self.answers = self.refusals = 0
        self.slowest = 0.0, ""

    def run(self, case: str, work: Callable[[], object]) -> None:
        start = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            work()
            self.answers += 1
        except BiqeError:
            self.refusals += 1
        except (Exception, Limit) as error:
            self.wrong.append(f"{case}: {type(error).__name__}: {str(error)[:300]}")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.slowest = max(self.slowest, (time.process_time() - start, case))

    def check(self) -> None:
        print(
            f"\n{self.kind}: {self.answers:,} answers, {self.refusals:,} refusals, {len(self.wrong):,} wrong; slowest "
            f"{self.slowest[0]:.3f} s: {self.slowest[1][:200]}"
        )
        assert not self.wrong, "\n".join(sorted(self.wrong)[:40])


@pytest.mark.parametrize("kind", FOLDERS)
def test_hostile_files_are_answered_or_refused(kind, tmp_path):
    count, make, use = FOLDERS[kind]
    place = tmp_path / "good"
    make(place)
    use(place)
    good = {path.relative_to(place): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    parent = Path(tempfile.mkdtemp(prefix="hostile-", dir=memory))
    work = parent / kind
    report = Report(kind)
    names = [name for name in good if not name.name.endswith(("-shm", ".lock", "card.md"))]
    try:
        shutil.copytree(place, work)
        with limits():
            for number in range(count * CASES // 10_000):
                rng = random.Random(f"{kind} {number}")
                name = (
                    rng.choice(names)
                    if rng.random() < 0.7
                    else rng.choice([n for n in names if ".json" in n.name] or names)
                )
                data = changed(rng, name.name, good[name])
                (work / name).write_bytes(data)
                changed_too = [name]
                if kind == "graph" and name.name.endswith(".npy"):
                    # So that the change is not found by the size alone.
                    manifest = json.loads(good[Path("manifest.json")])
                    manifest["files"][name.name]["bytes"] = len(data)
                    (work / "manifest.json").write_text(json.dumps(manifest))
                    changed_too.append(Path("manifest.json"))
                report.run(f"case {number}, {name}, {data[:60]!r}", partial(use, work))
                for path in changed_too:
                    (work / path).write_bytes(good[path])
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    report.check()


LINES = [
    ["stats", "GRAPH"],
    ["stats", "GRAPH", "--json"],
    ["schema", "GRAPH"],
    ["find", "GRAPH", "e3"],
    ["find", "GRAPH", "e3", "--json"],
    ["ask", "GRAPH", "SELECT ?x WHERE { ?x :r ?y } LIMIT 3"],
    ["ask", "GRAPH", "SELECT ?x WHERE { ?x :r ?y }", "--format", "csv", "--top", "3"],
    ["doctor", "GRAPH", "--plan", "--width", "16", "--ranks", "1"],
    ["import", "FACTS", "--out", "OUT", "--split", "none"],
    ["mine", "GRAPH", "--out", "OUT", "--paths", "3", "--dags", "3", "--seed", "1"],
    ["models"],
    ["benchmarks"],
    ["config", "GRAPH"],
    ["serve", "GRAPH", "--check", "--port", "0", "--read-only"],
    ["backup", "GRAPH", "--out", "OUT"],
]
WORDS = [
    *(
        "",
        "-1",
        "0",
        "1",
        "3",
        "1e9",
        "1000000000000",
        "nan",
        "inf",
        "-inf",
        "0x10",
        "1_0",
        "x" * 5000,
        "\udcff",
        "a\x00b",
    ),
    *(
        "--json",
        "--out",
        "--format",
        "--top",
        "--seed",
        "--nothing",
        "--",
        "-",
        "-O",
        "width=10000000000000",
        "-O=x",
        "--help",
    ),
    *("/dev/null", "/proc/self", "/", "..", "atlas", "é", "\U0001f600", "SELECT", "SELECT * WHERE { ?s ?p ?o }"),
    *("{" * 2000, "SELECT ?x WHERE { " + "{" * 500 + "}" * 500 + " }", "ASK { ?a ?b ?c }", "?x", "<a>", "'"),
    *(
        "csv",
        "json",
        "turtle",
        "parquet",
        "none",
        "0.5,0.6",
        "train",
        "complete",
        "--known",
        "--graph",
        "--limit",
        "--split",
    ),
]


def changed_line(rng: random.Random, line: list[str]) -> list[str]:
    """A command line with words replaced, removed, inserted or spoilt."""
    line = list(line)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(1, len(line) + 1)
        kind = rng.random()
        if kind < 0.4 and at < len(line):
            line[at] = rng.choice(WORDS)
        elif kind < 0.6 and at < len(line):
            del line[at]
        elif kind < 0.9:
            line.insert(at, rng.choice(WORDS))
        elif at < len(line):
            line[at] = line[at][: rng.randrange(len(line[at]) + 1)] + rng.choice(WORDS)
    return line


def test_hostile_command_lines_are_answered_or_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    graph_folder.save(toy(), "graph")
    Path("facts.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    report = Report("command lines")

    def run(line: list[str]) -> None:
        code = main(line)
        told = capsys.readouterr()
        assert code in (0, 2), (code, told.err[-300:])
        assert "Traceback" not in told.err
        if code == 2:
            assert told.err.strip(), "no word of what is wrong"

    def tidy() -> None:
        for path in Path().iterdir():
            if path.name not in ("graph", "facts.tsv", "state"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    places = {"GRAPH": "graph", "FACTS": "facts.tsv", "OUT": "out"}
    # Each as it should be comes first: it loads libraries, and compiles what is compiled once.
    for line in LINES:
        run([places.get(word, word) for word in line])
        tidy()
    with limits():
        for number in range(COMMANDS * CASES // 10_000):
            rng = random.Random(f"line {number}")
            line = [places.get(word, word) for word in changed_line(rng, rng.choice(LINES))]
            if line[0] == "serve" and not {"--check", "--help"} & set(line):
                line.insert(1, "--check")  # or it would serve
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
            report.run(f"case {number}, biqe {' '.join(word[:60] for word in line)!r}", partial(run, line))
            tidy()
    report.check()
