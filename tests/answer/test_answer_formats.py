"""Every format parses back to the same rows; hostile names stay data."""

from __future__ import annotations

import copy
import csv
import io
import json
import sys
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser
from types import SimpleNamespace

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from biqe.answer import formats
from biqe.answer.formats.table import write as write_table
from biqe.answer.result import ResultTable, TextRow, TextTable, View, patterns
from biqe.answer.terms import TermTable
from biqe.errors import InvalidOption
from biqe.exact.store import name_of, node_of
from biqe.graph.words import fit, probability, visible
from biqe.query.bound import TARGET, BoundQuery

NAMESPACE = {"s": "http://www.w3.org/2005/sparql-results#"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m",
    "\x9b2J",
    "tab\there",
    "line\nbreak",
    "carriage\rreturn",
    'quote " comma , semicolon ;',
    "a & b ]]> <!-- -->",
    "=HYPERLINK(1)",
    "x" * 3000,
    "\u202egnp.exe",
    "مدينة",
    "東京都" * 20,
    "back\\slash",
    "null\x00byte",
    "\u2028separator",
    "[bold]markup[/bold] :rhine:",
    " padded ",
    "New York",
    "/m/027rn",
    "100%",
    "urn:biqe:name:x",
    "http://example.org/a b",
    "_:b 1",
    "e\u0301",
    "_:b0",
    "?x",
    "http://example.org/a#b",
]
STANDARD = {
    "sparql-json": pyoxigraph.QueryResultsFormat.JSON,
    "xml": pyoxigraph.QueryResultsFormat.XML,
    "tsv": pyoxigraph.QueryResultsFormat.TSV,
}
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


def _answers(toy, name: str, variable: str = "x", label: str | None = None):
    """One known row and two predicted ones, over entities of hostile names."""
    entities = ["root", name, name + "2", name + "3"]
    graph = toy.graph_of([(0, 0, 1)], entities, [f"rel {name}"], {1: label} if label else None)
    query = BoundQuery((0, TARGET), ((0, 0, 1),), (1,), ("", variable))
    return toy.ask(graph, query, toy.random_model(1, 4, 1), top=2)


def _rows(answers):
    return [(row[answers.variables[0]], row.status) for row in answers]


