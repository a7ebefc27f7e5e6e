"""The authors' release: what is read, what is refused, and the way there and back."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.benchmarks import read_release
from biqe.errors import EmptyResult, InvalidOption, UnknownName, UnreadableFile
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import as_triples
from biqe.graph.vocabulary import Vocabulary
from biqe.mine.dataset import MineConfig, mine_split
from biqe.query.bound import KINDS, ROLES, TARGET, AnswerSets, BoundQuery, QuerySet, concatenate
from biqe.query.tokens import tokens

ENTITIES = ["a", "b", "/m/0c", "d", "e e", "ü"]
RELATIONS = ["r", "/film/s", "t"]
VOCABULARY = Vocabulary(ENTITIES, RELATIONS)

# ?x1 at the tail, ?x0 at the intersection; branch 0 is a -s-> ?m -r-> ?x0, branch 1 is b -t-> ?x0.
DAG = ["[MASK]-#-r-#-[MASK]-#-r-#-[MASK]-#-/film/s-#-a\td\t/m/0c\te e", "[MASK]-#-r-#-[MASK]-#-t-#-b\td\t/m/0c"]
DAG_FILTERS = {"tail": ["d", "ü"], "inter": ["/m/0c"], "0-0": ["e e", "a", "b"]}
PATH = "a-#-r-#-[MASK]-#-t-#-[MASK]\tb\tü"
PATH_FILTERS = [["b", "d"], ["ü"]]


def write(directory, **files):
    """JSON files by name; a string is written as it is."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        path = directory / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


def sets_by_gold(queries: QuerySet, graph: str):
    """Names in the filter of each target of the first query, by the name of its gold."""
    golds = queries.gold[queries.target_nodes]
    return {ENTITIES[gold]: {ENTITIES[v] for v in queries.filters[graph][n]} for n, gold in enumerate(golds)}


def path_strings(query: BoundQuery, vocabulary: Vocabulary) -> list[str]:
    """The query's tokens as the release writes paths, without golds."""
    read = tokens(query, vocabulary=vocabulary)
    words = [
        (path, "[MASK]" if kind == "mask" else word)
        for path, kind, word in zip(read.paths, read.kinds, read.words, strict=True)
    ]
    return ["-#-".join(word for number, word in words if number == path) for path in sorted(set(read.paths))]


def test_a_dag_by_hand(tmp_path):
    release = read_release(write(tmp_path, dags_dev=[DAG], dags_dev_filters=[DAG_FILTERS]), VOCABULARY, "dev")
    queries = release.queries
    assert (release.kind, release.split, release.filter_graph, release.skipped) == ("dag", "dev", "split", {})
    assert list(queries.filters) == ["split"]
    assert [path.name for path in release.files] == ["dags_dev.json", "dags_dev_filters.json"]
    # Nodes: tail, intersection, then each branch away from the intersection.
    assert queries.nodes.tolist() == [TARGET, TARGET, TARGET, 0, 1]
    assert [ENTITIES[gold] for gold in queries.gold] == ["d", "/m/0c", "e e", "a", "b"]
    assert [ROLES[role] for role in queries.roles] == ["tail", "intersection", "branch", "none", "none"]
    assert queries.edges.tolist() == [[1, 0, 0], [2, 0, 1], [3, 1, 2], [4, 2, 1]]
    assert [KINDS[kind] for kind in queries.kinds] == ["dag"]
    assert sets_by_gold(queries, "split") == {"d": {"d", "ü"}, "/m/0c": {"/m/0c"}, "e e": {"e e", "a", "b"}}
    assert path_strings(queries[0], VOCABULARY) == [path.split("\t")[0] for path in DAG]


def test_a_path_by_hand(tmp_path):
    release = read_release(write(tmp_path, paths_test=[PATH], paths_test_filters=[PATH_FILTERS]), VOCABULARY, "test")
    queries = release.queries
    assert (release.kind, release.filter_graph) == ("path", "reach")
    assert queries.nodes.tolist() == [0, TARGET, TARGET]
    assert [ENTITIES[gold] for gold in queries.gold] == ["a", "b", "ü"]
    assert [ROLES[role] for role in queries.roles] == ["none", "branch", "tail"]
    assert queries.edges.tolist() == [[0, 0, 1], [1, 2, 2]]
    assert sets_by_gold(queries, "reach") == {"b": {"b", "d"}, "ü": {"ü"}}
    # Our tokens are tail first, the Paths files source first.
    assert path_strings(queries[0], VOCABULARY) == ["-#-".join(reversed(PATH.split("\t")[0].split("-#-")))]


