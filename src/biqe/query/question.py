"""A question in names: what a SPARQL text of the subset asks.

A question is a disjunction of branches (the sides of its UNIONs, multiplied out). A branch is a conjunction of triple
patterns over constants and variables, with conditions on the variables, which FILTER and VALUES give. Every branch has
every selected variable, so that all rows have the same columns. ``str`` of a question is SPARQL text that is read as
the same question. A plain conjunctive query is a ``Query``: its SELECT list is the set of free variables of the paper's
equation (1), called targets here; every other variable is hidden (existentially quantified).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from biqe.errors import BiqeError
from biqe.query.subset import OUTSIDE

# SPARQL's IRIREF allows none of these between < and >; a percent sign would be read as the start of a code.
_NOT_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


def written(name: str) -> str:
    """A name as SPARQL text that ``sparql.parse`` reads back as the same name.

    >>> written("New York"), written("100%"), written("http://ex.org/a%20b")
    ('<New%20York>', '<100%25>', '<http://ex.org/a%20b>')
    """
    if not is_absolute(name):
        name = name.replace("%", "%25")
    return f"<{_NOT_IN_IRI.sub(lambda found: f'%{ord(found[0]):02X}', name)}>"


def is_absolute(iri: str) -> bool:
    """Whether an IRI names its scheme, so that no base and no prefix can change what it means."""
    return _ABSOLUTE.match(iri) is not None


@dataclass(frozen=True, order=True)
class Variable:
    """A variable, without its question mark."""

    name: str

    def __str__(self) -> str:
        return f"?{self.name}"


@dataclass(frozen=True, order=True)
class Entity:
    """A constant: the name of an entity, as the graph spells it."""

    name: str

    def __str__(self) -> str:
        return written(self.name)


@dataclass(frozen=True, order=True)
class Literal:
    """A literal as the object of a pattern, as SPARQL writes it: ``"Köln"@de``, ``7``."""

    text: str

    def __str__(self) -> str:
        return self.text


Term = Variable | Entity | Literal
"""Ends of a pattern. Literals, and variables for relations, are read where ``parse_question`` is told to."""


@dataclass(frozen=True)
class Pattern:
    """One triple pattern: subject, relation name, object."""

    subject: Term
    relation: str | Variable
    object: Term

    def __str__(self) -> str:
        relation = self.relation if isinstance(self.relation, Variable) else written(self.relation)
        return f"{self.subject} {relation} {self.object}"


@dataclass(frozen=True)
class Query:
    """A conjunctive query. ``targets`` are the projected variables, in SELECT order.

    >>> x, y = Variable("x"), Variable("y")
    >>> query = Query((x,), (Pattern(x, "flows_through", Entity("Germany")), Pattern(y, "located_on", x)), limit=3)
    >>> print(query)
    SELECT ?x WHERE { ?x <flows_through> <Germany> . ?y <located_on> ?x } LIMIT 3
    >>> query.hidden
    (Variable(name='y'),)
    """

    targets: tuple[Variable, ...]
    patterns: tuple[Pattern, ...]
    limit: int | None = None

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables, in order of first appearance in the patterns."""
        return tuple(dict.fromkeys(term for term in self._terms() if isinstance(term, Variable)))

    @property
    def hidden(self) -> tuple[Variable, ...]:
        """Variables that are not projected."""
        return tuple(variable for variable in self.variables if variable not in self.targets)

    def _terms(self) -> Iterator[Term]:
        for pattern in self.patterns:
            yield pattern.subject
            if isinstance(pattern.relation, Variable):
                yield pattern.relation
            yield pattern.object

    def __str__(self) -> str:
        head = " ".join(map(str, self.targets))
        body = " . ".join(map(str, self.patterns))
        tail = "" if self.limit is None else f" LIMIT {self.limit}"
        return f"SELECT {head} WHERE {{ {body} }}{tail}"


