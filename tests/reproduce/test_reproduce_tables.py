"""Results beside published figures: arithmetic, and the tables as people read them, at 80 columns."""

from __future__ import annotations

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biqe.benchmarks import registry
from biqe.errors import UnreadableFile
from biqe.reproduce import recipe as recipes
from biqe.reproduce import result as results
from biqe.reproduce import tables
from biqe.reproduce.job import Job
from biqe.reproduce.result import Result
from biqe.reproduce.tables import OTHER_QUERIES, compare, compare_all, mean_and_deviation

SHAPES = ["1p", "2p", "3p", "2i", "3i", "ip", "pi", "all"]


def found(table, name, seed=0, *, quick=False, minutes=None, split="valid", **facts):
    job = Job(recipes.load(table).recipe(name), seed, quick, split, minutes)
    return Result(table, name, seed, job.settings, **facts)


def shares(*values):
    return {shape: {"hits@3": value} for shape, value in zip(SHAPES, values, strict=True)}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_mean_and_deviation_are_those_of_a_sample(values):
    mean, spread = mean_and_deviation(values)
    assert math.isclose(mean, statistics.fmean(values), abs_tol=1e-12)
    if len(values) == 1:
        assert spread is None
    else:
        assert math.isclose(spread, statistics.stdev(values), abs_tol=1e-9)


RESULTS = [
    found(
        "q2b-fb15k237",
        "gqe",
        0,
        figures=shares(0.400, 0.210, 0.150, 0.290, 0.400, 0.080, 0.170, 0.243),
        peak_mib=900,
        seconds={"train": 1800.0},
        config={"model": {"filter_negatives": False}},
    ),
    found(
        "q2b-fb15k237",
        "gqe",
        1,
        figures=shares(0.410, 0.220, 0.160, 0.300, 0.410, 0.090, 0.180, 0.253),
        peak_mib=950,
        seconds={"train": 1860.0},
        config={"model": {"filter_negatives": False}},
    ),
    found(
        "q2b-fb15k237",
        "gqe",
        0,
        minutes=5.0,
        figures=shares(0.3, 0.1, 0.1, 0.2, 0.3, 0.05, 0.1, 0.164),
        peak_mib=800,
        seconds={"train": 300.0},
    ),
    found("q2b-fb15k237", "query2box", 0, state="failed", reason="out of memory"),
    found("q2b-fb15k237", "hybrid", 0, quick=True, figures=shares(*[0.01] * 8), seconds={"train": 24.0}),
]