@pytest.mark.parametrize("branch", ["r-#-a", "r-#-[MASK]-#-t-#-a"])
def test_equal_branches_stay_two_paths(tmp_path, branch):
    path = f"[MASK]-#-t-#-[MASK]-#-{branch}\td\tb" + "\tü" * branch.count("[MASK]")
    filters = {"tail": [], "inter": [], "0-0": [], "1-0": ["a"]}
    queries = read_release(
        write(tmp_path, dags_dev=[[path, path]], dags_dev_filters=[filters]), VOCABULARY, "dev"
    ).queries
    assert path_strings(queries[0], VOCABULARY) == [path.split("\t")[0]] * 2
    # Masks of two branches are two targets, even where the branches are equal.
    assert len(queries[0].targets) == 2 + 2 * branch.count("[MASK]")


def test_a_constant_inside_a_branch(tmp_path):
    paths = ["[MASK]-#-t-#-[MASK]-#-r-#-a-#-r-#-b\td\tb", "[MASK]-#-t-#-[MASK]-#-t-#-a\td\tb"]
    queries = read_release(
        write(tmp_path, dags_dev=[paths], dags_dev_filters=[{"tail": [], "inter": []}]), VOCABULARY, "dev"
    ).queries
    assert path_strings(queries[0], VOCABULARY) == [path.split("\t")[0] for path in paths]


@pytest.mark.parametrize(
    "names",
    [
        ("dev_dags", "dev_dag_filters"),
        ("validation", "validation-filter"),
        ("CQ_DEV_queries", "filters_of_CQ_DEV"),
        ("cq__val__queries", "cq__val__answers"),
    ],
)
def test_files_are_told_by_content(tmp_path, names):
    write(tmp_path, **{names[0]: [DAG], names[1]: [DAG_FILTERS]})
    write(tmp_path, test_dags=[DAG, DAG], test_filters=[DAG_FILTERS, DAG_FILTERS], train_dags=[DAG] * 3)
    (tmp_path / "dev_walks.txt").write_text("a-#-r-#-b\nb-#-r-#-c\n")
    assert len(read_release(tmp_path, VOCABULARY, "dev").queries) == 1
    assert len(read_release(tmp_path, VOCABULARY, "valid").queries) == 1
    assert len(read_release(tmp_path, VOCABULARY, "test").queries) == 2


def test_dags_come_before_paths_unless_asked(tmp_path):
    write(tmp_path, dev1=[DAG], dev2=[DAG_FILTERS], dev3=[PATH], dev4=[PATH_FILTERS])
    assert read_release(tmp_path, VOCABULARY, "dev").kind == "dag"
    assert read_release(tmp_path, VOCABULARY, "dev", kind="path").kind == "path"
    with pytest.raises(InvalidOption, match="dag, path"):
        read_release(tmp_path, VOCABULARY, "dev", kind="tree")


def test_our_own_names_win(tmp_path):
    write(tmp_path, dags_dev=[DAG], dags_dev_filters=[DAG_FILTERS], old_dev=[DAG, DAG], old_dev_filters=[DAG_FILTERS])
    assert len(read_release(tmp_path, VOCABULARY, "dev").queries) == 1


def test_what_was_found_is_listed(tmp_path):
    write(tmp_path, some_test=[DAG], notes="[1, 2")
    with pytest.raises(UnreadableFile) as caught:
        read_release(tmp_path, VOCABULARY, "dev")
    for words in ("no file with DAG queries of split 'dev'", "some_test.json: dag, test", "notes.json: broken JSON"):
        assert words in str(caught.value)
    with pytest.raises(UnreadableFile, match="no file with DAG filters of split 'test'"):
        read_release(tmp_path, VOCABULARY, "test")
    assert len(read_release(tmp_path, VOCABULARY, "test", with_filters=False).queries) == 1


def test_two_files_of_a_kind_are_refused(tmp_path):
    write(tmp_path, FB__dev=[DAG], WN__dev=[DAG])
    with pytest.raises(InvalidOption, match="2 files with DAG queries of split 'dev'"):
        read_release(tmp_path, VOCABULARY, "dev")


