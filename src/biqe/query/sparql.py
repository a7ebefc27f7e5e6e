"""SPARQL text to a Query: the subset that biqe answers, read by rdflib's grammar.

Terminals, triple patterns and clauses are rdflib's own productions; this file joins those that are supported, and
turns their tree into names. Each function stands under the grammar production that it handles. What SPARQL has and
biqe does not is refused before the parser runs, at its place in the text; so the parser only ever sees text whose
size and depth are bounded.

docs/concepts/sparql.md describes the subset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urljoin

from biqe.errors import SparqlSyntax
from biqe.query.ast import Entity, Pattern, Query, Term, Variable, is_absolute
from biqe.query.scan import TERMS, Scan, Word, scan
from biqe.query.subset import MAX_PATTERNS, PATTERNS, refuse_oversized, refuse_unsupported, syntax_error

if TYPE_CHECKING:
    from pyparsing import ParserElement

PLAIN = "urn:biqe:name:"
"""Namespace that stands for names that are no IRIs: ``:Rhine`` is ``<urn:biqe:name:Rhine>`` is the entity 'Rhine'."""

_LOCAL_ESCAPE = re.compile(r"\\(.)")


def parse(text: str, *, prefixes: Mapping[str, str] | None = None) -> Query:
    """The query that a text says. Any text that is no query of the subset is a SparqlSyntax, with its place.

    ``prefixes`` are those of the graph. The empty prefix always has a meaning: where the graph gives it none,
    ``:Rhine`` and ``<Rhine>`` are the plain name 'Rhine', with %20 and the like decoded.

    >>> print(parse("SELECT ?city { ?river :flows_through :Germany, :France . ?city :on ?river }"))
    SELECT ?city WHERE { ?river <flows_through> <Germany> . ?river <flows_through> <France> . ?city <on> ?river }
    >>> parse("SELECT ?x WHERE { ?x :p ?y OPTIONAL { ?y :q ?z } }")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    biqe.errors.SparqlSyntax: line 1, column 28: OPTIONAL is outside the supported subset
    hint: ask two queries, with and without the optional patterns; SELECT (DISTINCT), ...
    """
    refuse_oversized(text)
    scanned = scan(text)
    refuse_unsupported(scanned)
    prologue, select = _tree(scanned)
    names = _Names.of(prologue, prefixes or {}, scanned)
    return _Translation(scanned, names).query(select)


def _tree(scanned: Scan) -> tuple[Any, Any]:
    """rdflib's tree of the text."""
    from pyparsing import ParseBaseException

    try:
        prologue, select = _grammar().parse_string(scanned.text, parse_all=True)
        return prologue, select
    except ParseBaseException as error:
        _unexpected(scanned, _farther(scanned, error.loc))
    except Exception as error:
        # The parser is not ours: whatever it raises on odd text is, for the user, text that cannot be read.
        raise SparqlSyntax(
            f"the query cannot be read ({type(error).__name__})", hint="write it in shorter, simpler patterns"
        ) from error


