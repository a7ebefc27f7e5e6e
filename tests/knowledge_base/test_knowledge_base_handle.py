"""A knowledge base in a notebook and in a program: looking up, explaining, closing, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import biqe
from biqe.errors import BiqeError, InvalidOption, UnsupportedQuery

DANUBE = "SELECT ?country { :Danube :flows_through ?country }"


@pytest.fixture(scope="module")
def atlas() -> biqe.KnowledgeBase:
    return biqe.open("atlas")


def test_find_and_schema_are_lists_and_tables(atlas: biqe.KnowledgeBase) -> None:
    found = atlas.find("rhin", limit=2)
    assert [item.query for item in found] == [":Rhine", ":Rhinelander"]
    assert ":Rhine" in str(found) and "<td>:Rhine</td>" in found._repr_html_()
    assert list(found.to_pandas()["query"]) == [":Rhine", ":Rhinelander"]
    assert found.to_dict()["rows"][0]["kind"] == "entity" and "Rhinelander" in found.write("csv")
    schema = atlas.schema()
    assert [row.triples for row in schema] == sorted((row.triples for row in schema), reverse=True)
    assert sum(row.triples for row in schema) == len(atlas.graph)
    assert "<td>:borders</td>" in schema._repr_html_() and repr(schema) == "Schema(atlas: 16 relations)"
    assert len(atlas.find("no such thing")) == 0 and "0 names" in str(atlas.find("no such thing"))


def test_a_row_is_explained_by_its_place_in_the_answers(atlas: biqe.KnowledgeBase) -> None:
    answers = atlas.ask(DANUBE)
    for place in (0, answers.known_count, len(answers) - 1):
        assert str(atlas.explain(DANUBE, row=place)) == str(atlas.explain(answers[place]))
    assert atlas.explain(DANUBE, row=0, mode="predicted").row["country"] == answers.predicted[0].country
    for arguments, options in (
        ((DANUBE,), {"row": 99}),
        ((DANUBE,), {"row": -1}),
        ((answers[0],), {"row": 3}),
        ((answers[0],), {"top": 3}),
        ((3,), {}),
    ):
        with pytest.raises(InvalidOption):
            atlas.explain(*arguments, **options)
    with pytest.raises(UnsupportedQuery):
        atlas.explain("SELECT (COUNT(*) AS ?n) { :Danube :flows_through ?country }")


def test_what_a_notebook_shows(atlas: biqe.KnowledgeBase) -> None:
    answers = atlas.ask(DANUBE, top=3)
    assert answers._repr_html_().count("<tr>") == 1 + answers.known_count + 3
    assert "missing</td><td>Danube flows_through Slovakia" in answers.predicted[0]._repr_html_()
    assert "holds</td><td>Danube flows_through Austria" in answers[0]._repr_html_()
    why = atlas.explain(answers.predicted[0])
    assert why.sentence[1:].split("“")[0] in why._repr_html_() and "+ " in why._repr_html_()
    assert "4,304" in atlas._repr_html_()
    assert "11 stored" in atlas.ask("SELECT (COUNT(?c) AS ?n) { ?c :located_on :Rhine }")._repr_html_()
    many = atlas.ask("SELECT ?a { ?a :near ?b }", mode="known")
    assert "more known rows" in many._repr_html_() and len(many._repr_html_()) < 10_000


def test_suggestions_are_missing_links_with_the_probability_that_ask_gives(atlas: biqe.KnowledgeBase) -> None:
    found = atlas.suggest(relation=":on_continent", top=3)
    first = found[0]
    asked = atlas.ask(f"ASK {{ <{first.subject}> <{first.relation}> <{first.object}> }}")
    assert not asked.holds and asked[0].probability == pytest.approx(first.probability, rel=1e-5)
    assert first.labels[0] in found._repr_html_() and first.labels[0] in str(found)
    with pytest.raises(InvalidOption, match="without a model"):
        biqe.open(biqe.Graph.from_triples([("a", "r", "b")])).suggest()


def test_names_of_a_graph_are_escaped_wherever_they_are_shown() -> None:
    bad = '<script>alert("x")</script>'
    kb = biqe.open(biqe.Graph.from_triples([(bad, bad, bad)], labels={bad: f"{bad}!"}))
    query = "SELECT ?x ?y { ?x <%3Cscript%3Ealert(%22x%22)%3C/script%3E> ?y }"
    answers = kb.ask(query)
    for shown in (kb.graph, kb, kb.find("script"), kb.schema(), answers, answers[0], kb.explain(answers[0])):
        written = shown._repr_html_()
        assert "<script" not in written and ("&lt;script" in written or shown is kb)


def test_a_graph_in_memory_is_opened_for_known_answers() -> None:
    kb = biqe.open(biqe.Graph.from_triples([("Bonn", "on", "Rhine")]))
    assert kb.ask("SELECT ?c { ?c :on :Rhine }")[0].c == "Bonn"
    assert kb.ask("SELECT ?c (COUNT(*) AS ?n) { ?c ?p ?o } GROUP BY ?c", mode="known")[0]["n"] == 1
    with pytest.raises(InvalidOption, match="given twice"):
        biqe.open(kb.graph, graph="kg")
    with pytest.raises(InvalidOption, match="takes a folder"):
        biqe.open(3)  # type: ignore[arg-type]


def test_a_closed_knowledge_base_says_so_and_keeps_what_was_answered() -> None:
    with biqe.open("atlas") as kb:
        answers = kb.ask(DANUBE)
    assert answers.predicted[0].country == "Slovakia" and len(answers.to_pandas()) == len(answers)
    for act in (
        lambda: kb.ask(DANUBE),
        lambda: kb.find("x"),
        lambda: kb.schema(),
        lambda: kb.suggest(),
        lambda: kb.store,
        lambda: answers.predicted[0].why,
    ):
        with pytest.raises(InvalidOption, match="is closed"):
            act()
    kb.close()


def test_threads_get_the_answers_that_one_after_the_other_gives() -> None:
    queries = [
        *(f"SELECT ?x {{ :{river} :flows_through ?x }}" for river in ("Danube", "Rhine", "Elbe", "Sava")),
        "SELECT ?r ?c { ?r :flows_through :Germany . ?c :located_on ?r }",
        "SELECT (COUNT(?c) AS ?n) { ?c :located_on :Rhine }",
        "ASK { :Bonn :located_on :Rhine }",
    ]

    def answer(kb: biqe.KnowledgeBase, query: str) -> object:
        found = kb.ask(query, top=5)
        rows = [(tuple(row.values.values()), row.status) for row in found]
        return rows, found.predicted[0].why if isinstance(found, biqe.Answers) and found.predicted else ""

    alone = biqe.open("atlas")
    expected = [answer(alone, query) for query in queries]
    shared = biqe.open("atlas")  # the threads load its model, too
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda query: answer(shared, query), queries * 2)) == expected * 2
        found = pool.map(lambda _: [str(row) for row in shared.suggest(":capital_of", top=3)], range(4))
        assert len({tuple(rows) for rows in found}) == 1


def test_a_huge_query_is_refused(atlas: biqe.KnowledgeBase) -> None:
    with pytest.raises(BiqeError, match="at most 100,000"):
        atlas.ask("SELECT ?x { ?x :near ?y } " * 10_000)


def test_importing_biqe_loads_nothing_heavy() -> None:
    code = "import sys, biqe; dir(biqe); print(len([m for m in sys.modules if m.startswith('biqe')]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "1"