def test_places_and_splits_that_are_not(tmp_path):
    with pytest.raises(UnreadableFile, match="not a folder"):
        read_release(tmp_path / "nowhere", VOCABULARY, "dev")
    with pytest.raises(UnreadableFile, match="the folder has no file"):
        read_release(tmp_path, VOCABULARY, "dev")
    with pytest.raises(InvalidOption, match="dev, valid, test"):
        read_release(tmp_path, VOCABULARY, "train")


def mutate(index, text):
    return [text if number == index else path for number, path in enumerate(DAG)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (mutate(1, "[MASK]-#-r-#-[MASK]-#-t-#-b\td"), "2 masks but 1 gold"),
        (mutate(1, "[MASK]-#-r-#-[MASK]-#-t-#-b\td\t/m/0c\ta"), "2 masks but 3 gold"),
        (mutate(1, "[MASK]-#-r-#-[MASK]-#-t-#-b"), "2 masks but 0 gold"),
        (mutate(1, "[MASK]-#-s-#-[MASK]-#-t-#-b\td\t/m/0c"), "must share tail"),
        (mutate(1, "[MASK]-#-r-#-[MASK]-#-t-#-b\td\ta"), "must share tail"),
        (mutate(1, "[MASK]-#-r-#-a-#-t-#-b\td"), "must start with"),
        (mutate(1, "[MASK]-#-r-#-[MASK]\td\t/m/0c"), "must start with"),
        (mutate(1, "[MASK]-#-r-#-[MASK]-#-t-#-[MASK]\td\t/m/0c\ta"), "must end with an entity"),
        (mutate(1, "[MASK]-#-r-#-[MASK]-#-t\td\t/m/0c"), "must alternate"),
        (mutate(1, "[MASK]-#-[MASK]-#-r-#-t-#-b\td\t/m/0c"), "must alternate"),
        (mutate(1, "[MASK]-#-r-#-[MASK]-#--#-b\td\t/m/0c"), "must alternate"),
        (mutate(1, ""), "must alternate"),
        ([], "list of path strings"),
        ([DAG[0], 7], "list of path strings"),
        ("[MASK]", "list of path strings"),
        (None, "list of path strings"),
    ],
)
def test_malformed_dags_are_refused_with_file_and_number(tmp_path, query, message):
    write(tmp_path, dags_dev=[DAG, query], dags_dev_filters=[DAG_FILTERS] * 2)
    with pytest.raises(UnreadableFile, match=message) as caught:
        read_release(tmp_path, VOCABULARY, "dev")
    assert "dags_dev.json, query 1" in str(caught.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("a-#-r-#-[MASK]-#-t-#-[MASK]\tb", "2 masks but 1 gold"),
        ("a-#-r-#-b", "at least one"),
        ("a-#-r", "must alternate"),
        (["a"], "must be a string"),
    ],
)
def test_malformed_paths_are_refused(tmp_path, query, message):
    write(tmp_path, paths_dev=[PATH, query], paths_dev_filters=[PATH_FILTERS] * 2)
    with pytest.raises(UnreadableFile, match=message) as caught:
        read_release(tmp_path, VOCABULARY, "dev")
    assert "paths_dev.json, query 1" in str(caught.value)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([DAG_FILTERS], "filters of 1 queries, but dags_dev.json has 2"),
        ([DAG_FILTERS] * 3, "filters of 3 queries, but dags_dev.json has 2"),
        ([DAG_FILTERS, {"tail": [], "inter": []}], r"query 1: .* missing \['0-0'\]"),
        ([DAG_FILTERS, {**DAG_FILTERS, "inter": "a"}], "query 1, 'inter': a filter must be a list"),
        ([DAG_FILTERS, {**DAG_FILTERS, "inter": [["a"]]}], "query 1, 'inter': a filter must be a list"),
        ([DAG_FILTERS, ["a"]], "query 1: the filters of a DAG must be a dict"),
    ],
)
def test_malformed_dag_filters_are_refused(tmp_path, filters, message):
    write(tmp_path, dags_dev=[DAG, DAG], dags_dev_filters=filters)
    with pytest.raises(UnreadableFile, match=message):
        read_release(tmp_path, VOCABULARY, "dev")


