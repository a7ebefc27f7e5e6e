"""The parser: against pyoxigraph, against itself, at its limits. Single behaviours are in tests/sparql/*.txt."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.errors import BiqeError, SparqlSyntax
from biqe.query.question import Entity, Pattern, Query, Variable, written
from biqe.query.scan import MAX_CHARACTERS, MAX_DEPTH, MAX_WORDS, PLAIN, scan
from biqe.query.sparql import parse
from biqe.query.subset import MAX_PATTERNS

NAMESPACE = "http://ex.org/"
VARIABLES = ("?x", "?y", "$z")
ENTITIES = (":a", ":b", "<http://ex.org/c>")
RELATIONS = (":p", ":q", "<http://ex.org/r>")

# Query texts of the subset


def paths() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(RELATIONS),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: f"({pair[0]}/{pair[1]})"), inner.map(lambda path: f"^({path})")
        ),
        max_leaves=3,
    )


simple_terms = st.sampled_from((*VARIABLES, *VARIABLES, *ENTITIES, "[]", "_:n"))


@st.composite
def property_lists(draw: st.DrawFn, terms: st.SearchStrategy[str]) -> str:
    lists = draw(st.lists(st.tuples(paths(), st.lists(terms, min_size=1, max_size=2)), min_size=1, max_size=2))
    return draw(st.sampled_from((" ; ", ";\n", " ;; "))).join(f"{verb} {' , '.join(ends)}" for verb, ends in lists)


terms = st.one_of(simple_terms, property_lists(simple_terms).map(lambda inner: f"[ {inner} ]"))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A query with prefix, at least one variable, and a body of two or three statements."""
    statements = [f"{draw(terms)} {draw(property_lists(terms))}" for _ in range(draw(st.integers(1, 2)))]
    statements.insert(draw(st.integers(0, len(statements))), "?x :p ?y")
    return f"PREFIX : <{NAMESPACE}> SELECT DISTINCT * WHERE {{ {' . '.join(statements)} }}"


triple_sets = st.sets(
    st.tuples(st.sampled_from("abc"), st.sampled_from("pqr"), st.sampled_from("abc")), min_size=4, max_size=12
)


def joined(query: Query, triples: set[tuple[str, str, str]]) -> set[frozenset[tuple[str, str]]]:
    """Rows as sets of (variable, name), by joining one pattern after the other."""
    bindings: set[frozenset[tuple[Variable, str]]] = {frozenset()}
    for at, pattern in enumerate(query.patterns):
        # Variables that nothing asks for any more are dropped, or the rows would multiply.
        needed = {*query.targets, *Query((), query.patterns[at + 1 :]).variables}
        step = set()
        for binding in bindings:
            for subject, relation, object_ in triples:
                row = dict(binding)
                if relation == pattern.relation and all(
                    (term.name if isinstance(term, Entity) else row.setdefault(term, value)) == value
                    for term, value in ((pattern.subject, subject), (pattern.object, object_))
                ):
                    step.add(frozenset(item for item in row.items() if item[0] in needed))
        bindings = step
    return {frozenset((term.name, value) for term, value in binding if term in query.targets) for binding in bindings}


@given(texts(), triple_sets)
@settings(max_examples=40)
def test_means_what_it_means_to_pyoxigraph(text: str, names: set[tuple[str, str, str]]) -> None:
    triples = {tuple(NAMESPACE + name for name in triple) for triple in names}
    store = pyoxigraph.Store()
    store.extend(pyoxigraph.Quad(*(pyoxigraph.NamedNode(name) for name in triple)) for triple in triples)
    solutions = store.query(text)
    columns = [variable.value for variable in solutions.variables]
    expected = {frozenset((column, row[column].value) for column in columns) for row in solutions}
    query = parse(text)
    assert {target.name for target in query.targets} == set(columns)
    assert joined(query, triples) == expected


# Any query can be written and read again

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["New York", "100%", "%41", "/m/027rn", "http://ex.org/a%20b#c", "a:b", "<>", "{|}", "\\u0041", "'\"", "\t\n", "#x"]
)
variables = st.from_regex(r"[A-Za-zß_0-9][A-Za-zß_0-9·]{0,3}", fullmatch=True).map(Variable)


