"""FILTER and VALUES of rdflib's tree, turned into conditions in names.

Each function stands under the grammar production that it handles. What SPARQL would call a type error when a row is
looked at is refused here, before any row is: an entity has a name and a label, and no other value.
"""

from __future__ import annotations

from typing import Any, NoReturn

from biqe.errors import SparqlSyntax
from biqe.query.ast import Entity, Variable
from biqe.query.expression import (
    EQUALITY,
    PARTS,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Holds,
    IsIri,
    Matches,
    NameOf,
    Not,
    OneOf,
    Operand,
    Text,
)
from biqe.query.names import QueryNames
from biqe.query.regex import HINT, fault
from biqe.query.scan import Scan
from biqe.query.subset import MAX_REGEX, syntax_error

FLAGS = "ismq"
"""What the third argument of regex may hold: no capitals, dot is any character, lines, no special characters."""


class Conditions:
    """Conditions of one query text."""

    def __init__(self, scanned: Scan, names: QueryNames) -> None:
        self.scanned = scanned
        self.names = names

    # [110] Expression ::= ConditionalOrExpression
    def condition(self, node: Any) -> Condition:
        """What is true or false of a row."""
        node = _unwrapped(node)
        kind = getattr(node, "name", None)
        # [111] ConditionalOrExpression, [112] ConditionalAndExpression
        if kind in ("OrExpression", "AndExpression"):
            parts = tuple(self.condition(part) for part in (node.expr, *node.other))
            return AnyOf(parts) if kind == "OrExpression" else AllOf(parts)
        # [114] RelationalExpression
        if kind == "RelationalExpression":
            return self.relation(node)
        # [118] UnaryExpression ::= '!' PrimaryExpression | ...
        if kind == "UnaryNot":
            return Not(self.condition(node.expr))
        # [122] RegexExpression
        if kind == "Builtin_REGEX":
            return self.regex(node)
        # [121] BuiltInCall
        if kind in ("Builtin_ISIRI", "Builtin_ISURI"):
            term = self.operand(node.arg)
            if isinstance(term, Text | NameOf):
                self._refuse("isIRI", f"isIRI looks at an entity, not at the text {term}", "write isIRI(?x)")
            return IsIri(term)
        if kind is not None and kind.removeprefix("Builtin_") in PARTS:
            function = kind.removeprefix("Builtin_")
            return Holds(function, self.named(node.arg1, function), self.text(node.arg2, function))
        operand = self.operand(node)
        self._refuse(None, f"{operand} is neither true nor false", f"compare it, as in FILTER({operand} = :name)")

    # [114] RelationalExpression ::= NumericExpression ( '=' NumericExpression | ... | 'IN' ExpressionList | ... )?
    def relation(self, node: Any) -> Condition:
        operator = str(node.op).upper()
        left = self.operand(node.expr)
        if operator == "IN":
            options = tuple(self.operand(part) for part in node.other)
            for option in options:
                self._comparable(left, "=", option)
            return OneOf(left, options, node.negated is not None)
        right = self.operand(node.other)
        self._comparable(left, operator, right)
        return Compare(left, operator, right)

    def _comparable(self, left: Operand, operator: str, right: Operand) -> None:
        texts = [isinstance(side, NameOf | Text) for side in (left, right)]
        if texts[0] != texts[1]:
            entity, text = (right, left) if texts[0] else (left, right)
            self._refuse(
                None,
                f"{entity} is an entity and {text} is a text, so 'FILTER({left} {operator} {right})' never holds",
                f"compare names, as in STR({entity}) {operator} {text}, or entities, as in {entity} {operator} :name",
            )
        if not texts[0] and operator not in EQUALITY:
            self._refuse(
                None,
                f"entities have no order, so {left} {operator} {right} has no answer",
                f"compare their names, as in STR({left}) {operator} STR({right})",
            )

    # [122] RegexExpression ::= 'REGEX' '(' Expression ',' Expression ( ',' Expression )? ')'
    def regex(self, node: Any) -> Matches:
        pattern = self.text(node.pattern, "REGEX")
        flags = self.text(node.flags, "REGEX") if node.flags is not None else ""
        if len(pattern) > MAX_REGEX:
            self._refuse(
                "regex",
                f"the regular expression has {len(pattern):,} characters; at most {MAX_REGEX:,} are read",
                "shorten it, or join two with ||",
            )
        if not set(flags) <= set(FLAGS):
            self._refuse(
                "regex", f"flags of regex must be among {', '.join(FLAGS)}. Got {flags!r}", "leave the others out"
            )
        if reason := fault(pattern, flags):
            self._refuse("regex", reason, HINT)
        return Matches(self.named(node.text, "REGEX"), pattern, flags)

    def named(self, node: Any, function: str) -> Variable | Entity | NameOf:
        """The first argument of a text function: an entity stands for its name and its label."""
        operand = self.operand(node)
        if isinstance(operand, Text):
            self._refuse(function, f"{function} looks at a variable, not at the text {operand}", f"{function}(?x, ...)")
        return operand

    def text(self, node: Any, function: str) -> str:
        operand = self.operand(node)
        if not isinstance(operand, Text):
            self._refuse(function, f"{function} wants a text where {operand} stands", 'write it in quotes: "..."')
        return operand.value

    # [119] PrimaryExpression ::= BrackettedExpression | BuiltInCall | iriOrFunction | RDFLiteral | ... | Var
    def operand(self, node: Any) -> Operand:
        """What can be compared: an entity, or a text."""
        from rdflib.term import Variable as Var

        node = _unwrapped(node)
        kind = getattr(node, "name", None)
        if isinstance(node, Var):
            return Variable(str(node))
        if kind == "literal":
            return Text(str(node.string))
        if kind == "Builtin_STR":
            inner = self.operand(node.arg)
            return inner if isinstance(inner, Text | NameOf) else NameOf(inner)
        if kind is not None and kind != "pname":
            self._refuse(None, "a condition stands where an entity or a text should", "compare variables, names, texts")
        return Entity(self.names.name(node))

    # [61] InlineData ::= 'VALUES' DataBlock
    def values(self, node: Any) -> Condition | None:
        """The rows of a VALUES block as a condition; None where they exclude nothing."""
        variables = [Variable(str(variable)) for variable in node.var or ()]
        rows = [list(row) if _is_row(row) else [row] for row in node.value or ()]
        # An empty row is read as the empty list of RDF.
        rows = [[] if not variables and len(row) <= 1 else row for row in rows]
        for row in rows:
            if len(row) != len(variables):
                self._refuse(
                    "VALUES",
                    f"a row of VALUES has {len(row)} values for {len(variables)} variables",
                    "write one value for each, or UNDEF",
                )
        if not variables:
            return None
        alternatives: dict[Condition | None, None] = {}
        for row in rows:
            pairs = [
                Compare(variable, "=", Entity(self.names.name(value)))
                for variable, value in zip(variables, row, strict=True)
                if str(value) != "UNDEF"
            ]
            alternatives[AllOf(tuple(pairs)) if len(pairs) > 1 else pairs[0] if pairs else None] = None
        if None in alternatives:
            return None
        if len(variables) == 1 or not rows:
            options = tuple(pair.right for pair in alternatives if isinstance(pair, Compare))
            return OneOf(variables[0], options)
        parts = tuple(part for part in alternatives if part is not None)
        return parts[0] if len(parts) == 1 else AnyOf(parts)

    def _refuse(self, where: str | None, message: str, hint: str) -> NoReturn:
        raise self.refusal(where or "FILTER", message, hint)

    def refusal(self, where: str, message: str, hint: str) -> SparqlSyntax:
        """The error that points at the first word ``where``, whatever its capitals."""
        found = (word.start for word in self.scanned.words if word.text.lstrip("?$").upper() == where.upper())
        return syntax_error(self.scanned, next(found, 0), message, hint=hint)


def _unwrapped(node: Any) -> Any:
    """A node without the productions around it that have one part only."""
    while getattr(node, "name", "").endswith("Expression") and not _others(node):
        node = node.expr
    return node


def _others(node: Any) -> Any:
    # An empty list of options, as in ?x IN (), is something else than no options at all.
    return node.other is not None and (node.name == "RelationalExpression" or len(node.other) > 0)


def _is_row(value: Any) -> bool:
    return not isinstance(value, str) and getattr(value, "name", None) != "pname"