@pytest.mark.parametrize(
    ("filters", "message"),
    [([["a"]], "1 filters for a path with 2 masks"), ({"tail": []}, "must be a list of lists"), (["a", "b"], "'0'")],
)
def test_malformed_path_filters_are_refused(tmp_path, filters, message):
    write(tmp_path, paths_dev=[PATH] * 2, paths_dev_filters=[PATH_FILTERS, filters])
    with pytest.raises(UnreadableFile, match=message):
        read_release(tmp_path, VOCABULARY, "dev")


def test_keys_that_fit_no_target_are_counted(tmp_path):
    write(tmp_path, dags_dev=[DAG], dags_dev_filters=[{**DAG_FILTERS, "1-0": ["a"], "comment": "x"}])
    assert read_release(tmp_path, VOCABULARY, "dev").skipped == {"filter whose key fits no target": 2}


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_truncated_files_are_refused(tmp_path, cut):
    text = json.dumps([DAG, DAG])
    write(tmp_path, dags_dev=text[:-cut], dags_dev_filters=[DAG_FILTERS] * 2)
    with pytest.raises(UnreadableFile, match=r"dags_dev.json, item 1 .*(not valid JSON|no ']' follows)"):
        read_release(tmp_path, VOCABULARY, "dev")


def test_unknown_names_are_refused_or_counted(tmp_path):
    strange_entity = [path.replace("-#-a", "-#-Atlantis") for path in DAG]
    strange_gold = [path.replace("/m/0c", "Lemuria") for path in DAG]
    strange_relation = [path.replace("/film/s", "sank_in") for path in DAG]
    filters = {**DAG_FILTERS, "tail": ["d", "Mu", "Mu 2"]}
    write(
        tmp_path,
        dags_dev=[DAG, strange_entity, strange_gold, strange_relation, DAG],
        dags_dev_filters=[DAG_FILTERS] * 4 + [filters],
    )
    with pytest.raises(UnknownName, match=r"query 1: entity 'Atlantis' is not one of the 6") as caught:
        read_release(tmp_path, VOCABULARY, "dev")
    assert "skip_unknown" in str(caught.value.hint)
    release = read_release(tmp_path, VOCABULARY, "dev", skip_unknown=True)
    assert len(release.queries) == 2
    assert release.skipped == {
        "query with an unknown entity": 2,
        "query with an unknown relation": 1,
        "filter value that is an unknown entity": 2,
    }
    last = release.queries.take(np.array([1]))
    assert sets_by_gold(last, "split")["d"] == {"d"}


def test_unknown_filter_values_are_refused(tmp_path):
    write(tmp_path, dags_dev=[DAG], dags_dev_filters=[{**DAG_FILTERS, "inter": ["Mu"]}])
    with pytest.raises(UnknownName, match="query 0, 'inter': entity 'Mu'"):
        read_release(tmp_path, VOCABULARY, "dev")


def test_a_release_of_another_graph_leaves_nothing(tmp_path):
    write(tmp_path, dags_dev=[DAG], dags_dev_filters=[DAG_FILTERS])
    with pytest.raises(EmptyResult, match="no query that can be read"):
        read_release(tmp_path, Vocabulary(["x"], ["y"]), "dev", skip_unknown=True)


def test_repeated_filter_values_count_once(tmp_path):
    write(tmp_path, dags_dev=[DAG], dags_dev_filters=[{**DAG_FILTERS, "tail": ["ü", "d", "ü"]}])
    queries = read_release(tmp_path, VOCABULARY, "dev").queries
    assert queries.filters["split"][0].tolist() == [3, 5]


# ---------------------------------------------------------------- there and back


@st.composite
def dags(draw):
    """DAGs with random branches, golds and filters, as columns."""
    parts = []
    entity = st.integers(0, len(ENTITIES) - 1)
    relation = st.integers(0, len(RELATIONS) - 1)
    for _ in range(draw(st.integers(1, 4))):
        nodes, gold, roles = [TARGET, TARGET], [draw(entity), draw(entity)], [1, 2]
        edges = [(1, draw(relation), 0)]
        for _ in range(draw(st.integers(1, 3))):
            target = 1
            length = draw(st.integers(1, 4))
            for step in range(length):
                gold.append(draw(entity))
                last = step == length - 1
                nodes.append(gold[-1] if last else TARGET)
                roles.append(0 if last else 3)
                edges.append((len(nodes) - 1, draw(relation), target))
                target = len(nodes) - 1
        parts.append(columns(nodes, gold, roles, edges, "dag", "split", draw(sets(nodes))))
    return concatenate(parts)