@given(st.lists(st.tuples(variables | names.map(Entity), names, variables), min_size=1, max_size=4), st.data())
@settings(max_examples=60)
def test_reads_what_it_writes(rows, data: st.DataObject) -> None:
    patterns = tuple(Pattern(*row) for row in rows)
    own = Query((), patterns).variables
    targets = tuple(data.draw(st.lists(st.sampled_from(own), min_size=1, unique=True)))
    query = Query(targets, patterns, data.draw(st.none() | st.integers(0, 10**9)))
    again = parse(str(query))
    assert (again.targets, again.limit) == (query.targets, query.limit)
    for one, other in zip(again.patterns, query.patterns, strict=True):
        # An absolute IRI keeps its percent codes, so what no IRI may hold comes back as a code: bind decodes it.
        assert one == other or str(one) == str(other)
        assert one.relation == other.relation or written(one.relation) == written(other.relation)


# Names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (":Germany", "Germany"),
        ("<Germany>", "Germany"),
        (f"<{PLAIN}Germany>", "Germany"),
        (":", ""),
        ("</m/027rn>", "/m/027rn"),
        ("<a%20b>", "a b"),
        (":a%20b", "a b"),
        (":New_York", "New_York"),
        (":St\\.\\-a.b", "St.-a.b"),
        (":a:b", "a:b"),
        (":1990s", "1990s"),
        ("<wiki:Berlin>", "wiki:Berlin"),
        ("<http://ex.org/a%20b>", "http://ex.org/a%20b"),
        (":München", "München"),
        (":\\u004Dain", "Main"),
        (":東京", "東京"),
        ("<#x>", "#x"),
        ("<😀>", "😀"),
    ],
)
def test_plain_names(text: str, name: str) -> None:
    assert parse(f"SELECT ?x {{ ?x :p {text} }}").patterns[0].object == Entity(name)
    assert parse(f"SELECT ?x {{ ?x {text} :y }}").patterns[0].relation == name


def test_names_of_a_graph_with_prefixes() -> None:
    prefixes = {"": "http://ex.org/#", "wd": "http://wikidata.org/entity/"}
    query = parse("PREFIX x: <y/> SELECT ?a { ?a :p wd:Q183 ; <q> x:z ; <http://r> <s> }", prefixes=prefixes)
    assert [(pattern.relation, pattern.object.name) for pattern in query.patterns] == [
        ("http://ex.org/#p", "http://wikidata.org/entity/Q183"),
        ("http://ex.org/#q", "http://ex.org/#y/z"),
        ("http://r", "http://ex.org/#s"),
    ]
    assert prefixes == {"": "http://ex.org/#", "wd": "http://wikidata.org/entity/"}


@pytest.mark.parametrize("prefixes", [None, {}, {"": ""}, {"": PLAIN}, {"": "not an iri"}, {"wd": "http://w/"}])
def test_names_of_a_graph_without_namespace(prefixes) -> None:
    query = parse("SELECT ?x { ?x :located_on :New%20York, <New%20York> }", prefixes=prefixes)
    assert query.patterns == (Pattern(Variable("x"), "located_on", Entity("New York")),) * 2


def test_base_and_redeclared_prefixes() -> None:
    text = "BASE <http://b/c/> PREFIX w: <d#> PREFIX w: <e#> BASE <../f/> SELECT ?x { ?x w:p <g> . ?x :q <//h> }"
    query = parse(text, prefixes={"w": "http://unused/"})
    assert [(pattern.relation, pattern.object.name) for pattern in query.patterns] == [
        ("http://b/c/e#p", "http://b/f/g"),
        ("q", "http://h"),
    ]
    with pytest.raises(SparqlSyntax, match="line 1, column 36: .* is no IRI relative to"):
        parse("BASE <http://b/> SELECT ?x { ?x :p <//[> }")


# Limits


def chain(patterns: int) -> str:
    return "SELECT ?x0 { " + " . ".join(f"?x{i} :p ?x{i + 1}" for i in range(patterns)) + " }"


def test_as_many_patterns_as_allowed_and_no_more() -> None:
    assert len(parse(chain(MAX_PATTERNS)).patterns) == MAX_PATTERNS
    with pytest.raises(SparqlSyntax, match=f"more than {MAX_PATTERNS} triple patterns"):
        parse(chain(MAX_PATTERNS + 1))
    with pytest.raises(SparqlSyntax, match=f"more than {MAX_PATTERNS} triple patterns"):
        parse("SELECT ?x { ?x " + "/".join([":p"] * 300) + " " + ",".join([":y"] * 300) + " }")
    with pytest.raises(SparqlSyntax, match=f"at most {MAX_WORDS:,} are read"):
        parse(chain(MAX_WORDS))


