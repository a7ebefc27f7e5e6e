"""The compiled scanners give what the strict readers give: ids, triples, labels, counts, and the line of an error."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from biqe.errors import BadLine, UnreadableFile
from biqe.graph.collect import Collector, DictInterner
from biqe.graph.files import Source
from biqe.graph.intern_kernels import HashInterner
from biqe.graph.read_fast import read_fast
from biqe.graph.read_rdf import read_rdf
from biqe.graph.read_table import read_tsv
from biqe.graph.triples import as_triples

# One file for all examples: a folder for each would take longer than what is tested.
PLACE = Path(tempfile.mkdtemp(prefix="biqe-test-")) / "file"
atexit.register(shutil.rmtree, PLACE.parent, ignore_errors=True)


def outcome(data: bytes, format: str, *, fast: bool, block_bytes: int = 1 << 20, scope: int = 0) -> object:
    """Everything that a reader makes of ``data``, in a form that can be compared."""
    source = Source(PLACE, format, "train")
    source.path.write_bytes(data)
    into = Collector(HashInterner(4, 16), HashInterner(2, 16)) if fast else Collector()
    try:
        if fast:
            read_fast(source, into, scope=scope, block_bytes=block_bytes)
        elif format == "tsv":
            read_tsv(source, into)
        else:
            read_rdf(source, into, scope=scope)
    except BadLine as error:
        return ("bad line", error.line)
    except UnreadableFile as error:
        return ("unreadable", str(error))
    rows = as_triples(np.concatenate(into.parts["train"])) if into.parts["train"] else as_triples([])
    return (
        list(into.entities.names()),
        list(into.relations.names()),
        rows.tolist(),
        sorted(into.labels.items()),
        list(into.labels.others()),
        asdict(into.counts),
    )


IRIS = st.one_of(
    st.sampled_from(
        [
            "http://a/b",
            "http://a/c",
            "http://example.org/x#y",
            "urn:x:1",
            "http://a/%41",
            "http://a/é",
            "http://a/日本",
            "http://a/𝄞",
            "http://a/\\u00e9",
            "http://a?q=1/2",
            "http://a/x#y?z",
            "mailto:a@b",
            "http://www.w3.org/2000/01/rdf-schema#label",
            "http://a:80/",
            "http://u@a/",
            "http://[::1]/",
            "file:///x",
            "x:",
            "x-y.z+1:a//b",
            "http://a/(b)'c,d;e=f!$&*~_-",
            # Not valid, or not to be taken for granted:
            "",
            "relative",
            "/x",
            "1x:y",
            "http://a b",
            "http://a/%4",
            "http://a/%zz",
            "http://a/#b#c",
            "http://a/{x}",
            "http://a/\\u",
            "http://a/|",
            "http://a/\x7f",
            "http://a/\ue000",
            "http://a/\u00a0",
            "http://a/\u0085",
            "http://a/\ufffd",
            "x://",
            "http://",
            "http://a/\u2028",
            "http://a/\ufdd0",
            "http://é/",
            "http://a/\u200e",
            "http://a/`",
            'http://a/"',
            "http://a/^",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=6).map("http://a/".__add__),
)
NODES = st.one_of(
    IRIS.map("<{}>".format),
    st.sampled_from(
        ["_:a", "_:b1", "_:1", "_:a-b", "_:a.b", "_:a.", "_:", "_:é", "_:-a", "_:a:b", "_:a_", "_x:a", "_"]
    ),
)
LITERALS = st.one_of(
    st.sampled_from(
        [
            '"x"',
            '"Köln"@de',
            '"Cologne"@en',
            '"Cologne"@en-GB',
            '"x"@',
            '"x"@e',
            '"x"@en-Latn-GB',
            '"x"@1',
            '"x"^^<http://a/b>',
            '"x"^^<b>',
            '"x"^^',
            '"x"^^http://a/b',
            '"a\\"b"',
            '"a\\nb"',
            '"a\\qb"',
            '"\\u00e9"',
            '"x',
            '""',
            '" y  z "',
            '"x"y',
            '"a\rb"',
            '"x"^^<http://a/b>@en',
            '"1"^^<http://www.w3.org/2001/XMLSchema#integer>',
            '"x"@abcdefghij',
            '"x"@en--ltr',
            '"\t"',
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=6).map('"{}"'.format),
)
GAPS = st.sampled_from([" ", " ", " ", "\t", "", "  "])
ENDS = st.sampled_from([" .", " .", " .", ".", " . ", " .\t", "", " ..", " . # note", " . x", " .\r", ". <http://a/b>"])
LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"


@st.composite
def statements(draw: st.DrawFn) -> str:
    terms = [
        draw(NODES),
        draw(st.one_of(IRIS.map("<{}>".format), st.just(LABEL))),
        draw(st.one_of(NODES, NODES, LITERALS)),
    ]
    if draw(st.integers(0, 3)) == 0:
        terms.append(draw(NODES))
    line = draw(st.sampled_from(["", "", " ", "\t"]))
    for term in terms:
        line += term + draw(GAPS)
    return line.rstrip() + draw(ENDS)


PLAIN = st.builds("<http://e/{}> <http://r/{}> <http://e/{}> .".format, *[st.integers(0, 9)] * 3)
OTHER_LINES = st.sampled_from(
    [
        "",
        "# note",
        "  ",
        "\t# x",
        "#\rx",
        "#",
        " \r",
        "\r",
        "<http://a/b> <http://a/b> <<( <http://a/b> <http://a/b> <http://a/b> )>> .",
    ]
)
LINE_ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n"])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Mostly plain lines, so that errors do not hide all that follows, with a few of any kind among them."""
    text = draw(st.sampled_from(["", "", "", "\ufeff"]))
    for line in draw(st.lists(st.one_of(PLAIN, PLAIN, statements(), OTHER_LINES), min_size=1, max_size=8)):
        text += line + draw(LINE_ENDS)
    text = text.rstrip("\n") if draw(st.booleans()) else text
    return text.encode() or b"\n"


