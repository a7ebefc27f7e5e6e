"""What a user gets: why one row is an answer, in words, in JSON, and as a picture."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from biqe.errors import InvalidOption, RunFailed
from biqe.explain import text
from biqe.explain.attention import Attention, Table
from biqe.explain.counterfactual import Change, Counterfactual
from biqe.explain.parts import CONSTANT, HIDDEN, KNOWN, Node, Pattern, Witness
from biqe.explain.reasons import Reason
from biqe.graph import words
from biqe.graph.words import for_notebook, html_table

FORMATS = {"text": "txt", "json": "json", "svg": "svg", "png": "png"}
"""Forms of an explanation, and how the names of their files end."""
OTHERWISE = (
    "This is its share of the row when the unknowns are filled one after the other; the probability above was found in "
    "another way."
)
"""What is said about a share that is not the probability, where nobody knows more."""


@dataclass(frozen=True)
class Explanation:
    """Why one row is an answer. Made by ``kb.explain``; ``str()`` is the text of 80 columns.

    >>> import biqe
    >>> kb = biqe.open("atlas")
    >>> why = kb.explain("SELECT ?country { :Danube :flows_through ?country }", row=0, mode="predicted")
    >>> why.row, why.status, round(why.probability, 1)
    ({'country': 'Slovakia'}, 'predicted', 0.5)
    >>> why.sentence
    'Bratislava located on Danube, and Bratislava located in Slovakia: then “flows through” holds in ...'
    >>> why.reasons[0].rules[0].hits > 100
    True
    """

    model: str | None
    """Name of the model; None where only the graph was asked."""
    nodes: tuple[Node, ...]
    patterns: tuple[Pattern, ...]
    targets: tuple[int, ...]
    """Nodes of the unknowns, in SELECT order."""
    status: str
    """``known`` (stored triples make the row) or ``predicted``."""
    probability: float | None
    """What the row was given when it was asked for; where nobody said, its share, or its links multiplied."""
    sentence: str = ""
    """Why the row is an answer, in one sentence without its full stop."""
    reasons: tuple[Reason, ...] = ()
    """What speaks for each missing fact and against it."""
    depths: tuple[int, ...] = ()
    """Column of each node in a picture: constants left, what they lead to right of them."""
    witness: Witness | None = None
    attention: Attention | None = None
    counterfactual: Counterfactual | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    """A sentence for each view that was asked for and cannot be had."""
    remark: str = ""
    """Why the probability is not the share, where whoever listed the row knows."""

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        head, *more = text.introduction(self)
        rows: list[str | list[str]] = [*more]
        for link in () if self.witness is None else self.witness.links:
            ends = self._link(link.pattern, lambda node: node.entity is not None)
            chance = "" if link.probability is None or link.is_stored else words.probability(link.probability)
            rows.append([" ".join(map(str, ends.values())), "stored" if link.is_stored else "missing", chance])
        for reason in self.reasons:
            rows.append(text.about_link(reason))
            rows += [f"{sign} {sentence}" for sign, sentence in text.about_reason(reason)]
        return for_notebook(html_table([head], ["link", "", "probability"], rows))

    @property
    def row(self) -> dict[str, str | None]:
        """Names of the row's entities, by variable."""
        return {self.nodes[node].word.removeprefix("?"): self.nodes[node].entity for node in self.targets}

    @property
    def share(self) -> float | None:
        """What the model by itself gives the row, of 1 over all rows; None where the counterfactual view is missing."""
        return None if self.counterfactual is None else self.counterfactual.share

    @property
    def baseline(self) -> str:
        """What the share is, in a sentence, where it is not the probability of a predicted row; else ''."""
        if self.status == KNOWN or self.share is None or self.probability is None:
            return ""
        if math.isclose(self.share, self.probability, rel_tol=0.01):
            return ""
        return self.remark or OTHERWISE

    def to_text(self, *, width: int = 80) -> str:
        """For people: at most ``width`` columns, a sentence on what each view shows before it."""
        return text.write(self, width)

    def to_json(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers; see docs/concepts/explain.md."""
        entities = {node.entity: node.label for node in self.nodes if node.entity is not None}
        return {
            "format": "biqe-explanation",
            "version": 1,
            "model": self.model,
            "row": self.row,
            "status": self.status,
            "probability": self.probability,
            "share": self.share,
            "baseline": self.baseline,
            "sentence": self.sentence,
            "reasons": [json.loads(json.dumps(asdict(each))) for each in self.reasons],
            "patterns": [self._pattern(number) for number in range(len(self.patterns))],
            "labels": {name: label for name, label in entities.items() if name != label},
            "witness": None if self.witness is None else self._witness(self.witness),
            "attention": None if self.attention is None else self._attention(self.attention),
            "counterfactual": None if self.counterfactual is None else self._counterfactual(self.counterfactual),
            "skipped": dict(self.skipped),
        }

    def to_svg(self) -> str:
        """The picture as an SVG document, for light and for dark pages."""
        return self._picture("svg").decode()

    def to_png(self) -> bytes:
        """The picture as a PNG file."""
        return self._picture("png")

    def _picture(self, form: str) -> bytes:
        from biqe.evaluate import pictures  # torch comes with that room: not before a picture is drawn
        from biqe.explain import picture

        return pictures.render(lambda: picture.draw(self), form, text.headline(self))

    def save(self, path: str | os.PathLike[str], form: str | None = None) -> None:
        """Write the explanation to a file: as its name ends (.txt, .json, .svg or .png), or in this form."""
        place = Path(path)
        if form is None:
            form = next((name for name, ending in FORMATS.items() if place.suffix.lower() == f".{ending}"), None)
        if form not in FORMATS:
            endings = ", ".join(f".{ending}" for ending in FORMATS.values())
            raise InvalidOption(
                f"the name of an explanation must end in one of {endings}. Got {place.name!r}",
                hint="say the form with --format (form= in Python)",
            )
        data = self.write(form)
        try:
            place.write_bytes(data)
        except OSError as error:
            raise RunFailed(f"the explanation could not be written to {place}: {error.strerror or error}") from error

    def write(self, form: str) -> bytes:
        """The explanation in one of FORMATS, as the bytes of a file."""
        if form == "png":
            return self.to_png()
        if form == "svg":
            return self.to_svg().encode()
        if form == "json":
            written = words.escaped_json(json.dumps(self.to_json(), ensure_ascii=False, indent=2))
            return f"{written}\n".encode(errors="backslashreplace")
        if form == "text":
            return f"{self.to_text()}\n".encode(errors="backslashreplace")
        raise InvalidOption(f"the form of an explanation must be one of {', '.join(FORMATS)}. Got {form!r}")

    def _pattern(self, number: int) -> dict[str, Any]:
        """A pattern as the query writes it."""
        return {"number": number + 1, **self._link(number, lambda node: node.kind == CONSTANT)}

    def _triple(self, number: int) -> dict[str, Any]:
        """The pattern with entities; a variable that nothing fills stays a variable."""
        return {"pattern": number + 1, **self._link(number, lambda node: node.entity is not None)}

    def _link(self, number: int, is_entity: Callable[[Node], bool]) -> dict[str, str | None]:
        pattern = self.patterns[number]
        ends = [self.nodes[node] for node in (pattern.subject, pattern.object)]
        subject, object_ = (node.entity if is_entity(node) else node.word for node in ends)
        return {"subject": subject, "relation": pattern.relation, "object": object_}

    def _witness(self, witness: Witness) -> dict[str, Any]:
        hidden = {node.word.removeprefix("?"): node.entity for node in self.nodes if node.kind == HIDDEN}
        links = [
            {**self._triple(link.pattern), "stored": link.is_stored, "probability": link.probability}
            for link in witness.links
        ]
        return {"hidden": hidden, "links": links, "complete": witness.is_complete}

    def _attention(self, attention: Attention) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"node": self.nodes[node].word} for node in attention.nodes]
        parts += [{"pattern": number + 1, "relation": self.patterns[number].relation} for number in attention.patterns]
        return {
            "parts": parts,
            "unknowns": [self.nodes[target].word for target in attention.targets],
            "heads": attention.heads,
            "layers": len(attention.by_layer),
            "mean": _lists(attention.mean),
            "last": _lists(attention.last),
            "by_layer": [_lists(table) for table in attention.by_layer],
        }

    def _counterfactual(self, counterfactual: Counterfactual) -> dict[str, Any]:
        def entry(change: Change, what: dict[str, Any]) -> dict[str, Any]:
            return {**what, "how": change.how, "share": change.share, "reason": change.reason}

        return {
            "share": counterfactual.share,
            "model_sees_graph": counterfactual.sees_graph,
            "patterns": [entry(change, {"pattern": change.pattern + 1}) for change in counterfactual.patterns],
            "triples": [entry(change, self._triple(change.pattern)) for change in counterfactual.triples],
        }


def _lists(table: Table) -> list[list[float]]:
    return [list(row) for row in table]
