"""All of SPARQL 1.1 over one graph: what ``--mode known`` hands to an exact store.

Read-only, and on this graph alone: SELECT, ASK, CONSTRUCT and DESCRIBE; no updates, no SERVICE, no FROM. Names that are
IRIs stay as they are; any other name, such as Germany, becomes ``<urn:biqe:name:Germany>`` on the way in and comes
back as it was. The store is pyoxigraph's, in memory, and built when it is first asked.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from biqe.errors import BiqeError, SparqlSyntax
from biqe.graph.knowledge_graph import Graph
from biqe.graph.literals import Literals
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bind import RDF_TYPE, TYPE_NAMES, entities_called, relation_called, spellings
from biqe.query.question import is_absolute
from biqe.query.scan import PLAIN, STANDARD, STORE_WORDS, Scan, Word, refuse_oversized, scan

if TYPE_CHECKING:
    import pyoxigraph

MAX_ROWS = 100_000
"""Rows that are read from the store; a query with more of them says so."""
DEPTH = 16
"""Brackets within brackets that the store's parser is given."""
READ_ONLY = "SELECT, ASK, CONSTRUCT and DESCRIBE over this graph are answered; see docs/concepts/sparql.md"

_REFUSED = {
    "SERVICE": "only this graph is asked, and no other server; drop it",
    "FROM": "only this graph is asked; drop it",
    **dict.fromkeys(
        "INSERT DELETE LOAD CLEAR DROP CREATE ADD MOVE COPY".split(), "a query does not change a graph; import triples"
    ),
}
_SIMPLE = re.compile(r"[A-Za-z0-9_.-]+")
"""Names that stand in an IRI as they are."""
_NOT_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\%]')
_BLANK_LABEL = re.compile(r"(?!0_)\w(?:[\w.-]*[\w-])?")
_ERROR = re.compile(r"error at (\d+):(\d+): (.*)", re.DOTALL)
_LOCAL_ESCAPE = re.compile(r"\\(.)")


class Cut(NamedTuple):
    """A piece of a query, and text of the store's own language that stands in its place."""

    start: int
    """Offset in the scanned text."""
    end: int
    replacement: str


class Term(NamedTuple):
    """One value of a row, as RDF has it."""

    kind: str
    """``uri``, ``bnode`` or ``literal``."""
    value: str
    """The graph's name of an entity; the text of a literal."""
    datatype: str | None = None
    language: str | None = None


@dataclass(frozen=True)
class Solutions:
    """What the store found: rows of terms, None where a variable has no value."""

    variables: tuple[str, ...]
    rows: tuple[tuple[Term | None, ...], ...]
    complete: bool = True
    """False where there are more rows than are read."""