@settings(max_examples=200)
@given(
    documents(), st.sampled_from(["ntriples", "nquads"]), st.sampled_from([1 << 20, 7, 64]), st.sampled_from([0, 0, 3])
)
@example(b'<http://a> <http://b> "x" .\r<http://a> <http://b> <http://c> .\n', "ntriples", 64, 0)
@example(b"<http://a> <http://b> _:c .\r", "ntriples", 64, 2)
def test_rdf_lines_are_read_alike(data: bytes, format: str, block_bytes: int, scope: int) -> None:
    strict = outcome(data, format, fast=False, scope=scope)
    assert outcome(data, format, fast=True, block_bytes=block_bytes, scope=scope) == strict


@settings(max_examples=150)
@given(st.lists(statements(), min_size=1, max_size=1), st.sampled_from(["ntriples", "nquads"]))
def test_single_statements_are_read_alike(lines: list[str], format: str) -> None:
    """One statement a file, so that each odd form is judged by itself."""
    data = (lines[0] + "\n").encode()
    assert outcome(data, format, fast=True) == outcome(data, format, fast=False)


FIELDS = st.one_of(
    st.sampled_from(["a", "b", "c", "/m/0345h", "", " ", " a ", "#a", "é", "日本", "a\rb", "head", "tail", '"q"', "𝄞"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=12),
)
LITERALS = st.builds(
    '{}"{}"{}{}'.format,
    st.sampled_from(["", "", "", "x", " "]),
    st.one_of(st.sampled_from(["", "x", 'a"b', "\\", '\\"', "\\u00e9", "\\uD800", "a\rb"]), FIELDS),
    st.sampled_from(
        ["", "@", "@en", "@de-AT", "@x-1", "@en_", "^^<http://a/b>", "^^<a>", "^^<http://a/ b>", "^^<http://a/\xa0b>"]
        + ["^^<http://a/\u2003>", "^^<é:a>", "^^xsd:int", "^^x", "^^<>"]
    ),
    st.sampled_from(["", "", "", " ", '"', "\r"]),
)
ROWS = st.one_of(
    st.builds(
        "e{}\t{}\t{}".format,
        st.integers(0, 9),
        st.sampled_from(["r", "rdfs:label", LABEL, LABEL[1:-1], "alabel>"]),
        LITERALS,
    ),
    st.builds("e{}\t{}\t{}".format, st.integers(0, 9), FIELDS, LITERALS),
    st.builds("e{}\tr{}\te{}".format, *[st.integers(0, 9)] * 3),
    st.builds("e{}\tr{}\te{}".format, *[st.integers(0, 9)] * 3),
    st.lists(FIELDS, min_size=3, max_size=3).map("\t".join),
    st.lists(FIELDS, min_size=1, max_size=5).map("\t".join),
    st.sampled_from(
        ["", "# note", "#", "  ", "\r", " \r ", "\t\t", "Head\tRelation\tTail", "tail\trelation\thead", "\r\r"]
    ),
)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(ROWS, LINE_ENDS), min_size=1, max_size=8).map(lambda rows: "".join(a + b for a, b in rows)),
    st.sampled_from([1 << 20, 7, 64]),
    st.booleans(),
)
@example("# note\nHead\tRelation\tTail\na\tr\tb\n", 1 << 20, False)
@example("# note\ntail\trelation\thead\na\tr\tb\n", 7, False)
def test_tsv_lines_are_read_alike(text: str, block_bytes: int, cut: bool) -> None:
    data = (text.rstrip("\n") if cut else text).encode() or b"\n"
    assert outcome(data, "tsv", fast=True, block_bytes=block_bytes) == outcome(data, "tsv", fast=False)