GOLDEN = """\
q2b-fb15k237: HITS@3 on Query2Box's queries over FB15k-237

                            1p    2p    3p    2i    3i    ip    pi  mean
GQE            published 0.402 0.213 0.155 0.292 0.406 0.083 0.170 0.246
               ours      0.405 0.215 0.155 0.295 0.405 0.085 0.175 0.248
               ± sd      0.007 0.007 0.007 0.007 0.007 0.007 0.007 0.007
               ours      0.300 0.100 0.100 0.200 0.300 0.050 0.100 0.164
               ours: valid split, 2 seeds, 30.5 min in all, 950 MiB,
               filter_negatives=false
               ours: valid split, 1 seed, 5.0 min in all, 800 MiB
GQE-Double     published 0.405 0.213 0.153 0.298 0.411 0.085 0.182 0.249
               not run
Query2Box      published 0.467 0.240 0.186 0.324 0.453 0.108 0.205 0.283
               seed 0 failed: out of memory
CQD-Beam       published 0.512 0.279 0.219 0.352 0.457 0.129 0.249 0.314
               not run
CQD, known     not run
BiQE           published 0.439 0.281 0.239 0.333 0.474 0.110 0.177 0.293
               not run
Hybrid         quick     0.010 0.010 0.010 0.010 0.010 0.010 0.010 0.010
               quick: valid split, 1 seed, 24 s in all
               no real run yet
Hybrid, search not run
GQE, softmax   not run
Q2B, softmax   not run

Protocol q2b: hard answers, every other answer filtered, each query weighs the
  same. ip and pi are never trained on.
GQE and Query2Box learn as in Ren et al. 2020 (margin 24, 128 negatives that are
  no answers), at a higher rate for less long; a batch shares its negatives.
CQD-Beam: Links are as true as link=counted says, from the softmax and the
  number of known tails (train; for test, train and valid), where the published
  beam search takes the scores themselves (link=raw).
CQD-Beam departs from the original: rank 200 (1,000)
CQD, known: Links that are known before the split (train; for test, train and
  valid) count as 1 when a query is solved; published CQD does not do this.
BiQE departs from the original: 4 layers of width 256 (BERT-base has 12 of 768);
  it learns from all answers of a training question, as the other models of the
  table do
Hybrid: BiQE's encoder, which begins with the embeddings of a link predictor
  like that of the row CQD-Beam; the minutes in all hold its training.
Hybrid, search: The model of the row Hybrid; a search over its links is added
  when queries are answered.
GQE, softmax: Ours: cosines, and cross-entropy over all entities. The run on
  record is from before an intersection was given the mean length of what it
  takes in, and ip suffered for that: on the 1,500 most frequent entities, half
  a minute of training made intersections 2.3 times as long as their inputs, and
  ip had HITS@3 .127; the same weights with the mean length have .333, and all
  other shapes what they had.
Q2B, softmax: Ours: cross-entropy over a sample of 2,048 entities.
Published: Kotnis, Lawrence and Niepert 2021, table "HITS@3 comparison between
  BiQE, Q2B and GQE", test split; GQE, GQE-Double, Query2Box there from Ren et
  al. 2020.
Published: Arakelyan, Daza, Minervini and Cochez 2021, CQD-Beam, rank 1000, test
  split.
Rows marked quick are smoke tests: small models, trained for a fraction of a
  minute, on a sample of the queries. They show that everything runs, and
  nothing about accuracy.
"""


def test_the_table_as_people_read_it():
    assert tables.to_text(compare(recipes.load("q2b-fb15k237"), RESULTS)) == GOLDEN


def test_quick_rows_and_real_rows_can_be_shown_alone():
    table = recipes.load("q2b-fb15k237")
    real = tables.to_text(compare(table, RESULTS, quick=False))
    assert "quick" not in real and "ours" in real
    quick = tables.to_text(compare(table, RESULTS, quick=True))
    assert "ours" not in quick and "smoke tests" in quick


BIO = """\
bio: Biomedical questions: AUC and average percentile rank, in percent

                                 AUC   APR
GQE-Bilinear, HPO   published* 91.00 91.50
                    ours       88.12 87.00
                    ours: valid split, 1 seed, 20.0 min in all
TractOR, HPO        published* 82.80 86.30
                    not run
"""


def test_another_graph_is_said_loudly():
    result = found("bio", "gqe", figures={"all": {"auc": 0.8812, "apr": 0.87}}, seconds={"train": 1200.0})
    text = tables.to_text(compare(recipes.load("bio"), [result]), reasons={"gqe-bio": "its data is not at hand"})
    assert text.startswith(BIO)
    assert "* ANOTHER GRAPH: published on bio, ours is hpo. The two are not comparable." in text
    assert "                    not run: its data is not at hand\n" in text


STATISTICS = """\
                             triples  paths   DAGs masks length
FB15k-237-CQ train published 272,115 50,000 48,865  1.86 152.00
                   ours      272,115 50,000 50,000  1.90 150.50
             dev   published       -      -  2,785  5.91 460.00
                   ours            -      -  2,981  5.80 439.60
             test  published       -      -  2,599  6.05 479.00
             ours: 1 seed
WN18RR-CQ    train published  86,835 10,000  9,465  1.84  71.00
"""