class ExactStore:
    """A graph as an RDF store. One entity or relation is one IRI or blank node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def store(self) -> pyoxigraph.Store:
        """The triples in pyoxigraph, loaded on first use."""
        from pyoxigraph import Quad, Store

        vocabulary = self.graph.vocabulary
        entities = [node_of(name) for name in vocabulary.entities]
        relations = [iri_of(name) for name in vocabulary.relations]
        store = Store()
        store.bulk_extend(Quad(entities[s], relations[r], entities[o]) for s, r, o in self.graph.triples.tolist())
        literals = self.graph.literals
        if literals is not None:
            subjects = [node_of(name) for name in literals.subjects]
            relations = [iri_of(name) for name in literals.relations]
            values = literals.terms()
            store.bulk_extend(Quad(subjects[s], relations[r], values[v]) for s, r, v in literals.rows.tolist())
        return store

    def query(
        self,
        text: str,
        *,
        prefixes: Mapping[str, str] | None = None,
        max_rows: int = MAX_ROWS,
        cuts: Sequence[Cut] = (),
    ) -> Solutions | bool:
        """Rows of a SELECT; triples of a CONSTRUCT or DESCRIBE as rows; true or false for ASK.

        ``cuts`` are pieces of the text that somebody else has read, and what stands in their place. Text that is no
        query, or not a read-only one on this graph, is a SparqlSyntax with its place.
        """
        from pyoxigraph import QueryBoolean, QuerySolutions

        rewritten = Rewritten(text, prefixes or {}, self.graph.vocabulary, cuts, self.graph.literals)
        try:
            found: Any = self.store.query(rewritten.text)
            if isinstance(found, QueryBoolean | bool):
                return bool(found)
            if isinstance(found, QuerySolutions):
                variables = tuple(variable.value for variable in found.variables)
                every: Iterator[Iterable[Any]] = iter(found)
            else:
                variables = ("subject", "predicate", "object")
                every = ((triple.subject, triple.predicate, triple.object) for triple in found)
            rows: list[tuple[Term | None, ...]] = []
            term = _Terms().__getitem__
            for row in every:
                if len(rows) == max_rows:
                    return Solutions(variables, tuple(rows), complete=False)
                rows.append(tuple(map(term, row)))
        except SyntaxError as error:
            raise rewritten.error(str(error)) from error
        except (OSError, RuntimeError, ValueError) as error:
            raise BiqeError(f"the exact store cannot answer this query: {error}", hint=READ_ONLY) from error
        return Solutions(variables, tuple(rows))


@lru_cache(4096)
def iri_of(name: str) -> pyoxigraph.NamedNode:
    """The IRI of a name; ``name_of`` leads back.

    >>> iri_of("Germany").value, iri_of("http://ex.org/a").value, iri_of("50% a b").value
    ('urn:biqe:name:Germany', 'http://ex.org/a', 'urn:biqe:name:50%25%20a%20b')
    """
    from pyoxigraph import NamedNode

    if _SIMPLE.fullmatch(name):  # as most are, of which an update may have a hundred thousand
        return NamedNode(PLAIN + name)
    if is_absolute(name) and not name.startswith(PLAIN):
        with suppress(ValueError):  # not what an IRI may look like
            return NamedNode(name)
    try:
        return NamedNode(PLAIN + _NOT_IN_IRI.sub(lambda found: f"%{ord(found[0]):02X}", name))
    except ValueError:
        return NamedNode(PLAIN + quote(name, safe=""))


def node_of(name: str) -> pyoxigraph.NamedNode | pyoxigraph.BlankNode:
    """The IRI or blank node of an entity's name; ``blank_name`` leads back from a blank node.

    >>> node_of("_:b1").value, node_of("_:-1").value, node_of("_: ").value
    ('b1', '0_-1', 'urn:biqe:name:_:%20')
    """
    if name.startswith("_:"):
        from pyoxigraph import BlankNode

        # Names of nodes without a label start with a hyphen, which RDF allows no label to do.
        label = name[2:] if _BLANK_LABEL.fullmatch(name, 2) else f"0_{name[2:]}"
        try:
            return BlankNode(label)
        except ValueError:
            pass  # a name of a table, which needs to be no label
    return iri_of(name)


def is_blank(name: str) -> bool:
    """Whether the store has this name as a blank node."""
    if not name.startswith("_:"):
        return False
    from pyoxigraph import BlankNode

    return isinstance(node_of(name), BlankNode)


def blank_name(label: str) -> str:
    """The graph's name for a blank node of the store."""
    return f"_:{label.removeprefix('0_')}"


def name_of(iri: str) -> str:
    """The graph's name for an IRI of the store."""
    return unquote(iri.removeprefix(PLAIN)) if iri.startswith(PLAIN) else iri


class _Terms(dict[Any, "Term | None"]):
    """Terms by the store's nodes, each made once: rows repeat their entities."""

    def __missing__(self, node: Any) -> Term | None:
        found = self[node] = _term(node)
        return found


def _term(term: Any) -> Term | None:
    from pyoxigraph import BlankNode, Literal, NamedNode

    if term is None:
        return None
    if isinstance(term, NamedNode):
        return Term("uri", name_of(term.value))
    if isinstance(term, BlankNode):
        return Term("bnode", blank_name(term.value))
    if isinstance(term, Literal):
        return Term("literal", term.value, term.datatype.value, term.language)
    return Term("literal", str(term))


