"""The heat map of one query: everything is said, framed and inside of the picture; hostile names do no harm."""

import re
import xml.etree.ElementTree as ET

import pytest

from biqe.evaluate import pictures
from biqe.evaluate.attention import heat_map, query_attention
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import TARGET, BoundQuery

# e7 -r0-> ?1 -r1-> ?3 <-r2- e8,  ?3 -r3-> ?4
DAG = BoundQuery((7, TARGET, 8, TARGET, TARGET), ((0, 0, 1), (1, 1, 3), (2, 2, 3), (3, 3, 4)), (1, 3, 4))
RELATIONS = ["flows", "passes <b> & $more$", "in", "near"]
TOWN = Vocabulary([f"e{n}" for n in range(30)], RELATIONS, {7: "Besançon", 8: "川"})
SVG = "{http://www.w3.org/2000/svg}"


def drawn(model, vocabulary, form="svg"):
    attention = query_attention(model, DAG, vocabulary)
    return pictures.render(lambda: heat_map(attention), form, "attention")


def test_svg_is_well_formed_and_says_everything(small_biqe):
    root = ET.fromstring(drawn(small_biqe(), TOWN))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    for words in ("Besançon", "川", "passes <b> & $more$", "?1", "?3", "path 1, from its end"):
        assert words in texts
    assert any(text.startswith("?1 is predicted to be ") for text in texts)
    paths = [path.get("style") for path in root.iter(f"{SVG}path")]
    assert sum(f"fill: {pictures.BLUE}" in style for style in paths) == 12 * 3  # a cell for each token and unknown
    assert sum(f"stroke: {pictures.ORANGE}" in style for style in paths) == 2  # r2 and e8, seen from ?1
    _, _, width, height = map(float, root.get("viewBox").split())
    for path in root.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", path.get("d"))]
        assert 0 <= min(numbers) and max(numbers[::2]) <= width and max(numbers[1::2]) <= height


@pytest.mark.parametrize(
    "name", ["<script>x</script>", "a\x1b[31m\x00b", "\u202egnirts", "\ufffe", "\U0001f600", "n" * 5000]
)
def test_hostile_names(small_biqe, name):
    town = Vocabulary([f"e{n}" for n in range(30)], [name, *RELATIONS[1:]], {7: name})
    svg = drawn(small_biqe(), town).decode()
    assert "<script" not in svg and "\x1b" not in svg and "\u202e" not in svg
    assert float(ET.fromstring(svg).get("viewBox").split()[2]) < 2000
    assert drawn(small_biqe(), town, "png").startswith(b"\x89PNG")