@cache
def _grammar() -> ParserElement:
    """rdflib's productions, joined to the supported subset.

    Two things differ from rdflib's own query production. [55] TriplesBlock is a loop here: rdflib's is recursive,
    and Python's stack ends at some eighty patterns. And only supported clauses are joined, so no alternative is
    tried in vain.
    """
    # rdflib takes a third of a second to load: only those who ask a query wait for it.
    from pyparsing import CaselessKeyword, Forward, Optional, Suppress, ZeroOrMore
    from rdflib.plugins.sparql import parser as sparql
    from rdflib.plugins.sparql.parserutils import Comp, Param, ParamList

    # [55] TriplesBlock ::= TriplesSameSubjectPath ( '.' TriplesBlock? )?
    triples = ParamList("triples", sparql.TriplesSameSubjectPath)
    block = Comp("TriplesBlock", triples + ZeroOrMore(Suppress(".") + triples) + Optional(Suppress(".")))
    # [53] GroupGraphPattern ::= '{' GroupGraphPatternSub '}'
    # [54] GroupGraphPatternSub ::= TriplesBlock? ( GraphPatternNotTriples '.'? TriplesBlock? )*
    group = Forward()
    part = Optional(ParamList("part", block))
    sub = Comp("GroupGraphPatternSub", part + ZeroOrMore(ParamList("part", group) + Optional(Suppress(".")) + part))
    group <<= Suppress("{") + sub + Suppress("}")
    # [7] SelectQuery ::= SelectClause WhereClause SolutionModifier
    where = Optional(CaselessKeyword("WHERE")) + Param("where", group)
    select = Comp("SelectQuery", sparql.SelectClause + where + sparql.SolutionModifier)
    # [2] Query ::= Prologue SelectQuery. Tabs are kept, else every place after a tab would be wrong.
    query = (sparql.Prologue + select).parse_with_tabs()
    # pyparsing simplifies a grammar when it is first used; done here, no two threads ever do it at once.
    query.streamline()
    return query


def _farther(scanned: Scan, offset: int) -> int:
    """Where a pattern goes wrong, if one begins at ``offset``.

    The grammar tries a pattern and, when it fails, goes back to its beginning and asks for a closing brace. To
    point at the word that is wrong, the pattern is read once more on its own.
    """
    from pyparsing import ParseBaseException
    from rdflib.plugins.sparql import parser as sparql

    word = scanned.word_at(offset)
    if word is None or word.text == "." or not _may_begin(scanned, word):
        return offset
    try:
        sparql.TriplesSameSubjectPath.copy().parse_with_tabs().parse_string(scanned.text[word.start :])
    except ParseBaseException as error:
        return word.start + error.loc
    except Exception:
        return offset  # the first error stands; it is the one to report
    return offset


def _may_begin(scanned: Scan, word: Word) -> bool:
    """Whether a pattern, or its second half after ';', may begin with ``word``."""
    at = scanned.words.index(word)
    return at > 0 and scanned.words[at - 1].text in "{}.;"