SELECT, ASK, COUNT = "SELECT", "ASK", "COUNT"
PROBABILITY = Variable("probability")
"""What ORDER BY may name beside the selected variables: how probable a row is."""
EQUALITY = ("=", "!=")
COMPARISONS = (*EQUALITY, "<", ">", "<=", ">=")
SUBSTRING_FUNCTIONS = ("CONTAINS", "STRSTARTS", "STRENDS")


@dataclass(frozen=True)
class NameOf:
    """The name of an entity, as text: ``STR(?x)``."""

    term: Variable | Entity

    def __str__(self) -> str:
        return f"STR({self.term})"


@dataclass(frozen=True)
class Text:
    """A string of the query."""

    value: str

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"')
        for character, letter in (("\n", "n"), ("\r", "r"), ("\t", "t"), ("\b", "b"), ("\f", "f")):
            escaped = escaped.replace(character, "\\" + letter)
        return f'"{escaped}"'


Named = Variable | Entity | NameOf
"""What a text function can look at; a bare variable or entity stands for its name and its label."""
Operand = Named | Text


@dataclass(frozen=True)
class Compare:
    """Two entities, equal or not; or two texts in the order of their characters."""

    left: Operand
    operator: str
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class OneOf:
    """``term IN (options)``, or NOT IN."""

    term: Operand
    options: tuple[Operand, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.term} {'NOT ' if self.negated else ''}IN ({', '.join(map(str, self.options))})"


@dataclass(frozen=True)
class Matches:
    """A regular expression found in a name, or in a name or label."""

    text: Named
    pattern: str
    flags: str = ""

    def __str__(self) -> str:
        flags = f", {Text(self.flags)}" if self.flags else ""
        return f"REGEX({self.text}, {Text(self.pattern)}{flags})"


@dataclass(frozen=True)
class Holds:
    """One of SUBSTRING_FUNCTIONS: a text within a name, at its start or at its end."""

    function: str
    text: Named
    part: str

    def __str__(self) -> str:
        return f"{self.function}({self.text}, {Text(self.part)})"


@dataclass(frozen=True)
class IsIri:
    """Whether an entity has a name of its own, and is no blank node."""

    text: Variable | Entity

    def __str__(self) -> str:
        return f"ISIRI({self.text})"


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Condition

    def __str__(self) -> str:
        return f"!({self.part})"


@dataclass(frozen=True)
class Absent:
    """There are no entities for the variables of these patterns alone with which all of them hold: FILTER NOT EXISTS,
    or MINUS."""

    patterns: tuple[Pattern, ...]
    shared: tuple[Variable, ...]
    """Their variables that the patterns beside them have, too; those of no other name mean the same."""

    def __str__(self) -> str:
        return f"NOT EXISTS {{ {' . '.join(map(str, self.patterns))} }}"


@dataclass(frozen=True)
class _Joined:
    parts: tuple[Condition, ...]
    sign: ClassVar[str]

    def __str__(self) -> str:
        return f" {self.sign} ".join(f"({part})" for part in self.parts)


class AllOf(_Joined):
    """All of the parts; true where there is none."""

    sign = "&&"


class AnyOf(_Joined):
    """Any of the parts; false where there is none."""

    sign = "||"


