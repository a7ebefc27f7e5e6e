"""SPARQL text to a Question: a recursive-descent parser of the subset that biqe answers.

Each method stands under the production of the SPARQL 1.1 grammar (section 19.8 of the recommendation) that it reads.
``scan`` cuts the text into words and resolves names, ``patterns`` reads what stands between the braces, ``conditions``
reads FILTER and VALUES, and ``subset`` explains words that the subset does not have. docs/concepts/sparql.md describes
the subset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from biqe.errors import SparqlSyntax
from biqe.query.patterns import Patterns, listed
from biqe.query.question import (
    ASK,
    COUNT,
    PROBABILITY,
    SELECT,
    Branch,
    Entity,
    Order,
    Query,
    Question,
    Variable,
)
from biqe.query.scan import QueryNames, Scan, Word, Words, refuse_oversized, scan
from biqe.query.subset import (
    HEAD,
    ORDER,
    OUTSIDE,
    PATTERNS,
    SUPPORTED,
    TOP,
)


def parse_question(text: str, *, prefixes: Mapping[str, str] | None = None, wide: bool = False) -> Question:
    """The question that a text asks. Any text that is no question of the subset is a SparqlSyntax, with its place.

    With ``wide``, objects may be literals, relations variables, and a FILTER any expression without a group in it.

    ``prefixes`` are those of the graph. The empty prefix always has a meaning: where the graph gives it none,
    ``:Rhine`` and ``<Rhine>`` are the plain name 'Rhine', with %20 and the like decoded.

    >>> print(parse_question("SELECT ?x { { ?x :on :Rhine } UNION { ?x :on :Main } FILTER(?x != :Bonn) }"))
    SELECT ?x WHERE { { ?x <on> <Rhine> FILTER(?x != <Bonn>) } UNION { ?x <on> <Main> FILTER(?x != <Bonn>) } }
    >>> parse_question("SELECT ?x WHERE { ?x :p ?y OPTIONAL { ?y :q ?z } }")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    biqe.errors.SparqlSyntax: line 1, column 28: OPTIONAL is outside the supported subset
    hint: ask two queries, with and without the optional patterns; supported are SELECT, ...
    """
    refuse_oversized(text)
    scanned = scan(text)
    scanned.refuse_sizes()
    try:
        return _Parser(scanned, prefixes or {}, wide).question()
    except RecursionError as error:  # brackets are bounded, but the caller's own stack may be nearly full
        raise SparqlSyntax(
            "the query cannot be read (RecursionError)", hint="write it in shorter, simpler patterns"
        ) from error


def parse(text: str, *, prefixes: Mapping[str, str] | None = None) -> Query:
    """The conjunctive query that a text asks: SELECT over triple patterns, without conditions and alternatives.

    >>> print(parse("SELECT ?city { ?river :flows_through :Germany, :France . ?city :on ?river }"))
    SELECT ?city WHERE { ?river <flows_through> <Germany> . ?river <flows_through> <France> . ?city <on> ?river }
    """
    question = parse_question(text, prefixes=prefixes)
    query = question.conjunctive
    if query is None:
        raise SparqlSyntax(
            "this is more than one conjunctive query: parse reads SELECT over triple patterns with LIMIT",
            hint="parse_question of biqe.query.sparql reads FILTER, VALUES, UNION, ORDER BY, OFFSET, COUNT and ASK",
        )
    return query


class _Count(NamedTuple):
    """``(COUNT(DISTINCT ?x) AS ?n)``."""

    bracket: Word
    counted: Variable | None
    """None for ``*``."""
    distinct: bool
    named: Variable


class _Parser:
    def __init__(self, scanned: Scan, prefixes: Mapping[str, str], wide: bool) -> None:
        self.words = Words(scanned)
        self.names = QueryNames(prefixes, scanned)
        self.patterns = Patterns(self.words, self.names, wide)

    # [2] Query ::= Prologue ( SelectQuery | ... | AskQuery ) ValuesClause
    def question(self) -> Question:
        self._prologue()
        words = self.words
        if words.accept("ASK"):
            # [12] AskQuery ::= 'ASK' WhereClause; a SolutionModifier would order or cut off rows, and it has none
            branches = self.patterns.with_values(self.patterns.where())
            if words.word.kind != "end":
                raise words.unexpected(TOP)
            self._refuse_empty(branches)
            # What is optional decides nothing here.
            return Question(ASK, (), tuple(dict.fromkeys(replace(branch, optional=()) for branch in branches)))
        # [7] SelectQuery ::= SelectClause WhereClause SolutionModifier
        words.expect("SELECT", TOP)
        words.accept("DISTINCT")
        selected, counts = self._select()
        branches = self.patterns.where()
        order = self._order()
        after_order = words.word
        limit, offset = self._slice()
        values = words.word if words.sees("VALUES") else None
        branches = self.patterns.with_values(branches)
        if words.word.kind != "end":
            raise words.unexpected(ORDER if order and words.word is after_order else TOP)
        self._refuse_empty(branches)
        own = [self.patterns.own(branch) for branch in branches]
        if not all(own):
            message = "the query has no variable, so there is nothing to find"
            raise words.error("{", message, "replace a name by ?x, or ASK whether it holds")
        if counts and any(branch.optional for branch in branches):
            raise words.error(
                "OPTIONAL", f"COUNT over OPTIONAL is {OUTSIDE}", "leave OPTIONAL out, or use --mode known"
            )
        if counts:
            if values is not None:
                # SPARQL joins it to the row with the number, so that it restricts nothing that is counted.
                message = f"VALUES after the braces of a COUNT is {OUTSIDE}"
                raise words.error(values, message, "write it within the braces")
            if limit == 0 or offset > 0:
                where = "LIMIT" if limit == 0 else "OFFSET"
                raise words.error(where, "COUNT has one row, which this leaves out", "leave LIMIT and OFFSET out")
            if order:
                message = "COUNT has one row, so there is nothing to order"
                raise words.error("ORDER", message, "leave ORDER BY out")
            if len(counts) > 1 or selected:
                message = f"COUNT stands beside another variable, which is {OUTSIDE}"
                raise words.error(
                    counts[0].bracket, message, f"select the COUNT alone, once for each value; {SUPPORTED}"
                )
            return self._counting(counts[0], tuple(branches), own)
        targets = self._targets(selected, own)
        for key in order:
            if key.variable not in (*targets, PROBABILITY):
                last = [word for word in words.scanned.words if word.text.lstrip("?$") == key.variable.name][-1]
                hint = f"select it, or order by one of {', '.join(map(str, targets))} or DESC(?probability)"
                raise words.error(last, f"{key} of ORDER BY is not selected", hint)
        # A row that two sides have is one row; COUNT counts it as two matches.
        return Question(SELECT, targets, tuple(dict.fromkeys(branches)), order, limit, offset)

    # [4] Prologue ::= ( BaseDecl | PrefixDecl )*
    def _prologue(self) -> None:
        words = self.words
        while declaration := words.accept("PREFIX", "BASE"):
            prefix = None
            if declaration.text.upper() == "PREFIX":
                # [6] PrefixDecl ::= 'PREFIX' PNAME_NS IRIREF
                prefix, _, local = words.word.text.partition(":")
                if words.word.kind != "name" or local:
                    raise words.unexpected(TOP)
                words.take()
            if words.word.kind != "iri":
                raise words.unexpected(TOP)
            iri = self.names.iri(words.take())
            if prefix is None:
                self.names.base = iri
            else:
                self.names.prefixes[prefix] = iri

    # [9] SelectClause ::= 'SELECT' 'DISTINCT'? ( ( Var | '(' Expression 'AS' Var ')' )+ | '*' )
    def _select(self) -> tuple[list[Variable], list[_Count]]:
        """The selected variables, none for ``*``; and the counts."""
        words = self.words
        selected: list[Variable] = []
        counts: list[_Count] = []
        if words.accept("*"):
            return selected, counts
        while True:
            if words.word.kind == "variable":
                selected.append(Variable(words.take().text[1:]))
            elif words.sees("("):
                counts.append(self._aggregate())
            elif selected or counts:
                return selected, counts
            else:
                raise words.unexpected(TOP)

    # [127] Aggregate ::= 'COUNT' '(' 'DISTINCT'? ( '*' | Expression ) ')'
    def _aggregate(self) -> _Count:
        words = self.words
        bracket = words.take()
        outside = words.outside(bracket, "an expression in SELECT", "select variables, or (COUNT(*) AS ?n) alone")
        if not words.accept("COUNT"):
            raise outside
        words.expect("(", HEAD)
        distinct = words.accept("DISTINCT") is not None
        counted = None
        if not words.accept("*"):
            brackets = 0
            while words.accept("("):
                brackets += 1
            if words.word.kind in ("iri", "name"):
                found = Entity(self.names.name(words.word))
                raise words.error("COUNT", f"COUNT counts a variable or *, not {found}", "write COUNT(?x)")
            counted = Variable(words.expect_variable(HEAD).text[1:])
            for _ in range(brackets):
                words.expect(")", HEAD)
        words.expect(")", HEAD)
        if words.word.kind == "sign" and words.word.text not in "{}()[]":
            raise outside
        words.expect("AS", HEAD)
        named = Variable(words.expect_variable(HEAD).text[1:])
        words.expect(")", HEAD)
        return _Count(bracket, counted, distinct, named)

    def _counting(self, count: _Count, branches: tuple[Branch, ...], own: list[tuple[Variable, ...]]) -> Question:
        words, named = self.words, count.named
        if any(named in branch.variables for branch in branches):
            message = f"{named} is a variable of the patterns, so COUNT cannot be called so"
            raise words.error(named.name, message, f"take a new name: AS {named}_count")
        if count.counted is None:
            # Rows of a UNION may lack variables; they count as distinct by what all sides share.
            everything = own[0] if len(set(map(frozenset, own))) == 1 else ()
            if count.distinct and not everything:
                message = "the sides of the UNION have different variables, so * has no one meaning"
                raise words.error("COUNT", message, "name what is counted: COUNT(DISTINCT ?x)")
            return Question(COUNT, everything if count.distinct else (), branches, counted_as=named)
        for side in own:
            if count.counted not in side:
                message = f"{count.counted} is counted but does not occur in every pattern group"
                raise words.error(count.counted.name, message, f"the patterns have {listed(side)}")
        return Question(COUNT, (count.counted,) if count.distinct else (), branches, counted_as=named)

    def _targets(self, selected: list[Variable], own: list[tuple[Variable, ...]]) -> tuple[Variable, ...]:
        everything = tuple(dict.fromkeys(variable for side in own for variable in side))
        targets = tuple(dict.fromkeys(selected)) or everything
        for target in targets:
            if target not in everything:
                message = f"{target} is selected but occurs in no pattern"
                raise self.words.error(target.name, message, f"the patterns have {listed(everything)}")
            if not all(target in side for side in own):
                common = [variable for variable in everything if all(variable in side for side in own)]
                shared = f"all sides have {listed(common)}" if common else "no variable is in all"
                raise self.words.error(
                    target.name,
                    f"{target} is selected but does not occur in every side of the UNION",
                    f"{shared}; select only what every side has, or use --mode known",
                )
        return targets

    def _refuse_empty(self, branches: list[Branch]) -> None:
        if not all(branch.patterns for branch in branches):
            raise self.words.error("{", "the query has no triple pattern", PATTERNS)

    # [23] OrderClause ::= 'ORDER' 'BY' OrderCondition+
    # [24] OrderCondition ::= ( 'ASC' | 'DESC' ) BrackettedExpression | Constraint | Var; of variables alone
    def _order(self) -> tuple[Order, ...]:
        words = self.words
        keys: list[Order] = []
        if not words.accept("ORDER"):
            return ()
        words.expect("BY", TOP)
        while not keys or words.word.kind == "variable" or words.sees("ASC", "DESC", "("):
            direction = words.accept("ASC", "DESC")
            is_descending = direction is not None and direction.text.upper() == "DESC"
            if direction is not None and words.word.kind == "variable":
                keyword, variable = direction.text.upper(), words.word.text
                message = f"{variable} stands without brackets after {keyword}"
                raise words.error(words.word, message, f"write {keyword}({variable})")
            brackets = 0
            while words.sees("(") or (direction is not None and brackets == 0):
                words.expect("(", ORDER)
                brackets += 1
            keys.append(Order(Variable(words.expect_variable(ORDER).text[1:]), is_descending))
            for _ in range(brackets):
                words.expect(")", ORDER)
        return tuple(keys)

    # [25] LimitOffsetClauses ::= LimitClause OffsetClause? | OffsetClause LimitClause?
    def _slice(self) -> tuple[int | None, int]:
        words = self.words
        found: dict[str, int] = {}
        while words.sees(*({"LIMIT", "OFFSET"} - found.keys())):
            clause = words.take().text.upper()
            if not words.word.text.isdecimal():
                raise words.unexpected(TOP)
            if len(words.word.text) > 18:
                raise words.error(words.word, f"{clause} is larger than any result", "leave it out")
            found[clause] = int(words.take().text)
        return found.get("LIMIT"), found.get("OFFSET", 0)