@given(st.lists(st.lists(st.text(max_size=20), max_size=30), max_size=4))
def test_interners_agree(batches: list[list[str]]) -> None:
    batches = [[name for name in batch if name.isprintable()] for batch in batches]
    a, b = DictInterner(), HashInterner(2, 8)
    for batch in batches:
        np.testing.assert_array_equal(a.ids(batch), b.ids(batch))
    assert list(a.names()) == list(b.names())
    assert len(a) == len(b)


def test_interner_keeps_names_apart_that_differ_in_any_byte() -> None:
    names = [f"{'x' * size}{tail}" for size in range(40) for tail in ("", "a", "b", "\0", "\0\0")]
    names = list(dict.fromkeys(names))
    interner = HashInterner(2, 8)
    assert interner.ids(names).tolist() == list(range(len(names)))
    assert interner.ids(names[::-1]).tolist() == list(range(len(names)))[::-1]


@pytest.mark.parametrize("format", ["tsv", "ntriples"])
def test_large_files_cross_many_blocks(format: str) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 3000, (20_000, 3))
    form = "e{}\tr{}\te{}\n" if format == "tsv" else "<http://e/{}> <http://r/{}> <http://e/{}> .\n"
    data = "".join(form.format(a, b % 50, c) for a, b, c in rows).encode()
    strict = outcome(data, format, fast=False)
    assert outcome(data, format, fast=True, block_bytes=10_000) == strict


def test_the_line_of_an_error_is_true_deep_in_a_file() -> None:
    good = b"<http://e/1> <http://r/1> <http://e/2> .\n"
    data = (
        good * 5000
        + b'<http://e/1> <http://www.w3.org/2000/01/rdf-schema#label> "x\\q" .\n'
        + good * 5000
        + b"nonsense\n"
    )
    assert outcome(data, "ntriples", fast=True, block_bytes=4096) == ("bad line", 5001)
    assert outcome(data, "ntriples", fast=False) == ("bad line", 5001)
