"""Graph patterns: from what stands between the braces of a query to the conjunctions that it comes to.

Each method stands under the production of the SPARQL 1.1 grammar (section 19.8 of the recommendation) that it reads.
Groups and unions are multiplied out, paths become single patterns with hidden variables between their steps, and blank
nodes become hidden variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from biqe.query.conditions import Conditions
from biqe.query.question import (
    PROBABILITY,
    Absent,
    Branch,
    Condition,
    Entity,
    Literal,
    Optional,
    Pattern,
    Query,
    Term,
    Variable,
    variables,
)
from biqe.query.scan import QueryNames, Word, Words
from biqe.query.subset import GROUP, MAX_BRANCHES, MAX_PATTERNS, OUTSIDE, PATTERNS, TOP

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NIL = Entity(f"{_RDF}nil")


@dataclass(frozen=True)
class _Blank:
    """A blank node of the text. It becomes a hidden variable when its first pattern is made."""

    label: str


_Node = Term | _Blank
_Path = list[tuple[str | Variable, bool]]
"""Relations to walk along, each with whether it is walked from object to subject."""
_Triple = tuple[_Node, _Path, _Node]


class Patterns:
    """The graph patterns of one query text."""

    def __init__(self, words: Words, names: QueryNames, wide: bool = False) -> None:
        self.words = words
        self.names = names
        self._wide = wide
        self._taken = {word.text[1:] for word in words.scanned.words if word.kind == "variable"}
        self._blanks: dict[_Blank, Variable] = {}
        self._anonymous = 0
        self._fresh = 0
        self._patterns = 0

    @cached_property
    def conditions(self) -> Conditions:
        """The reader of FILTER and VALUES."""
        return Conditions(self.words, self.names, self._wide)

    # [17] WhereClause ::= 'WHERE'? GroupGraphPattern
    def where(self) -> list[Branch]:
        self.words.accept("WHERE")
        branches = self._group(TOP)
        for branch in branches:
            self._check_optional(branch)
        return branches

    # [28] ValuesClause ::= ( 'VALUES' DataBlock )?
    def with_values(self, branches: list[Branch]) -> list[Branch]:
        return self._filtered(branches, self._values()) if self.words.sees("VALUES") else branches

    def own(self, branch: Branch) -> tuple[Variable, ...]:
        """The variables that a user can select: not blank nodes, and not the inner nodes of paths."""
        there = (*branch.variables, *(variable for each in branch.optional for variable in each.own))
        return tuple(variable for variable in there if variable.name in self._taken)

    # [53] GroupGraphPattern ::= '{' GroupGraphPatternSub '}'
    # [54] GroupGraphPatternSub ::= TriplesBlock? ( GraphPatternNotTriples '.'? TriplesBlock? )*
    def _group(self, zone: str = GROUP) -> list[Branch]:
        """The conjunctions that a group comes to: every combination of the sides of its unions.

        A FILTER holds for its own group, wherever it stands in it.
        """
        words = self.words
        words.expect("{", zone)
        found = [Branch()]
        filters: list[Condition] = []
        absent: list[tuple[Word, tuple[Pattern, ...], set[Variable] | None]] = []
        while not words.accept("}"):
            if words.sees("{"):
                found = self._union(found)
            elif words.sees("FILTER") and self._begins_absence():
                absent.append((*self._absence(), None))
            elif words.sees("FILTER"):
                filters.append(self.conditions.filter())
            elif words.sees("MINUS"):
                # What is taken away is what the patterns before it have in common with it.
                absent.append((words.word, self._minus(), {v for branch in found for v in branch.variables}))
            elif words.sees("OPTIONAL") and self._wide:
                found = self._with_optional(found)
            elif words.sees("VALUES"):
                filters += self._values()
            else:
                # [55] TriplesBlock ::= TriplesSameSubjectPath ( '.' TriplesBlock? )?
                block = Branch(tuple(self._statement()))
                found = [branch + block for branch in found]
                if not words.sees(".", "}", "{", "FILTER", "VALUES", "MINUS", "OPTIONAL"):
                    raise words.unexpected(GROUP)
            words.accept(".")
        for word, patterns, before in absent:
            found = [self._without(branch, word, patterns, before) for branch in found]
        return self._filtered(found, filters)

    # [126] NotExistsFunc ::= 'NOT' 'EXISTS' GroupGraphPattern; as a whole FILTER, in brackets or not
    def _begins_absence(self) -> bool:
        _, second, third = self.words.ahead(3)
        return second.text.upper() == "NOT" or (second.text == "(" and third.text.upper() == "NOT")

    def _absence(self) -> tuple[Word, tuple[Pattern, ...]]:
        words, first = self.words, self.words.take()
        bracket = words.accept("(")
        words.expect("NOT", GROUP)
        words.expect("EXISTS", GROUP)
        patterns = self._plain_group("NOT EXISTS")
        if bracket:
            words.expect(")", GROUP)
        return first, patterns

    # [66] MinusGraphPattern ::= 'MINUS' GroupGraphPattern
    def _minus(self) -> tuple[Pattern, ...]:
        self.words.take()
        return self._plain_group("MINUS")

    # [57] OptionalGraphPattern ::= 'OPTIONAL' GroupGraphPattern
    def _with_optional(self, branches: list[Branch]) -> list[Branch]:
        word = self.words.take()
        patterns = self._plain_group("OPTIONAL")
        there = Query((), patterns).variables
        found = []
        for branch in branches:
            own = tuple(variable for variable in there if variable not in branch.variables)
            if len(own) == len(there):
                message = f"OPTIONAL without a variable of the patterns before it is {OUTSIDE}"
                raise self.words.error(word, message, "write it behind the patterns that it adds to")
            found.append(branch + Branch(optional=(Optional(patterns, own),)))
        return found

    def _check_optional(self, branch: Branch) -> None:
        """What OPTIONAL leaves open must be used nowhere else, so that its order among the patterns does not matter."""
        for each in branch.optional:
            others = [other.own for other in branch.optional if other is not each]
            absent = [Query((), c.patterns).variables for c in branch.filters if isinstance(c, Absent)]
            judged = [variables(condition) for condition in branch.filters]
            used = {*branch.variables, *(v for some in (*others, *absent, *judged) for v in some)}
            if twice := [variable for variable in each.own if variable in used]:
                message = f"{twice[0]} of OPTIONAL is used outside of it, which is {OUTSIDE}"
                raise self.words.error("OPTIONAL", message, "give it a name of its own, or use --mode known")

    def _plain_group(self, what: str) -> tuple[Pattern, ...]:
        word = self.words.word
        branches = self._group()
        if len(branches) != 1 or branches[0].filters or branches[0].optional or not branches[0].patterns:
            message = f"{what} with anything but triple patterns is {OUTSIDE}"
            raise self.words.error(word, message, f"write one {what} for each part, with triple patterns alone")
        return branches[0].patterns

    def _without(
        self, branch: Branch, word: Word, patterns: tuple[Pattern, ...], before: set[Variable] | None
    ) -> Branch:
        own = Query((), patterns).variables
        shared = tuple(v for v in own if v in branch.variables and (before is None or v in before))
        if before is not None and not shared:
            return branch  # MINUS takes nothing away where nothing is shared
        if not branch.patterns:
            raise self.words.error(word, "a group of NOT EXISTS or MINUS alone asks for nothing", PATTERNS)
        return branch + Branch((), (Absent(patterns, shared),))

    # [67] GroupOrUnionGraphPattern ::= GroupGraphPattern ( 'UNION' GroupGraphPattern )*
    def _union(self, branches: list[Branch]) -> list[Branch]:
        sides = self._group()
        while self.words.accept("UNION"):
            sides += self._group()
        if len(branches) * len(sides) > MAX_BRANCHES:
            message = f"the sides of UNION combine to more than {MAX_BRANCHES} conjunctions"
            raise self.words.error("UNION", message, "ask several queries with fewer sides")
        return [branch + side for branch in branches for side in sides]

    def _values(self) -> list[Condition]:
        condition = self.conditions.values()
        return [] if condition is None else [condition]

    def _filtered(self, branches: list[Branch], filters: list[Condition]) -> list[Branch]:
        """The branches of a group with its conditions, whose variables must all occur in the group's patterns."""
        for branch in branches:
            bound = branch.variables if filters else ()
            for variable in (variable for condition in filters for variable in variables(condition)):
                if variable in bound:
                    continue
                if any(variable in each.own for each in branch.optional):
                    message = f"a FILTER on {variable}, which OPTIONAL leaves open, is {OUTSIDE}"
                    raise self.words.error(self.conditions.places[variable], message, "use --mode known")
                if variable == PROBABILITY:
                    message = "?probability is no part of a pattern, so FILTER cannot see it"
                    raise self.words.error(variable.name, message, "use --min-probability (min_probability= in Python)")
                raise self.words.error(
                    self.conditions.places[variable],
                    f"{variable} of FILTER or VALUES occurs in no pattern of its group",
                    f"the group's patterns have {listed(bound) or 'no variable'}",
                )
        return [branch + Branch((), tuple(filters)) for branch in branches]

    # [81] TriplesSameSubjectPath ::= VarOrTerm PropertyListPathNotEmpty | TriplesNodePath PropertyListPath
    def _statement(self) -> Iterator[Pattern]:
        subject, triples = self._node()
        if not triples or self._begins_verb():
            triples += self._properties(subject)
        for triple in triples:
            yield from self._flat(*triple)

    # [83] PropertyListPathNotEmpty ::= Verb ObjectListPath ( ';' ( Verb ObjectList )? )*
    def _properties(self, subject: _Node) -> list[_Triple]:
        triples: list[_Triple] = []
        while True:
            path = self._path()
            # [86] ObjectListPath ::= ObjectPath ( ',' ObjectPath )*
            while True:
                node, inner = self._node()
                triples += [(subject, path, node), *inner]
                if not self.words.accept(","):
                    break
            if not self.words.sees(";"):
                return triples
            while self.words.accept(";"):
                pass
            if not self._begins_verb():
                return triples

    def _begins_verb(self) -> bool:
        word = self.words.word
        return word.kind in ("iri", "name", "variable") or word.text == "a" or self.words.sees("^", "(", "!")

    # [104] GraphNodePath ::= VarOrTerm | TriplesNodePath
    def _node(self) -> tuple[_Node, list[_Triple]]:
        """A subject or an object, and the triples that are written within it."""
        words, word = self.words, self.words.word
        if word.kind == "variable":
            return Variable(words.take().text[1:]), []
        if word.kind in ("iri", "name"):
            return Entity(self.names.name(words.take())), []
        if word.kind == "blank":
            return _Blank(words.take().text), []
        if self._wide and (literal := self.conditions.literal()) is not None:
            return literal, []
        if words.accept("["):
            # [101] BlankNodePropertyListPath ::= '[' PropertyListPathNotEmpty ']'; [163] ANON ::= '[' ']'
            blank = self._blank()
            triples = [] if words.sees("]") else self._properties(blank)
            words.expect("]", GROUP)
            return blank, triples
        if words.accept("("):
            return self._collection()
        raise words.unexpected(GROUP)

    # [103] CollectionPath ::= '(' GraphNodePath+ ')'; [161] NIL ::= '(' ')'
    def _collection(self) -> tuple[_Node, list[_Triple]]:
        items: list[_Node] = []
        within: list[_Triple] = []
        while not self.words.accept(")"):
            item, inner = self._node()
            items.append(item)
            within += inner
        if not items:
            return _NIL, []
        links = [self._blank() for _ in items]
        rests: list[_Node] = [*links[1:], _NIL]
        triples: list[_Triple] = []
        for link, item, rest in zip(links, items, rests, strict=True):
            triples += [(link, [(f"{_RDF}first", False)], item), (link, [(f"{_RDF}rest", False)], rest)]
        return links[0], triples + within

    def _blank(self) -> _Blank:
        self._anonymous += 1
        return _Blank(f"[{self._anonymous}]")

    # [90] PathSequence ::= PathEltOrInverse ( '/' PathEltOrInverse )*; alternatives are outside the subset
    def _path(self) -> _Path:
        words = self.words
        steps: _Path = []
        while True:
            # [92] PathEltOrInverse ::= PathElt | '^' PathElt; [94] PathPrimary ::= iri | 'a' | '(' Path ')' | ...
            is_inverse = words.accept("^") is not None
            if words.word.kind == "variable" and self._wide and not steps and not is_inverse:
                return [(Variable(words.take().text[1:]), False)]
            if words.word.kind == "variable":
                raise words.error(
                    words.word,
                    f"?{words.word.text[1:]} stands for a relation, which is {OUTSIDE}",
                    "name the relation, or use --mode known; variables stand for entities; see docs/concepts/sparql.md",
                )
            step: _Path
            if words.accept("("):
                step = self._path()
                words.expect(")", GROUP)
            elif words.word.kind == "keyword" and words.word.text == "a":
                words.take()
                step = [(f"{_RDF}type", False)]
            elif words.word.kind in ("iri", "name"):
                step = [(self.names.name(words.take()), False)]
            else:
                raise words.unexpected(GROUP)
            steps += [(relation, not inverse) for relation, inverse in reversed(step)] if is_inverse else step
            if not words.accept("/"):
                return steps

    def _flat(self, subject: _Node, path: _Path, object_: _Node) -> Iterator[Pattern]:
        """A triple with a path as patterns, with hidden variables between the steps."""
        start, end = self._term(subject), self._term(object_)
        for number, (relation, is_inverse) in enumerate(path, start=1):
            stop = end if number == len(path) else self._hidden()
            self._patterns += 1
            if self._patterns > MAX_PATTERNS:
                message = f"the query has more than {MAX_PATTERNS:,} triple patterns"
                raise self.words.error("{", message, "ask a smaller query")
            pattern = Pattern(stop, relation, start) if is_inverse else Pattern(start, relation, stop)
            if isinstance(pattern.subject, Literal):
                raise self.words.error("{", f"{pattern.subject} is a literal, and no subject", "write it as object")
            yield pattern
            start = stop

    def _term(self, node: _Node) -> Term:
        if not isinstance(node, _Blank):
            return node
        if node not in self._blanks:
            self._blanks[node] = self._hidden()
        return self._blanks[node]

    def _hidden(self) -> Variable:
        """A variable that the text does not have."""
        self._fresh += 1
        while f"_{self._fresh}" in self._taken:
            self._fresh += 1
        return Variable(f"_{self._fresh}")


def listed(found: Sequence[Variable]) -> str:
    """The first few variables, for a message."""
    return ", ".join(map(str, found[:10]))
