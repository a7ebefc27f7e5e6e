"""rdflib's productions of the SPARQL grammar, joined to the supported subset.

Three things differ from rdflib's own query production. [55] TriplesBlock is a loop here: rdflib's is recursive, and
Python's stack ends at some eighty patterns. [110] Expression has the functions of the subset only: rdflib tries some
sixty of them at every term. And only supported clauses are joined, so no alternative is tried in vain.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyparsing import ParserElement


PARSING = threading.RLock()
"""To be held while the grammar is made or read with: pyparsing simplifies productions, and finds out how many
arguments their actions take, when they are first used. Two threads that do so at once leave them broken for good."""


@cache
def grammar() -> ParserElement:
    """The query production of the subset."""
    # rdflib takes a third of a second to load: only those who ask a query wait for it.
    from pyparsing import CaselessKeyword, Forward, Optional, Suppress, ZeroOrMore
    from rdflib.plugins.sparql import parser as sparql
    from rdflib.plugins.sparql.parserutils import Comp, Param, ParamList

    # [55] TriplesBlock ::= TriplesSameSubjectPath ( '.' TriplesBlock? )?
    triples = ParamList("triples", sparql.TriplesSameSubjectPath)
    block = Comp("TriplesBlock", triples + ZeroOrMore(Suppress(".") + triples) + Optional(Suppress(".")))
    # [53] GroupGraphPattern ::= '{' GroupGraphPatternSub '}'
    group = Forward()
    # [67] GroupOrUnionGraphPattern ::= GroupGraphPattern ( 'UNION' GroupGraphPattern )*
    side = ParamList("graph", group)
    union = Comp("GroupOrUnionGraphPattern", side + ZeroOrMore(Suppress(CaselessKeyword("UNION")) + side))
    # [56] GraphPatternNotTriples ::= GroupOrUnionGraphPattern | Filter | InlineData | ...
    other = ParamList("part", union | filter_clause() | sparql.InlineData)
    # [54] GroupGraphPatternSub ::= TriplesBlock? ( GraphPatternNotTriples '.'? TriplesBlock? )*
    part = Optional(ParamList("part", block))
    sub = Comp("GroupGraphPatternSub", part + ZeroOrMore(other + Optional(Suppress(".")) + part))
    group <<= Suppress("{") + sub + Suppress("}")
    # [7] SelectQuery ::= SelectClause WhereClause SolutionModifier
    where = Optional(CaselessKeyword("WHERE")) + Param("where", group)
    # [18] SolutionModifier ::= OrderClause? LimitOffsetClauses?
    modifier = Optional(Param("orderby", order_clause())) + Optional(Param("limitoffset", sparql.LimitOffsetClauses))
    select = Comp("SelectQuery", sparql.SelectClause + where + modifier + sparql.ValuesClause)
    # [12] AskQuery ::= 'ASK' WhereClause; what a SolutionModifier would order or cut off are rows, and it has none
    ask = Comp("AskQuery", Suppress(CaselessKeyword("ASK")) + where + sparql.ValuesClause)
    # [2] Query ::= Prologue ( SelectQuery | AskQuery ). Tabs are kept, else every place after a tab would be wrong.
    query = (sparql.Prologue + (select | ask)).parse_with_tabs()
    query.streamline()
    return query


@cache
def order_clause() -> ParserElement:
    """[23] OrderClause ::= 'ORDER' 'BY' OrderCondition+, of variables."""
    from pyparsing import CaselessKeyword, Forward, OneOrMore, Suppress
    from rdflib.plugins.sparql import parser as sparql
    from rdflib.plugins.sparql.parserutils import Comp, Param, ParamList

    # [120] BrackettedExpression ::= '(' Expression ')'
    bracketed = Forward()
    bracketed <<= Suppress("(") + (bracketed | Param("expr", sparql.Var)) + Suppress(")")
    # [24] OrderCondition ::= ( 'ASC' | 'DESC' ) BrackettedExpression | Constraint | Var
    direction = Param("order", CaselessKeyword("ASC") | CaselessKeyword("DESC"))
    key = direction + bracketed | bracketed | Param("expr", sparql.Var)
    keys = OneOrMore(ParamList("condition", Comp("OrderCondition", key)))
    return Comp("OrderClause", Suppress(CaselessKeyword("ORDER")) + Suppress(CaselessKeyword("BY")) + keys)


@cache
def filter_clause() -> ParserElement:
    """[68] Filter ::= 'FILTER' Constraint, with the functions of the subset."""
    from pyparsing import CaselessKeyword, DelimitedList, Forward, Group, Optional, Suppress, ZeroOrMore, one_of
    from rdflib.plugins.sparql import parser as sparql
    from rdflib.plugins.sparql.parserutils import Comp, Param, ParamList

    expression = Forward()

    # [121] BuiltInCall ::= 'STR' '(' Expression ')' | 'CONTAINS' '(' Expression ',' Expression ')' | ...
    def call(name: str, *arguments: str, last: str | None = None) -> ParserElement:
        first, *more = arguments
        inside: ParserElement = Param(first, expression)
        for argument in more:
            inside += Suppress(",") + Param(argument, expression)
        if last is not None:
            inside += Optional(Suppress(",") + Param(last, expression))
        return Comp(f"Builtin_{name}", Suppress(CaselessKeyword(name)) + Suppress("(") + inside + Suppress(")"))

    built_in = (
        # [122] RegexExpression ::= 'REGEX' '(' Expression ',' Expression ( ',' Expression )? ')'
        call("REGEX", "text", "pattern", last="flags")
        | call("STR", "arg")
        | call("ISIRI", "arg")
        | call("ISURI", "arg")
        | call("CONTAINS", "arg1", "arg2")
        | call("STRSTARTS", "arg1", "arg2")
        | call("STRENDS", "arg1", "arg2")
    )
    # [120] BrackettedExpression ::= '(' Expression ')'
    bracketed = Suppress("(") + expression + Suppress(")")
    # [119] PrimaryExpression ::= BrackettedExpression | BuiltInCall | iriOrFunction | RDFLiteral | ... | Var
    text = Comp("literal", Param("string", sparql.String))
    primary = sparql.Var | bracketed | built_in | text | sparql.iri
    # [118] UnaryExpression ::= '!' PrimaryExpression | ...
    unary = Comp("UnaryNot", Suppress("!") + Param("expr", primary)) | primary
    # [72] ExpressionList ::= NIL | '(' Expression ( ',' Expression )* ')'
    listed = Group(Suppress("(") + Optional(DelimitedList(expression)) + Suppress(")"))
    # [114] RelationalExpression ::= NumericExpression ( '=' NumericExpression | ... | 'IN' ExpressionList | ... )?
    compared = Param("op", one_of("= != <= >= < >")) + Param("other", unary)
    negated = Optional(Param("negated", CaselessKeyword("NOT")))
    contained = negated + Param("op", CaselessKeyword("IN")) + Param("other", listed)
    relational = Comp("RelationalExpression", Param("expr", unary) + Optional(compared | contained))
    # [112] ConditionalAndExpression, [111] ConditionalOrExpression
    both = Comp(
        "AndExpression", Param("expr", relational) + ZeroOrMore(Suppress("&&") + ParamList("other", relational))
    )
    expression <<= Comp("OrExpression", Param("expr", both) + ZeroOrMore(Suppress("||") + ParamList("other", both)))
    return Comp("Filter", Suppress(CaselessKeyword("FILTER")) + Param("expr", bracketed | built_in))
