"""An explanation in words, for a terminal: who reads it has not read the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from biqe.explain import words
from biqe.explain.attention import Attention
from biqe.explain.counterfactual import CUT, HIDDEN_NAME, TAKEN, Change, Counterfactual
from biqe.explain.parts import ATTENTION, CONSTANT, COUNTERFACTUAL, HIDDEN, KNOWN, WITNESS, Node, Witness

if TYPE_CHECKING:
    # Explanations write themselves through this module, so it knows them by their type only.
    from biqe.explain.explanation import Explanation

CELL = 11
"""Columns of one unknown in the table of attention."""


def write(why: Explanation, width: int) -> str:
    """The whole text; no line is wider than ``width`` columns."""
    width = max(40, width)
    lines = words.wrapped(headline(why), width)
    for each in why.reasons:
        lines += ["", *words.wrapped(f"{words.visible(each.link)}, because", width)]
        for sentence in each.sentences:
            lines += words.wrapped(words.visible(sentence), width, first="  - ")
    lines += ["", "The question"]
    for number in range(len(why.patterns)):
        lines += words.wrapped(asked(why, number), width, first=f"  {number + 1}  ")
    if values(why):
        lines += words.wrapped(", ".join(values(why)), width, first="  ")
    if why.witness is not None:
        lines += ["", *words.wrapped(about_witness(why), width), *_witness(why, why.witness, width)]
    if why.attention is not None:
        lines += ["", *words.wrapped(about_attention(why, why.attention), width)]
        lines += _attention(why, why.attention, width)
    if why.counterfactual is not None:
        lines += ["", *words.wrapped(about_counterfactual(why, why.counterfactual), width)]
        lines += _counterfactual(why, why.counterfactual, width)
    for view, reason in why.skipped.items():
        lines += ["", *words.wrapped(f"{view.upper()} is left out: {words.visible(reason)}", width)]
    return "\n".join(line.rstrip() for line in lines)


# What text and picture say alike


def headline(why: Explanation) -> str:
    """The row, and what it is; an ASK has no row, only whether it holds."""
    row = ", ".join(shown(why.nodes[node]) for node in why.targets) or "That it holds"
    model = words.visible(why.model) if why.model is not None else None
    if why.status == KNOWN:
        return f"{row}: known; the graph holds every fact that it needs"
    if why.probability is None:
        return f"{row}: not known to the graph"
    return f"{row}: predicted by {model} with probability {words.probability(why.probability)}"


def about_witness(why: Explanation) -> str:
    """What the witness shows."""
    if why.status == KNOWN:
        return f"{WITNESS.upper()}: the facts that together make this row. All of them are stored in the graph."
    said = f", and the number is how likely {words.visible(why.model)} finds that fact by itself" if why.model else ""
    return (
        f"{WITNESS.upper()}: the facts that together would make this row. Those marked stored are in the graph; "
        f"those marked missing are not{said}."
    )


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


def after(counterfactual: Counterfactual, change: Change) -> str:
    """The row's probability after a change, compared with before."""
    if change.share is None:
        return "-"
    return f"{words.probability(change.share)}  {words.compared(counterfactual.share, change.share)}"


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
    if not witness.is_complete:
        lines += words.wrapped("Not every choice of the hidden variables was tried; there may be a better one.", width)
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
    rows = [
        (change, f"without pattern {change.pattern + 1}: {asked(why, change.pattern)}")
        for change in counterfactual.patterns
    ]
    lines = _changes(counterfactual, rows, width)
    if counterfactual.triples:
        lines += words.wrapped(about_triples(counterfactual), width)
        lines += _changes(counterfactual, [(change, withheld(why, change)) for change in counterfactual.triples], width)
    return lines


def _changes(counterfactual: Counterfactual, rows: list[tuple[Change, str]], width: int) -> list[str]:
    lines = []
    for change, what in rows:
        reason = f" ({words.visible(change.reason)})" if change.reason else ""
        lines += words.wrapped(what + reason, width, first=f"  {after(counterfactual, change):<25}  ")
    return lines
