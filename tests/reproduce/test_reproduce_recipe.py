"""Recipes: all that ship are whole and exact, and what is wrong in one is refused by name."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from biqe.errors import InvalidOption, UnknownName, UnreadableFile
from biqe.models import _catalogue
from biqe.reproduce import recipe as recipes
from biqe.reproduce.job import Job, expand
from biqe.reproduce.work import solved_as_asked

TABLES = recipes.names()
ALL = [recipe for name in TABLES for recipe in recipes.load(name).recipes]


def test_every_table_of_the_paper_is_there():
    assert set(TABLES) == {
        *("q2b-fb15k237", "q2b-nell995", "cq-fb15k237", "cq-wn18rr", "paths-fb15k237", "paths-wn18rr"),
        *("bio", "positions", "no-future", "attention", "statistics", "field"),
    }


def test_only_the_table_of_the_field_asks_validation_queries_and_it_says_so():
    """The test queries of its benchmarks are held out."""
    assert {name for name in TABLES if recipes.load(name).split == "valid"} == {"field"}
    table = recipes.load("field")
    assert "VALIDATION" in table.title and "validation queries" in table.notes[0]
    assert {job.settings["split"] for job in expand(table, split=table.split)} == {"valid"}
    labels = {recipe.label.partition(",")[0] for recipe in table.recipes}
    assert labels == {"ours", "CQD", "exact"}
    assert {recipe.benchmark for recipe in table.recipes} == {"anycq-fb15k237-qar", "anycq-nell-qar", "wn18rr-qa"}


def test_what_biqe_train_makes_begins_with_its_own_links():
    plain = recipes.load("field").recipe("ours-wn18rr")
    assert Job(plain, 0).train["links_minutes"] == 24.0 and Job(plain, 0, minutes=4.0).train["links_minutes"] == 2.4
    assert "links_minutes" not in Job(recipes.load("cq-fb15k237").recipe("hybrid"), 0).train


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: f"{recipe.table}/{recipe.name}")
@pytest.mark.parametrize("quick", [False, True])
def test_every_recipe_can_be_built(recipe, quick):
    from biqe.training import session

    job = Job(recipe, 0, quick)
    recipes.check_options(recipe, job.model_config)
    if recipe.model is None:
        return
    settings = session.settings(recipe.model, seed=0, **job.train)
    assert settings.minutes is not None and settings.epochs is None
    assert settings.minutes <= 0.5 if quick else settings.minutes >= 5
    assert not quick or settings.warmup_steps <= 10, "it is warm before it ends"
    assert recipe.model in {*_catalogue.names(), *_catalogue.presets()}


def test_a_quick_run_of_every_table_takes_minutes():
    for name in TABLES:
        jobs = expand(recipes.load(name), quick=True)
        trainings = {job.run_name: job.train["minutes"] for job in jobs if job.trains}
        assert sum(trainings.values()) <= 5.0
        assert all(job.sample for job in jobs if job.trains)


def test_rows_that_differ_in_how_queries_are_solved_share_a_training():
    jobs = {job.recipe.name: job for job in expand(recipes.load("q2b-fb15k237"))}
    assert jobs["cqd"].run_name == jobs["cqd-known"].run_name != jobs["hybrid"].before.run_name
    assert jobs["hybrid"].run_name == jobs["hybrid-search"].run_name != jobs["biqe"].run_name
    assert jobs["cqd"].digest != jobs["cqd-known"].digest


def test_a_row_named_biqe_is_the_encoder_alone():
    for recipe in ALL:
        assert (recipe.start_from is not None) == recipe.label.startswith("Hybrid"), f"{recipe.table}/{recipe.name}"


FB = {
    "gqe": ".402 .213 .155 .292 .406 .083 .170 .246",
    "gqe-double": ".405 .213 .153 .298 .411 .085 .182 .249",
    "query2box": ".467 .240 .186 .324 .453 .108 .205 .283",
    "cqd": ".512 .279 .219 .352 .457 .129 .249 .314",
    "biqe": ".439 .281 .239 .333 .474 .110 .177 .293",
}
NELL = {
    "gqe": ".418 .228 .205 .316 .447 .081 .186 .269",
    "gqe-double": ".417 .231 .203 .318 .454 .081 .188 .270",
    "query2box": ".555 .266 .233 .343 .480 .132 .212 .317",
    "cqd": ".667 .343 .297 .410 .529 .168 .283 .385",
    "biqe": ".587 .305 .326 .371 .531 .103 .187 .344",
}
SHAPES = ["1p", "2p", "3p", "2i", "3i", "ip", "pi"]


@pytest.mark.parametrize(("table", "published"), [("q2b-fb15k237", FB), ("q2b-nell995", NELL)])
def test_published_figures_of_query2box_queries(table, published):
    table = recipes.load(table)
    have = [recipe for recipe in table.recipes if recipe.published is not None]
    assert [recipe.name for recipe in have] == list(published)
    for recipe in have:
        figures = {group: metrics["hits@3"] for group, metrics in recipe.published.figures.items()}
        assert [figures[group] for group in [*SHAPES, "all"]] == [float(x) for x in published[recipe.name].split()]
        # The papers' means are of figures before rounding.
        assert figures["all"] == pytest.approx(sum(figures[shape] for shape in SHAPES) / 7, abs=1.1e-3)


@pytest.mark.parametrize(
    ("table", "recipe", "group", "metrics"),
    [
        ("cq-fb15k237", "gqe-distmult-mp", "split", {"mrr": 0.157, "hits@10": 0.269}),
        ("cq-fb15k237", "biqe", "split", {"mrr": 0.228, "hits@10": 0.372}),
        ("paths-fb15k237", "gqe-distmult-mp", "reach", {"mrr": 0.241, "hits@10": 0.376}),
        ("paths-fb15k237", "biqe", "reach", {"mrr": 0.473, "hits@10": 0.602}),
        ("cq-wn18rr", "gqe-distmult-mp", "split", {"mrr": 0.149, "hits@10": 0.148}),
        ("cq-wn18rr", "biqe", "split", {"mrr": 0.150, "hits@10": 0.158}),
        ("paths-wn18rr", "gqe-distmult-mp", "reach", {"mrr": 0.349, "hits@10": 0.400}),
        ("paths-wn18rr", "biqe", "reach", {"mrr": 0.520, "hits@10": 0.620}),
        ("bio", "gqe", "all", {"auc": 91.0, "apr": 91.5}),
        ("bio", "tractor", "all", {"auc": 82.8, "apr": 86.3}),
        ("bio", "mpqe", "all", {"auc": 90.0, "apr": 90.5}),
        ("bio", "biqe", "all", {"auc": 96.91, "apr": 96.69}),
        ("positions", "gqe-distmult-mp", "split tail", {"mrr": 0.116, "hits@10": 0.217}),
        ("positions", "gqe-distmult-mp", "split intersection", {"mrr": 0.214, "hits@10": 0.343}),
        ("positions", "gqe-distmult-mp", "split branch", {"mrr": 0.144, "hits@10": 0.250}),
        ("positions", "biqe", "split tail", {"mrr": 0.205, "hits@10": 0.319}),
        ("positions", "biqe", "split intersection", {"mrr": 0.265, "hits@10": 0.439}),
        ("positions", "biqe", "split branch", {"mrr": 0.217, "hits@10": 0.361}),
        ("no-future", "joint", "reach", {"mrr": 0.473, "hits@10": 0.602}),
        ("no-future", "no-future", "reach", {"mrr": 0.421, "hits@10": 0.553}),
        ("attention", "biqe", "all", {"outside": 30.4}),
        ("statistics", "fb15k237-cq", "valid", {"dags": 2785, "average_masks": 5.91, "average_characters": 460}),
        ("statistics", "fb15k237-cq", "test", {"dags": 2599, "average_masks": 6.05, "average_characters": 479}),
        ("statistics", "wn18rr-cq", "valid", {"dags": 112, "average_masks": 5.13, "average_characters": 198}),
        ("statistics", "wn18rr-cq", "test", {"dags": 95, "average_masks": 4.91, "average_characters": 199}),
    ],
)
def test_published_figures_of_the_other_tables(table, recipe, group, metrics):
    assert recipes.load(table).recipe(recipe).published.figures[group] == metrics


def test_published_training_sizes():
    sizes = [list(r.published.figures["train"].values()) for r in recipes.load("statistics").recipes]
    assert sizes == [[272115, 50000, 48865, 1.86, 152], [86835, 10000, 9465, 1.84, 71]]


def test_figures_of_another_graph_are_marked():
    bio = recipes.load("bio").recipes
    assert {recipe.name for recipe in bio if recipe.published is None} == {"cqd", "hybrid", "hybrid-search"}
    for recipe in bio:
        assert recipe.published is None or recipe.published.benchmark == (None if recipe.benchmark == "bio" else "bio")
        assert recipe.optional == (recipe.benchmark == "bio")


def test_analyses_share_the_trainings_of_their_tables():
    def runs(table):
        return {job.recipe.name: job.run_name for job in expand(recipes.load(table))}

    cq, paths = runs("cq-fb15k237"), runs("paths-fb15k237")
    assert runs("positions").items() <= cq.items()
    assert runs("attention") == {"biqe": cq["biqe"], "hybrid": cq["hybrid"]}
    assert runs("no-future")["joint"] == runs("no-future")["one-at-a-time"] == paths["biqe"]
    assert runs("no-future")["no-future"] != paths["biqe"]


def test_every_model_of_a_table_has_the_same_minutes_in_all():
    minutes = {"cq-fb15k237": 30, "paths-fb15k237": 30, "q2b-fb15k237": 30, "q2b-nell995": 30}
    minutes |= {"cq-wn18rr": 15, "paths-wn18rr": 15, "bio": 20, "field": 60}
    for table, all_ in minutes.items():
        for job in (job for job in expand(recipes.load(table)) if job.trains):
            before = job.before.train["minutes"] if job.before is not None else 0
            if job.recipe.benchmark != "bio":
                assert job.train["minutes"] + before == all_, job.name
                assert job.budget == f"{all_} min"
        for job in expand(recipes.load(table), minutes=4.0):
            before = job.before.train["minutes"] if job.before is not None else 0
            if job.trains:
                assert job.train["minutes"] + before == pytest.approx(4.0), "the user's minutes are in all, too"
                assert job.budget == "4 min"


@pytest.mark.parametrize(("recipe", "search", "beam"), [("hybrid", 0.0, 4), ("hybrid-search", 0.5, 8)])
def test_a_row_is_solved_as_its_recipe_says_whatever_the_end_of_training_chose(recipe, search, beam):
    chosen = {"search": 1.0, "search_beam": 24, "stored": "one", "by_shape": {"link": {"search": 1.0}}}
    trained = _catalogue.build("hybrid", {"width": 16, "layers": 1, "heads": 2, "rank": 4, **chosen}, 5, 2)
    found = solved_as_asked(Job(recipes.load("cq-fb15k237").recipe(recipe), 0), trained).config
    assert (found.search, found.search_beam, found.stored, found.by_shape) == (search, beam, "off", {})
    plain = Job(recipes.load("field").recipe("ours-fb15k237"), 0)
    assert solved_as_asked(plain, trained) is trained, "what the plain command chooses is what its row shows"


def test_a_recipe_may_start_from_a_preset(toy_recipes, monkeypatch):
    toy_recipes(one="toy-cq")
    path = recipes.FOLDER / "toy" / "one.toml"
    path.write_text(path.read_text().replace('model = "biqe"', 'model = "biqe"\npreset = "small"'))
    recipe = recipes.load("toy").recipe("one")
    preset = SimpleNamespace(model_config={"width": 4, "norm": "post"}, train={"paths": 7, "average": 0.0})
    monkeypatch.setitem(sys.modules, "biqe.training.presets", SimpleNamespace(PRESETS={"small": preset}))
    settings = Job(recipe, 0).settings
    assert settings["model_config"]["norm"] == "post" and settings["train"]["average"] == 0.0
    assert (settings["model_config"]["width"], settings["train"]["paths"]) == (16, 100), "the recipe's own come last"
    monkeypatch.setitem(sys.modules, "biqe.training.presets", SimpleNamespace(PRESETS={"smell": preset}))
    with pytest.raises(UnknownName, match="starts from preset 'small'; there are smell") as caught:
        Job(recipe, 0).settings  # noqa: B018
    assert caught.value.hint == "did you mean 'smell'?"


def test_defaults_are_part_of_what_is_averaged_and_of_the_run(monkeypatch):
    from biqe.models import gqe

    def gqe_job():
        return Job(recipes.load("q2b-fb15k237").recipe("gqe"), 0)

    before = gqe_job()
    assert before.settings["model_config"]["width"] == 400 and before.settings["train"]["batch_queries"] == 512
    assert before.run_settings["train"] == before.settings["train"] and "seed" not in before.settings["train"]
    monkeypatch.setattr(gqe.GQE, "train_defaults", {**gqe.GQE.train_defaults, "batch_queries": 8})
    after = gqe_job()
    assert after.digest != before.digest and after.run_name != before.run_name


def test_what_it_starts_from_is_part_of_it_with_its_defaults(monkeypatch):
    from biqe.models import cqd

    def hybrid_job():
        return Job(recipes.load("q2b-fb15k237").recipe("hybrid"), 0)

    before = hybrid_job()
    assert before.settings["model_config"]["rank"] == before.settings["start_from"]["model_config"]["rank"]
    monkeypatch.setattr(cqd.CQD, "train_defaults", {**cqd.CQD.train_defaults, "clip": 3.0})
    assert hybrid_job().run_name != before.run_name


@pytest.mark.parametrize("table", ["q2b-fb15k237", "q2b-nell995"])
def test_rows_of_cqd_say_where_they_are_not_as_published(table):
    rows = {recipe.name: recipe for recipe in recipes.load(table).recipes}
    assert Job(rows["cqd"], 0).settings["model_config"]["link"] == "counted" and "link=counted" in rows["cqd"].note
    assert "published" in rows["cqd"].note
    assert "for test, train and valid" in rows["cqd-known"].note, "as work._known does"


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("benchmark =", "benchmrk =", "has no key 'benchmrk'", "did you mean 'benchmark'?"),
        ("epochs =", "epoch =", "has no setting 'epoch'", "did you mean 'epochs'?"),
        ("[quick.model_config]", "[quick.model_confg]", "has no key 'model_confg'", "did you mean 'model_config'?"),
        ("[published.figures]", "[published.figure]", "has no key 'figure'", "did you mean 'figures'?"),
        ('label = "ONE"', "label = 3", "'label' must be of type str. Got 3", None),
        ('label = "ONE"', 'job = "rnk"', "'job' must be one of", "did you mean 'rank'?"),
        ('label = "ONE"', 'job = "statistics"', "names its 'model', unless", None),
        ('label = "ONE"', 'start_from = "two"', "'start_from' must be another recipe beside it. Got 'two'", None),
        ("epochs = 1\n", "", "must say 'minutes' or 'epochs'", None),
        ("epochs = 1\n", "epochs = 1\nseed = 3\n", "must not set 'seed'", None),
        ("mrr = 0.5", 'mrr = "high"', "must map metrics to numbers", None),
        ("[train]", "[train", "is not TOML", None),
        ("source =", "source_ =", "has no key 'source_'", "did you mean 'source'?"),
    ],
)
def test_a_wrong_recipe_is_refused(toy_recipes, old, new, message, hint):
    toy_recipes(one="toy-cq")
    path = recipes.FOLDER / "toy" / "one.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UnreadableFile) as error:
        recipes.load("toy")
    assert message in error.value.message and "one.toml" in error.value.message
    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('recipes = ["one"]', 'recipes = ["one", "two"]', "They differ in two"),
        ("title =", "tittle =", "has no key 'tittle'"),
        ("columns =", "rows_ =", "has no key 'rows_'"),
        ('metric = "mrr" }\nrows', 'metric = "auc" }\nrows', "'headline' names no column"),
        ('label = "MRR"', 'label = "MRR", format = "roman"', "'format' must be one of"),
        ('title = "A toy table"\n', "", "lacks 'title'"),
    ],
)
def test_a_wrong_table_is_refused(toy_recipes, old, new, message):
    toy_recipes(one="toy-cq")
    path = recipes.FOLDER / "toy" / "table.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UnreadableFile) as error:
        recipes.load("toy")
    assert message in error.value.message


def test_a_recipe_may_start_from_another_that_is_no_row(toy_recipes):
    toy_recipes(one="toy-cq")
    folder = recipes.FOLDER / "toy"
    text = (folder / "one.toml").read_text()
    of_biqe = "[model_config]\nwidth = 16\nlayers = 1\nheads = 2\nfeed_forward = 32\n"
    links = text.replace('model = "biqe"', 'model = "cqd"').replace(of_biqe, "[model_config]\nrank = 8\n")
    (folder / "_links.toml").write_text(links)
    (folder / "one.toml").write_text(
        text.replace('label = "ONE"', 'start_from = "_links"').replace('model = "biqe"', 'model = "hybrid"')
    )
    table = recipes.load("toy")
    assert [recipe.name for recipe in table.recipes] == ["one"]
    job = Job(table.recipes[0], 3)
    assert job.before.recipe.model == "cqd" and job.before.seed == 3
    plain = Job(recipes.load("toy").recipes[0].__class__(**{**vars(table.recipes[0]), "start_from": None}), 3)
    assert plain.run_name != job.run_name
    assert job.settings["model_config"]["rank"] == 8, "it makes room for what it starts from"


def test_a_recipe_like_another_is_made_as_it_is_and_shown_as_it_says(toy_recipes):
    toy_recipes("first", one="toy-cq")
    toy_recipes("second", two="toy-cq")
    folder = recipes.FOLDER
    links = (folder / "first" / "one.toml").read_text().replace('model = "biqe"', 'model = "cqd"')
    of_biqe = "[model_config]\nwidth = 16\nlayers = 1\nheads = 2\nfeed_forward = 32\n"
    (folder / "first" / "_links.toml").write_text(links.replace(of_biqe, "[model_config]\nrank = 8\n"))
    text = (folder / "first" / "one.toml").read_text()
    (folder / "first" / "one.toml").write_text(
        text.replace('label = "ONE"', 'start_from = "_links"').replace('model = "biqe"', 'model = "hybrid"')
    )
    (folder / "second" / "two.toml").write_text('like = "first/one"\nlabel = "TWO"\n[solving]\nsearch = 0.7\n')
    (one,), (two,) = recipes.load("first").recipes, recipes.load("second").recipes
    assert two.label == "TWO" and two.published is None and dict(two.solving) == {"search": 0.7}
    assert Job(one, 0).run_name == Job(two, 0).run_name, "one training serves both"
    assert Job(one, 0).digest != Job(two, 0).digest
    (folder / "second" / "two.toml").write_text('like = "first/one"\n[model_config]\nlayers = 2\n')
    (two,) = recipes.load("second").recipes
    assert dict(two.model_config) == {**one.model_config, "layers": 2}
    assert two.start_from is not None and Job(one, 0).run_name != Job(two, 0).run_name


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ("first", "'like' must be TABLE/RECIPE of another recipe. Got 'first'"),
        ("first/none", "'like' must be TABLE/RECIPE of another recipe. Got 'first/none'"),
        ("second/two", "'like' must be TABLE/RECIPE of another recipe. Got 'second/two'"),
        ("second/three", "'like' must name a recipe that says all itself. 'second/three' does not"),
    ],
)
def test_a_recipe_like_nothing_that_can_be_found_is_refused(toy_recipes, like, message):
    toy_recipes("first", one="toy-cq")
    toy_recipes("second", two="toy-cq", three="toy-cq")
    (recipes.FOLDER / "second" / "three.toml").write_text('like = "first/one"\n')
    (recipes.FOLDER / "second" / "two.toml").write_text(f'like = "{like}"\n')
    with pytest.raises(UnreadableFile) as error:
        recipes.load("second")
    assert message in error.value.message and "two.toml" in error.value.message


def test_settings_and_not_the_seed_decide_what_is_averaged(toy_recipes):
    recipe = toy_recipes(one="toy-cq").recipes[0]
    assert Job(recipe, 0).digest == Job(recipe, 1).digest
    others = [Job(recipe, 0, True), Job(recipe, 0, False, "test"), Job(recipe, 0, minutes=2.0)]
    assert len({job.digest for job in [Job(recipe, 0), *others]}) == 4
    assert len({job.name for job in [Job(recipe, 0), Job(recipe, 1), *others]}) == 5
    assert Job(recipe, 0, minutes=2.0).train.get("epochs") is None


@pytest.mark.parametrize(
    "choice", [{"seeds": 0}, {"seeds": 101}, {"split": "train"}, {"minutes": 0.0}, {"minutes": -1.0}]
)
def test_impossible_choices_are_refused(toy_recipes, choice):
    with pytest.raises(InvalidOption):
        expand(toy_recipes(one="toy-cq"), **choice)