def _check_all(toy, name: str) -> None:
    answers = _answers(toy, name)
    expected = _rows(answers)

    document = json.loads(answers.write("json"))
    assert [(row["values"]["x"], row["status"]) for row in document["rows"]] == expected
    assert document["rows"][1]["missing"][0]["relation"] == f"rel {name}"

    # An independent parser, which takes nothing but absolute IRIs.
    for form, kind in STANDARD.items():
        solutions = pyoxigraph.parse_query_results(answers.write(form).encode(), format=kind)
        assert [variable.value for variable in solutions.variables] == ["x", "status", "probability", "missing"]
        rows = list(solutions)
        assert [row["x"] for row in rows] == [node_of(value) for value, _ in expected]
        assert [(_name(row["x"]), row["status"].value) for row in rows] == expected
        if form != "tsv":  # which has nine digits
            assert [float(row["probability"].value) for row in rows] == [row.probability for row in answers]
        assert [row["missing"].value for row in rows] == [patterns(row.missing) for row in answers]

    with io.StringIO(answers.write("csv"), newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["x", "status", "probability", "missing"]
    assert [(name_of(row[0]), row[1]) for row in rows] == expected
    assert [float(row[2]) for row in rows] == [row.probability for row in answers]

    header, *lines = answers.write("tsv").removesuffix("\n").split("\n")
    assert header == "?x\t?status\t?probability\t?missing"
    assert len(lines) == len(expected)


def _name(node: pyoxigraph.NamedNode | pyoxigraph.BlankNode) -> str:
    return f"_:{node.value}" if isinstance(node, pyoxigraph.BlankNode) else name_of(node.value)


@pytest.mark.parametrize("name", HOSTILE)
def test_machine_formats_parse_back(toy, name):
    _check_all(toy, name)


@given(names)
def test_machine_formats_parse_back_whatever_the_name(toy, name):
    _check_all(toy, name)


@pytest.mark.parametrize("form", ["table", "json", "sparql-json", "tsv", "xml"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_control_character_reaches_the_terminal(toy, name, form):
    text = _answers(toy, name, label=name).write(form)
    allowed = "\n" if form != "tsv" else "\n\t"
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in allowed}
    # XML is free to keep a tab or a line feed of a name; neither harms.
    assert bad <= ({"\t"} if form == "xml" else set())
    assert not set("\u202e\u2066\u200f") & set(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_row_is_one_line_of_plain_text(toy, name):
    answers = _answers(toy, name)
    for row in answers:
        assert str(row).isprintable()
        assert cell_len(str(row)) < 80


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_keeps_to_its_width(toy, name, width):
    for line in _answers(toy, name).write("table", width=width).splitlines():
        assert cell_len(line) <= width


@given(names)
def test_visible_is_printable_and_one_line(name):
    shown = visible(name)
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in shown)


def test_joiners_stay_inside_words_only():
    assert visible("می\u200cخواهم") == "می\u200cخواهم"
    assert visible("\u200da \u200db\u200c") == "\\u200da \\u200db\\u200c"


@given(names | st.text("a \u200c\u200d東👩\ufe0f", min_size=1), st.integers(1, 40))
def test_fit_gives_exactly_the_width(name, width):
    assert cell_len(fit(visible(name), width)) == width


def test_the_table(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=2)
    assert answers.write("table").splitlines() == [
        "toy: 2 known, 2 predicted by factor, 0.25 s",
        "",
        "?river  ?city          status     prob.  missing links",
        "Elbe    Dresden        known",
        "Rhine   Cologne        known",
        "Rhine   Bonn am Rhein  predicted  0.266  0.84 Bonn am Rhein located_on Rhine",
        "Elbe    Bonn am Rhein  predicted  0.033  0.11 Bonn am Rhein located_on Elbe",
    ]


def test_a_row_with_two_missing_links_has_a_line_for_each(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=49)
    worst = answers[len(answers) - 1]
    assert len(worst.missing) == 2
    lines = answers.write("table", width=120).splitlines()
    assert "predicted" in lines[-2]
    assert "predicted" not in lines[-1]
    assert lines[-1].startswith(" " * 20)
    below = answers.write("table", width=60).splitlines()
    assert "predicted" in below[-3] and all(line.startswith("    missing: ") for line in below[-2:])


def test_known_rows_are_cut_with_a_note_between_known_and_predicted(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=1)
    lines = answers.write("table", known_rows=1).splitlines()
    assert lines[0].startswith("toy: 2 known")
    assert [line.split()[0] for line in lines[3:]] == ["Elbe", "…", "Rhine"]
    assert lines[4] == "… and 1 more known row"
    hidden = answers.write("table", known_rows=0).splitlines()
    assert hidden[3] == "… and 2 more known rows"


def test_colour_changes_nothing_but_colour(toy, rivers):
    import re

    answers = toy.ask(rivers.graph, rivers.query, rivers.model)
    coloured = answers.write("table", colour=True)
    assert "\x1b[32m" in coloured
    plain = [line.rstrip() for line in re.sub(r"\x1b\[\d*m", "", coloured).splitlines()]
    assert plain == answers.write("table").splitlines()


def test_relations_that_are_iris_are_shown_short(toy):
    graph = toy.graph_of([], ["http://e.org/x#a", "http://e.org/b"], ["http://e.org/on"])
    query = BoundQuery((0, TARGET), ((0, 0, 1),), (1,), ("", "x"))
    answers = toy.ask(graph, query, toy.random_model(0, 2, 1), top=2)
    assert "a on b" in answers.write("table")
    paths = toy.graph_of([], ["/m/0a", "/m/0b"], ["/sports/roster./sports/team"])
    assert "/m/0a team /m/0b" in toy.ask(paths, query, toy.random_model(0, 2, 1), top=2).write("table")
    assert "<http://e.org/x#a> <http://e.org/on> <http://e.org/b>" in answers.write("csv")


@pytest.mark.parametrize("form", formats.names())
def test_no_answers(toy, form):
    graph = toy.graph_of([], 2, 1)
    answers = toy.ask(graph, BoundQuery((0, TARGET), ((0, 0, 1),), (1,), ("", "x")), None, mode="known")
    assert len(answers) == 0 and list(answers) == []
    text = answers.write(form)
    if form == "table":
        assert text == "toy: no answers, 0.25 s\n"
    elif form == "json":
        assert json.loads(text)["rows"] == []
    elif form == "sparql-json":
        assert json.loads(text)["results"]["bindings"] == []
    elif form == "xml":
        assert not ET.fromstring(text).findall(".//s:result", NAMESPACE)
    elif form == "html":
        assert "<td>" not in text
    else:
        assert len(text.splitlines()) == 1


@pytest.mark.parametrize("variable", ["status", "probability", "missing"])
def test_a_variable_called_like_a_column_of_ours_keeps_its_name(toy, variable):
    answers = _answers(toy, "a", variable)
    with io.StringIO(answers.write("csv"), newline="") as stream:
        header = next(csv.reader(stream))
    assert header[0] == variable
    assert len(set(header)) == 4
    assert f"{variable}_" in header
    assert answers[0][variable] == "a"
    assert answers[0].status == "known"


def test_an_unknown_format(toy, rivers):
    with pytest.raises(InvalidOption, match="'format' must be one of csv, html, json, .*, xml. Got 'yaml'"):
        toy.ask(rivers.graph, rivers.query, None, mode="known").write("yaml")


def test_json_schema(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=1)
    document = json.loads(answers.to_json())
    assert document["variables"] == ["river", "city"]
    assert (document["known"], document["predicted"], document["known_complete"]) == (2, 1, True)
    assert (document["model"], document["source"], document["mode"]) == ("factor", "toy", "both")
    assert document["labels"] == {"Bonn": "Bonn am Rhein"}
    assert document["rows"][0] == {
        "values": {"river": "Elbe", "city": "Dresden"},
        "status": "known",
        "probability": 1.0,
    }
    bonn = document["rows"][2]
    assert bonn["values"] == {"river": "Rhine", "city": "Bonn"}
    assert bonn["held"] == [{"subject": "Rhine", "relation": "flows_through", "object": "Germany", "probability": 1.0}]
    assert bonn["missing"][0]["object"] == "Rhine"
    assert {entry["status"] for entry in document["marginals"]["city"]} == {"known", "predicted"}


def test_answers_are_a_sequence(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=3)
    assert len(answers) == 5
    assert answers[-1] == list(answers)[4]
    assert answers[1:3] == [answers[1], answers[2]]
    assert repr(answers) == "Answers(2 known, 3 predicted)"
    assert str(answers) + "\n" == answers.write("table")
    with pytest.raises(IndexError):
        answers[5]
    row = answers[0]
    assert copy.copy(row) == row == copy.deepcopy(row)
    assert repr(row) == "Row(river='Elbe', city='Dresden', status='known', probability=1)"
    assert len({*answers, *answers}) == 5
    with pytest.raises(AttributeError, match="no variable 'lake'; it has river, city"):
        _ = row.lake
    with pytest.raises(KeyError):
        row["lake"]


def test_with_known(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=1)
    assert answers.with_known(None) is answers
    cut = answers.with_known(1)
    assert [row.status for row in cut] == ["known", "predicted"]
    assert cut[1].missing == answers[2].missing
    assert not cut.known_complete


def test_to_pandas_without_pandas(toy, rivers, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidOption, match="needs the package 'pandas'") as caught:
        toy.ask(rivers.graph, rivers.query, rivers.model).to_pandas()
    assert "biqe[pandas]" in caught.value.hint


def test_to_pandas(toy, rivers, monkeypatch):
    # What is handed to pandas, whether or not it is installed.
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns)))
    rows, columns = toy.ask(rivers.graph, rivers.query, rivers.model, top=1).to_pandas()
    assert columns == ["river", "city", "status", "probability", "missing"]
    assert rows[0] == ("Elbe", "Dresden", "known", 1.0, ())
    assert rows[2][:3] == ("Rhine", "Bonn", "predicted")
    assert str(rows[2][4][0]) == "Bonn located_on Rhine"


