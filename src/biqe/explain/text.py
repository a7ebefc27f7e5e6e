"""An explanation in words, for a terminal: who reads it has not read the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.cells import cell_len

from biqe.explain.attention import Attention
from biqe.explain.counterfactual import CUT, HIDDEN_NAME, TAKEN, Change, Counterfactual
from biqe.explain.parts import ATTENTION, CONSTANT, COUNTERFACTUAL, HIDDEN, KNOWN, WITNESS, Node, Witness
from biqe.explain.reasons import Reason, ordinal
from biqe.graph import words

if TYPE_CHECKING:
    # Explanations write themselves through this module, so it knows them by their type only.
    from biqe.explain.explanation import Explanation

CELL = 11
"""Columns of one unknown in the table of attention."""


def write(why: Explanation, width: int) -> str:
    """The whole text; no line is wider than ``width`` columns."""
    width = max(40, width)
    head = [line for sentence in introduction(why) for line in words.wrapped(sentence, width)]
    question = ["The question"]
    for number in range(len(why.patterns)):
        question += words.wrapped(asked(why, number), width, first=f"  {number + 1}  ")
    if values(why):
        question += words.wrapped(", ".join(values(why)), width, first="  ")
    witness = [] if why.witness is None else [[*about_witness(why, width), *_witness(why, why.witness, width)]]
    every = [head, question, *witness, *details(why, width)]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in every)


def introduction(why: Explanation) -> list[str]:
    """What the row is, and in a sentence why."""
    sentence = words.visible(f"{why.sentence[:1].upper()}{why.sentence[1:]}.")
    return [headline(why)] if why.status == KNOWN else [headline(why), sentence]


def details(why: Explanation, width: int) -> Iterator[list[str]]:
    """Everything behind the witness: a few lines for each thing, as text and picture show it."""
    for each in why.reasons:
        lines = words.wrapped(about_link(each), width)
        for sign, sentence in about_reason(each):
            lines += words.wrapped(words.visible(sentence), width, first=f"  {sign} ")
        if len(lines) > 1:
            yield lines
    if why.attention is not None:
        yield [*words.wrapped(about_attention(why, why.attention), width), *_attention(why, why.attention, width)]
    if why.counterfactual is not None:
        about = words.wrapped(about_counterfactual(why, why.counterfactual), width)
        yield [*about, *_counterfactual(why, why.counterfactual, width)]
    for view, reason in why.skipped.items():
        yield words.wrapped(f"{view.upper()} is left out: {words.visible(reason)}", width)


# Sentences


def headline(why: Explanation) -> str:
    """The row, and what it is; an ASK has no row, only whether it holds."""
    row = ", ".join(shown(why.nodes[node]) for node in why.targets) or "That it holds"
    model = words.visible(why.model) if why.model is not None else None
    if why.status == KNOWN:
        return f"{row}: known; {words.HELD}"
    if why.probability is None:
        return f"{row}: not known to the graph"
    return f"{row}: predicted by {model} with probability {words.probability(why.probability)}"


def about_witness(why: Explanation, width: int) -> list[str]:
    """What the witness shows."""
    text = "the facts that together make this row. All of them are stored in the graph."
    if why.status != KNOWN:
        said = (
            f", and the number is how likely {words.visible(why.model)} finds that fact by itself" if why.model else ""
        )
        text = (
            "the facts that together would make this row. Those marked stored are in the graph; those marked missing "
            f"are not{said}."
        )
    lines = words.wrapped(f"{WITNESS.upper()}: {text}", width)
    if why.witness is not None and not why.witness.is_complete:
        lines += words.wrapped("Not every choice of the hidden variables was tried; there may be a better one.", width)
    return lines


def about_link(reason: Reason) -> str:
    """Which link the reasons are about."""
    chance = "" if reason.probability is None else f", probability {words.probability(reason.probability, 2)}"
    return f"REASONS for (+) and against (-) {words.visible(reason.link)}{chance}"


def about_reason(reason: Reason) -> Iterator[tuple[str, str]]:
    """Each reason in a sentence, and its sign: ``+`` for the link, ``-`` against it, ``?`` what else was considered."""
    yield from (("+", rule.text) for rule in reason.rules)
    yield from (("+" if kind.speaks_for else "-", kind.text) for kind in reason.kinds)
    for place in reason.places:
        text = f"{place.pattern}: {place.entity} is {ordinal(place.rank)} of {place.of:,}"
        if place.embedding_rank is not None:
            text += f", by embedding alone {ordinal(place.embedding_rank)}"
        new = [
            f"{rival.entity} {words.probability(rival.probability, 2)}" for rival in place.rivals if not rival.is_stored
        ]
        stored = [rival.entity for rival in place.rivals if rival.is_stored]
        if new:
            text += f"; others: {', '.join(new)}"
        if stored:
            more = place.stored - len(stored)
            text += f"; stored: {', '.join(stored)}{f' and {more:,} more' if more > 0 else ''}"
        yield "?", text


def about_attention(why: Explanation, attention: Attention) -> str:
    """What the shares of attention show, and over what they are taken."""
    layers = len(attention.by_layer)
    of = f"the mean over {attention.heads} heads and {layers} layers, in brackets the last layer alone"
    if layers == 1:
        of = f"the mean over {attention.heads} heads of its one layer"
    return (
        f"{ATTENTION.upper()}: where {words.visible(str(why.model))} looked in the question to find each unknown, in "
        f"percent: {of}. It shows what the model looked at, not what convinced it."
    )


def about_counterfactual(why: Explanation, counterfactual: Counterfactual) -> str:
    """What the changes show."""
    share = words.probability(counterfactual.share)
    if not why.targets:
        return (
            f"{COUNTERFACTUAL.upper()}: what would become of this answer if something were different. Its probability "
            f"is that of its missing facts, multiplied; stored facts count as 1. As it is, that makes {share}."
        )
    how = "By itself" if why.status == KNOWN else "As it is"
    return (
        f"{COUNTERFACTUAL.upper()}: what {words.visible(str(why.model))} would think of this row if something were "
        f"different. {how}, it gives the row {share}.{f' {why.baseline}' if why.baseline else ''}"
    )


def about_triples(counterfactual: Counterfactual) -> str:
    """What it means that a stored fact is withheld."""
    if counterfactual.sees_graph:
        return (
            "With one stored fact taken out of the graph that the model may look into (what it learnt from the fact "
            "in training stays):"
        )
    if all(change.how == TAKEN for change in counterfactual.triples):
        return "With one stored fact taken out of the graph, so that it would have to be predicted, too:"
    return (
        "With one stored fact withheld. The model looks nothing up, so the name in the question that leads to the "
        "fact is hidden from it, or, where there is none to hide, the whole pattern:"
    )


def shown(node: Node) -> str:
    """The entity of a node, or the variable where there is none."""
    return words.visible(words.short(node.label) if node.label is not None else node.word)


def word(node: Node) -> str:
    """The node as the query writes it."""
    return words.visible(words.short(node.word) if node.kind == CONSTANT else node.word)


def relation(why: Explanation, number: int) -> str:
    """The relation of a pattern."""
    return words.visible(words.short(why.patterns[number].relation))


def asked(why: Explanation, number: int) -> str:
    """A pattern as the query writes it."""
    pattern = why.patterns[number]
    return f"{word(why.nodes[pattern.subject])} {relation(why, number)} {word(why.nodes[pattern.object])}"


def filled(why: Explanation, number: int) -> str:
    """A pattern with entities in it."""
    pattern = why.patterns[number]
    return f"{shown(why.nodes[pattern.subject])} {relation(why, number)} {shown(why.nodes[pattern.object])}"


def values(why: Explanation) -> list[str]:
    """What each variable is: the row's own first, then the hidden ones."""
    chosen = [f"{word(why.nodes[node])} is {shown(why.nodes[node])}" for node in why.targets]
    for node in why.nodes:
        if node.kind == HIDDEN and why.witness is not None:
            chosen.append(f"{word(node)} is {shown(node) if node.entity is not None else 'not known'}")
    return chosen


