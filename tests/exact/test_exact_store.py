"""Known mode is all of SPARQL 1.1, with literals and blank nodes: against pyoxigraph on generated graphs and queries.

The oracle loads the file by itself; ours goes through import and store.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pyoxigraph
from hypothesis import given, reject
from hypothesis import strategies as st

from biqe.answer.answers import Answers
from biqe.graph.read import read_graph
from biqe.knowledge_base import KnowledgeBase

# One folder for all examples: a folder for each would take longer than what is tested.
PLACE = Path(tempfile.mkdtemp(prefix="biqe-test-"))
atexit.register(shutil.rmtree, PLACE, ignore_errors=True)

EX = "http://ex.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
NODES = [f"<{EX}a>", f"<{EX}b>", f"<{EX}c>", "_:x", "_:y1"]
RELATIONS = [f"<{EX}p>", f"<{EX}q>"]
OF_LITERALS = [f"<{EX}p>", f"<{EX}age>", f"<{LABEL}>"]
LITERALS = [
    '"7"^^<' + XSD + "integer>",
    '"07"^^<' + XSD + "integer>",
    '"-3"^^<' + XSD + "integer>",
    '"7.50"^^<' + XSD + "decimal>",
    '"7.5E0"^^<' + XSD + "double>",
    '"NaN"^^<' + XSD + "double>",
    '"x"^^<' + XSD + "integer>",
    '"true"^^<' + XSD + "boolean>",
    '"1990-03-02"^^<' + XSD + "date>",
    '"2020-01-01T00:00:00Z"^^<' + XSD + "dateTime>",
    '"Köln"@de',
    '"Cologne"@en-GB',
    '"Cologne"',
    '"a\\"b\\n\\\\c"',
    '""',
    '"u"^^<http://ex.org/unit>',
]
# Every name is there: an unknown one would be an error of ours, and nothing to pyoxigraph.
BASE = f"""{NODES[0]} {RELATIONS[0]} {NODES[1]} .
{NODES[1]} {RELATIONS[1]} {NODES[2]} .
{NODES[3]} {RELATIONS[0]} {NODES[4]} .
{NODES[0]} <{EX}age> "1"^^<{XSD}integer> .
{NODES[0]} <{LABEL}> "a" .
<{EX}alone> <{LABEL}> "alone" .
"""

pick = st.sampled_from
statements = st.one_of(
    st.tuples(pick(NODES), pick(RELATIONS), pick(NODES)),
    st.tuples(pick([*NODES, f"<{EX}alone>"]), pick(OF_LITERALS), pick(LITERALS)),
)
graphs = st.lists(statements, max_size=12).map(lambda rows: BASE + "".join(f"{s} {r} {o} .\n" for s, r, o in rows))

variables = pick(["?x", "?y", "?z"])
relations = pick([":p", ":q", ":age", "rdfs:label", "?r"])
paths = pick([":p/:q", "^:p", ":p|:q", ":p+", ":q*", ":p?", "!:q", ":p/:age", "(:p|^:q)/rdfs:label"])
subjects = st.one_of(variables, pick([":a", ":b", ":alone"]))
objects = st.one_of(variables, variables, pick([":b", "7", '"Köln"@de', '"Cologne"', "7.5"]))
patterns = st.one_of(
    st.tuples(subjects, relations, objects),
    st.tuples(subjects, relations, objects),
    st.tuples(subjects, paths, objects),
).map(" ".join)
expressions = st.builds(
    str.format,
    pick(
        [
            "{0} > 5",
            "{0} = 7",
            "{0} != {1}",
            "{0} < {1}",
            "{0} + 1 >= {1}",
            'lang({0}) = "de"',
            'langMatches(lang({0}), "en")',
            "datatype({0}) = xsd:integer",
            "isLiteral({0}) && !isBlank({1})",
            "isBlank({0}) || isIRI({1})",
            'regex(str({0}), "o", "i")',
            'contains(str({0}), "ol")',
            "bound({0})",
            "sameTerm({0}, {1})",
            'year({0}) > 1980 || {0} = "Cologne"',
            '{0} IN (7, "Köln"@de, :a)',
            "strlen(str({0})) > 2",
            "EXISTS {{ {0} :p {1} }}",
            "NOT EXISTS {{ {0} :age {1} }}",
            '{0} < "1995-01-01"^^xsd:date',
            "if(isNumeric({0}), {0}, 0) > 1",
        ]
    ),
    variables,
    variables,
)


def _extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, patterns).map(" . ".join),
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]} OPTIONAL {{ {pair[1]} }}"),
        st.tuples(inner, inner).map(lambda pair: f"{{ {pair[0]} }} UNION {{ {pair[1]} }}"),
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]} MINUS {{ {pair[1]} }}"),
        st.tuples(inner, expressions).map(lambda pair: f"{{ {pair[0]} FILTER({pair[1]}) }}"),
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]} {{ SELECT DISTINCT ?x ?y {{ {pair[1]} }} }}"),
        inner.map(lambda group: f"{{ {group} BIND(str(?x) AS ?s) }}"),
        inner.map(lambda group: f'{group} VALUES ?z {{ 7 "Köln"@de :b UNDEF }}'),
    )


groups = st.recursive(patterns, _extend, max_leaves=4)
heads = pick(
    [
        "SELECT * {{ {0} }}",
        "SELECT DISTINCT ?x ?y {{ {0} }}",
        "SELECT ?x (COUNT(*) AS ?n) (MIN(?y) AS ?least) (COUNT(DISTINCT ?z) AS ?m) {{ {0} }} GROUP BY ?x",
        "SELECT (SUM(?y) AS ?sum) (MAX(?z) AS ?most) {{ {0} }}",
        "SELECT (COUNT(*) AS ?n) {{ {0} }}",
        "SELECT ?y (AVG(?x) AS ?mean) {{ {0} }} GROUP BY ?y HAVING(COUNT(*) > 1)",
        "SELECT DISTINCT ?x {{ {0} }} ORDER BY ?y DESC(?x)",
        "ASK {{ {0} }}",
        "CONSTRUCT {{ ?x :new ?y }} WHERE {{ {0} }}",
    ]
)


def opened(text: str) -> KnowledgeBase:
    """The graph, imported."""
    (PLACE / "g.nt").write_text(text, encoding="utf-8")
    splits = read_graph([PLACE / "g.nt"]).splits
    assert splits.literals is not None
    return KnowledgeBase("generated", splits, prefixes={"": EX}, literal_relations=frozenset(splits.literals.relations))


def stored(text: str) -> pyoxigraph.Store:
    """The same graph, loaded by pyoxigraph."""
    store = pyoxigraph.Store()
    store.extend(pyoxigraph.parse(text, pyoxigraph.RdfFormat.N_TRIPLES))
    return store


def expected(store: pyoxigraph.Store, text: str) -> object:
    found = store.query(f"PREFIX : <{EX}> PREFIX xsd: <{XSD}> PREFIX rdfs: <{LABEL[:-5]}> {text}")
    if isinstance(found, pyoxigraph.QueryBoolean):
        return bool(found)
    if isinstance(found, pyoxigraph.QueryTriples):
        return Counter(tuple(map(str, (each.subject, each.predicate, each.object))) for each in found)
    names = sorted(variable.value for variable in found.variables)
    return Counter(tuple("" if row[name] is None else str(row[name]) for name in names) for row in found)


def ours(kb: KnowledgeBase, text: str) -> object:
    found = kb.ask(text, mode="known")
    if found.as_table().holds is not None:
        return found.as_table().holds
    if isinstance(found, Answers):  # rows of the subset are distinct; here they have to be without duplicates anyway
        kinds = {"_:": "{}"}
        names = sorted(found.variables)
        return Counter(tuple(kinds.get(row[name][:2], "<{}>").format(row[name]) for name in names) for row in found)
    assert found.complete
    order = (
        range(3)
        if found.variables == ("subject", "predicate", "object")
        else [found.variables.index(name) for name in sorted(found.variables)]
    )
    return Counter(tuple(_text(row[place]) for place in order) for row in found.terms)


def _text(term) -> str:
    if term is None:
        return ""
    if term.kind == "literal":
        datatype = None if term.language else pyoxigraph.NamedNode(term.datatype)
        return str(pyoxigraph.Literal(term.value, datatype=datatype, language=term.language))
    return term.value if term.kind == "bnode" else f"<{term.value}>"


@given(graphs, heads, groups)
def test_known_mode_equals_pyoxigraph(graph: str, head: str, group: str) -> None:
    text = head.format(group)
    try:
        wanted = expected(stored(graph), text)
    except SyntaxError:  # one name bound twice, and the like
        reject()
    found = ours(opened(graph), text)
    if isinstance(wanted, Counter) and "DISTINCT" not in head and "COUNT" not in head:
        # The one difference that is told: a SELECT of links alone has each row once.
        assert found in (wanted, Counter(set(wanted))), text
    else:
        assert found == wanted, text