def test_to_pandas_for_those_who_have_it(toy, rivers):
    pytest.importorskip("pandas")
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=1)
    frame = answers.to_pandas()
    assert list(frame.columns) == ["river", "city", "status", "probability", "missing"]
    assert frame["city"].tolist() == [row.city for row in answers]
    assert frame["probability"].tolist() == [row.probability for row in answers]
    assert frame["missing"].tolist() == [row.missing for row in answers]
    counted = TermTable.of_count("SELECT", "n", 5, 1.7321, model="factor", source="toy", seconds=0.25).to_pandas()
    assert counted.to_dict("list") == {"n": [5, 1.7321], "status": ["known", "predicted"]}


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, "0.500"), (1.0, "1.000"), (0.0004, "<0.001"), (0.0, "0.000"), (0.9996, "1.000")]
)
def test_probabilities_as_people_read_them(value, shown):
    assert probability(value) == shown


@given(st.lists(st.text("ab wide名", min_size=1, max_size=60), min_size=3, max_size=3), st.integers(40, 90))
def test_what_is_too_wide_goes_on_in_the_next_line(names, width):
    """At any width: every character of every name, in as many lines as it takes, none of them too long."""
    cells, link = names[:2], ["0.05", *names]
    table = TextTable(["one"], ["x", "y"], [TextRow(cells, "predicted", "0.050", [link])])
    lines = write_table(SimpleNamespace(as_text=lambda view: table), View(width=width)).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    shown, wanted = "".join("".join(lines[2:]).split()), "".join("".join([*cells, *link]).split())
    assert not Counter(wanted) - Counter(shown)
    assert "…" not in shown


