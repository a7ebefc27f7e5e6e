"""The picture of an explanation: well-formed, harmless, readable on light and dark pages, nothing on top of anything
else."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from functools import partial

import pytest

from biqe.evaluate import pictures
from biqe.explain import VIEWS, explain
from biqe.query.bound import BoundQuery

explain = partial(explain, views=VIEWS)

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    '"/><image href="x" onerror="y"/>',
    "]]>&amp;",
    "a\x1b[31m\x00b",
    "\u202egnirts",
    "\ufffe\uffff",
    "川の名前" * 12,
    "$x^2$ and \\frac{1}{",
    "\U0001f600 \U0001f9d1\u200d\U0001f680",
    "n" * 5000,
]


@pytest.fixture(scope="module")
def why(toy, rivers):
    return explain(toy.WatchedModel(rivers.weights), rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary)


def styles(element) -> dict[str, str]:
    """The declarations of an element's style attribute."""
    return dict(part.strip().split(": ", 1) for part in element.get("style", "").split(";") if part.strip())


def texts(root) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Every line of text in the picture, and where it stands: left, top, right, bottom."""
    found = []
    for element in root.iter(f"{SVG}text"):
        style = styles(element)
        size = float(style["font-size"].removesuffix("px"))
        width = pictures.text_width(element.text, size)
        place = element.get("transform")
        x, y = (
            (float(number) for number in (element.get("x"), element.get("y")))
            if element.get("x")
            else (float(number) for number in re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", place)[0])
        )
        left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[style.get("text-anchor", "start")] * width
        found.append((element.text, (left, y - 0.8 * size, left + width, y + 0.25 * size)))
    return found


def dashed(root) -> list[ET.Element]:
    return [path for path in root.iter(f"{SVG}path") if "stroke-dasharray" in path.get("style", "")]


def test_svg_is_well_formed_and_says_what_is_missing(why):
    root = ET.fromstring(why.to_svg())
    words = {text for text, _ in texts(root)}
    assert {"?river", "Rhine", "?city", "Bonn am Rhein", "Germany", "flows_through", "located_on"} <= words
    chance = why.witness.missing[0].probability
    assert f"missing {chance:.2f}" in words
    assert len(dashed(root)) == 3  # one link, drawn up to its label and on from there, and the legend
    assert "Bonn am Rhein" in root.get("aria-label") and root.get("role") == "img"


def test_stored_links_are_solid(toy, rivers):
    known = explain(toy.WatchedModel(rivers.weights), rivers.graph, rivers.query, rivers.known, rivers.vocabulary)
    root = ET.fromstring(known.to_svg())
    assert not dashed(root)
    assert not [text for text, _ in texts(root) if text.startswith("missing")]


def test_the_same_explanation_is_the_same_file(why):
    assert why.to_svg() == why.to_svg()
    assert why.to_png() == why.to_png()
    assert "<metadata" not in why.to_svg()


def test_the_view_box_holds_everything(why):
    root = ET.fromstring(why.to_svg())
    _, _, width, height = map(float, root.get("viewBox").split())
    extents = [extent for _, extent in texts(root)]
    for path in root.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", path.get("d"))]
        extents.append((min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])))
    for left, top, right, bottom in extents:
        assert left >= 0 and top >= 0
        assert right <= width and bottom <= height


def test_lines_of_text_do_not_overlap(why):
    found = [extent for _, extent in texts(ET.fromstring(why.to_svg()))]
    assert len(found) > 20
    for number, one in enumerate(found):
        for other in found[:number]:
            apart = one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3]
            assert apart, (one, other)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_harmless(toy, rivers, name):
    graph = toy.graph_of(rivers.triples, [name, *rivers.names[1:-1], f"{name}2"], [f"{name}r", "located_on"])
    query = BoundQuery(rivers.query.nodes, rivers.query.edges, rivers.query.targets, (name, "", "city"))
    why = explain(toy.WatchedModel(rivers.weights), graph, query, rivers.predicted, graph.vocabulary)
    svg = why.to_svg()
    root = ET.fromstring(svg)
    allowed = {"svg", "defs", "style", "g", "path", "text"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == allowed
    for element in root.iter():
        assert not [key for key in element.attrib if key.startswith("on") or "href" in key]
    assert "\x1b" not in svg and "\u202e" not in svg
    assert float(root.get("viewBox").split()[2]) < 2000
    assert why.to_png().startswith(b"\x89PNG")


def test_dollar_signs_are_no_formulas(toy, rivers):
    graph = toy.graph_of(rivers.triples, [*rivers.names[:-1], "$x^2$"], ["r$_a$", "located_on"])
    why = explain(toy.WatchedModel(rivers.weights), graph, rivers.query, rivers.predicted, graph.vocabulary)
    assert "r$_a$" in {text for text, _ in texts(ET.fromstring(why.to_svg()))}


def test_png_is_a_picture_of_the_same_size(why):
    width, height = struct.unpack(">II", why.to_png()[16:24])
    _, _, wide, high = map(float, ET.fromstring(why.to_svg()).get("viewBox").split())
    assert (width, height) == (2 * wide, 2 * high)


def _luminance(colour: tuple[float, ...]) -> float:
    """WCAG 2: relative luminance of a colour with channels from 0 to 1."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_text_has_contrast_on_all_it_is_written_on(is_dark):
    def rgb(light: str) -> tuple[float, ...]:
        colour = pictures.DARK[light] if is_dark else light
        return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))

    paper, ink, soft, blue = (rgb(c) for c in (pictures.PAPER, pictures.INK, pictures.SOFT, pictures.BLUE))
    heat = tuple(pictures.HEAT * over + (1 - pictures.HEAT) * under for over, under in zip(blue, paper, strict=True))
    for ground in (paper, rgb(pictures.PLAIN), rgb(pictures.ASKED), heat):
        assert _contrast(ink, ground) >= 4.5
    for ground in (paper, rgb(pictures.PLAIN), rgb(pictures.ASKED)):
        assert _contrast(soft, ground) >= 4.5
    assert _contrast(blue, paper) >= 3.0
    # The probability of a missing link is written in its colour.
    assert _contrast(rgb(pictures.ORANGE), paper) >= 4.5


def test_every_colour_has_one_for_dark_pages(why):
    root = ET.fromstring(why.to_svg())
    sheet = root.find(f"{SVG}defs/{SVG}style").text
    assert sheet.startswith("@media (prefers-color-scheme:dark){")
    used = {
        f"{what}: {style[what]}"
        for element in root.iter()
        for what, style in (("fill", styles(element)), ("stroke", styles(element)))
        if style.get(what, "none") != "none"
    }
    assert len(used) > 5
    for declaration in used:
        assert f'[style*="{declaration}"]' in sheet
