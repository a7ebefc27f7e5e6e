"""The builder's parts, on small input; and the whole of it where the sources are present."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("shapely", reason="the builder needs the extra 'atlas'")
pytest.importorskip("shapefile", reason="the builder needs the extra 'atlas'")
from shapely.geometry import LineString, MultiLineString, MultiPolygon, Point, box  # noqa: E402

from biqe import atlas as embedded  # noqa: E402
from biqe.graph import folder  # noqa: E402

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from atlas import countries, geodesy, held_out, naming, places, relations, rivers, sources, tables  # noqa: E402

SOURCES = os.environ.get("BIQE_ATLAS_SOURCES")


def country(name: str, west: float, south: float, east: float, north: float) -> countries.Country:
    return countries.Country(name, "Country", "Europe", MultiPolygon([box(west, south, east, north)]), frozenset())


def place(name: str, x: float, y: float, population: int = 1000) -> places.Place:
    return places.Place(name, "Utopia", "", Point(x, y), population, "")


def test_lengths_shrink_with_latitude() -> None:
    along_equator = geodesy.length_km(LineString([(0, 0), (1, 0)]))
    assert along_equator == pytest.approx(111.195)
    assert geodesy.length_km(LineString([(0, 60), (1, 60)])) == pytest.approx(along_equator / 2)
    assert geodesy.length_km(LineString([(0, 60), (0, 61)])) == pytest.approx(along_equator)
    assert geodesy.distance_km(Point(0, 60), Point(1, 60), 60) == pytest.approx(along_equator / 2)


def test_a_border_river_flows_through_both_sides_and_a_passing_one_does_not() -> None:
    left, right = country("Left", 0, 0, 1, 1), country("Right", 1, 0, 2, 1)
    # Line and border of the source never meet exactly: this one wavers a kilometre to either side.
    border = LineString([(1 + 0.01 * (-1) ** step, step / 20) for step in range(21)])
    inside = LineString([(0.2, 0.5), (0.8, 0.5)])
    beside = LineString([(2.5, 0.1), (2.5, 0.9)])
    lines = [rivers.River(name, line, 5) for name, line in (("b", border), ("i", inside), ("n", beside))]
    assert relations.flows_through(lines, [left, right]) == [(0, 0), (0, 1), (1, 0)]


def test_cut_off_for_standing_on_a_river() -> None:
    line = [rivers.River("r", LineString([(0, -1), (0, 1)]), 5)]
    degree = geodesy.KM_PER_DEGREE
    town = [place("near", 4.9 / degree, 0), place("far", 5.1 / degree, 0), place("city", 7.4 / degree, 0, 600_000)]
    assert relations.located_on(town, line) == [(0, 0), (2, 0)]


def test_a_tributary_ends_on_its_river_and_not_the_other_way_round() -> None:
    main = rivers.River("main", LineString([(0, -1), (0, 1)]), 3)
    tributary = rivers.River("tributary", LineString([(1, 0.3), (0.01, 0)]), 5)
    head_on = rivers.River("head on", LineString([(0, 1), (0, 2)]), 5)
    assert relations.confluences([main, tributary, head_on]) == [(1, 0)]
    assert relations.end_to_end([main, tributary, head_on]) == [(0, 2)]


def test_ends_of_a_river_are_its_loose_ones() -> None:
    line = MultiLineString([[(0, 0), (1, 0)], [(1, 0), (2, 0)], [(2, 0), (2, 1)]])
    assert [end.coords[0] for end in relations.ends(line)] == [(0.0, 0.0), (2.0, 1.0)]


def test_near_is_symmetric_and_bounded() -> None:
    row = [place(str(number), number * 0.5, 0) for number in range(12)] + [place("island", 90, 0)]
    pairs = relations.near(row)
    assert all((b, a) in pairs and a != b for a, b in pairs)
    assert not any(12 in pair for pair in pairs)
    assert {b for a, b in pairs if a == 0} >= {1, 2, 3, 4, 5}


def test_polygons_over_the_date_line_are_cut_there() -> None:
    scale, translate = [1.0, 1.0], [-180.0, 0.0]
    # From 170 degrees east over the date line to 170 degrees west, in steps of whole degrees.
    arc = [[350, 0], [0, 10], [-340, 0], [0, -10], [340, 0]]
    topology = {
        "transform": {"scale": scale, "translate": translate},
        "arcs": [arc],
        "objects": {"countries": {"geometries": []}},
    }
    geometry = {"type": "Polygon", "arcs": [[0]]}
    polygon, used = countries._polygon(geometry, countries._arcs(topology))
    assert used == {0}
    assert polygon.area == pytest.approx(200)
    assert polygon.contains(Point(175, 5)) and polygon.contains(Point(-175, 5))
    assert not polygon.contains(Point(0, 5))


def test_lines_are_clipped_where_the_table_says() -> None:
    line = LineString([(-10, 0), (10, 0)])
    assert rivers._clip(line, "lon>5").length == 5
    assert rivers._clip(line, "lon>-2 lon<3").length == 5
    assert rivers._clip(line, "lat>1").is_empty
    with pytest.raises(SystemExit, match="cannot read"):
        rivers._clip(line, "east of Eden")


def test_names_are_unique_and_plain() -> None:
    names = naming.Names()
    assert names.give(["St. Louis"]) == "St_Louis"
    assert names.give(["Córdoba"]) == "Córdoba"
    assert names.give(["Cordoba", "Cordoba, Spain"]) == "Cordoba_Spain"
    assert names.labels["Cordoba_Spain"] == "Cordoba, Spain"
    with pytest.raises(SystemExit, match="no free name"):
        names.give(["CORDOBA"])


@pytest.mark.parametrize("table", sorted(path.name for path in (TOOLS / "atlas").glob("*.tsv")))
def test_tables_are_read_and_hold_no_line_twice(table: str) -> None:
    rows = tables.read(table)
    assert rows
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    assert all(cell == cell.strip() and cell for row in rows for cell in row.values())


def test_corrections_are_few_and_each_has_a_reason() -> None:
    rows = tables.read("corrections.tsv")
    assert len(rows) < 150
    assert {row["change"] for row in rows} == {"add", "remove"}
    assert all(len(row["reason"]) > 10 for row in rows)


def test_splitting_is_repeatable_and_keeps_symmetric_pairs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "read", lambda name: [])
    random = np.random.default_rng(0)
    facts = {(f"e{a}", "near", f"e{b}") for a, b in random.integers(0, 40, (300, 2)).tolist() if a != b}
    facts |= {(o, r, s) for s, r, o in facts}
    facts |= {(f"e{a}", "located_on", f"r{a % 3}") for a in range(40)}
    first, second = held_out.split(set(facts)), held_out.split(set(sorted(facts, reverse=True)))
    assert first == second
    assert set().union(*first.values()) == facts
    assert sum(map(len, first.values())) == len(facts)
    for part in ("valid", "test"):
        assert {relation for _, relation, _ in first[part]} == {"near", "located_on"}
        assert all((o, r, s) in first[part] for s, r, o in first[part] if r == "near")


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    assert not sources.available(tmp_path)
    with pytest.raises(SystemExit, match=r"libmagics\+\+-data"):
        sources.read(tmp_path)


@pytest.mark.skipif(SOURCES is None, reason="set BIQE_ATLAS_SOURCES to the folder with the two source packages")
def test_the_builder_gives_the_graph_that_is_committed() -> None:
    import build_atlas

    splits, extra = build_atlas.build(Path(str(SOURCES)))
    manifest = folder.load_manifest(embedded.path())
    assert splits.fingerprint == manifest["fingerprint"]
    assert list(splits.vocabulary.aliases) == list(folder.load(embedded.path()).vocabulary.aliases)
    assert extra == manifest["source"]
