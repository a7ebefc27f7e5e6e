"""Answers as text: a table for people; JSON, CSV, TSV and XML for programs.

The table shows labels, shortens what is too long, and never sends a control character of a name to the terminal.
``json`` is our own schema with everything in it, under the graph's own names. ``sparql-json``, ``csv``, ``tsv`` and
``xml`` are the result formats of SPARQL 1.1, with three columns of ours after the variables; they know only IRIs and
blank nodes, so there ``Rhine`` is ``urn:biqe:name:Rhine``, as the server writes it.
"""

from __future__ import annotations

import csv as csv_module
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from biqe.answer.combine import KNOWN
from biqe.errors import InvalidOption
from biqe.exact.store import node_of
from biqe.query.question import ASK

if TYPE_CHECKING:
    # Answers write themselves through this module, so it knows them by their types only.
    from biqe.answer.evidence import IdLink
    from biqe.answer.result import Answers, Link, Row

EXTRA = ("status", "probability", "missing")
"""Columns after the variables: known or predicted; the row's probability; its missing links as patterns."""
TABLE_ROWS = 50
"""Known rows that a table shows unless told otherwise."""
RESULTS = "http://www.w3.org/2005/sparql-results#"
XSD = "http://www.w3.org/2001/XMLSchema#"


# What may reach a terminal

_LOOSE_JOINER = re.compile("(?<![^\\s\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?![^\\s\u200c\u200d])")
"""A joiner that joins nothing. Between two characters it is part of the spelling in some scripts."""


def visible(text: str) -> str:
    r"""``text`` with control, direction-changing and line-breaking characters written as escapes.

    >>> visible("Rhine\x1b[31m\n")
    'Rhine\\x1b[31m\\n'
    """
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(map(_visible_character, text))
    return _LOOSE_JOINER.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), shown)


def _visible_character(character: str) -> str:
    hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    if not hidden or character in "\u200c\u200d":
        return character
    return character.encode("unicode_escape").decode("ascii")