class Cells(HTMLParser):
    """The tags of a document, and the text of its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.cells = set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize("name", HOSTILE)
def test_html_has_the_rows_and_no_tag_of_a_name(toy, name):
    answers = _answers(toy, name, label=name)
    parser = Cells()
    parser.feed(answers.write("html"))
    assert parser.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "br"}
    cells = [cell.strip() for cell in parser.cells]
    assert cells[:5] == ["?x", "status", "probability", "missing links", visible(name).strip()]
    assert [cell for cell in cells if cell in ("known", "predicted")] == ["known", "predicted", "predicted"]


def test_html_says_what_is_left_out_and_what_a_verdict_rests_on(toy, rivers):
    answers = toy.ask(rivers.graph, rivers.query, rivers.model, top=1)
    assert '<tr><td colspan="5">… and 1 more known row</td></tr>' in answers.write("html", known_rows=1)
    counted = TermTable.of_count("SELECT", "n", 5, None, source="<toy>", seconds=0.25)
    assert "<caption>&lt;toy&gt;: 5 stored, 0.25 s</caption>" in counted.write("html").splitlines()


@pytest.mark.parametrize("form", formats.names())
def test_any_table_can_be_written(form):
    """Tables of names and figures, such as those of an evaluation."""
    written = ResultTable(("model", "mrr"), [("biqe", 0.5), ("<gqe>", None)]).write(form)
    assert "biqe" in written and "mrr" in written
    assert form not in ("html", "xml") or "<gqe>" not in written
    if form == "table":
        assert written.splitlines()[1:] == ["model  mrr", "biqe   0.50", "<gqe>"]