@dataclass(frozen=True)
class Expression:
    """A FILTER of which only the graph's exact store can tell whether it holds: of numbers, dates, languages."""

    text: str
    """In brackets, as SPARQL writes it, with names in full."""
    variables: tuple[Variable, ...]
    refusal: BiqeError = field(compare=False)
    """Why no prediction can be judged by it alone."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Among:
    """The variable is one of these entities of one graph."""

    text: Variable
    entities: frozenset[int]


Condition = Compare | OneOf | Matches | Holds | IsIri | Among | Not | AllOf | AnyOf | Absent | Expression


def map_operands(condition: Condition, change: Callable[[Any], Any]) -> Condition:
    """The condition with ``change`` applied to each operand, in order of appearance."""
    if isinstance(condition, Expression):
        return condition
    if isinstance(condition, AllOf | AnyOf):
        return replace(condition, parts=tuple(map_operands(part, change) for part in condition.parts))
    if isinstance(condition, Not):
        return Not(map_operands(condition.part, change))
    if isinstance(condition, Absent):
        return replace(condition, shared=tuple(map(change, condition.shared)))
    if isinstance(condition, Compare):
        return replace(condition, left=change(condition.left), right=change(condition.right))
    if isinstance(condition, OneOf):
        return replace(condition, term=change(condition.term), options=tuple(map(change, condition.options)))
    return replace(condition, text=change(condition.text))


def variables(condition: Condition) -> tuple[Variable, ...]:
    """The variables of a condition, each once, in order of appearance.

    >>> x, y = Variable("x"), Variable("y")
    >>> variables(Not(AllOf((Compare(x, "=", y), IsIri(x)))))
    (Variable(name='x'), Variable(name='y'))
    """
    found: dict[Variable, None] = {}

    def note(operand: Operand) -> Operand:
        term = operand.term if isinstance(operand, NameOf) else operand
        if isinstance(term, Variable):
            found[term] = None
        return operand

    if isinstance(condition, Expression):
        return condition.variables
    map_operands(condition, note)
    return tuple(found)


@dataclass(frozen=True)
class Optional:
    """Patterns that a row need not fulfil: OPTIONAL. Their own variables stand nowhere else in the query."""

    patterns: tuple[Pattern, ...]
    own: tuple[Variable, ...]

    def __str__(self) -> str:
        return f"OPTIONAL {{ {' . '.join(map(str, self.patterns))} }}"


@dataclass(frozen=True)
class Branch:
    """One conjunction: patterns, conditions on their variables, and what may be there beside."""

    patterns: tuple[Pattern, ...] = ()
    filters: tuple[Condition, ...] = ()
    optional: tuple[Optional, ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables, in order of first appearance in the patterns."""
        return Query((), self.patterns).variables

    def __add__(self, other: Branch) -> Branch:
        return Branch(self.patterns + other.patterns, self.filters + other.filters, self.optional + other.optional)

    def __str__(self) -> str:
        filters = [f"FILTER({condition})" for condition in self.filters]
        return " ".join([" . ".join(map(str, self.patterns)), *map(str, self.optional), *filters])


@dataclass(frozen=True)
class Order:
    """One key of ORDER BY."""

    variable: Variable
    descending: bool = False

    def __str__(self) -> str:
        return f"DESC({self.variable})" if self.descending else str(self.variable)


@dataclass(frozen=True)
class Question:
    """What a SPARQL text of the subset asks."""

    form: str
    """SELECT, ASK or COUNT."""
    targets: tuple[Variable, ...]
    """The selected variables; for COUNT DISTINCT the counted ones; empty for ASK and for a COUNT of all matches."""
    branches: tuple[Branch, ...]
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    counted_as: Variable | None = None
    """The variable that COUNT gives its number to."""

    @property
    def conjunctive(self) -> Query | None:
        """The plain conjunctive query that this question is; None where it is more than that."""
        branch, *more = self.branches
        if self.form != SELECT or more or branch.filters or branch.optional or self.order or self.offset:
            return None
        return Query(self.targets, branch.patterns, self.limit)

    def __str__(self) -> str:
        if self.form == ASK:
            head = "ASK"
        elif self.form == COUNT:
            counted = "*" if len(self.targets) != 1 else str(self.targets[0])
            counted = f"DISTINCT {counted}" if self.targets else counted
            head = f"SELECT (COUNT({counted}) AS {self.counted_as}) WHERE"
        else:
            head = f"SELECT {' '.join(map(str, self.targets))} WHERE"
        if len(self.branches) == 1:
            body = f"{{ {self.branches[0]} }}"
        else:
            body = "{ " + " UNION ".join(f"{{ {branch} }}" for branch in self.branches) + " }"
        tail = f" ORDER BY {' '.join(map(str, self.order))}" if self.order else ""
        tail += "" if self.limit is None else f" LIMIT {self.limit}"
        tail += f" OFFSET {self.offset}" if self.offset else ""
        return f"{head} {body}{tail}"