def test_a_table_of_counts():
    figures = {
        "train": {"triples": 272115, "paths": 50000, "dags": 50000, "average_masks": 1.9, "average_characters": 150.5},
        "valid": {"dags": 2981, "average_masks": 5.8, "average_characters": 439.6},
    }
    text = tables.to_text(compare(recipes.load("statistics"), [found("statistics", "fb15k237-cq", figures=figures)]))
    assert STATISTICS in text


@pytest.mark.parametrize("name", recipes.names())
def test_every_table_fits_80_columns(name):
    table = recipes.load(name)
    groups = {row.group for row in table.rows} | {column.group or "all" for column in table.columns}
    figures = {group: {column.metric: 0.98765 for column in table.columns} for group in groups}
    many = [
        found(name, recipe.name, seed, figures=figures, peak_mib=12345, seconds={"train": 5999.0})
        for recipe in table.recipes
        for seed in (0, 1)
    ]
    failed = [
        found(name, recipe.name, 2, state="failed", reason="no room left on the disk " * 9) for recipe in table.recipes
    ]
    shown = compare(table, [*many, *failed])
    for text in (tables.to_text(shown), tables.overview([shown]), tables.to_text(compare(table, []))):
        assert [line for line in text.splitlines() if len(line) > 80] == []
    assert tables.to_text(compare(table, [])).count("not run") == len(table.recipes)


OVERVIEW = """\
q2b-fb15k237, mean HITS@3  published            ours  split  seeds    in all
  gqe                          0.246   0.248 ± 0.007  valid      2  30.5 min
  gqe-double                   0.249         not run
  query2box                    0.283          failed
  cqd                          0.314         not run
  cqd-known                        -         not run
  biqe                         0.293         not run
  hybrid                           -         not run
  hybrid-search                    -         not run
  gqe-softmax                      -         not run
  query2box-softmax                -         not run
"""


def test_the_overview_has_one_line_a_recipe():
    assert tables.overview([compare(recipes.load("q2b-fb15k237"), RESULTS)]) == OVERVIEW


def test_only_equal_settings_are_averaged():
    block = compare(recipes.load("q2b-fb15k237"), RESULTS).rows[0]
    assert [ours.seeds for ours in block.averages] == [(0, 1), (0,)]
    assert block.best.seeds == (0, 1)
    assert block.averages[1].deviation == {}


def test_a_figure_that_one_seed_lacks_is_not_averaged():
    some = found("q2b-fb15k237", "cqd", 0, figures=shares(*[0.5] * 8))
    fewer = found("q2b-fb15k237", "cqd", 1, figures={"1p": {"hits@3": 0.7}})
    (ours,) = compare(recipes.load("q2b-fb15k237"), [some, fewer]).rows[3].averages
    assert ours.mean == {"1p": {"hits@3": pytest.approx(0.6)}}


@pytest.mark.parametrize("name", ["settings", "reports", "config", "seconds"])
@pytest.mark.parametrize("value", [[], "x", 3, None])
def test_a_result_with_something_else_in_the_place_of_an_object_is_refused(name, value):
    data = found("bio", "gqe").to_json() | {name: value}
    with pytest.raises(UnreadableFile, match=f"not a whole result: {name} must be an object"):
        Result.from_json(data)


def test_what_is_not_as_the_recipe_asks_for_today_is_said():
    figures = {"all": {"auc": 0.8, "apr": 0.8}}
    plain = found("bio", "gqe", figures=figures)
    other = {**plain.settings, "train": {**plain.settings["train"], "weight_decay": 0.5, "minutes": 7.0}}
    other["model_config"] = {**other["model_config"], "width": 64}
    block = compare(recipes.load("bio"), [Result("bio", "gqe", 0, other, figures=figures), plain]).rows[0]
    assert [ours.changed for ours in block.averages] == [{}, {"width": 64, "weight_decay": 0.5}], (
        "the recipe's own first"
    )
    assert block.averages[1].how == "valid split, 1 seed, 0 s in all, width=64, weight_decay=0.5"