def _unexpected(scanned: Scan, offset: int) -> NoReturn:
    word = scanned.word_at(offset)
    if word is None:
        raise syntax_error(scanned, len(scanned.text.rstrip()), "the query ends too early", hint=PATTERNS)
    is_third_or_more = word.kind in TERMS and "{" in scanned.text[: word.start] and not _may_begin(scanned, word)
    raise syntax_error(
        scanned,
        word.start,
        f"{_shown(word.text)} is not expected here",
        hint=f"patterns are parted by '.'; {PATTERNS}" if is_third_or_more else PATTERNS,
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


@dataclass
class _Names:
    """What prefixed names and relative IRIs stand for."""

    scanned: Scan
    prefixes: dict[str, str]
    own: str
    """Namespace of the graph's own names, whatever the query declares: what a relative IRI is put behind."""
    base: str | None = None
    """BASE of the query; None where it gave none."""

    # [4] Prologue ::= ( BaseDecl | PrefixDecl )*
    @classmethod
    def of(cls, prologue: Any, given: Mapping[str, str], scanned: Scan) -> _Names:
        # A graph of plain names has no namespace, or an empty one.
        own = given.get("", "")
        own = own if is_absolute(own) else PLAIN
        names = cls(scanned, {**given, "": own}, own)
        for declaration in prologue:
            iri = names._absolute(str(declaration.iri))
            if declaration.name == "Base":
                names.base = iri
            else:
                names.prefixes[str(declaration.prefix or "")] = iri
        names._refuse_undeclared()
        return names

    def _refuse_undeclared(self) -> None:
        for word in self.scanned.words:
            prefix, colon, local = word.text.partition(":")
            if word.kind != "name" or prefix in self.prefixes:
                continue
            known = ", ".join(f"{name}:" for name in sorted(self.prefixes))
            raise syntax_error(
                self.scanned,
                word.start,
                f"prefix {_shown(prefix + colon)} is not declared",
                hint=f"declared are {known}; add PREFIX {prefix}: <...>, or write <{word.text}> if that is the name",
            )

    # [136] iri ::= IRIREF | PrefixedName
    def name(self, node: Any) -> str:
        """The graph's name for a node of the tree that is an IRI."""
        if getattr(node, "name", None) == "pname":
            local = _LOCAL_ESCAPE.sub(r"\1", str(node.localname or ""))
            iri = self.prefixes[str(node.prefix or "")] + local
        else:
            iri = self._absolute(str(node))
        return self._plain(iri)

    def _plain(self, iri: str) -> str:
        if not iri.startswith(PLAIN):
            return iri
        try:
            return unquote(iri.removeprefix(PLAIN), errors="strict")
        except UnicodeDecodeError:
            local = iri.removeprefix(PLAIN)
            message = f"the percent codes of {_shown(local)} are not UTF-8"
            raise self._refusal(local, message, "write %C3%A9 for é, or é itself") from None

    def _absolute(self, iri: str) -> str:
        if is_absolute(iri):
            return iri
        # urljoin knows web addresses only; for urn: and the like, and without BASE, the name is put behind.
        if self.base is None or not re.match(r"[a-z]+://", self.base):
            return (self.base or self.own) + iri
        try:
            # A bare # at the end is dropped by urljoin; namespaces live by it.
            return urljoin(self.base, iri) + ("#" if iri.endswith("#") else "")
        except ValueError as error:
            message = f"{_shown(iri)} is no IRI relative to {_shown(self.base)}: {error}"
            raise self._refusal(iri, message, "write the whole IRI") from None

    def _refusal(self, part: str, message: str, hint: str) -> SparqlSyntax:
        """The error that points at the first word with ``part`` in it."""
        found = (word.start for word in self.scanned.words if part in word.text)
        return syntax_error(self.scanned, next(found, 0), message, hint=hint)


class _Translation:
    """The tree of one query, turned into patterns."""

    def __init__(self, scanned: Scan, names: _Names) -> None:
        self.scanned = scanned
        self.names = names
        self.patterns: list[Pattern] = []
        self.blanks: dict[str, Variable] = {}
        self._taken = {word.text[1:] for word in scanned.words if word.kind == "variable"}
        self._fresh = 0

    # [7] SelectQuery ::= SelectClause DatasetClause* WhereClause SolutionModifier
    def query(self, select: Any) -> Query:
        self.group(select.where)
        if not self.patterns:
            self._refuse("{", "the query has no triple pattern", PATTERNS)
        # A dict keeps the order; blank nodes and the inner nodes of paths have no name that a user could select.
        own = dict.fromkeys(
            term
            for pattern in self.patterns
            for term in (pattern.subject, pattern.object)
            if isinstance(term, Variable) and term.name in self._taken
        )
        if not own:
            self._refuse("{", "the query has no variable, so there is nothing to find", "replace a name by ?x")
        targets = self.projection(select, own)
        limit = select.limitoffset.limit if select.limitoffset else None
        return Query(targets, tuple(self.patterns), None if limit is None else int(limit))

    # [9] SelectClause ::= 'SELECT' 'DISTINCT'? ( Var+ | '*' )
    def projection(self, select: Any, own: dict[Variable, None]) -> tuple[Variable, ...]:
        if not select.projection:
            return tuple(own)
        targets = tuple(dict.fromkeys(Variable(str(item.var)) for item in select.projection))
        for target in targets:
            if target not in own:
                self._refuse(
                    target.name,
                    f"{target} is selected but occurs in no pattern",
                    f"the patterns have {', '.join(map(str, list(own)[:10]))}",
                )
        return targets

    # [54] GroupGraphPatternSub ::= TriplesBlock? ( GraphPatternNotTriples '.'? TriplesBlock? )*
    def group(self, group: Any) -> None:
        """Patterns of a group; a group within it only brackets patterns, which all have to hold."""
        for part in group.part or ():
            if part.name == "GroupGraphPatternSub":
                self.group(part)
            else:
                self.block(part)

    # [55] TriplesBlock ::= TriplesSameSubjectPath ( '.' TriplesBlock? )?
    def block(self, block: Any) -> None:
        for flat in block.triples:
            for at in range(0, len(flat), 3):
                self.triple(*flat[at : at + 3])

    # [81] TriplesSameSubjectPath ::= VarOrTerm PropertyListPathNotEmpty | ...
    def triple(self, subject: Any, verb: Any, object_: Any) -> None:
        start, end = self.term(subject), self.term(object_)
        steps = list(self.path(verb))
        for number, (relation, is_inverse) in enumerate(steps, start=1):
            stop = end if number == len(steps) else self.fresh()
            self.patterns.append(Pattern(stop, relation, start) if is_inverse else Pattern(start, relation, stop))
            start = stop
            if len(self.patterns) > MAX_PATTERNS:
                raise SparqlSyntax(
                    f"the query has more than {MAX_PATTERNS:,} triple patterns", hint="ask a smaller query"
                )

    # [106] VarOrTerm ::= Var | GraphTerm
    def term(self, node: Any) -> Term:
        from rdflib.term import BNode
        from rdflib.term import Variable as Var

        if isinstance(node, Var):
            return Variable(str(node))
        if isinstance(node, BNode):
            if str(node) not in self.blanks:
                self.blanks[str(node)] = self.fresh()
            return self.blanks[str(node)]
        return Entity(self.names.name(node))

    # [88] Path ::= PathAlternative
    def path(self, node: Any, is_inverse: bool = False) -> Iterator[tuple[str, bool]]:
        """Relations that a verb walks along, each with whether it is walked from object to subject."""
        from rdflib.term import Variable as Var

        if isinstance(node, Var):
            self._refuse_variable_relation(str(node))
        # [89] PathAlternative, [90] PathSequence: alternatives are refused before, so there is one.
        if getattr(node, "name", None) in ("PathAlternative", "PathSequence"):
            for part in reversed(node.part) if is_inverse else node.part:
                yield from self.path(part, is_inverse)
        # [92] PathEltOrInverse ::= PathElt | '^' PathElt
        elif getattr(node, "name", None) == "PathEltOrInverse":
            yield from self.path(node.part, not is_inverse)
        # [91] PathElt ::= PathPrimary PathMod?; modifiers are refused before.
        elif getattr(node, "name", None) == "PathElt":
            yield from self.path(node.part, is_inverse)
        else:
            yield self.names.name(node), is_inverse

    def fresh(self) -> Variable:
        """A variable that the text does not have."""
        self._fresh += 1
        while f"_{self._fresh}" in self._taken:
            self._fresh += 1
        return Variable(f"_{self._fresh}")

    def _refuse_variable_relation(self, name: str) -> NoReturn:
        """``?p`` between two terms: a relation has to be known."""
        words = self.scanned.words
        places = [at for at, word in enumerate(words) if word.kind == "variable" and word.text[1:] == name]
        begins_a_verb = [at for at in places if self._is_verb(at)] or places
        raise syntax_error(
            self.scanned,
            words[begins_a_verb[0]].start,
            f"?{name} stands for a relation, which is outside the supported subset",
            hint="name the relation; variables stand for entities; see docs/concepts/sparql.md",
        )

    def _is_verb(self, at: int) -> bool:
        """Whether the word ``at`` stands where a relation does: after a subject, ';' or '[', and before an object."""
        before, after = self.scanned.words[at - 1 : at] + self.scanned.words[at + 1 : at + 2]
        return (before.kind in TERMS or before.text in ";[])") and (after.kind in TERMS or after.text in "[(")

    def _refuse(self, where: str, message: str, hint: str) -> NoReturn:
        """Point at the first brace, or at the first variable of this name."""
        found = (word.start for word in self.scanned.words if word.text.lstrip("?$") == where)
        raise syntax_error(self.scanned, next(found, 0), message, hint=hint)
