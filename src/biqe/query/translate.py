"""rdflib's tree of a query, turned into a Question in names.

Each function stands under the grammar production that it handles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from biqe.query.ast import Entity, Pattern, Term, Variable
from biqe.query.conditions import Conditions
from biqe.query.expression import Condition, variables
from biqe.query.names import QueryNames
from biqe.query.question import ASK, COUNT, PROBABILITY, SELECT, Branch, Order, Question
from biqe.query.scan import TERMS, Scan
from biqe.query.subset import MAX_BRANCHES, MAX_PATTERNS, OUTSIDE, PATTERNS, SUPPORTED, syntax_error


@dataclass(frozen=True)
class _Part:
    """A conjunction under construction: what one side of each UNION says together."""

    patterns: tuple[Pattern, ...] = ()
    filters: tuple[Condition, ...] = ()

    def __add__(self, other: _Part) -> _Part:
        return _Part(self.patterns + other.patterns, self.filters + other.filters)


class Translation:
    """The tree of one query, turned into patterns and conditions."""

    def __init__(self, scanned: Scan, names: QueryNames) -> None:
        self.scanned = scanned
        self.names = names
        self.conditions = Conditions(scanned, names)
        self.blanks: dict[str, Variable] = {}
        self._taken = {word.text[1:] for word in scanned.words if word.kind == "variable"}
        self._fresh = 0
        self._patterns = 0

    # [2] Query ::= Prologue ( SelectQuery | ... | AskQuery ) ValuesClause
    def question(self, tree: Any) -> Question:
        parts = self.group(tree.where, last=tree.valuesClause)
        counted = [item for item in getattr(tree, "projection", None) or () if item.evar is not None]
        branches = tuple(Branch(part.patterns, part.filters) for part in parts)
        if not counted:  # a row of two sides is one row, and two matches
            branches = tuple(dict.fromkeys(branches))
        for branch in branches:
            if not branch.patterns:
                self._refuse("{", "the query has no triple pattern", PATTERNS)
        if tree.name == "AskQuery":
            return Question(ASK, (), branches)
        own = [self._own(branch) for branch in branches]
        if not all(own):
            self._refuse(
                "{",
                "the query has no variable, so there is nothing to find",
                "replace a name by ?x, or ASK whether it holds",
            )
        order = self.order(tree)
        limit, offset = self.slice(tree)
        if counted:
            if tree.valuesClause:
                # SPARQL joins it to the row with the number, so that it restricts nothing that is counted.
                last = [word.start for word in self.scanned.words if word.text.upper() == "VALUES"][-1]
                raise syntax_error(
                    self.scanned,
                    last,
                    f"VALUES after the braces of a COUNT is {OUTSIDE}",
                    hint="write it within the braces",
                )
            if limit == 0 or offset > 0:
                self._refuse(
                    "LIMIT" if limit == 0 else "OFFSET",
                    "COUNT has one row, which this leaves out",
                    "leave LIMIT and OFFSET out",
                )
            return self.count(tree, branches, own, order)
        targets = self.projection(tree, own)
        for key in order:
            if key.variable not in (*targets, PROBABILITY):
                self._refuse_last(
                    key.variable.name,
                    f"{key} of ORDER BY is not selected",
                    f"select it, or order by one of {', '.join(map(str, targets))} or DESC(?probability)",
                )
        return Question(SELECT, targets, branches, order, limit, offset)

    def _own(self, branch: Branch) -> tuple[Variable, ...]:
        """The variables that a user can select: not blank nodes, and not the inner nodes of paths."""
        return tuple(variable for variable in branch.variables if variable.name in self._taken)

    # [9] SelectClause ::= 'SELECT' 'DISTINCT'? ( Var+ | '*' )
    def projection(self, select: Any, own: list[tuple[Variable, ...]]) -> tuple[Variable, ...]:
        everything = tuple(dict.fromkeys(variable for variables_ in own for variable in variables_))
        if not select.projection:
            targets = everything
        else:
            targets = tuple(dict.fromkeys(Variable(str(item.var)) for item in select.projection))
        for target in targets:
            if target not in everything:
                self._refuse(
                    target.name,
                    f"{target} is selected but occurs in no pattern",
                    f"the patterns have {', '.join(map(str, everything[:10]))}",
                )
            if not all(target in variables_ for variables_ in own):
                common = [variable for variable in everything if all(variable in variables_ for variables_ in own)]
                shared = f"all sides have {', '.join(map(str, common[:10]))}" if common else "no variable is in all"
                self._refuse(
                    target.name,
                    f"{target} is selected but does not occur in every side of the UNION",
                    f"{shared}; select only what every side has, or use --mode known",
                )
        return targets

    # [127] Aggregate ::= 'COUNT' '(' 'DISTINCT'? ( '*' | Expression ) ')'
    def count(
        self, select: Any, branches: tuple[Branch, ...], own: list[tuple[Variable, ...]], order: tuple[Order, ...]
    ) -> Question:
        if len(select.projection) > 1 or select.projection[0].var is not None:
            self._refuse(
                "(",
                "COUNT stands beside another variable, which is outside the supported subset",
                f"select the COUNT alone, once for each value; {SUPPORTED}",
            )
        item = select.projection[0]
        node = item.expr
        while getattr(node, "name", "").endswith("Expression"):
            node = node.expr
        if getattr(node, "name", None) != "Aggregate_Count":
            self._refuse(
                "(",
                "an expression in SELECT is outside the supported subset",
                f"(COUNT(*) AS ?n), (COUNT(?x) AS ?n) and (COUNT(DISTINCT ?x) AS ?n) are inside; {SUPPORTED}",
            )
        as_ = Variable(str(item.evar))
        if any(as_ in branch.variables for branch in branches):
            self._refuse(
                as_.name,
                f"{as_} is a variable of the patterns, so COUNT cannot be called so",
                f"take a new name: AS ?{as_.name}_count",
            )
        if order:
            self._refuse("ORDER", "COUNT has one row, so there is nothing to order", "leave ORDER BY out")
        if str(node.vars) == "*":
            # Rows of a UNION may lack variables; they count as distinct by what all sides share.
            everything = own[0] if len(set(map(frozenset, own))) == 1 else ()
            if node.distinct and not everything:
                self._refuse(
                    "COUNT",
                    "the sides of the UNION have different variables, so * has no one meaning",
                    "name what is counted: COUNT(DISTINCT ?x)",
                )
            return Question(COUNT, everything if node.distinct else (), branches, counted_as=as_)
        operand = self.conditions.operand(node.vars)
        if not isinstance(operand, Variable):
            self._refuse("COUNT", f"COUNT counts a variable or *, not {operand}", "write COUNT(?x)")
        for variables_ in own:
            if operand not in variables_:
                self._refuse(
                    operand.name,
                    f"{operand} is counted but does not occur in every pattern group",
                    f"the patterns have {', '.join(map(str, variables_[:10]))}",
                )
        return Question(COUNT, (operand,) if node.distinct else (), branches, counted_as=as_)

    # [23] OrderClause ::= 'ORDER' 'BY' OrderCondition+
    def order(self, select: Any) -> tuple[Order, ...]:
        conditions = select.orderby.condition if select.orderby else ()
        return tuple(Order(Variable(str(key.expr)), str(key.order or "").upper() == "DESC") for key in conditions)

    # [25] LimitOffsetClauses ::= LimitClause OffsetClause? | OffsetClause LimitClause?
    def slice(self, select: Any) -> tuple[int | None, int]:
        clauses = select.limitoffset
        if not clauses:
            return None, 0
        return None if clauses.limit is None else int(clauses.limit), int(clauses.offset or 0)

    # [53] GroupGraphPattern ::= '{' GroupGraphPatternSub '}'
    # [54] GroupGraphPatternSub ::= TriplesBlock? ( GraphPatternNotTriples '.'? TriplesBlock? )*
    def group(self, group: Any, last: Any = None) -> list[_Part]:
        """The conjunctions that a group comes to: every combination of the sides of its unions.

        A FILTER holds for its own group, wherever it stands in it.
        """
        found = [_Part()]
        filters: list[Condition] = []
        for part in group.part or ():
            if part.name == "GroupOrUnionGraphPattern":
                sides = [conjunction for side in part.graph for conjunction in self.group(side)]
                if len(found) * len(sides) > MAX_BRANCHES:
                    self._refuse(
                        "UNION",
                        f"the sides of UNION combine to more than {MAX_BRANCHES} conjunctions",
                        "ask several queries with fewer sides",
                    )
                found = [conjunction + side for conjunction in found for side in sides]
            elif part.name == "Filter":
                filters.append(self.conditions.condition(part.expr))
            elif part.name == "InlineData":
                filters += self._values(part)
            else:
                block = _Part(tuple(self.block(part)))
                found = [conjunction + block for conjunction in found]
        filters += self._values(last) if last else []
        conjunctions = [conjunction + _Part((), tuple(filters)) for conjunction in found]
        for conjunction in conjunctions:
            self._refuse_unbound(conjunction, filters)
        return conjunctions

    def _values(self, node: Any) -> list[Condition]:
        condition = self.conditions.values(node)
        return [] if condition is None else [condition]

    def _refuse_unbound(self, part: _Part, filters: list[Condition]) -> None:
        bound = Branch(part.patterns).variables
        for condition in filters:
            for variable in variables(condition):
                if variable in bound:
                    continue
                if variable == PROBABILITY:
                    self._refuse(
                        variable.name,
                        "?probability is no part of a pattern, so FILTER cannot see it",
                        "use --min-probability (min_probability= in Python)",
                    )
                hint = f"the group's patterns have {', '.join(map(str, bound[:10])) or 'no variable'}"
                raise syntax_error(
                    self.scanned,
                    self._in_condition(variable.name),
                    f"{variable} of FILTER or VALUES occurs in no pattern of its group",
                    hint=hint,
                )

    def _in_condition(self, name: str) -> int:
        """Where a variable first stands after a FILTER or VALUES."""
        found = False
        for word in self.scanned.words:
            found = found or word.text.upper() in ("FILTER", "VALUES")
            if found and word.kind == "variable" and word.text[1:] == name:
                return word.start
        return 0

    # [55] TriplesBlock ::= TriplesSameSubjectPath ( '.' TriplesBlock? )?
    def block(self, block: Any) -> Iterator[Pattern]:
        for flat in block.triples:
            for at in range(0, len(flat), 3):
                yield from self.triple(*flat[at : at + 3])

    # [81] TriplesSameSubjectPath ::= VarOrTerm PropertyListPathNotEmpty | ...
    def triple(self, subject: Any, verb: Any, object_: Any) -> Iterator[Pattern]:
        start, end = self.term(subject), self.term(object_)
        steps = list(self.path(verb))
        for number, (relation, is_inverse) in enumerate(steps, start=1):
            stop = end if number == len(steps) else self.fresh()
            self._patterns += 1
            if self._patterns > MAX_PATTERNS:
                self._refuse("{", f"the query has more than {MAX_PATTERNS:,} triple patterns", "ask a smaller query")
            yield Pattern(stop, relation, start) if is_inverse else Pattern(start, relation, stop)
            start = stop

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
            hint="name the relation, or use --mode known; variables stand for entities; see docs/concepts/sparql.md",
        )

    def _is_verb(self, at: int) -> bool:
        """Whether the word ``at`` stands where a relation does: after a subject, ';' or '[', and before an object."""
        before, after = self.scanned.words[at - 1 : at] + self.scanned.words[at + 1 : at + 2]
        return (before.kind in TERMS or before.text in ";[])") and (after.kind in TERMS or after.text in "[(")

    def _refuse(self, where: str, message: str, hint: str) -> NoReturn:
        """Point at the first brace, or at the first variable of this name."""
        found = (word.start for word in self.scanned.words if word.text.lstrip("?$").upper() == where.upper())
        raise syntax_error(self.scanned, next(found, 0), message, hint=hint)

    def _refuse_last(self, where: str, message: str, hint: str) -> NoReturn:
        """Point at the last variable of this name."""
        found = [word.start for word in self.scanned.words if word.text.lstrip("?$") == where]
        raise syntax_error(self.scanned, found[-1] if found else 0, message, hint=hint)