def sets(nodes):
    count = nodes.count(TARGET)
    return st.lists(st.sets(st.integers(0, len(ENTITIES) - 1)), min_size=count, max_size=count)


def columns(nodes, gold, roles, edges, kind, graph, filters):
    offsets = np.cumsum([0, *map(len, filters)]).astype(np.int64)
    values = np.array([value for one in filters for value in sorted(one)], np.int32)
    return QuerySet(
        np.array([0, len(nodes)], np.int64),
        np.array(nodes, np.int32),
        np.array(gold, np.int32),
        np.array(roles, np.int8),
        np.array([0, len(edges)], np.int64),
        np.array(edges, np.int32).reshape(-1, 3),
        np.array([KINDS.index(kind)], np.int8),
        {graph: AnswerSets(offsets, values)},
    )


def assert_same(found: QuerySet, expected: QuerySet):
    for column in ("node_offsets", "nodes", "gold", "roles", "edge_offsets", "edges", "kinds"):
        assert np.array_equal(getattr(found, column), getattr(expected, column)), column
    assert set(found.filters) == set(expected.filters)
    for graph, answers in found.filters.items():
        assert np.array_equal(answers.offsets, expected.filters[graph].offsets)
        assert np.array_equal(answers.values, expected.filters[graph].values)


@settings(max_examples=40)
@given(dags(), st.sampled_from(["dev", "test"]))
def test_dags_survive_the_way_there_and_back(tmp_path_factory, write_release, queries, split):
    folder = tmp_path_factory.mktemp("release")
    write_release(queries, VOCABULARY, folder, split=split)
    assert_same(read_release(folder, VOCABULARY, split).queries, queries)


@pytest.fixture(scope="module")
def mined_splits():
    rng = np.random.default_rng(0)
    vocabulary = Vocabulary([f"e{n}" for n in range(80)], [f"r{n}" for n in range(6)])
    triples = as_triples(np.column_stack([rng.integers(size, size=500) for size in (80, 6, 80)]))
    part = rng.integers(3, size=len(triples))
    return Splits(vocabulary, *(as_triples(triples[part == number]) for number in range(3)))


@pytest.mark.parametrize(("recipe", "graph", "read_as"), [("cq", None, "split"), ("paths", "complete", "reach")])
def test_mined_sets_survive_the_way_there_and_back(tmp_path, mined_splits, write_release, recipe, graph, read_as):
    vocabulary = mined_splits.vocabulary
    config = MineConfig(recipe=recipe, eval_paths=120, eval_dags=60, equal_branches=True)
    queries = mine_split(mined_splits, "valid", config)
    assert len(queries) > 20
    queries = queries.with_filters(**{graph or "split": random_filters(queries, len(vocabulary.entities))})
    write_release(queries, vocabulary, tmp_path, filter_graph=graph)
    back = read_release(tmp_path, vocabulary, "dev").queries
    # Nodes may be numbered otherwise, so queries are compared by their paths, and targets by all that is known of them.
    for row in range(len(queries)):
        assert Counter(path_strings(back[row], vocabulary)) == Counter(path_strings(queries[row], vocabulary))
        assert targets(back, row, read_as) == targets(queries, row, graph or "split")


def random_filters(queries: QuerySet, entities: int) -> AnswerSets:
    rng = np.random.default_rng(1)
    chosen = [np.flatnonzero(rng.random(entities) < 0.1) for _ in queries.target_nodes]
    return AnswerSets(np.cumsum([0, *map(len, chosen)]).astype(np.int64), np.concatenate(chosen).astype(np.int32))


def targets(queries: QuerySet, row: int, graph: str):
    start, first = int(queries.node_offsets[row]), int(queries.target_offsets[row])
    return Counter(
        (int(queries.gold[start + node]), int(queries.roles[start + node]), queries.filters[graph][first + n].tobytes())
        for n, node in enumerate(queries[row].targets)
    )
