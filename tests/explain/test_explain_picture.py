"""The picture: well-formed, harmless, readable on light and dark pages, and nothing on top of anything else."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.explain import drawing, explain, layout, picture
from biqe.query.bound import HIDDEN, TARGET, BoundQuery

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    '"/><image href="x" onerror="y"/>',
    "]]>&amp;",
    "a\x1b[31m\x00b",
    "\u202egnirts",
    "\ufffe\uffff",
    "川の名前" * 12,
]


@pytest.fixture(scope="module")
def why(toy, rivers):
    return explain(toy.WatchedModel(rivers.weights), rivers.graph, rivers.query, rivers.predicted, rivers.vocabulary)


def test_svg_is_well_formed_and_says_what_is_missing(why):
    root = ET.fromstring(why.to_svg())
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"?river", "Rhine", "?city", "Bonn am Rhein", "Germany", "flows_through", "located_on"} <= set(words)
    chance = why.witness.missing[0].probability
    assert f"missing {chance:.2f}" in words
    dashed = [line for line in root.iter(f"{SVG}polyline") if line.get("stroke-dasharray")]
    assert len(dashed) == 3  # one link, drawn up to its label and on from there, and the legend


def test_stored_links_are_solid(toy, rivers):
    known = explain(toy.WatchedModel(rivers.weights), rivers.graph, rivers.query, rivers.known, rivers.vocabulary)
    root = ET.fromstring(known.to_svg())
    assert not [line for line in root.iter(f"{SVG}polyline") if line.get("stroke-dasharray")]
    assert not [text for text in root.iter(f"{SVG}text") if (text.text or "").startswith("missing")]


def test_the_view_box_holds_everything(why):
    sketch = picture.draw(why)
    for shape in sketch.shapes:
        for left, top, right, bottom in [_extent(shape)]:
            assert left >= 0 and top >= 0
            assert right <= sketch.width and bottom <= sketch.height
    root = ET.fromstring(sketch.svg())
    assert root.get("viewBox") == f"0 0 {sketch.width:g} {sketch.height:g}"


def _extent(shape) -> tuple[float, float, float, float]:
    if isinstance(shape, drawing.Box):
        return shape.x, shape.y, shape.x + shape.width, shape.y + shape.height
    if isinstance(shape, drawing.Line):
        xs, ys = zip(*shape.points, strict=True)
        return min(xs), min(ys), max(xs), max(ys)
    width = drawing.text_width(shape.text, shape.size)
    left = shape.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[shape.anchor] * width
    return left, shape.y - 0.8 * shape.size, left + width, shape.y + 0.25 * shape.size


def test_lines_of_text_do_not_overlap(why):
    texts = [_extent(shape) for shape in picture.draw(why).shapes if isinstance(shape, drawing.Words)]
    for number, one in enumerate(texts):
        assert not [other for other in texts[:number] if _overlap(one, other)]


def _overlap(one, other) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_harmless(toy, rivers, name):
    graph = toy.graph_of(rivers.triples, [name, *rivers.names[1:-1], f"{name}2"], [f"{name}r", "located_on"])
    query = BoundQuery(rivers.query.nodes, rivers.query.edges, rivers.query.targets, (name, "", "city"))
    why = explain(toy.WatchedModel(rivers.weights), graph, query, rivers.predicted, graph.vocabulary)
    svg = why.to_svg()
    root = ET.fromstring(svg)
    allowed = {"svg", "title", "style", "rect", "polyline", "polygon", "text"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == allowed
    for element in root.iter():
        assert not [key for key in element.attrib if key.startswith("on") or "href" in key or key == "id"]
    assert "\x1b" not in svg and "\u202e" not in svg
    assert why.to_png().startswith(b"\x89PNG")


def test_png_is_a_picture_of_the_same_size(why):
    data = why.to_png()
    width, height = struct.unpack(">II", data[16:24])
    sketch = picture.draw(why)
    assert (width, height) == (2 * sketch.width, 2 * sketch.height)


def _luminance(colour: tuple[float, ...]) -> float:
    """WCAG 2: relative luminance of a colour with channels from 0 to 1."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def _contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_no_text_of_a_png_is_wider_than_the_room_that_it_has(why):
    for size, is_bold in {(shape.size, shape.is_bold) for shape in picture.draw(why).shapes if hasattr(shape, "text")}:
        room = drawing.text_width("M" * 80, size)
        sketch = drawing.Drawing(2 * room, 40.0, "")
        sketch.add(drawing.Words(0.0, 20.0, "M" * 80, size=size, is_bold=is_bold))
        assert _painted_width(sketch.png(2)) <= 2 * room + 4, size


def _painted_width(png: bytes) -> int:
    width, height = struct.unpack(">II", png[16:24])
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    rows = zlib.decompress(png[start + 4 : start + 4 + length])
    stride = 1 + 3 * width
    inked = [x for y in range(height) for x in range(width) if rows[y * stride + 1 + 3 * x] != 255]
    return max(inked) + 1