def escaped_json(text: str) -> str:
    """A JSON document with the characters that JSON allows raw, but a terminal should not see, as escapes."""
    return _RAW_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_RAW_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def fit(text: str, width: int) -> str:
    """``text`` in exactly ``width`` columns: filled with spaces, or cut off with an ellipsis."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    # A joiner at the cut would join the ellipsis to the name.
    return set_cell_size(set_cell_size(text, width - 1).rstrip("\u200c\u200d") + "…", width)


# For people


def row_line(row: Row) -> str:
    """One row as a line, its columns aligned with those of the other rows.

    The README prints rows so: ``Rhine  Bonn  predicted  0.83``.
    """
    answers = row._answers
    cells = [fit(visible(label), width) for label, width in zip(row.labels.values(), answers.label_widths, strict=True)]
    end = [KNOWN] if row.status == KNOWN else [row.status, probability(row.probability, 2)]
    return "  ".join([*cells, *end])


def label_widths(answers: Answers, *, rows: int = 1000, longest: int = 40) -> list[int]:
    """Columns that the labels of each variable need, judged by the first rows."""
    widths = [1] * len(answers.variables)
    for row in answers[:rows]:
        needed = (cell_len(visible(label)) for label in row.labels.values())
        widths = list(map(max, widths, needed))
    return [min(width, longest) for width in widths]


def probability(value: float, digits: int = 3) -> str:
    """A probability as people read it."""
    smallest = 10.0**-digits
    return f"<{smallest:.{digits}f}" if 0 < value < smallest else f"{value:.{digits}f}"


def table(answers: Answers, *, width: int = 80, colour: bool = False, known_rows: int | None = TABLE_ROWS) -> str:
    """The answers as a table of ``width`` columns, with a line above it that says who answered.

    At most ``known_rows`` known rows are shown (all with None); a line says how many more there are.
    """
    if answers.form == ASK:
        return _verdict(answers, width)
    shown = answers.known_count if known_rows is None else min(known_rows, answers.known_count)
    rows = [*answers[:shown], *answers[answers.known_count :]]
    lines = [_headline(answers), *chosen(answers.model, answers.why), *remarked(answers.note)]
    if rows:
        lines += ["", *_table_lines(answers, rows, width, colour)]
    left_out = answers.known_count - shown
    if left_out:
        note = f"… and {left_out:,} more known row{'s' if left_out > 1 else ''}"
        lines.insert(len(lines) - _line_count(answers, rows[shown:]), _paint(note, "2", colour))
    return "\n".join(line.rstrip() for line in lines)


def chosen(model: str | None, why: str) -> list[str]:
    """A line that says why this model answered; none where there was no choice."""
    return [f"model {visible(str(model))}: {why}"] if why else []


def remarked(note: str) -> list[str]:
    """A line with a remark; none where there is none."""
    return [f"note: {note}"] if note else []


def _verdict(answers: Answers, width: int) -> str:
    """ASK in words: whether the graph holds it, how probable it is if not, and what it rests on."""
    source = f"{visible(answers.source)}: " if answers.source else ""
    if answers.holds:
        said = "yes, the graph holds it"
    elif answers.predicted_count:
        said = f"not in the graph; probability {probability(answers[0].probability)} by {visible(str(answers.model))}"
    elif answers.model is not None:
        least = answers.config.min_probability
        said = f"not in the graph; {visible(answers.model)} " + (
            f"gives it less than {probability(least)}" if least else "finds no way in which it could hold"
        )
    else:
        said = "no, the graph does not hold it"
    lines = [f"{source}{said}, {answers.seconds:.2f} s", *chosen(answers.model, answers.why), *remarked(answers.note)]
    for row in answers:
        held, missing = answers.id_links(row)
        for word, links in (("holds  ", held), ("missing", missing)):
            room = width - len(word) - 2
            lines += [f"{word}  {_fit_link(_link_parts(answers, row, link), room)}" for link in links]
    return "\n".join(lines)


def _headline(answers: Answers) -> str:
    counts = []
    more = "" if answers.known_complete else " or more"
    if answers.config.mode != "predicted":
        counts.append(f"{answers.known_count:,}{more} known")
    if answers.model is not None:
        counts.append(f"{answers.predicted_count:,} predicted by {visible(answers.model)}")
    elif answers.config.mode == "both":
        counts.append("no model to predict more")
    rows = ", ".join(counts) if len(answers) else "no answers"
    if len(answers) == 0 and answers.model is not None:
        least = answers.config.min_probability
        rows += f" with probability {least:g} or more" if least else ""
        rows += f" (model {visible(answers.model)})"
    source = f"{visible(answers.source)}: " if answers.source else ""
    return f"{source}{rows}, {answers.seconds:.2f} s"


def _line_count(answers: Answers, rows: Sequence[Row]) -> int:
    return sum(max(1, len(row.missing)) for row in rows)


def _table_lines(answers: Answers, rows: Sequence[Row], width: int, colour: bool) -> list[str]:
    body: list[tuple[list[str], str, str, list[list[str]]]] = []
    for row in rows:
        links = [] if row.status == KNOWN else [_link_parts(answers, row, link) for link in answers.id_links(row)[1]]
        chance = "" if row.status == KNOWN else probability(row.probability)
        body.append(([visible(label) for label in row.labels.values()], row.status, chance, links))
    heads = [f"?{visible(variable)}" for variable in answers.variables]
    columns = [
        max([cell_len(head), *(cell_len(labels[number]) for labels, *_ in body)]) for number, head in enumerate(heads)
    ]
    statuses = max(len("status"), *(len(status) for _, status, _, _ in body))
    chances = max([0, *(len(chance) for _, _, chance, _ in body)])
    if chances:
        chances = max(chances, len("prob."))
    longest_link = max([0, *(cell_len(" ".join(link)) for *_, links in body for link in links)])
    if longest_link:
        longest_link = max(longest_link, len("missing links"))
    fixed = statuses + 2 + (chances + 2 if chances else 0)
    gaps = 2 * (len(columns) - 1 + bool(longest_link))
    *columns, longest_link = shrink([*columns, longest_link], width - fixed - gaps)

    def line(labels: Iterable[str], status: str, chance: str, link: Sequence[str], paint: Callable[[str], str]) -> str:
        cells = [fit(label, size) for label, size in zip(labels, columns, strict=True)]
        cells.append(paint(fit(status, statuses)))
        if chances:
            cells.append(chance.rjust(chances))
        if longest_link:
            cells.append(_paint(_fit_link(link, longest_link), "2", colour and bool(status != "status")))
        return "  ".join(cells)

    header = line(heads, "status", "prob.", ["missing links"], lambda text: text)
    lines = [_paint(header.rstrip(), "1", colour)]
    blank = [""] * len(columns)
    for labels, status, chance, links in body:
        shade = "32" if status == KNOWN else "33"
        first, *more = links or [[""]]
        lines.append(line(labels, status, chance, first, lambda text, shade=shade: _paint(text, shade, colour)))  # type: ignore[misc]
        lines.extend(line(blank, "", "", link, lambda text: text) for link in more)
    return lines


def shrink(columns: list[int], room: int, least: int = 6) -> list[int]:
    """The widths, the widest ones cut until they fit into ``room``; none below ``least``."""
    columns = list(columns)
    while sum(columns) > room and max(columns) > least:
        widest = max(columns)
        columns[columns.index(widest)] = widest - 1
    return columns


def _link_parts(answers: Answers, row: Row, link: IdLink) -> list[str]:
    """Probability where there is one, subject, relation and object, as a table shows them."""
    relation = answers.graph.vocabulary.relations[link.relation]
    # Freebase writes a relation as a path; its last part is the one that says something.
    relation = _short(relation) if not relation.startswith("/") else relation.rstrip("/").split("/")[-1] or relation
    chance = answers.rows.link_probabilities.get(link)
    subject, object_ = (_short(answers.label(end, row)) for end in (link.subject, link.object))
    parts = [probability(chance, 2)] if chance is not None else []
    return parts + [visible(part) for part in (subject, relation, object_)]


def _fit_link(parts: Sequence[str], width: int) -> str:
    """The link in at most ``width`` columns; its longest names are cut, so that something of each stays."""
    sizes = shrink([cell_len(part) for part in parts], width - len(parts) + 1)
    shown = " ".join(fit(part, size).rstrip() for part, size in zip(parts, sizes, strict=True))
    return fit(shown, width).rstrip()


def _short(name: str) -> str:
    """The last part of an IRI; any other name as it is."""
    return re.split(r"[/#]", name)[-1] or name if re.match(r"[a-z][a-z0-9+.-]*://", name) else name


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text else text


# For programs


def extra_columns(variables: Sequence[str]) -> list[str]:
    """Names of the three columns after the variables; a variable of the same name keeps it."""
    names = []
    for name in EXTRA:
        while name in variables:
            name += "_"
        names.append(name)
    return names


def to_json(answers: Answers) -> str:
    """Everything, in our own schema."""
    return answers.to_json() + "\n"


class _Nodes(dict[str, str]):
    """IRIs and blank nodes (``_:b``) by the graph's names, each made once: rows repeat their entities."""

    def __missing__(self, name: str) -> str:
        from pyoxigraph import BlankNode

        node = node_of(name)
        found = self[name] = name if isinstance(node, BlankNode) else node.value
        return found


