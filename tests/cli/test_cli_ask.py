"""``biqe ask`` from the shell's side: what it prints, where, and with which exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from biqe.cli import main
from biqe.errors import InvalidOption
from biqe.graph import folder as graph_folder
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.models import store
from biqe.models.biqe import BiQE, Config

CITIES = "SELECT ?city WHERE { ?city :located_on :Rhine }"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """``kg``: 60 cities on the Rhine, one more held out as Bonn; ``run``: a model of random weights."""
    root = tmp_path_factory.mktemp("ask")
    cities = [f"City{number:02}" for number in range(60)]
    vocabulary = Vocabulary(["Rhine", "Germany", "Bonn", *cities], ["located_on", "located_in"], {2: "Bonn\x1b[31m"})
    train = [(3 + number, 0, 0) for number in range(60)] + [(2, 1, 1)]
    splits = Splits(vocabulary, as_triples(train))
    graph_folder.save(splits, root / "kg")
    (root / "run").mkdir()
    (root / "run" / "run.json").write_text(json.dumps({"graph": {"name": "kg", "path": str(root / "kg")}}))
    torch.manual_seed(0)
    model = BiQE(Config(width=16, layers=1, heads=2, feed_forward=16), len(vocabulary.entities), 2)
    store.save(model, root / "run" / "model", vocabulary=vocabulary, graph_fingerprint=splits.fingerprint)
    return root


@pytest.fixture
def ask(folders, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    def run(*arguments: str, place: str = "run") -> tuple[int, str, str]:
        code = main(["ask", str(folders / place), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_table(ask, folders):
    code, out, err = ask(CITIES, "--top", "3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"{folders / 'run'}: 60 known, 3 predicted by biqe, ")
    assert lines[1] == "note: these are shares of 1 over all rows, not probabilities"
    assert lines[3].split() == ["?city", "status", "prob.", "missing", "links"]
    assert [line.split()[:2] for line in lines[4:6]] == [["City00", "known"], ["City01", "known"]]
    assert lines[54] == "… and 10 more known rows"
    assert all("predicted" in line and "located_on Rhine" in line for line in lines[55:])
    assert len(lines) == 58
    assert all(len(line) <= 80 for line in lines[1:])


def test_control_characters_do_not_reach_the_terminal(ask):
    code, out, _ = ask("SELECT ?x { ?x :located_in :Germany }", "--mode", "known")
    assert code == 0
    assert "Bonn\\x1b[31m" in out
    assert "\x1b" not in out


def test_json_is_one_document(ask):
    code, out, err = ask(CITIES, "--json", "--top", "2")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert [row["status"] for row in document["rows"]] == ["known"] * 60 + ["predicted"] * 2
    assert all(row["missing"] for row in document["rows"][60:])


@pytest.mark.parametrize("form", ["json", "sparql-json", "csv", "tsv", "xml"])
def test_machine_formats_hold_all_known_rows(ask, form):
    code, out, _ = ask(CITIES, "--format", form, "--top", "1")
    assert code == 0
    if form == "csv":
        assert len(list(csv.reader(io.StringIO(out, newline="")))) == 62
    elif form == "tsv":
        assert len(out.splitlines()) == 62
    elif form == "xml":
        assert len(list(ET.fromstring(out).iter("{http://www.w3.org/2005/sparql-results#}result"))) == 61
    else:
        document = json.loads(out)
        assert len(document.get("rows") or document["results"]["bindings"]) == 61


def test_known_limit(ask):
    _, out, _ = ask(CITIES, "--known-limit", "2", "--top", "1")
    assert "… and 58 more known rows" in out.splitlines()
    _, out, _ = ask(CITIES, "--known-limit", "2", "--top", "1", "--json")
    document = json.loads(out)
    assert (document["known"], document["predicted"], document["known_complete"]) == (2, 1, False)


def test_sparql_limit_counts_known_rows_first(ask):
    _, out, _ = ask(CITIES + " LIMIT 61", "--json")
    document = json.loads(out)
    assert (document["known"], document["predicted"]) == (60, 1)
    _, out, _ = ask(CITIES + " LIMIT 5", "--json")
    document = json.loads(out)
    assert (document["known"], document["predicted"]) == (5, 0)


def test_modes_and_min_probability(ask):
    document = json.loads(ask(CITIES, "--mode", "predicted", "--top", "3", "--json")[1])
    assert (document["known"], document["predicted"]) == (0, 3)
    document = json.loads(ask(CITIES, "--mode", "known", "--json")[1])
    assert (document["known"], document["predicted"], document["model"]) == (60, 0, None)
    document = json.loads(ask(CITIES, "--min-probability", "1", "--json")[1])
    assert (document["known"], document["predicted"]) == (60, 0)


def test_a_graph_alone(ask):
    code, out, _ = ask(CITIES, place="kg")
    assert code == 0
    assert "60 known, no model to predict more, " in out.splitlines()[0]
    assert "predicted" not in out
    assert len(out.splitlines()) == 3 + 50 + 1
    code, out, err = ask(CITIES, "--mode", "predicted", place="kg")
    assert (code, out) == (2, "")
    assert "a graph without a model" in " ".join(err.split())


def test_query_from_a_file_and_from_standard_input(ask, tmp_path, monkeypatch):
    expected = ask(CITIES, "--json", "--mode", "known")[1]
    path = tmp_path / "question.rq"
    path.write_bytes(b"\xef\xbb\xbf" + CITIES.encode())
    from_file = ask(f"@{path}", "--json", "--mode", "known")[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(CITIES))
    from_stdin = ask("-", "--json", "--mode", "known")[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(CITIES))
    without_saying = ask("--json", "--mode", "known")[1]
    rows = [json.loads(text)["rows"] for text in (expected, from_file, from_stdin, without_saying)]
    assert rows[0] and all(other == rows[0] for other in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no query was given"),
        (
            [CITIES, "--format", "yaml"],
            "--format must be one of csv, html, json, sparql-json, table, tsv, xml. Got 'yaml'",
        ),
        ([CITIES, "--mode", "all"], "'mode' must be one of both, known, predicted. Got 'all'"),
        ([CITIES, "--top", "-1"], "'top' must be at least 0"),
        ([CITIES, "--top", "many"], "Invalid value for '--top'"),
        ([CITIES, "--width", "0"], "'width' must be at least 1"),
        ([CITIES, "--min-probability", "2"], "'min_probability' must be in [0, 1]"),
        ([CITIES, "--known", "test"], "'known' must be one of complete, train. Got 'test'"),
        ([CITIES, "--known-limit", "-1"], "--known-limit must be at least 0"),
        ([CITIES, "--graph", "no/such/folder"], "no/such/folder does not exist"),
        (["SELECT ?x { ?x :located_at :Rhine }"], "did you mean 'located_on'"),
        (["SELECT ?x"], "error: SparqlSyntax"),
        (["@no/such/file.rq"], "query file no/such/file.rq cannot be read"),
        (["SELECT ?a { ?a :located_on ?a }", "--mode", "predicted"], "this query has"),
        ([CITIES, "--model", "cqd"], "has no model 'cqd'; it has biqe"),
        ([CITIES, "--explain", "--format", "csv"], "--explain goes with --format table or json. Got 'csv'"),
        (
            ["SELECT ?x { ?x :located_on ?y BIND(?y AS ?z) }", "--mode", "predicted"],
            "--mode known takes all of SPARQL 1.1",
        ),
        (["SELECT ?x { ?x :located_on ?y FILTER(regex(?x, '(')) }"], "is no regular expression that can be read"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(ask, arguments, message):
    code, out, err = ask(*arguments)
    assert code == 2
    assert out == ""
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_a_file_that_is_not_text(ask, tmp_path):
    path = tmp_path / "query.rq"
    path.write_bytes(b"\xff\xfe\x00")
    code, out, err = ask(f"@{path}")
    assert (code, out) == (2, "")
    assert "is not UTF-8 text" in " ".join(err.split())


@pytest.mark.parametrize("query", ["@/dev/zero", "@FILE", "-"])
def test_a_query_without_end_is_not_read_to_its_end(ask, tmp_path, monkeypatch, query):
    path = tmp_path / "query.rq"
    path.write_text("#" * 1_000_000)
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        code, out, err = ask(query.replace("FILE", str(path)))
        assert file.tell() < 500_000
    assert (code, out) == (2, "")
    assert "has more than 100,000 characters" in " ".join(err.split())


def test_a_folder_that_is_not_there(capsys):
    assert main(["ask", "no/such/run", CITIES]) == 2
    assert "atlas" in capsys.readouterr().err


def test_help_has_examples(capsys):
    assert main(["ask", "--help"]) == 0
    assert "biqe ask atlas 'SELECT ?city WHERE { ?city :located_on :Rhine }'" in capsys.readouterr().out


# Explanations, counts, all of SPARQL


def test_explain(ask):
    code, out, err = ask(CITIES, "--top", "2", "--explain")
    assert (code, err) == (0, "")
    assert "\nrow 61\n" in out and "\nrow 62\n" in out
    document = json.loads(ask(CITIES, "--top", "1", "--explain", "--json")[1])
    (why,) = document["explanations"]
    assert why["number"] == 61 and why["status"] == "predicted"


def test_known_mode_takes_all_of_sparql(ask):
    text = "SELECT ?r (COUNT(?c) AS ?n) { ?c :located_on ?r } GROUP BY ?r"
    code, out, err = ask(text, "--mode", "known")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()[2:]] == [["?r", "?n"], ["Rhine", "60"]]
    assert ask(text, "--mode", "predicted")[0] == 2
    bindings = json.loads(ask(text, "--mode", "known", "--format", "sparql-json")[1])["results"]["bindings"]
    assert bindings[0]["n"]["value"] == "60"


def test_ask_and_count(ask):
    code, out, _ = ask("ASK { :City01 :located_on :Rhine }")
    assert code == 0 and "yes, the graph holds it" in out
    document = json.loads(ask("ASK { :Bonn :located_on :Rhine }", "--format", "sparql-json")[1])
    assert document["boolean"] is False and 0 < document["probability"] < 1
    document = json.loads(ask("SELECT (COUNT(*) AS ?n) { ?c :located_on :Rhine }", "--json")[1])
    assert [row["status"] for row in document["rows"]] == ["known", "predicted"]
    assert document["rows"][0]["values"] == {"n": 60}
    header, *rows = ask("SELECT (COUNT(*) AS ?n) { ?c :located_on :Rhine }", "--format", "csv")[1].splitlines()
    assert header == "n,status" and [row.split(",")[1] for row in rows] == ["known", "predicted"]


# Typing questions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def typed(folders, monkeypatch, capsys, lines: list[str], *options: str) -> tuple[int, str, str]:
    waiting = iter(lines)

    def read(prompt: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setenv("BIQE_HISTORY", str(folders / "state" / "history"))
    code = main(["ask", str(folders / "run"), "--mode", "known", *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_questions_one_after_the_other(folders, monkeypatch, capsys):
    lines = [
        "help",
        "SELECT ?x {",
        "  ?x :located_in",
        "  :Germany }",
        "",
        "SELECT ?x { ?x :nonsense :Rhine }",
        "SELECT ?x",
        "",
        "explain 1",
        "explain 99",
        "ASK { :Bonn :located_in :Germany }",
        "quit",
        "never read",
    ]
    code, out, err = typed(folders, monkeypatch, capsys, lines)
    assert code == 0
    assert "Tab completes names" in out and "Bonn" in out and "yes, the graph holds it" in out
    assert "error: UnknownName: relation 'nonsense' is not in this graph" in err
    assert "error: SparqlSyntax: line 1, column 10: the query ends too early" in err
    assert "wants the number of a row of the last answer, 1 to 1. Got '99'\nhint: as in: explain 1" in err
    assert "Traceback" not in err


def test_an_answer_without_rows_has_none_to_explain(folders, monkeypatch, capsys):
    lines = [
        "SELECT ?x { ?x :located_in :Germany } LIMIT 0",
        "explain 1",
        "ASK { :Bonn :located_in :Germany }",
        "explain",
    ]
    _, _, err = typed(folders, monkeypatch, capsys, lines)
    assert "the last answer has no row to explain" in err
    assert "wants the number of a row of the last answer, 1 to 1. Got none" in err


def test_the_end_of_the_input_ends_the_conversation(folders, monkeypatch, capsys):
    code, out, err = typed(folders, monkeypatch, capsys, ["explain 1"])
    assert code == 0 and out == ""
    assert "there is no answer yet to explain" in err


def test_the_conversation_lists_relations(folders, monkeypatch, capsys):
    code, out, _ = typed(folders, monkeypatch, capsys, ["schema"])
    assert code == 0
    assert ":located_on" in out and "such as Rhine" in out


def test_an_interrupt_drops_the_line_and_no_more(folders, monkeypatch, capsys):
    from biqe.cli._shell import Shell
    from biqe.knowledge_base import open as open_knowledge_base

    kb = open_knowledge_base(folders / "kg")
    asked: list[str] = []
    script = iter(["SELECT ?x {", KeyboardInterrupt, "ASK { ?x :located_on :Rhine }", EOFError])

    def read(prompt: str) -> str:
        step = next(script)
        if isinstance(step, str):
            return step
        raise step

    Shell(kb, asked.append, lambda answers: None).run(read)
    assert asked == ["ASK { ?x :located_on :Rhine }"]


def test_completion_and_history(folders, monkeypatch, capsys):
    readline = pytest.importorskip("readline")
    from biqe.cli._shell import history_file, line_editing
    from biqe.knowledge_base import open as open_knowledge_base

    monkeypatch.setenv("BIQE_HISTORY", str(folders / "other" / "history"))
    with line_editing(open_knowledge_base(folders / "kg")):
        completer = readline.get_completer()
        found = []
        while (text := completer(":city0", len(found))) is not None:
            found.append(text)
        assert found == [f":City0{number}" for number in range(10)]
        assert completer("SEL", 0) == "SELECT" and completer("SEL", 1) is None
        readline.add_history("ASK { :a :b :c }")
    assert "ASK { :a :b :c }" in history_file().read_text()
    with line_editing(open_knowledge_base(folders / "kg")):
        assert readline.get_history_item(readline.get_current_history_length()) == "ASK { :a :b :c }"
    monkeypatch.delenv("BIQE_HISTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(folders / "xdg"))
    assert history_file() == folders / "xdg" / "biqe" / "history"


TOWN = Vocabulary(
    ["Bonn", "Boston", "bode", "Rhine", "Köln", "Aachen", "AALEN", "Germany"],
    ["located_on", "located_in"],
    {4: "Bologne", 5: "Rheinstadt", 6: "Rheinheim"},
)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        # What begins as it was typed comes alone, or the line editor would shorten :Bo to the colon.
        (":Bo", [":Bonn", ":Boston"]),
        (":bo", [":bode"]),
        ("?x!=:Bo", ["?x!=:Bonn", "?x!=:Boston"]),
        (":located_on/:loc", [":located_on/:located_on", ":located_on/:located_in"]),
        # One name in other capitals, or by its label, may take the word's place; and so may what several share.
        (":rhin", [":Rhine"]),
        (":bolo", [":Köln"]),
        (":LOC", [":located_on", ":located_in"]),
        # Several that share less than was typed are listed only.
        (":aa", [":AALEN", ":Aachen", " "]),
        (":rhei", [":AALEN", ":Aachen", " "]),
    ],
)
def test_completion_never_shortens_what_was_typed(word, found):
    from biqe.cli._shell import _offered

    offered = _offered(word, SimpleNamespace(vocabulary=TOWN, prefixes={}))
    assert sorted(offered) == sorted(found)
    common = os.path.commonprefix(offered)
    assert not common or common.casefold().startswith(word.casefold()) or len(offered) == 1


def test_completion_of_more_names_than_are_listed():
    from biqe.cli._shell import LISTED, _offered

    many = Vocabulary([f"City{number:04}" for number in range(LISTED + 5)], ["r"])
    kb = SimpleNamespace(vocabulary=many, prefixes={})
    assert len(_offered(":City", kb)) == LISTED + 5  # all, so that what they share is what all share
    assert _offered(":city", kb)[LISTED:] == [" "]


def conversation(folders, script: list, waiting: list[bool] | None = None) -> list[str]:
    """The queries that are asked when these lines are read; ``waiting`` says what is waiting whenever it is looked."""
    from biqe.cli._shell import Shell
    from biqe.knowledge_base import open as open_knowledge_base

    asked: list[str] = []
    lines, waits = iter([*script, EOFError]), iter(waiting or [])

    def read(prompt: str) -> str:
        line = next(lines)
        if isinstance(line, str):
            return line
        raise line

    def ask(text: str) -> str:
        asked.append(text)
        if "LIMIT x" in text:
            raise InvalidOption("LIMIT wants a number")
        return text

    shell = Shell(open_knowledge_base(folders / "kg"), ask, lambda answers: None)
    shell.run(read, lambda: next(waits, False))
    return asked


PASTED = ["SELECT ?x {", " ?x :located_on :Rhine", "}"]
ONE = "SELECT ?x { ?x :located_on :Rhine }"


def test_a_clause_that_is_pasted_with_its_query(folders, capsys):
    asked = conversation(folders, [*PASTED, "ORDER BY ?x", "LIMIT 1", ONE], [True, True, True])
    assert asked == ["\n".join([*PASTED, "ORDER BY ?x", "LIMIT 1"]), ONE]
    assert "again" not in capsys.readouterr().err
    # A clause may run over several lines, and so may the pattern of a CONSTRUCT.
    assert conversation(folders, [ONE, "VALUES ?x {", ":Bonn", "}"], [True]) == [f"{ONE}\nVALUES ?x {{\n:Bonn\n}}"]
    assert conversation(folders, ["CONSTRUCT { ?x :p ?y }", "WHERE { ?x :q ?y }"]) == [
        "CONSTRUCT { ?x :p ?y }\nWHERE { ?x :q ?y }"
    ]


def test_other_input_that_waits_is_read_as_it_would_be(folders, capsys):
    assert conversation(folders, [ONE, "ASK {", "}", "quit", ONE], [True, True]) == [ONE, "ASK {\n}"]
    assert conversation(folders, [ONE, EOFError, ONE], [True]) == [ONE]
    assert conversation(folders, [ONE, "", "LIMIT 1"], [True]) == [ONE, f"{ONE} LIMIT 1"]
    assert conversation(folders, [ONE, KeyboardInterrupt, "LIMIT 1"], [True]) == []
    assert "there is no query yet that 'LIMIT 1' could belong to" in capsys.readouterr().err


def test_a_clause_that_is_typed_after_the_answer(folders, capsys):
    asked = conversation(folders, [ONE, "LIMIT 1", "ORDER BY ?x", "limit 2", "LIMIT x", "OFFSET 1"])
    assert asked == [
        ONE,
        f"{ONE} LIMIT 1",
        f"{ONE} ORDER BY ?x LIMIT 1",
        f"{ONE} ORDER BY ?x limit 2",
        f"{ONE} ORDER BY ?x LIMIT x",
        f"{ONE} ORDER BY ?x limit 2 OFFSET 1",
    ]
    lines = capsys.readouterr().err.splitlines()
    assert "the last query again, with LIMIT 1" in lines and "the last query again, with ORDER BY ?x" in lines


def test_a_clause_in_a_query_that_is_piped(ask, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([*PASTED, "LIMIT 1\n"])))
    document = json.loads(ask("--json", "--mode", "known")[1])
    assert len(document["rows"]) == 1


# In a terminal of its own


@pytest.fixture
def terminal(tmp_path) -> Iterator[Callable[..., str]]:
    """``biqe ask`` over TOWN in a pseudo-terminal: text is sent, and what is shown up to a mark comes back."""
    pytest.importorskip("readline")
    graph_folder.save(Splits(TOWN, as_triples([(0, 0, 3), (1, 0, 3), (3, 1, 7)])), tmp_path / "kg")
    running = []

    def start(term: str) -> Callable[[str, str], str]:
        ours, theirs = os.openpty()
        environment = {**os.environ, "TERM": term, "NO_COLOR": "1", "BIQE_HISTORY": str(tmp_path / "history")}
        environment.pop("INPUTRC", None)
        program = "import sys; from biqe.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", program, "ask", str(tmp_path / "kg"), "--mode", "known"]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        running.append((process, ours))

        def send(text: str, until: str) -> str:
            os.write(ours, text.encode())
            shown, end = b"", time.monotonic() + 100
            while until.encode() not in shown and time.monotonic() < end:
                if select.select([ours], [], [], 1)[0]:
                    shown += os.read(ours, 4096)
            return shown.decode()

        assert "biqe> " in send("", "biqe> ")
        return send

    yield start
    for process, ours in running:
        process.kill()
        process.wait()
        os.close(ours)


def test_tab_in_a_terminal(terminal):
    send = terminal("dumb")
    shown = send("ASK { :Bo\tnn :located_on :Rh\t }\n", " s\r\n")
    assert "yes, the graph holds it" in shown
    shown = send("SELECT ?x { :Bonn :located_on/:located_i\t ?x }\n", "biqe> ")
    assert "Germany" in shown + send("\n", "biqe> ")


@pytest.mark.parametrize(
    ("term", "before", "after"),
    [("dumb", "", ""), ("xterm", "\x1b[200~", "\x1b[201~")],
    ids=["line by line", "bracketed"],
)
def test_a_paste_in_a_terminal(terminal, term, before, after):
    send = terminal(term)
    text = "\r".join(["SELECT ?x {", " ?x :located_on :Rhine", "}", "LIMIT 1"])
    shown = send(f"{before}{text}{after}", "LIMIT 1")
    shown += send("\r", " s\r\n") + send("quit\r", "quit")
    assert "1 or more known" in shown and "2 known" not in shown
    assert "again" not in shown and "error" not in shown


def test_a_clause_after_the_answer_in_a_terminal(terminal):
    send = terminal("dumb")
    assert "2 known" in send(f"{ONE}\r", " s\r\n")
    shown = send("LIMIT 1\r", " s\r\n")
    assert "the last query again, with LIMIT 1" in shown and "1 or more known" in shown