class Rewritten:
    """A query text whose names are the store's: plain and relative names as IRIs, and the graph's prefixes declared."""

    def __init__(
        self,
        text: str,
        prefixes: Mapping[str, str],
        vocabulary: Vocabulary,
        cuts: Sequence[Cut] = (),
        literals: Literals | None = None,
    ) -> None:
        self.scanned = self._scanned(text)
        self._words = [
            word for word in self.scanned.words if not any(cut.start <= word.start < cut.end for cut in cuts)
        ]
        self._refuse()
        self._vocabulary = vocabulary
        self._literals = literals
        self.unknown: dict[str, None] = {}
        """Names of the graph's own namespace that the graph does not have."""
        own = prefixes.get("", "")
        self._own = own if is_absolute(own) else PLAIN
        declared = STANDARD | {name: iri for name, iri in prefixes.items() if is_absolute(iri)} | {"": self._own}
        # All on a line of their own, so that places in the user's text stay what they are, one line further down.
        head = " ".join(f"PREFIX {name}: <{iri}>" for name, iri in declared.items()) + "\n"
        pieces, at = [head], 0
        length = len(head)
        self._shifts: list[tuple[int, int]] = [(length, length)]
        renamed = [Cut(word.start, word.start + len(word.text), name) for word, name in self._replacements()]
        for start, end, replacement in sorted([*renamed, *cuts]):
            pieces += (self.scanned.text[at:start], replacement)
            length += start - at + len(replacement)
            at = end
            self._shifts.append((length, length - at))
        pieces.append(self.scanned.text[at:])
        self.text = "".join(pieces)

    def _scanned(self, text: str) -> Scan:
        refuse_oversized(text)
        scanned = scan(text)
        scanned.refuse_sizes(STORE_WORDS)
        scanned.refuse_brackets(DEPTH)
        return scanned

    def _refuse(self) -> None:
        for word in self._words:
            if word.kind == "keyword" and word.text.upper() in _REFUSED:
                raise self.scanned.error(
                    word.start,
                    f"{word.text.upper()} is not answered, not even in known mode",
                    hint=f"{_REFUSED[word.text.upper()]}; {READ_ONLY}",
                )

    def _replacements(self) -> Iterator[tuple[Word, str]]:
        words = self._words
        keywords = {word.text.upper() for word in words if word.kind == "keyword"}
        redeclared = any(
            words[at - 1].text.upper() == "PREFIX" and word.text == ":" for at, word in enumerate(words) if at
        )
        type_ = self._type_relation()
        for at, word in enumerate(words):
            before = words[at - 1].text.upper() if at else ""
            if before == "PREFIX" or (at > 1 and words[at - 2].text.upper() == "PREFIX") or before == "BASE":
                continue
            if word.kind == "iri" and not is_absolute(word.text[1:-1]) and "BASE" not in keywords:
                name = word.text[1:-1]
                yield word, self._name(name) if self._own == PLAIN else f"<{self._own}{name}>"
            elif word.kind == "name" and word.text.startswith(":") and not redeclared:
                local = _LOCAL_ESCAPE.sub(r"\1", word.text[1:])
                if self._own == PLAIN:
                    yield word, self._name(local)
                elif not self._has(self._own + local):
                    self.unknown[word.text] = None
            elif word.kind == "keyword" and word.text == "a" and type_ is not None:
                yield word, f"<{iri_of(type_).value}>"

    def _has(self, name: str) -> bool:
        literals, vocabulary = self._literals, self._vocabulary
        every = [vocabulary.entities, vocabulary.relations]
        every += [] if literals is None else [literals.relations, literals.subjects]
        return any(names.find(name) is not None for names in every)

    def _name(self, written: str) -> str:
        """A plain name as an IRI, in the spelling of the graph where it has such a name."""
        name = unquote(written)
        if not self._has(name):
            # An unknown name finds nothing, in SPARQL; it is no error.
            vocabulary = self._vocabulary
            relation, entities = relation_called(name, vocabulary), entities_called(name, vocabulary)
            texts = () if self._literals is None else spellings(name)
            if relation is not None:
                name = vocabulary.relations[relation]
            elif len(entities) == 1:
                name = vocabulary.entities[entities[0]]
            elif spelt := next(filter(self._has, texts), None):
                name = spelt
            else:
                self.unknown[f":{written}"] = None
        return f"<{iri_of(name).value}>"

    def _type_relation(self) -> str | None:
        """The relation that ``a`` stands for; None where this is rdf:type itself, or the graph has no such relation."""
        relations = self._vocabulary.relations
        if relations.find(RDF_TYPE) is not None:
            return None
        return next((name for name in TYPE_NAMES if relations.find(name) is not None), None)

    def error(self, message: str) -> SparqlSyntax:
        """The store's complaint, at its place in the user's text."""
        found = _ERROR.match(message)
        if found is None:
            return SparqlSyntax(f"the query cannot be read: {message}", hint=READ_ONLY)
        lines = self.text.split("\n")
        line = min(int(found[1]), len(lines))
        offset = sum(len(text) + 1 for text in lines[: line - 1]) + int(found[2]) - 1
        shift = self._shifts[max(bisect_right(self._shifts, (offset, len(self.text))) - 1, 0)][1]
        place = min(max(offset - shift, 0), len(self.scanned.text))
        expected = found[3] if len(found[3]) < 200 else found[3][:200] + "..."
        return self.scanned.error(place, f"this is no SPARQL: {expected}", hint=READ_ONLY)
