"""Conditions on the rows of a query, in names: what FILTER and VALUES say.

Every condition is true or false of a row; the parser refuses what SPARQL would call a type error. ``str`` of a
condition is SPARQL text that reads back as the same condition. ``exact.filters`` evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from biqe.query.ast import Entity, Variable

EQUALITY = ("=", "!=")
COMPARISONS = (*EQUALITY, "<", ">", "<=", ">=")
PARTS = ("CONTAINS", "STRSTARTS", "STRENDS")
"""Functions that look for a text within a text."""


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


Operand = Variable | Entity | NameOf | Text
Named = Variable | Entity | NameOf
"""What has a name that a text function can look at; a bare term stands for its name and its label."""


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
    """One of PARTS: a text within a name, at its start or at its end."""

    function: str
    text: Named
    part: str

    def __str__(self) -> str:
        return f"{self.function}({self.text}, {Text(self.part)})"


@dataclass(frozen=True)
class IsIri:
    """Whether an entity has a name of its own, and is no blank node."""

    term: Variable | Entity

    def __str__(self) -> str:
        return f"ISIRI({self.term})"


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Condition

    def __str__(self) -> str:
        return f"!({self.part})"


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


Condition = Compare | OneOf | Matches | Holds | IsIri | Not | AllOf | AnyOf


def terms(condition: Condition) -> Iterator[Variable | Entity]:
    """The variables and entities of a condition, in order of appearance."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from terms(part)
        return
    if isinstance(condition, Not):
        yield from terms(condition.part)
        return
    operands: tuple[Operand, ...]
    if isinstance(condition, Compare):
        operands = (condition.left, condition.right)
    elif isinstance(condition, OneOf):
        operands = (condition.term, *condition.options)
    else:
        operands = (condition.term if isinstance(condition, IsIri) else condition.text,)
    for operand in operands:
        if isinstance(operand, NameOf):
            yield operand.term
        elif not isinstance(operand, Text):
            yield operand


def variables(condition: Condition) -> tuple[Variable, ...]:
    """The variables of a condition, each once.

    >>> x, y = Variable("x"), Variable("y")
    >>> variables(Not(AllOf((Compare(x, "=", y), IsIri(x)))))
    (Variable(name='x'), Variable(name='y'))
    """
    return tuple(dict.fromkeys(term for term in terms(condition) if isinstance(term, Variable)))
