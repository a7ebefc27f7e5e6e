"""FILTER and VALUES: read from the words of a query text into conditions in names.

Each method stands under the grammar production that it reads. What SPARQL would call a type error when it looks at a
row is refused here, before any row is looked at: an entity has a name and a label, and no other value.
"""

from __future__ import annotations

import re
from functools import lru_cache

from biqe.errors import SparqlSyntax
from biqe.query.question import (
    COMPARISONS,
    EQUALITY,
    SUBSTRING_FUNCTIONS,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Entity,
    Expression,
    Holds,
    IsIri,
    Literal,
    Matches,
    Named,
    NameOf,
    Not,
    OneOf,
    Operand,
    Text,
    Variable,
    written,
)
from biqe.query.scan import QueryNames, Word, Words
from biqe.query.subset import EXPRESSION, FUNCTIONS, MAX_REGEX, VALUES

FLAGS = "ismq"
"""What the third argument of regex may hold: ignore case, dot matches line ends, lines, no special characters."""
_BUILT_IN = ("REGEX", "STR", "ISIRI", "ISURI", *SUBSTRING_FUNCTIONS)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", "\\": "\\", '"': '"', "'": "'"}


class Conditions:
    """The FILTER and VALUES clauses of one query text."""

    def __init__(self, words: Words, names: QueryNames, wide: bool = False) -> None:
        self.words = words
        self.names = names
        self._wide = wide
        self.places: dict[Variable, Word] = {}
        """Where each variable first stands in a condition."""
        self._clause = words.word
        """The FILTER that is being read."""

    # [68] Filter ::= 'FILTER' Constraint; [69] Constraint ::= BrackettedExpression | BuiltInCall | FunctionCall
    def filter(self) -> Condition:
        self._clause = self.words.take()
        start = self.words.word
        try:
            return self._constraint()
        except SparqlSyntax as refusal:
            if not self._wide:
                raise
            self.words.back(start)
            return self._unread(refusal)

    def _unread(self, refusal: SparqlSyntax) -> Expression:
        """A constraint as it stands, with names in full; ``refusal`` where it is not that simple."""
        words, pieces, depth = self.words, list[str](), 0
        found: dict[Variable, None] = {}
        while words.word.kind != "end" and not words.sees("{", "}"):
            word = words.take()
            if word.kind in ("iri", "name"):
                pieces.append(written(self.names.name(word)))
            else:
                pieces.append(word.text)
            if word.kind == "variable":
                found[self._noted(word)] = None
            if word.kind == "sign":
                depth += (word.text == "(") - (word.text == ")")
            if depth == 0 and word.text == ")":
                return Expression(f"({' '.join(pieces)})", tuple(found), refusal)
        raise refusal

    def literal(self) -> Literal | None:
        """A literal, as SPARQL writes it, if one is next."""
        words = self.words
        if words.word.kind == "string":
            text = words.take().text
            if words.word.kind == "tag":
                return Literal(text + words.take().text)
            if words.accept("^^"):
                if words.word.kind not in ("iri", "name"):
                    raise words.unexpected(EXPRESSION)
                text += f"^^<{self.names.iri(words.take())}>"
            return Literal(text)
        if words.word.kind == "number" or words.sees("TRUE", "FALSE"):
            return Literal(words.take().text)
        if words.sees("+", "-") and words.following.kind == "number":
            return Literal(words.take().text + words.take().text)
        return None

    def _constraint(self) -> Condition:
        if self.words.sees("("):
            return self._condition(self._bracketed())
        return self._condition(self._built_in())

    # [110] Expression ::= ConditionalOrExpression
    # [111] ConditionalOrExpression ::= ConditionalAndExpression ( '||' ConditionalAndExpression )*
    def _expression(self) -> Condition | Operand:
        parts = [self._and()]
        while self.words.accept("||"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(map(self._condition, parts)))

    # [112] ConditionalAndExpression ::= ValueLogical ( '&&' ValueLogical )*
    def _and(self) -> Condition | Operand:
        parts = [self._relational()]
        while self.words.accept("&&"):
            parts.append(self._relational())
        return parts[0] if len(parts) == 1 else AllOf(tuple(map(self._condition, parts)))

    # [114] RelationalExpression ::= NumericExpression ( '=' NumericExpression | ... | 'IN' ExpressionList | ... )?
    def _relational(self) -> Condition | Operand:
        words = self.words
        left = self._unary()
        operator = words.accept(*COMPARISONS)
        if operator is not None:
            compared = Compare(self._operand(left), operator.text, self._operand(self._unary()))
            self._refuse_incomparable(compared.left, compared.operator, compared.right)
            return compared
        negated = words.sees("NOT") and words.following.text.upper() == "IN"
        if negated:
            words.take()
        if not words.accept("IN"):
            return left
        # [71] ExpressionList ::= NIL | '(' Expression ( ',' Expression )* ')'
        term, options = self._operand(left), list[Operand]()
        words.expect("(", EXPRESSION)
        while not words.sees(")"):
            if options:
                words.expect(",", EXPRESSION)
            options.append(self._operand(self._expression()))
            self._refuse_incomparable(term, "=", options[-1])
        words.take()
        return OneOf(term, tuple(options), negated)

    # [118] UnaryExpression ::= '!' PrimaryExpression | ... | PrimaryExpression
    def _unary(self) -> Condition | Operand:
        return Not(self._condition(self._primary())) if self.words.accept("!") else self._primary()

    # [119] PrimaryExpression ::= BrackettedExpression | BuiltInCall | iriOrFunction | RDFLiteral | ... | Var
    def _primary(self) -> Condition | Operand:
        words, word = self.words, self.words.word
        if words.sees("("):
            return self._bracketed()
        if word.kind == "variable":
            return self.variable(EXPRESSION)
        if word.kind == "string":
            return self._string()
        if word.kind in ("iri", "name"):
            if words.following.text == "(":
                raise words.outside(word, "a function of one's own", f"functions are {FUNCTIONS}")
            return Entity(self.names.name(words.take()))
        return self._built_in()

    # [120] BrackettedExpression ::= '(' Expression ')'
    def _bracketed(self) -> Condition | Operand:
        self.words.expect("(", EXPRESSION)
        inner = self._expression()
        self.words.expect(")", EXPRESSION)
        return inner

    # [121] BuiltInCall ::= 'STR' '(' Expression ')' | 'CONTAINS' '(' Expression ',' Expression ')' | ...
    def _built_in(self) -> Condition | Operand:
        words, word = self.words, self.words.word
        function = word.text.upper()
        if not words.accept(*_BUILT_IN):
            raise words.unexpected(EXPRESSION)
        words.expect("(", EXPRESSION)
        first = self._operand(self._expression())
        rest: list[Operand] = []
        # [122] RegexExpression ::= 'REGEX' '(' Expression ',' Expression ( ',' Expression )? ')'
        least, most = {"REGEX": (1, 2)}.get(function, (1, 1) if function in SUBSTRING_FUNCTIONS else (0, 0))
        while len(rest) < least or (len(rest) < most and words.sees(",")):
            words.expect(",", EXPRESSION)
            rest.append(self._operand(self._expression()))
        words.expect(")", EXPRESSION)
        if function == "STR":
            return first if isinstance(first, Text | NameOf) else NameOf(first)
        if function in ("ISIRI", "ISURI"):
            if isinstance(first, Text | NameOf):
                raise words.error(word, f"isIRI looks at an entity, not at the text {first}", "write isIRI(?x)")
            return IsIri(first)
        if isinstance(first, Text):
            message = f"{function} looks at a variable, not at the text {first}"
            raise words.error(word, message, f"{function}(?x, ...)")
        texts: list[str] = []
        for operand in rest:
            if not isinstance(operand, Text):
                message = f"{function} wants a text where {operand} stands"
                raise words.error(word, message, 'write it in quotes: "..."')
            texts.append(operand.value)
        return self._regex(word, first, *texts) if function == "REGEX" else Holds(function, first, texts[0])

    def _regex(self, word: Word, text: Named, pattern: str, flags: str = "") -> Matches:
        if len(pattern) > MAX_REGEX:
            raise self.words.error(
                word,
                f"the regular expression has {len(pattern):,} characters; at most {MAX_REGEX:,} are read",
                "shorten it, or join two with ||",
            )
        if not set(flags) <= set(FLAGS):
            raise self.words.error(
                word, f"flags of regex must be among {', '.join(FLAGS)}. Got {flags!r}", "leave the others out"
            )
        if reason := _regex_fault(pattern, flags):
            hint = "back references and look-around are not supported: matching takes time in proportion to the text"
            raise self.words.error(word, reason, hint)
        return Matches(text, pattern, flags)

    # [135] String; [129] RDFLiteral ::= String ( LANGTAG | ( '^^' iri ) )?
    def _string(self) -> Text:
        words, word = self.words, self.words.take()
        if words.word.kind == "tag" or words.sees("^^"):
            raise words.outside(words.word, "a language or type of a string", "compare with a plain string")
        for escape in _ESCAPE.finditer(word.text):
            if escape[1] not in _ESCAPED:
                raise words.error(
                    word, f"{escape[0]!r} is no escape of a string", r"write \\ for a backslash, as in '\\d'"
                )
        quotes = 3 if word.text[:3] in ("'''", '"""') and len(word.text) >= 6 else 1
        return Text(_ESCAPE.sub(lambda escape: _ESCAPED[escape[1]], word.text[quotes:-quotes]))

    # [108] Var
    def variable(self, zone: str) -> Variable:
        """A variable of a condition, whose place is kept."""
        return self._noted(self.words.expect_variable(zone))

    def _noted(self, word: Word) -> Variable:
        variable = Variable(word.text[1:])
        self.places.setdefault(variable, word)
        return variable

    def _condition(self, found: Condition | Operand) -> Condition:
        """``found`` as a condition; an error where it is an entity or a text, which is neither true nor false."""
        if isinstance(found, Operand):
            hint = f"compare it, as in FILTER({found} = :name)"
            raise self.words.error(self._clause, f"{found} is neither true nor false", hint)
        return found

    def _operand(self, found: Condition | Operand) -> Operand:
        """``found`` as an operand of a comparison; an error where it is a condition."""
        if isinstance(found, Operand):
            return found
        message = "a condition stands where an entity or a text should"
        raise self.words.error(self._clause, message, "compare variables, names, texts")

    def _refuse_incomparable(self, left: Operand, operator: str, right: Operand) -> None:
        texts = [isinstance(side, NameOf | Text) for side in (left, right)]
        if texts[0] != texts[1]:
            entity, text = (right, left) if texts[0] else (left, right)
            raise self.words.error(
                self._clause,
                f"{entity} is an entity and {text} is a text, so 'FILTER({left} {operator} {right})' never holds",
                f"compare names, as in STR({entity}) {operator} {text}, or entities, as in {entity} {operator} :name",
            )
        if not texts[0] and operator not in EQUALITY:
            raise self.words.error(
                self._clause,
                f"entities have no order, so {left} {operator} {right} has no answer",
                f"compare their names, as in STR({left}) {operator} STR({right})",
            )

    # [61] InlineData ::= 'VALUES' DataBlock
    # [62] DataBlock ::= Var '{' DataBlockValue* '}' | '(' Var* ')' '{' ( '(' DataBlockValue* ')' )* '}'
    def values(self) -> Condition | None:
        """The rows of a VALUES block as a condition; None where they exclude nothing."""
        words, clause = self.words, self.words.take()
        if words.accept("("):
            variables = []
            while not words.accept(")"):
                variables.append(self.variable(VALUES))
            words.expect("{", VALUES)
            rows = []
            while not words.accept("}"):
                words.expect("(", VALUES)
                rows.append(self._row(")"))
        else:
            variables = [self.variable(VALUES)]
            words.expect("{", VALUES)
            rows = [[value] for value in self._row("}")]
        for row in rows:
            if len(row) != len(variables):
                raise words.error(
                    clause,
                    f"a row of VALUES has {len(row)} values for {len(variables)} variables",
                    "write one value for each, or UNDEF",
                )
        if not variables:
            return None
        alternatives: dict[Condition | None, None] = {}
        for row in rows:
            fixed = [(variable, value) for variable, value in zip(variables, row, strict=True) if value is not None]
            pairs = [Compare(variable, "=", value) for variable, value in fixed]
            alternatives[AllOf(tuple(pairs)) if len(pairs) > 1 else pairs[0] if pairs else None] = None
        if None in alternatives:
            return None
        if len(variables) == 1 or not rows:
            return OneOf(variables[0], tuple(pair.right for pair in alternatives if isinstance(pair, Compare)))
        parts = tuple(part for part in alternatives if part is not None)
        return parts[0] if len(parts) == 1 else AnyOf(parts)

    # [65] DataBlockValue ::= iri | RDFLiteral | ... | 'UNDEF'
    def _row(self, closing: str) -> list[Entity | None]:
        """Values up to the closing bracket; None for UNDEF."""
        values: list[Entity | None] = []
        while not self.words.accept(closing):
            if self.words.accept("UNDEF"):
                values.append(None)
            elif self.words.word.kind in ("iri", "name"):
                values.append(Entity(self.names.name(self.words.take())))
            else:
                raise self.words.unexpected(VALUES)
        return values


def as_re2(pattern: str, flags: str) -> str:
    """The regular expression with the flags that RE2 takes inside of it. The flag ``i`` is left to the caller.

    RE2 matches in time proportional to the text, whatever the expression.
    """
    pattern = re.escape(pattern) if "q" in flags else pattern
    inline = "".join(sorted(set(flags) & set("sm")))
    return f"(?{inline}){pattern}" if inline else pattern


@lru_cache(maxsize=256)
def _regex_fault(pattern: str, flags: str) -> str | None:
    """Why the expression cannot be read; None where it can."""
    # pyarrow takes a tenth of a second to load, so it is imported only where there is a regular expression.
    import pyarrow
    from pyarrow import compute

    try:
        compute.match_substring_regex(pyarrow.array([""], pyarrow.string()), as_re2(pattern, flags))
    except pyarrow.ArrowInvalid as error:
        reason = str(error).partition(": ")[2] or str(error)
        return f"{pattern[:60]!r} is no regular expression that can be read: {reason[:120]}"
    return None