@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_text_has_contrast_on_all_it_is_written_on(page):
    colours = {name: _rgb(pair[page]) for name, pair in drawing.COLOURS.items()}
    heat = tuple(
        picture.HEAT * over + (1 - picture.HEAT) * under
        for over, under in zip(colours["stored"], colours["paper"], strict=True)
    )
    for ground in (colours["paper"], colours["plain"], colours["asked"], heat):
        assert _contrast(colours["ink"], ground) >= 4.5
    for ground in ("paper", "plain", "asked"):
        assert _contrast(colours["soft"], colours[ground]) >= 4.5
    for line in ("stored", "missing"):
        assert _contrast(colours[line], colours["paper"]) >= 3.0
    # The share of a missing link is written in its colour.
    assert _contrast(colours["missing"], colours["paper"]) >= 4.5


def test_dark_pages_have_colours_of_their_own(why):
    style = ET.fromstring(why.to_svg()).find(f"{SVG}style").text
    assert style.startswith("@media (prefers-color-scheme:dark){")
    used = {name for element in ET.fromstring(why.to_svg()).iter() for name in element.get("class", "").split()}
    assert used
    assert all(f".{name}{{" in style for name in used)


def test_thickness_follows_attention(why):
    shares = why.attention.mean[0]
    nodes, links = [], []
    for number in range(len(why.nodes)):
        nodes.append(picture._thick(shares[number], max(shares)))
    for number in range(len(why.patterns)):
        links.append(picture._thick(shares[len(why.nodes) + number], max(shares)))
    drawn = picture._looked(why, why.attention, 0)[1].shapes
    assert [shape.line for shape in drawn if isinstance(shape, drawing.Box)] == nodes
    assert [shape.line for shape in drawn if isinstance(shape, drawing.Line)][::2] == links


# Layout


@st.composite
def queries(draw) -> BoundQuery:
    """Any query graph of up to six nodes: cyclic, disconnected, with loops and parallel links."""
    count = draw(st.integers(1, 6))
    nodes = draw(st.lists(st.sampled_from([0, 1, TARGET, HIDDEN]), min_size=count, max_size=count))
    node = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(node, st.integers(0, 3), node), max_size=7, unique=True))
    return BoundQuery(tuple(nodes), tuple(edges), tuple(n for n, value in enumerate(nodes) if value == TARGET))


@settings(max_examples=150)
@given(query=queries(), wide=st.floats(20, 300))
def test_nothing_stands_on_anything_else(query, wide):
    depth = layout.depths(query, 2)
    assert all(depth[s] != depth[o] for s, _, o in query.edges if s != o)
    sizes = [(wide if number % 2 else 40.0, 30.0 + 16.0 * (number % 2)) for number in range(len(query.nodes))]
    labels = [(wide / 2 + 10, 20.0 + 14.0 * (number % 2)) for number in range(len(query.edges))]
    found = layout.place(depth, [(s, o) for s, _, o in query.edges], sizes, labels)
    boxes = [
        (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        for (x, y), (w, h) in zip((*found.nodes, *found.labels), (*sizes, *labels), strict=True)
    ]
    for number, one in enumerate(boxes):
        assert not [other for other in boxes[:number] if _overlap(one, other)]
        assert one[0] >= -1e-6 and one[1] >= -1e-6
        assert one[2] <= found.width + 1e-6 and one[3] <= found.height + 1e-6
    for (subject, _, object_), (first, second) in zip(query.edges, found.lines, strict=True):
        _touches(first[0], boxes[subject])
        _touches(second[-1], boxes[object_])
        for x, y in (*first, *second):
            for left, top, right, bottom in boxes:
                assert not (left + 1e-6 < x < right - 1e-6 and top + 1e-6 < y < bottom - 1e-6)


def _touches(point, box) -> None:
    assert point[0] == pytest.approx(box[0]) or point[0] == pytest.approx(box[2])
    assert box[1] - 1e-6 <= point[1] <= box[3] + 1e-6


def test_constants_stand_left_of_what_they_lead_to(rivers):
    assert layout.depths(rivers.query, 2) == (1, 0, 2)
    assert layout.depths(rivers.hidden, 2) == (2, 1, 0, 0)


@pytest.mark.parametrize("wanted", [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0]])
def test_ascending_numbers_are_the_nearest(wanted):
    import numpy as np

    found = layout._ascending(np.array(wanted))
    assert (np.diff(found) >= 0).all()
    assert found.sum() == pytest.approx(sum(wanted))
    grid = np.linspace(0, 4, 9)
    shifted = [
        np.sort(np.array(choice))
        for choice in np.stack(np.meshgrid(*[grid] * len(wanted)), -1).reshape(-1, len(wanted))
    ]
    assert ((found - wanted) ** 2).sum() <= min(((np.array(choice) - wanted) ** 2).sum() for choice in shifted) + 1e-9