def test_a_result_of_queries_mined_by_another_rule_is_marked_and_stands_behind_those_of_today():
    figures, today = {"split": {"mrr": 0.2}}, registry.queries_of_today("fb15k237-cq")
    longer = found("cq-fb15k237", "biqe", figures=figures, fingerprints={"benchmark": "0" * 16})
    short = [
        found("cq-fb15k237", "biqe", seed, minutes=2, split="test", figures=figures, fingerprints={"benchmark": mined})
        for seed, mined in enumerate((today, "0" * 16))
    ]
    table = recipes.load("cq-fb15k237")
    averages = compare(table, [longer, *short]).rows[table.recipes.index(table.recipe("biqe"))].averages
    assert [ours.of_other_queries for ours in averages] == [False, True, True], "and never averaged with each other"
    assert averages[0].how == "test split, 1 seed, 0 s in all" and averages[1].how.endswith(OTHER_QUERIES)
    assert registry.queries_of_today("fb15k237-q2b") is None, "made by others, so never mined anew"


def test_the_training_that_is_nearest_to_the_recipes_minutes_stands_for_it():
    table, figures = recipes.load("cq-fb15k237"), {"split": {"mrr": 0.2}}
    minutes = (15.0, 2.0, 4.0, 29.0)
    rounds = [found("cq-fb15k237", "biqe", minutes=length, split="test", figures=figures) for length in minutes]
    averages = compare(table, rounds).rows[table.recipes.index(table.recipe("biqe"))].averages
    assert [ours.settings["train"]["minutes"] for ours in averages] == [29.0, 15.0, 4.0, 2.0]


def write(folder, result, name):
    results.write(result, folder / f"{name}.json")


def test_results_are_found_below_a_folder_and_other_files_left_out(tmp_path):
    write(tmp_path, RESULTS[0], "q2b-fb15k237/gqe/seed-0")
    (tmp_path / "speed.json").write_text('{"ratio": 3.0}')
    found = compare_all(tmp_path)
    assert [one.table.name for one in found] == recipes.names()
    assert sum(len(block.averages) for one in found for block in one.rows) == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"format": "biqe-result"}',
        '{"format": "biqe-result", "version": 1}',
        '{"format": "biqe-result", "version": 1, "table": "t", "recipe": "r", "seed": 0, "settings": {}, '
        '"state": "odd"}',
        '{"format": "biqe-result", "version": 1, "table": "t", "recipe": "r", "seed": 0, "settings": {}, '
        '"figures": {"all": {"mrr": "high"}}}',
    ],
)
def test_a_damaged_result_is_refused_by_name(content, tmp_path):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(UnreadableFile, match="x.json"):
        results.read_all(tmp_path)


def test_markdown_has_a_line_for_each_and_no_quick_rows():
    text = tables.to_markdown(compare(recipes.load("q2b-fb15k237"), RESULTS, quick=False))
    assert "| GQE | ours | 0.405 ± 0.007 |" in text
    assert "| Query2Box | seed 0 failed: out of memory |" in text
    assert "| BiQE | not run |" in text
    assert "quick" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count(" | ") for line in rows}) == 1


def test_json_holds_the_same():
    data = tables.to_json(compare(recipes.load("q2b-fb15k237"), RESULTS))
    assert [recipe["state"] for recipe in data["recipes"]] == ["done", "not run", "failed", *["not run"] * 7]
    assert data["recipes"][0]["ours"][0]["mean"]["1p"]["hits@3"] == pytest.approx(0.405)
    json.dumps(data)


def test_folders_of_this_machine_become_words(tmp_path):
    places = {tmp_path: "WORK", tmp_path / "deep": "DATA"}
    value = {"a": [f"{tmp_path}/deep/x", f"at {tmp_path}/y", f"{tmp_path}", f"{tmp_path}-2"], "n": 3}
    words = ["DATA/x", "at WORK/y", "WORK", f"{tmp_path}-2"]
    assert results.without_places(value, places) == {"a": words, "n": 3}