# A conjunction in two


@dataclass(frozen=True)
class Divided:
    """One conjunction in two."""

    links: Branch
    """Patterns between entities, maybe with variables for relations, and the conditions on their entities."""
    rest: tuple[Pattern, ...]
    """Patterns with literals."""
    checks: tuple[Condition, ...]
    """Conditions on the whole."""
    optional: tuple[Optional, ...] = ()
    """What the graph or a prediction may add."""
    predictable: tuple[Optional, ...] = ()
    """Those of them that are links."""

    @property
    def relations(self) -> tuple[Variable, ...]:
        """Variables that stand for relations."""
        found = (pattern.relation for pattern in self.links.patterns)
        return tuple(dict.fromkeys(relation for relation in found if isinstance(relation, Variable)))

    @property
    def entities(self) -> tuple[Variable, ...]:
        """Variables that stand for entities of links."""
        return _ends(self.links.patterns)

    @property
    def is_plain(self) -> bool:
        """Whether it is nothing but links."""
        return not (self.rest or self.checks or self.relations or self.optional)

    @property
    def text(self) -> str:
        """The rest as SPARQL."""
        checks = (f"FILTER({check})" for check in self.checks)
        return " ".join([*(f"{pattern} ." for pattern in self.rest), *map(str, self.optional), *checks])

    def restricting(self, variable: Variable) -> str | None:
        """SPARQL of what the rest alone says of an entity; None where it says nothing."""
        bound = Branch(self.rest).variables
        if variable not in bound:
            return None
        checks = [check for check in self.checks if set(variables(check)) <= set(bound)]
        return Divided(self.links, self.rest, tuple(checks)).text


def _ends(patterns: tuple[Pattern, ...]) -> tuple[Variable, ...]:
    ends = (end for pattern in patterns for end in (pattern.subject, pattern.object))
    return tuple(dict.fromkeys(end for end in ends if isinstance(end, Variable)))


def divided(question: Question, of_literals: Callable[[str], bool]) -> list[Divided]:
    """Each conjunction of a question in two. ``of_literals`` tells whether a relation leads to literals alone.

    Raised is the reason why a condition on entities cannot hold, where one can only be a mistake.
    """
    return [_divided(branch, of_literals) for branch in question.branches]


def _divided(branch: Branch, of_literals: Callable[[str], bool]) -> Divided:
    def is_rest(pattern: Pattern) -> bool:
        is_of_literals = isinstance(pattern.relation, str) and of_literals(pattern.relation)
        return isinstance(pattern.object, Literal) or is_of_literals

    rest = tuple(pattern for pattern in branch.patterns if is_rest(pattern))
    links = tuple(pattern for pattern in branch.patterns if pattern not in rest)
    entities = set(_ends(links))
    judged, checks = list[Condition](), list[Condition]()
    for condition in branch.filters:
        is_of_entities = set(variables(condition)) <= entities
        if isinstance(condition, Expression) and is_of_entities and OUTSIDE not in condition.refusal.message:
            raise condition.refusal
        is_stored = isinstance(condition, Expression) or (
            isinstance(condition, Absent) and any(is_rest(pattern) for pattern in condition.patterns)
        )
        (judged if is_of_entities and not is_stored else checks).append(condition)
    predictable = tuple(
        each
        for each in branch.optional
        if not any(is_rest(pattern) or isinstance(pattern.relation, Variable) for pattern in each.patterns)
    )
    return Divided(Branch(links, tuple(judged)), rest, tuple(checks), branch.optional, predictable)