def withheld(why: Explanation, change: Change) -> str:
    """A stored fact that was withheld, and how."""
    how = ""
    if change.how == HIDDEN_NAME:
        how = f" ({shown(why.nodes[change.name])} hidden)" if change.name is not None else " (its name hidden)"
    elif change.how == CUT:
        how = f" (pattern {change.pattern + 1} cut)"
    return f"without {filled(why, change.pattern)}{how}"


# The tables of the text


def _witness(why: Explanation, witness: Witness, width: int) -> list[str]:
    lines = []
    same: dict[tuple[object, ...], list[int]] = {}
    for link in witness.links:
        pattern = why.patterns[link.pattern]
        ends = [why.nodes[node].entity or f"?{node}" for node in (pattern.subject, pattern.object)]
        same.setdefault((pattern.relation, *ends), []).append(link.pattern)
    # The same fact may serve several patterns.
    names = {numbers[0]: ", ".join(str(number + 1) for number in numbers) for numbers in same.values()}
    widest = max(map(len, names.values()), default=0)
    for link in witness.links:
        if link.pattern not in names:
            continue
        chance = "" if link.is_stored or link.probability is None else words.probability(link.probability, 2)
        state = "stored" if link.is_stored else "missing"
        first = f"  {names[link.pattern]:<{widest}}  {state:<7}  {chance:>5}  "
        lines += words.wrapped(filled(why, link.pattern), width, first=first)
    return lines


def _attention(why: Explanation, attention: Attention, width: int) -> list[str]:
    names = [word(why.nodes[node]) for node in attention.nodes]
    names += [f"{number + 1} {relation(why, number)}" for number in attention.patterns]
    mean, last = attention.mean, attention.last
    at_once = max(1, (width - 16) // (CELL + 2))
    lines: list[str] = []
    for first in range(0, len(attention.targets), at_once):
        block = range(first, min(first + at_once, len(attention.targets)))
        widest = min(max(map(cell_len, names)), width - 2 - (CELL + 2) * len(block))
        heads = [word(why.nodes[attention.targets[row]]) for row in block]
        lines.append(" " * (widest + 2) + "".join(f"  {_right(head)}" for head in heads))
        for column, name in enumerate(names):
            cells = []
            for row in block:
                share = words.percent(mean[row][column])
                if len(attention.by_layer) > 1:
                    share += f" {'(' + words.percent(last[row][column]) + ')':>5}"
                cells.append(f"  {_right(share)}")
            lines.append(f"  {words.padded(name, widest)}{''.join(cells)}")
    return lines


def _right(text: str) -> str:
    text = words.cut(text, CELL)
    return " " * (CELL - cell_len(text)) + text


def _counterfactual(why: Explanation, counterfactual: Counterfactual, width: int) -> list[str]:
    def line(change: Change, what: str) -> list[str]:
        now = "-"
        if change.share is not None:
            now = f"{words.probability(change.share)}  {words.compared(counterfactual.share, change.share)}"
        reason = f" ({words.visible(change.reason)})" if change.reason else ""
        return words.wrapped(what + reason, width, first=f"  {now:<25}  ")

    lines = []
    for change in counterfactual.patterns:
        lines += line(change, f"without pattern {change.pattern + 1}: {asked(why, change.pattern)}")
    if counterfactual.triples:
        lines += words.wrapped(about_triples(counterfactual), width)
    for change in counterfactual.triples:
        lines += line(change, withheld(why, change))
    return lines