def csv(answers: Answers) -> str:
    """SPARQL 1.1 CSV: IRIs without brackets, quoted where needed, lines ended by CR LF."""
    nodes = _Nodes()
    text = io.StringIO()
    writer = csv_module.writer(text)
    writer.writerow([*answers.variables, *extra_columns(answers.variables)])
    for row in answers:
        values = [nodes[name] for name in row.values.values()]
        writer.writerow([*values, row.status, repr(row.probability), patterns(row.missing)])
    return text.getvalue()


def tsv(answers: Answers) -> str:
    """SPARQL 1.1 TSV: terms as in Turtle."""
    nodes = _Nodes()
    lines = ["\t".join(f"?{name}" for name in [*answers.variables, *extra_columns(answers.variables)])]
    for row in answers:
        terms = [term(nodes[name]) for name in row.values.values()]
        missing = patterns(row.missing).replace("\\", "\\\\").replace('"', '\\"')
        lines.append("\t".join([*terms, f'"{row.status}"', f"{row.probability:.9e}", f'"{missing}"']))
    return "\n".join(lines) + "\n"


def sparql_json(answers: Answers) -> str:
    """SPARQL 1.1 query results in JSON."""
    if answers.form == ASK:
        verdict = {
            "head": {},
            "boolean": answers.holds,
            "probability": max((row.probability for row in answers), default=0.0),
        }
        return json.dumps(verdict, indent=1) + "\n"
    nodes, extra = _Nodes(), extra_columns(answers.variables)
    bindings = []
    for row in answers:
        binding = {variable: _json_term(nodes[name]) for variable, name in row.values.items()}
        for name, (value, datatype) in zip(extra, _extra_values(row), strict=True):
            binding[name] = {"type": "literal", "value": value} | ({"datatype": XSD + datatype} if datatype else {})
        bindings.append(binding)
    document = {"head": {"vars": [*answers.variables, *extra]}, "results": {"bindings": bindings}}
    return escaped_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def xml(answers: Answers) -> str:
    """SPARQL query results in XML. Characters that XML does not have are written as %XX."""
    nodes, extra = _Nodes(), extra_columns(answers.variables)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<sparql xmlns="{RESULTS}">', "<head>"]
    if answers.form == ASK:
        return "\n".join([*lines, "</head>", f"<boolean>{str(answers.holds).lower()}</boolean>", "</sparql>"]) + "\n"
    lines += [f'<variable name="{name}"/>' for name in [*answers.variables, *extra]]
    lines += ["</head>", "<results>"]
    for row in answers:
        lines.append("<result>")
        for variable, name in row.values.items():
            node = nodes[name]
            kind, value = ("bnode", node[2:]) if node.startswith("_:") else ("uri", node)
            lines.append(f'<binding name="{variable}"><{kind}>{xml_text(value)}</{kind}></binding>')
        for name, (value, datatype) in zip(extra, _extra_values(row), strict=True):
            typed = f' datatype="{XSD}{datatype}"' if datatype else ""
            lines.append(f'<binding name="{name}"><literal{typed}>{xml_text(value)}</literal></binding>')
        lines.append("</result>")
    return "\n".join([*lines, "</results>", "</sparql>"]) + "\n"