def test_as_deep_as_allowed_and_no_deeper() -> None:
    def nested(depth: int) -> str:
        return "SELECT ?x { ?x :p " + "[ :p " * depth + "?y" + " ]" * depth + " }"

    assert len(parse(nested(MAX_DEPTH - 1)).patterns) == MAX_DEPTH
    with pytest.raises(SparqlSyntax, match=f"nested more than {MAX_DEPTH} deep") as caught:
        parse(nested(MAX_DEPTH))
    assert caught.value.column == len("SELECT ?x { ?x :p " + "[ :p " * (MAX_DEPTH - 1)) + 1


def test_as_long_as_allowed_and_no_longer() -> None:
    text = "SELECT ?x { ?x :p :y }"
    assert parse(text.ljust(MAX_CHARACTERS)) == parse(text)
    with pytest.raises(SparqlSyntax, match=f"has {MAX_CHARACTERS + 1:,} characters"):
        parse(text.ljust(MAX_CHARACTERS + 1))


def test_limits_of_limit() -> None:
    assert parse("SELECT ?x { ?x :p :y } LIMIT 0").limit == 0
    assert parse("SELECT ?x { ?x :p :y }").limit is None
    for number in ("9" * 19, "9" * 5000):
        with pytest.raises(SparqlSyntax, match="line 1, column 30: LIMIT is larger than any result"):
            parse(f"SELECT ?x {{ ?x :p :y }} LIMIT {number}")
    for number in ("-1", "1.5", "1e3", "'1'", "?x"):
        with pytest.raises(SparqlSyntax, match="line 1, column 3[0-9]: "):
            parse(f"SELECT ?x {{ ?x :p :y }} LIMIT {number}")


def test_a_full_stack_is_an_error_of_ours() -> None:
    """Called from deep inside other code, the parser may run out of stack."""

    def dive(depth: int) -> Query:
        return parse("SELECT ?x { ?x :p :y FILTER(((((?x = :y))))) }") if depth == 0 else dive(depth - 1)

    outcomes = set()
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        try:
            dive(depth)
        except SparqlSyntax as error:
            outcomes.add(error.message)
        except RecursionError:
            outcomes.add("no room to call parse")
    assert "the query cannot be read (RecursionError)" in outcomes


def test_threads_do_not_disturb_each_other() -> None:
    texts = [chain(number) for number in range(1, 20)]
    with ThreadPoolExecutor(4) as pool:
        assert [len(query.patterns) for query in pool.map(parse, texts)] == list(range(1, 20))


def test_reading_a_text_loads_nothing_heavy() -> None:
    code = """
import sys
import biqe.query.sparql, biqe.query.bind, biqe.query.tokens, biqe.query.shapes
biqe.query.sparql.parse("SELECT ?x { ?x :p :y }")
assert not {"rdflib", "pyparsing", "pyarrow", "numba", "torch"} & set(sys.modules), sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Places


@given(
    st.lists(
        st.sampled_from(["\n", "\r\n", "\r", "\t", " ", "é", "😀", "\\u00e9", "\\U0001F600", "# x\n"]), max_size=12
    )
)
def test_places_are_those_of_the_source(pieces: list[str]) -> None:
    """An escape is several characters of the line that the user sees, though one of the text."""
    before = "".join(pieces)
    found = scan(f"{before} FILTER")
    assert found.words[-1].text.endswith("FILTER")
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert found.place(found.words[-1].start) == (len(lines), len(lines[-1]) + 2)


@given(st.text(max_size=60))
def test_scanning_loses_nothing(source: str) -> None:
    found = scan(source)
    assert all(found.text.startswith(word.text, word.start) for word in found.words)
    rest = list(found.text)
    for word in found.words:
        rest[word.start : word.start + len(word.text)] = " " * len(word.text)
    assert not "".join(rest).strip(" \t\r\n")


@pytest.mark.parametrize(
    "text", ["SELECT ?x { ?x :p ?y FILTER(?x = ?y) }", "ASK { :a :p :b }", "SELECT ?x { ?x :p :y } OFFSET 1"]
)
def test_parse_reads_conjunctive_queries_only(text: str) -> None:
    from biqe.query.sparql import parse

    with pytest.raises(BiqeError, match="more than one conjunctive query") as caught:
        parse(text)
    assert "parse_question" in str(caught.value.hint)
