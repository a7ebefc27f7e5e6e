"""The page in a real Chromium, over a real server: what people do with it, and what it must never do."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from biqe.knowledge_base import KnowledgeBase
from biqe.knowledge_base import open as open_knowledge_base
from biqe.serve.config import ServeConfig

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; 'make test' installs it where it may")
QUERY = "SELECT ?river ?city WHERE { ?river :flows_through :Germany, :France . ?city :located_on ?river }"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WATCH = """addEventListener("securitypolicyviolation", (event) => {
  (window.refusedByPolicy ??= []).push(`${event.violatedDirective} ${event.blockedURI}`);
});"""
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser_() -> Iterator[Browser]:
    # The machine that tests may be busy: what must come is waited for, what must be quick is measured by the page.
    expect.set_options(timeout=45_000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def contexts(browser_) -> Callable[..., BrowserContext]:
    """Contexts of the browser by their options; pages of one context share its cache, so that they load at once."""
    made: dict[str, BrowserContext] = {}

    def context(**options: object) -> BrowserContext:
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            made[key] = browser_.new_context(**options)
            made[key].set_default_timeout(45_000)
            made[key].add_init_script(WATCH)
        return made[key]

    return context


@pytest.fixture
def visit(contexts, atlas) -> Iterator[Open]:
    """Opens a page of a server; whatever it does, it asks nobody else, and the CSP has nothing to refuse."""
    opened: list[tuple[Page, list[str]]] = []

    def visited(path: str = "/#new", *, client=atlas, width: int = 1280, height: int = 900, **options: object) -> Page:
        address = str(client.base_url).rstrip("/")
        page = contexts(viewport={"width": width, "height": height}, **options).new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: _is_here(request.url, address) or wrong.append(request.url))
        page.goto(f"{address}{path}")
        opened.append((page, wrong))
        return page

    yield visited
    for page, wrong in opened:
        assert wrong == []
        assert page.evaluate("window.refusedByPolicy ?? []") == []
        page.close()


def _is_here(url: str, address: str) -> bool:
    return url.startswith((f"{address}/", f"blob:{address}/"))


@pytest.fixture(scope="module")
def pictures(root) -> Path:
    """Where the pictures go that the tests take, for people to look at."""
    folder = root / "build" / "page"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def link(query: str, **settings: object) -> str:
    return f"/#{urlencode({'q': query, **settings})}"


def rows(page: Page) -> Locator:
    return page.locator("#table tbody tr")


def predicted(page: Page) -> Locator:
    return page.locator("#table .predicted tbody tr")


def shown(page: Page, part: str = ".part") -> list[tuple[str, ...]]:
    """Rows on the page, or of one section: labels and, of predicted ones, the probability, as they are written."""
    expect(page.locator("#table")).to_have_attribute("aria-busy", "false")
    cells = "row => [...row.querySelectorAll('.value, .probability .figure')].map(cell => cell.textContent)"
    found = page.locator(f"#table {part} tbody tr").evaluate_all(f"rows => rows.map({cells})")
    return [tuple(row) for row in found]


def expected(answers) -> list[tuple[str, ...]]:
    return [
        (*row.labels.values(), *([_figure(row.probability)] if row.status == "predicted" else [])) for row in answers
    ]


FOLDED = 10
"""Known rows that are shown beside predicted ones on a wide screen."""


def _figure(probability: float) -> str:
    return "<0.001" if 0 < probability < 0.0005 else ">0.999" if 0.9995 < probability < 1 else f"{probability:.3f}"


def editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="SPARQL query")


def write(page: Page, text: str) -> None:
    editor(page).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def ask(page: Page, text: str) -> None:
    write(page, text)
    page.keyboard.press("Control+Enter")


def take(page: Page) -> None:
    """Take the first completion that is offered."""
    page.wait_for_timeout(200)  # the editor lets go by a key that comes as soon as the list does: it was for the text
    page.keyboard.press("Enter")


def explain(row: Locator) -> None:
    """Open the reasons of a row, wherever its names stand."""
    row.focus()
    row.press("Enter")


# Asking


def test_a_query_is_typed_completed_and_asked(visit, atlas_kb, pictures):
    page = visit()
    editor(page).click()
    page.keyboard.type("SELECT ?river WHERE { ?river :flows_th", delay=5)
    offered = page.get_by_role("listbox").get_by_role("option")
    expect(offered).to_have_text([re.compile(":flows_through")])
    take(page)
    page.keyboard.type(" :Germ", delay=5)
    expect(offered.first).to_contain_text(":Germany")
    page.screenshot(path=pictures / "complete.png")
    take(page)
    # Brackets are closed while one types, so the query is whole.
    expect(editor(page)).to_have_text("SELECT ?river WHERE { ?river :flows_through :Germany}")
    page.keyboard.press("Control+Enter")
    answers = atlas_kb.ask("SELECT ?river WHERE { ?river :flows_through :Germany }")
    expect(page.locator("#summary")).to_contain_text(
        f"{answers.known_count} known, {answers.predicted_count} predicted by hybrid"
    )
    assert shown(page) == expected([*answers[: answers.known_count][:FOLDED], *answers[answers.known_count :]])


@pytest.fixture(scope="module")
def labelled_kb(tmp_path_factory) -> KnowledgeBase:
    """A graph whose names tell nothing and whose labels tell what they are."""
    from biqe.cli import main

    folder = tmp_path_factory.mktemp("labelled")
    (folder / "in").mkdir()
    (folder / "in" / "graph.tsv").write_text("Q64\tP131\tQ183\nQ1055\tP131\tQ183\nQ821\tP131\tQ64\n", encoding="utf-8")
    labels = "Q64\tBerlin\nQ1055\tHamburg\nQ821\thamburg\nQ183\tGermany\n"
    (folder / "in" / "labels.tsv").write_text(labels, encoding="utf-8")
    assert main(["import", str(folder / "in"), "--split", "none", "--out", str(folder / "g")]) == 0
    return open_knowledge_base(folder / "g")


def test_an_entity_is_found_by_its_label(visit, serve, labelled_kb):
    with serve(labelled_kb) as client:
        page = visit(client=client)
        editor(page).click()
        page.keyboard.type("SELECT ?where WHERE { Berl", delay=5)
        offered = page.get_by_role("listbox").get_by_role("option")
        expect(offered).to_have_count(1)
        expect(offered).to_have_text(re.compile(":Q64.*Berlin"))
        take(page)
        page.keyboard.type(" :P131 ?where")
        page.keyboard.press("Control+Enter")
        expect(page.locator("td.value")).to_have_text(["Germany"])


def test_what_fits_is_offered_first(visit, atlas_kb):
    page = visit()
    offered = page.get_by_role("listbox").get_by_role("option")
    write(page, "SELECT ?river ?city WHERE { ?city :located_on ")
    page.keyboard.type("?ri", delay=5)
    expect(offered).to_have_text([re.compile(r"\?river")])
    names, triples = atlas_kb.graph.vocabulary, atlas_kb.graph.triples
    on = triples[triples[:, 1] == names.relations.find("located_on")]
    write(page, "SELECT ?city WHERE { ?city :located_on :Da")
    page.keyboard.type("n", delay=5)
    expect(offered.first).to_contain_text(":Danube")
    rivers = {names.entities[entity] for entity in on[:, 2].tolist()}
    assert offered.first.locator(".cm-completionLabel").inner_text().removeprefix(":") in rivers
    write(page, "SELECT ?x WHERE { :Danube :flows")
    page.keyboard.type("_", delay=5)  # a river flows into and through
    expect(offered.first).to_contain_text(":flows_")
    page.get_by_text("Draw a link").click()
    page.get_by_label("Relation", exact=True).fill(":capital_of")
    page.get_by_label("To", exact=True).fill("ger")
    expect(page.locator("#link-to-names option[value=':Germany']")).to_have_count(1)


def test_settings_reach_the_server(visit, atlas_kb):
    page = visit(link(QUERY, mode="predicted", top=3, min=0.02))
    wanted = atlas_kb.ask(QUERY, mode="predicted", top=3, min_probability=0.02)
    expect(page.locator("#table .known")).to_have_count(0)
    expect(rows(page)).to_have_count(len(wanted))
    assert shown(page) == expected(wanted)
    page.get_by_role("radio", name="known", exact=True).check()
    page.get_by_role("button", name="Ask").click()
    known = atlas_kb.ask(QUERY, mode="known")
    expect(page.locator("#summary")).to_contain_text(f"{known.known_count} known")
    assert shown(page) == expected(known)
    assert "mode=known" in page.url


def test_a_question_is_in_the_address_and_can_be_shared(visit, atlas_kb):
    page = visit()
    ask(page, QUERY)
    expect(predicted(page)).to_have_count(20)
    ask(page, "SELECT ?city WHERE { ?city :located_on :Elbe }")
    expect(page.locator("#table th").first).to_contain_text("?city")
    other = visit(f"/{page.evaluate('location.hash')}")
    expect(rows(other).first).to_be_visible()
    assert shown(other) == shown(page)
    page.go_back()
    expect(page.locator("#table th").first).to_contain_text("?river")
    assert shown(page, ".predicted") == expected(atlas_kb.ask(QUERY, mode="predicted"))


def test_examples_are_offered_and_asked(visit):
    page = visit()
    first = page.locator(".example").first
    title = first.locator(".example-title").inner_text()
    query = first.locator("code").inner_text()
    expect(page.get_by_label("Examples").locator("option").nth(1)).to_have_text(title)
    page.get_by_label("Examples").select_option(label=title)
    expect(rows(page).first).to_be_visible()
    assert "".join(editor(page).inner_text().split()) == "".join(query.split())


def test_the_query_is_drawn_while_it_is_typed(visit):
    page = visit()
    write(page, "SELECT ?city WHERE { ?river :flows_into :Danube . ?city :located_on ?river }")
    drawn = page.locator("#drawing svg")
    expect(drawn).to_have_attribute(
        "aria-label", "The query as a graph: ?river flows_into Danube; ?city located_on ?river"
    )
    assert drawn.locator(".vertex.target text").all_text_contents() == ["?city"]
    assert drawn.locator(".vertex.hidden text").all_text_contents() == ["?river"]
    assert drawn.locator(".vertex.entity text").all_text_contents() == ["Danube"]
    assert sorted(drawn.locator(".label text").all_text_contents()) == ["flows_into", "located_on"]
    drawn.get_by_role("button", name="Danube").click()
    expect(page.get_by_role("dialog").get_by_role("heading", level=2)).to_have_text("Danube")
    page.keyboard.press("Escape")
    write(page, "SELECT ?x WHERE { ?x :borders ?y . ?y :borders ?x . ?x :borders ?x }")
    expect(drawn).to_have_attribute("aria-label", re.compile(r"\?x borders \?y; \?y borders \?x; \?x borders \?x"))
    assert drawn.locator(".edge").count() == 3


def text_of(page: Page) -> str:
    return " ".join(page.locator(".cm-line").all_inner_texts()).strip()


def add_link(page: Page, *words: str) -> None:
    for label, word in zip(("From", "Relation", "To"), words, strict=True):
        page.get_by_label(label, exact=True).fill(word)
    page.get_by_role("button", name="Add link").click()


def pull(page: Page, start: Locator, end: tuple[float, float]) -> None:
    """Press on a node, move to a place, let go."""
    box = start.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(end[0] - 5, end[1])
    page.mouse.move(*end)
    expect(page.locator("line.pulled")).to_have_count(1)
    page.mouse.up()
    expect(page.locator("line.pulled")).to_have_count(0)


def centre(node: Locator) -> tuple[float, float]:
    box = node.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_question_is_drawn_link_by_link(visit, atlas_kb, pictures):
    page = visit()
    page.get_by_text("Draw a link").click()
    add_link(page, "?river", "flows_through", "germany")  # found by its name
    expect(page.get_by_label("To", exact=True)).to_have_value("")  # the link is taken
    assert text_of(page) == "SELECT ?river WHERE {   ?river :flows_through :Germany }"
    drawn = page.locator("#drawing svg")
    river = drawn.locator(".vertex.target")
    expect(river).to_have_count(1)
    # Pulled to nowhere, a line ends at something new.
    corner = page.locator("#drawing").bounding_box()
    pull(page, river, (corner["x"] + corner["width"] - 12, corner["y"] + corner["height"] - 12))
    expect(page.get_by_label("From", exact=True)).to_have_value("?river")
    expect(page.get_by_label("To", exact=True)).to_have_value("?x")
    expect(page.get_by_label("Relation", exact=True)).to_be_focused()
    page.keyboard.type("flows_into")
    page.keyboard.press("Enter")
    expect(drawn.locator(".vertex.target")).to_have_count(2)
    assert text_of(page) == "SELECT ?river ?x WHERE {   ?river :flows_through :Germany .   ?river :flows_into ?x }"
    # And from one node to another, which need no names.
    unknown = drawn.locator(".vertex.target", has_text="?x")
    pull(page, unknown, centre(drawn.locator(".vertex.entity")))
    expect(page.get_by_label("To", exact=True)).to_have_value("<Germany>")
    page.get_by_label("Relation", exact=True).fill(":flows_through")
    page.screenshot(path=pictures / "drawn.png")
    page.get_by_role("button", name="Add link").click()
    expect(drawn.locator(".edge")).to_have_count(3)
    page.get_by_role("button", name="Ask").click()
    query = "SELECT ?river ?x WHERE { ?river :flows_through :Germany ; :flows_into ?x . ?x :flows_through :Germany }"
    expect(page.locator("#summary")).to_contain_text(f"{atlas_kb.ask(query, mode='known').known_count} known")


def test_a_link_is_drawn_between_names_that_tell_nothing(visit, serve, labelled_kb):
    with serve(labelled_kb) as client:
        page = visit(client=client)
        page.get_by_text("Draw a link").click()
        add_link(page, "Hamburg", ":P131", "?where")
        expect(page.locator("#link-problem")).to_contain_text(re.compile("Several are called Hamburg: .*:Q1055"))
        add_link(page, "berlin", "P131", "?where")
        expect(page.get_by_label("To", exact=True)).to_have_value("")
        assert text_of(page) == "SELECT ?where WHERE {   :Q64 :P131 ?where }"


def test_a_link_that_cannot_be_drawn_says_why(visit):
    page = visit()
    page.get_by_text("Draw a link").click()
    problem = page.locator("#link-problem")
    for words, message in (
        (("?x", "", ":Rhine"), "Name a relation"),
        (("", "located_on", ":Rhine"), "needs two ends"),
        (("?x", "?y", ":Rhine"), "cannot be a variable"),
        (("?x", "flows_thru_nothing", ":Rhine"), "The graph has no relation called flows_thru_nothing."),
        (("?x", "located_on", '"><script>alert(1)</script>'), "The graph has no entity called"),
    ):
        add_link(page, *words)
        expect(problem).to_contain_text(message)
        assert page.locator(".cm-placeholder").count() == 1  # nothing was written
    write(page, "SELECT ?x WHERE")
    add_link(page, "?x", "located_on", ":Rhine")
    expect(problem).to_contain_text("no { … }")


GROWN = (
    ("", (":Bonn", "located_on", ":Rhine"), "ASK { :Bonn :located_on :Rhine }"),
    (
        "SELECT * WHERE { ?x :borders :France. } LIMIT 3",
        ("?x", "borders", "?y"),
        "SELECT * WHERE { ?x :borders :France. ?x :borders ?y } LIMIT 3",
    ),
    (
        "SELECT DISTINCT ?x WHERE { { ?x :borders :France } UNION { ?x :borders :Italy } }",
        ("?x", "borders", "?y"),
        "SELECT DISTINCT ?x ?y WHERE { { ?x :borders :France } UNION { ?x :borders :Italy } ?x :borders ?y }",
    ),
    (
        "SELECT ?x WHERE { ?x :borders ?y FILTER(?x != :Italy) } VALUES ?y { :France }",
        ("?y", "borders", ":Spain"),
        "SELECT ?x WHERE { ?x :borders ?y FILTER(?x != :Italy) . ?y :borders :Spain } VALUES ?y { :France }",
    ),
    (
        "ASK {\n  :Bonn :located_on :Rhine # }\n}",
        (":Rhine", "flows_into", "?x"),
        "ASK { :Bonn :located_on :Rhine # } . :Rhine :flows_into ?x }",
    ),
)
"""A text, a link that is drawn, and the text with it."""


def test_a_link_goes_into_the_text_that_is_there(visit):
    page = visit()
    page.get_by_text("Draw a link").click()
    for text, words, grown in GROWN:
        write(page, text)
        add_link(page, *words)
        expect(page.get_by_label("From", exact=True)).to_have_value("")
        assert re.sub(r"\s+", " ", text_of(page)) == grown
        if not text:
            editor(page).click()
            page.keyboard.press("Control+z")  # takes it back
            expect(page.locator(".cm-placeholder")).to_have_count(1)
            page.keyboard.press("Control+y")
            expect(page.locator(".cm-content")).to_contain_text(":Bonn :located_on :Rhine")
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#drawing svg")).to_be_visible()


def test_facts_of_graph_and_model_are_told(visit, atlas_kb):
    page = visit()
    graph = atlas_kb.graph
    expect(page.locator("#graph-line")).to_contain_text(f"{graph.entity_count:,} entities")
    expect(page.locator("#graph-line")).to_contain_text(f"{len(graph.triples):,} triples")
    assert page.locator(".relations li").count() == graph.relation_count
    expect(page.get_by_role("region", name="Model")).to_contain_text("hybrid")


# The table


def test_columns_are_sorted_up_down_and_back(visit, atlas_kb):
    page = visit(link(QUERY, mode="predicted", top=15))
    expect(rows(page)).to_have_count(15)
    as_answered = shown(page)
    city = page.get_by_role("columnheader", name="?city")
    for direction, wanted in (
        ("ascending", sorted(as_answered, key=lambda row: row[1].casefold())),
        ("descending", sorted(as_answered, key=lambda row: row[1].casefold(), reverse=True)),
        ("none", as_answered),
    ):
        city.get_by_role("button").click()
        expect(city).to_have_attribute("aria-sort", direction)
        assert [row[1] for row in shown(page)] == [row[1] for row in wanted]
    probability = page.get_by_role("columnheader", name="Probability")
    probability.get_by_role("button").click()
    expect(probability).to_have_attribute("aria-sort", "descending")
    assert shown(page) == as_answered  # the order of the answer
    probability.get_by_role("button").click()
    values = [float(row[2].strip("<>")) for row in shown(page)]
    assert values == sorted(values)


def test_pages_together_are_the_answer(visit, atlas_kb):
    query = "SELECT ?city WHERE { ?city :located_in :Japan }"
    answers = atlas_kb.ask(query, top=30)
    page = visit(link(query, top=30))
    expect(page.locator(".known tbody tr")).to_have_count(FOLDED)
    page.get_by_role("button", name=f"Show all {answers.known_count}").click()
    for part, wanted in (("known", answers[: answers.known_count]), ("predicted", answers[answers.known_count :])):
        section = page.locator(f".part.{part}")
        lines = section.locator("tbody tr")
        expect(lines).to_have_count(20)
        found = shown(page, f".{part}")
        while section.get_by_role("button", name="Next").is_enabled():
            first = lines.first.inner_text()
            section.get_by_role("button", name="Next").click()
            expect(lines.first).not_to_have_text(first)
            found += shown(page, f".{part}")
        assert len(found) > 20 and found == expected(wanted)
        section.get_by_role("button", name="Previous").click()
        expect(section.locator(".where")).to_contain_text(f"of {len(wanted)}")
    page.get_by_role("button", name="Show fewer").click()
    expect(page.locator(".known tbody tr")).to_have_count(FOLDED)


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_it_opens_with_an_answered_question_known_and_predicted_on_the_first_screen(visit, pictures, width, height):
    page = visit("/", width=width, height=height)
    expect(predicted(page)).not_to_have_count(0)
    page.screenshot(path=pictures / f"first-{width}.png")
    for part in ("known", "predicted"):
        second = page.locator(f".{part} tbody tr").nth(1).bounding_box()
        assert second["y"] + second["height"] <= height + 1
    assert page.url.rstrip("/").count("#") == 0  # nobody asked it, so it is in no history
    page.get_by_role("link", name="New").click()
    expect(page.locator(".example").first).to_be_visible()
    expect(page.locator(".cm-placeholder")).to_have_count(1)


def test_predicted_rows_come_however_many_known_ones_there_are(visit, atlas_kb):
    query = "SELECT ?city ?near WHERE { ?city :located_in ?country ; :near ?near . ?country :on_continent :Europe }"
    page = visit(link(query, top=5))
    expect(predicted(page)).to_have_count(5)
    known = atlas_kb.ask(query, mode="known").known_count
    assert known > 1_000
    page.get_by_role("button", name=f"Show all {known:,}").click()
    page.get_by_role("button", name="Load more than 500").click()
    expect(page.get_by_role("button", name="Load more than 1,000")).to_be_visible()
    expect(predicted(page)).to_have_count(5)


def test_rows_are_downloaded_as_csv_and_json(visit, atlas_kb, tmp_path):
    page = visit(link(QUERY))
    expect(predicted(page)).to_have_count(20)
    answers = atlas_kb.ask(QUERY)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename == "answers.csv"
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    # Some cities of the atlas have a label that is not their name.
    assert header == ["river", "city", "city name", "probability", "status", "missing links"]
    assert [line[:2] for line in lines] == [list(row.labels.values()) for row in answers]
    assert [line[2] for line in lines] == [row.city for row in answers]
    lines = [[*line[:2], *line[3:]] for line in lines]
    told = [re.findall(r" \(([\d.e-]+)\)", line[4]) for line in lines]
    chances = [[missing.probability for missing in row.missing] for row in answers]
    assert [list(map(float, each)) for each in told] == [pytest.approx(each, rel=0.01) for each in chances]
    assert lines[answers.known_count][4].startswith(f"{answers[answers.known_count].labels['city']} located_on ")
    assert [float(line[2]) for line in lines] == pytest.approx([row.probability for row in answers], abs=1e-6)
    assert [line[3] for line in lines] == [row.status for row in answers]
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert saved["question"]["query"] == QUERY and saved["known"] == answers.known_count
    assert [[value["label"] for value in row["values"]] for row in saved["rows"]] == [
        list(row.labels.values()) for row in answers
    ]
    assert [[value["name"] for value in row["values"]] for row in saved["rows"]] == [
        list(row.values.values()) for row in answers
    ]


def test_names_stand_beside_labels_that_are_others(visit, serve, labelled_kb):
    with serve(labelled_kb) as client:
        page = visit(link("SELECT ?x WHERE { ?x :P131 :Q183 }"), client=client)
        expect(rows(page)).to_have_count(2)
        with page.expect_download() as download:
            page.get_by_role("button", name="Download CSV").click()
        lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0] == "x,x name,probability,status,missing links"
    assert "Berlin,Q64,1,known," in lines


def test_ask_count_and_more_of_sparql_are_answered(visit):
    page = visit(link("ASK { :Cologne :located_on :Rhine }"))
    expect(page.locator(".notice-title")).to_have_text("Yes")
    ask(page, "SELECT (COUNT(DISTINCT ?c) AS ?n) WHERE { ?c :located_on :Rhine }")
    expect(page.locator("#table th").first).to_contain_text("?n")
    wider = "SELECT ?c ?s WHERE { ?c :located_on :Rhine . ?c :capital_of* ?s }"
    page.get_by_role("radio", name="predicted", exact=True).check()
    write(page, wider)
    expect(page.locator("#problem")).to_contain_text("path sign")
    expect(page.locator("#problem")).to_contain_text("choose Rows: both, or known")
    page.get_by_role("radio", name="both", exact=True).check()
    expect(page.locator("#problem")).to_be_hidden()
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#table th").nth(1)).to_contain_text("?s")


def test_relations_to_find_are_no_mistake_and_their_rows_say_why(visit):
    page = visit(link("SELECT ?p ?river { :Bonn ?p ?river . ?river a :River }"))
    expect(predicted(page)).not_to_have_count(0)
    expect(page.locator("#drawing svg")).to_be_visible()
    page.wait_for_timeout(1_500)  # longer than errors wait
    expect(page.locator("#problem")).to_be_hidden()
    assert page.locator(".cm-lintRange-error").count() == 0
    predicted(page).first.get_by_role("button", name="Why?").click()
    expect(page.get_by_role("dialog").locator(".sentence").first).to_be_visible()


# Why


def test_a_row_is_explained(visit, atlas_kb, pictures):
    page = visit(link(QUERY, mode="predicted", top=5))
    explain(rows(page).first)
    dialog = page.get_by_role("dialog")
    witness = dialog.get_by_role("group", name="Witness")
    expect(witness).to_be_visible()
    answers = atlas_kb.ask(QUERY, mode="predicted", top=5)
    why = atlas_kb.explain(answers[0], views=["witness", "attention", "counterfactual"]).to_json()
    expect(dialog.locator(".sentence")).to_have_text(f"{why['sentence']}.")
    links = why["witness"]["links"]
    assert 0 < sum(not link["stored"] for link in links) == witness.locator(".edge.missing").count()
    assert witness.locator(".edge:not(.missing)").count() == sum(link["stored"] for link in links)
    assert sorted(witness.locator(".label.missing text").all_text_contents()) == sorted(
        f"{link['relation']}  {_figure(link['probability'])}" for link in links if not link["stored"]
    )
    dash = "edge => getComputedStyle(edge).strokeDasharray"
    assert witness.locator(".edge.missing").first.evaluate(dash) != "none"
    assert witness.locator(".edge:not(.missing)").first.evaluate(dash) == "none"
    (reason,) = why["reasons"]
    part = dialog.get_by_role("region", name=f"Reasons: {reason['link']}")
    told = part.locator(".said li > span:last-child").all_inner_texts()
    assert told == [each["text"] for each in reason["rules"] + reason["kinds"]]
    for place, shown_place in zip(reason["places"], part.locator(".place").all(), strict=True):
        expect(shown_place.locator("h4")).to_have_text(place["pattern"])
        rivals = [rival for rival in place["rivals"] if not rival["is_stored"]]
        assert shown_place.locator(".rivals .entity-name").all_inner_texts() == [rival["entity"] for rival in rivals]
        figures = shown_place.locator(".rivals .figure").all_inner_texts()
        assert figures == [_figure(rival["probability"]) for rival in rivals]
    page.screenshot(path=pictures / "why.png")
    assert dialog.locator(".heat").count() == 0  # not asked for
    dialog.get_by_text("What the model looked at").click()
    expect(dialog.locator(".changes")).to_be_visible()
    heat = dialog.locator(".heat tbody tr td").all_inner_texts()
    mean = why["attention"]["mean"]
    assert heat == [f"{_whole(line[part])} %" for part in range(len(mean[0])) for line in mean]
    changes = dialog.locator(".changes .bar .figure").all_inner_texts()
    shares = [entry["share"] for entry in why["counterfactual"]["patterns"] + why["counterfactual"]["triples"]]
    assert changes == [_figure(share) for share in [why["counterfactual"]["share"], *shares] if share is not None]
    dialog.get_by_role("button", name="Row after").click()
    expect(dialog.get_by_role("heading", level=2)).to_have_text(" · ".join(answers[1].labels.values()))
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def _whole(share: float) -> int:
    """As JavaScript rounds: halves upwards."""
    return int(share * 100 + 0.5)


# Names and pictures


def test_every_name_leads_to_its_card(visit, atlas_kb, pictures):
    page = visit(link("SELECT ?city WHERE { ?city :located_on :Rhine }", top=3))
    missing = predicted(page).first.locator(".missing-links .entity-name")
    expect(missing).to_have_text([re.compile(r"\w+"), "Rhine"])
    missing.last.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", level=2)).to_have_text("Rhine")
    names, graph = atlas_kb.graph.vocabulary, atlas_kb.graph
    rhine = names.entities.find("Rhine")
    own = graph.triples[(graph.triples[:, 0] == rhine) | (graph.triples[:, 2] == rhine)]
    expect(dialog.locator(".why-body > .about")).to_have_text(f"River · {len(own)} facts · :Rhine")
    facts = dialog.get_by_role("region", name="Facts")
    into = facts.locator("dt", has_text="flows_into …").locator("xpath=following-sibling::dd[1]")
    seas = own[(own[:, 0] == rhine) & (own[:, 1] == names.relations.find("flows_into")), 2]
    expect(into.locator(".entity-name")).to_have_text([names.label(sea) for sea in seas.tolist()])
    likely = dialog.get_by_role("region", name="May be missing").locator("li .fact")
    expect(likely.first).to_contain_text("Rhine")
    expect(dialog.get_by_role("button", name=re.compile("Accept"))).to_have_count(0)  # this server takes no changes
    page.screenshot(path=pictures / "card.png")
    into.locator(".entity-name").first.click()
    expect(dialog.get_by_role("heading", level=2)).to_have_text(names.label(int(seas[0])))
    dialog.get_by_role("button", name="Back").click()
    expect(dialog.get_by_role("heading", level=2)).to_have_text("Rhine")
    question = dialog.get_by_role("region", name="Ask about it").get_by_role("button").first
    query = question.locator("code").inner_text()
    question.click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".known tbody tr").first).to_be_visible()
    assert "".join(editor(page).inner_text().split()) == "".join(query.split())


def test_answers_are_drawn_as_a_graph(visit, atlas_kb, pictures):
    page = visit(link(QUERY, top=4))
    button = page.get_by_role("button", name="As a graph")
    button.click()
    picture = page.get_by_role("group", name="The answers as a graph")
    expect(picture).to_be_visible()
    page.screenshot(path=pictures / "answers-as-graph.png")
    answers = atlas_kb.ask(QUERY, top=4)
    drawn = [*answers.known[:8], *answers.predicted]
    wanted = {(str(each), False) for row in drawn for each in row.held}
    wanted |= {(str(each), True) for row in drawn for each in row.missing}
    assert picture.locator(".edge.missing").count() == sum(missing for _, missing in wanted)
    assert picture.locator(".edge").count() == len(wanted)
    given = picture.locator(".vertex.entity").evaluate_all("all => all.map(one => one.dataset.entity)")
    assert sorted(given) == ["France", "Germany"]
    node = picture.get_by_role("button", name="Rhine", exact=True)
    node.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("heading", level=2)).to_have_text("Rhine")
    page.keyboard.press("Escape")
    button.click()
    expect(picture).to_be_hidden()


def test_missing_facts_are_accepted_rejected_and_taken_back(visit, serve, atlas_kb, tmp_path, pictures):
    from biqe.serve.live import LiveGraph

    live = LiveGraph(tmp_path / "live", atlas_kb.splits, known=atlas_kb.known, prefixes=atlas_kb.prefixes)
    count = len(atlas_kb.graph.triples)
    with serve(atlas_kb, live=live, seconds=300.0) as client:
        page = visit("/#missing", client=client)
        section = page.locator("#missing")
        page.get_by_role("link", name="Likely missing facts").click()
        section.get_by_label("With the relation").select_option(label="capital_of")
        items = section.locator("li")
        expect(items.first).to_contain_text("capital of")
        facts = items.locator(".fact").all_inner_texts()
        items.nth(0).get_by_role("button", name="Accept").click()
        expect(items.nth(0)).to_contain_text("In the graph now.")
        items.nth(1).get_by_role("button", name="Reject").click()
        expect(items.nth(1)).to_contain_text("it will not be suggested again")
        assert len(live.snapshot().graph.triples) == count + 1
        page.screenshot(path=pictures / "missing.png")
        found = client.get("/api/suggest", params={"relation": "capital_of", "top": 20}).json()["suggestions"]
        left = [f"{each['subject']['label']} {each['label']} {each['object']['label']}" for each in found]
        assert left[0] == facts[2] and facts[0] not in left and facts[1] not in left
        for place in (0, 1):
            items.nth(place).get_by_role("button", name="Undo").click()
            expect(items.nth(place).get_by_role("button", name="Accept")).to_be_visible()
        assert len(live.snapshot().graph.triples) == count
        found = client.get("/api/suggest", params={"relation": "capital_of", "top": 2}).json()["suggestions"]
        assert [each["subject"]["label"] for each in found] == [fact.split(" capital of ")[0] for fact in facts[:2]]


# Wrong queries and wrong moments


def test_an_error_is_shown_at_its_place(visit, pictures):
    page = visit()
    write(page, "SELECT ?x WHERE {\n  ?x :flows_thru :Germany\n}")
    problem = page.locator("#problem")
    expect(problem).to_contain_text("relation 'flows_thru' is not in this graph")
    expect(problem).to_contain_text("did you mean 'flows_through'?")
    assert page.locator(".cm-lintRange-error").all_inner_texts() == [":flows_thru"]
    page.keyboard.press("Control+Enter")
    expect(page.locator("#table")).to_contain_text("What is wrong is marked in the question")
    page.screenshot(path=pictures / "error.png")
    page.get_by_role("button", name="line 2, column 6").click()
    page.keyboard.insert_text("x")
    expect(editor(page)).to_contain_text("?x x:flows_thru")
    write(page, "SELECT ?x WHERE { ?x :borders }")
    expect(page.get_by_role("button", name="line 1, column 31")).to_be_visible()
    assert page.locator(".cm-lintRange-error").all_inner_texts() == ["}"]
    write(page, "SELECT ?x WHERE { ?x :borders :Germany }")
    expect(problem).to_be_hidden()
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)


def test_errors_wait_and_move_nothing(visit):
    page = visit(link(QUERY), timezone_id="UTC")  # in a context of its own: all pages of a context have one clock
    expect(predicted(page)).to_have_count(20)
    before = page.locator("#go").bounding_box()
    editor(page).click()
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 60)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("SELECT ?x WHERE { ?x :flo")
    with page.expect_response("**/api/parse") as answer:
        page.clock.run_for(200)
    assert answer.value.json()["errors"]
    problem = page.locator("#problem")
    page.clock.run_for(1_000)  # half a word is nothing to complain about
    expect(problem).to_be_hidden()
    page.clock.run_for(1_000)
    expect(problem).to_be_visible()
    assert page.locator("#go").bounding_box() == pytest.approx(before, abs=1)


def test_a_server_that_is_busy_or_gone_is_told_and_tried_again(visit):
    page = visit()
    expect(page.locator(".example").first).to_be_visible()
    fault = {"error": {"type": "Busy", "message": "as many requests wait as may", "hint": None, "request_id": "r1"}}
    answer = {"status": 503, "headers": {"Retry-After": "2"}, "json": fault}
    page.route("**/api/ask", lambda route: route.fulfill(**answer))
    ask(page, QUERY)
    expect(page.get_by_role("alert").filter(has_text="as many requests")).to_contain_text("Try again in 2 s.")
    page.unroute("**/api/ask")
    page.get_by_role("button", name="Try again").click()
    expect(predicted(page)).to_have_count(20)
    page.route("**/api/ask", lambda route: route.abort())
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("alert").filter(has_text="does not answer")).to_be_visible()
    refused: list[object] = []

    def refuse(route):
        refused.append(route)
        route.fulfill(**answer)

    page.route("**/api/parse", refuse, times=1)
    write(page, "SELECT ?x WHERE { ?x :borders :Italy }")
    expect(page.locator("#drawing .vertex.entity[data-entity=Italy]")).to_be_visible()
    assert refused, "what is drawn was asked for twice"


def test_a_question_under_way_is_seen_and_can_be_stopped(visit):
    page = visit()
    held = []
    page.route("**/api/ask", lambda route: held.append(route))
    ask(page, QUERY)
    expect(page.locator("#table")).to_have_attribute("aria-busy", "true")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#summary")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    for route in held:
        route.abort()


def test_no_rows_is_an_answer(visit):
    page = visit(link("SELECT ?x WHERE { ?x :borders :Rhine }", mode="known"))
    expect(page.locator(".notice-title")).to_have_text("No rows")


def test_a_server_with_tokens_asks_for_one(visit, serve, odd_kb, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("read open-sesame-0123456789\n")
    tokens.chmod(0o600)
    with serve(odd_kb, ServeConfig(token_file=tokens)) as client:
        page = visit(client=client)
        token = page.get_by_role("textbox", name="Token")
        token.fill("wrong-wrong-wrong-wrong")
        page.get_by_role("button", name="Use this token").click()
        expect(token).to_have_value("")
        token.fill("open-sesame-0123456789")
        page.keyboard.press("Enter")
        expect(page.locator(".example").first).to_be_visible()
        assert page.evaluate("localStorage.length") == 0  # for this tab only


def test_names_are_text_and_never_markup(visit, odd):
    page = visit(link("SELECT ?who ?whom WHERE { ?who :knows ?whom }"), client=odd)
    expect(rows(page).first).to_be_visible()
    name = "<script>alert(1)</script>"
    expect(page.locator("td.value").filter(has_text=name).first).to_have_text(name)
    write(page, "SELECT ?x WHERE { ?x :knows <%3Cscript%3Ealert(1)%3C/script%3E> }")
    expect(page.locator("#drawing .vertex.entity")).to_have_count(1)
    page.keyboard.press("Control+Enter")
    expect(rows(page)).to_have_count(1)
    explain(rows(page).first)
    expect(page.get_by_role("group", name="Witness")).to_be_visible()
    assert page.locator("body script").count() == 0
    # A link that somebody sends is no way in either.
    other = visit(link("<img src=x onerror=alert(1)>", model="<b>"), client=odd)
    expect(other.locator("#problem")).to_be_visible()
    assert other.locator("img").count() == 0 and other.locator("main b").count() == 0


# For everyone


def test_all_of_it_works_by_keyboard(visit):
    page = visit()
    expect(page.locator(".example").first).to_be_visible()
    order = []
    for _ in range(14):
        page.keyboard.press("Tab")
        order.append(
            page.evaluate("""() => {
          let there = document.activeElement;
          if (there.shadowRoot) there = there.shadowRoot.activeElement;
          return there.getAttribute("aria-label") ?? there.id ?? "";
        }""")
            or page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()")
        )
    begins = [name.split("\n")[0].strip() for name in order]
    assert begins[:5] == ["Skip to the answers", "to-missing", "New", "examples", "SPARQL query"]
    assert begins[5:13] == ["Its graph", "Draw a link", "mode", "Settings", "top", "min", "model", "go"]
    for _ in range(len(order) - 5):
        page.keyboard.press("Shift+Tab")
    page.keyboard.type(QUERY)
    page.keyboard.press("Control+Enter")
    expect(predicted(page)).to_have_count(20)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('tr[data-row]')"):
            break
    page.keyboard.press("ArrowRight")  # from name to name within a row
    expect(page.locator("td.value .entity-name").first).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    focused = page.locator("tr:focus")
    expect(focused).to_have_attribute("data-row", "2")
    assert focused.evaluate("row => getComputedStyle(row).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("tr:focus")).to_have_attribute("data-row", "2")


def test_nothing_needs_colour_or_motion_and_everything_has_a_name(visit):
    page = visit(link(QUERY), reduced_motion="reduce")
    expect(predicted(page)).to_have_count(20)
    stored, new = page.locator(".badge.known").first, page.locator(".badge.predicted").first
    expect(stored).to_have_text("known")
    expect(new).to_have_text("predicted")
    style = "badge => getComputedStyle(badge).outlineStyle"
    assert (stored.evaluate(style), new.evaluate(style)) == ("none", "dashed")
    nameless = "controls => controls.filter(c => !(c.labels?.length || c.ariaLabel || c.textContent.trim())).length"
    assert page.locator("button, input, select, a").evaluate_all(nameless) == 0
    ids = page.locator("[id]").evaluate_all("all => all.map(element => element.id)")
    assert len(ids) == len(set(ids))
    assert page.locator("h1").count() == 1 and page.locator("main").count() == 1
    explain(rows(page).first)
    seconds = page.get_by_role("dialog").evaluate("dialog => parseFloat(getComputedStyle(dialog).animationDuration)")
    assert seconds < 0.001


CONTRAST = """(all) => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colours) => {
    pen.clearRect(0, 0, 1, 1);
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return all.map((element) => {
    const behind = [];
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const back = light(behind), front = light([...behind, getComputedStyle(element).color]);
    const [low, high] = [Math.min(back, front), Math.max(back, front)];
    return [(high + 0.05) / (low + 0.05), element.className || element.tagName];
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(visit, pictures, scheme):
    page = visit(link(QUERY), color_scheme=scheme)
    expect(predicted(page)).to_have_count(20)
    expect(page.locator("#drawing svg")).to_be_visible()
    page.screenshot(path=pictures / f"{scheme}.png", full_page=True)
    selector = ".tagline, .graph-line, .summary, .badge, .value, .figure, .missing-links, .relation, h2, .primary, th"
    measured = page.locator(selector).evaluate_all(CONTRAST)
    explain(predicted(page).nth(5))
    page.get_by_text("What the model looked at").click()
    expect(page.locator(".changes")).to_be_visible()
    measured += page.locator(".sentence, .said span, .place p, .place .figure, .reason h3").evaluate_all(CONTRAST)
    measured += page.locator(".why .about, .heat td, .heat th, .what, .how, .changes .figure").evaluate_all(CONTRAST)
    page.screenshot(path=pictures / f"{scheme}-why.png")
    assert [entry for entry in measured if entry[0] < 4.5] == []
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == (scheme == "dark")


def test_a_phone_needs_no_sideways_scrolling(visit, pictures):
    page = visit(link(QUERY), width=360, height=740, is_mobile=True, has_touch=True)
    expect(predicted(page)).to_have_count(20)
    page.screenshot(path=pictures / "phone.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == pytest.approx(360, abs=1)
    drawn = page.locator("#drawing svg").bounding_box()
    assert drawn["x"] >= -1 and drawn["x"] + drawn["width"] <= 361
    predicted(page).first.get_by_role("button", name="Why?").tap()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".reason, .sentence").first).to_be_visible()
    page.screenshot(path=pictures / "phone-why.png")
    assert dialog.bounding_box()["width"] == pytest.approx(360, abs=1)  # a fraction of a pixel while it opens
    assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth + 1")


# Quick and small


def test_the_first_view_is_small_and_comes_in_few_requests(visit):
    page = visit("/", locale="en-GB")  # a context of its own, in which nothing is cached
    expect(predicted(page).first).to_be_visible()
    sizes = page.evaluate("performance.getEntries().map(entry => entry.encodedBodySize ?? 0).filter(size => size > 0)")
    assert 50_000 < sum(sizes) < 400_000
    assert len(sizes) <= 10  # so that it comes soon, also over a slow line


# Yasgui


def test_yasgui_asks_the_endpoint(visit, atlas_kb, pictures):
    page = visit("/yasgui")
    expect(page.locator(".CodeMirror").first).to_be_visible()
    query = "SELECT ?city ?probability WHERE { SERVICE <urn:biqe:predict?mode=both&top=5> { ?city :located_on :Elbe } }"
    page.locator(".CodeMirror").first.evaluate("(editor, text) => editor.CodeMirror.setValue(text)", query)
    page.locator(".yasqe_queryButton").first.click()
    cells = page.locator(".yasr_results td a").filter(has_text="urn:biqe:name:")
    answers = atlas_kb.ask("SELECT ?city WHERE { ?city :located_on :Elbe }", top=5)
    expect(cells).to_have_count(len(answers))
    assert {cell.removeprefix("urn:biqe:name:") for cell in cells.all_inner_texts()} == {row.city for row in answers}
    page.screenshot(path=pictures / "yasgui.png")