def _extra_values(row: Row) -> list[tuple[str, str | None]]:
    """Values of the three columns after the variables, and their XSD types."""
    return [(row.status, None), (repr(row.probability), "double"), (patterns(row.missing), None)]


def patterns(links: Sequence[Link]) -> str:
    """Links as triple patterns, ``<s> <r> <o> . <s> <r> <o>``; a hidden variable without an entity is ``?h``."""

    def end(name: str, link: Link) -> str:
        # Only such a link has no probability; an entity may be called ?h.
        return name if link.probability is None and re.fullmatch(r"\?\w+", name) else term(name)

    return " . ".join(f"{end(link.subject, link)} {term(link.relation)} {end(link.object, link)}" for link in links)


def term(name: str) -> str:
    """A name as Turtle writes it: ``<name>``, with what may not stand there as an escape; ``_:b`` bare."""
    if re.fullmatch(r"_:\w+", name):
        return name
    return f"<{_NOT_IN_IRI.sub(lambda match: _unicode_escape(match[0]), name)}>"


_NOT_IN_IRI = re.compile('[\x00-\x20<>"{}|^`\\\\\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]')


def _unicode_escape(character: str) -> str:
    return f"\\u{ord(character):04X}"


def _json_term(node: str) -> dict[str, str]:
    if node.startswith("_:"):
        return {"type": "bnode", "value": node[2:]}
    return {"type": "uri", "value": node}


def xml_text(text: str) -> str:
    """A text as XML holds it."""
    text = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", lambda match: f"%{ord(match[0]):02X}", text)
    # As character references: a parser would turn CR into LF, and a terminal would obey the others.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    return _RAW_CONTROLS.sub(lambda match: f"&#{ord(match[0])};", text)


FORMATS: dict[str, Callable[[Answers], str]] = {
    "table": table,
    "json": to_json,
    "sparql-json": sparql_json,
    "csv": csv,
    "tsv": tsv,
    "xml": xml,
}


def write(answers: Answers, form: str) -> str:
    """The answers in one of FORMATS."""
    if form not in FORMATS:
        raise InvalidOption(f"'format' must be one of {', '.join(FORMATS)}. Got {form!r}")
    return FORMATS[form](answers)
