"""A row and its explanation say the same: the same missing links, and the same probability to begin with."""

from __future__ import annotations

import shutil

import pytest

import biqe
from biqe import atlas as embedded
from biqe.models import store


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    """The atlas, with the model that ships, but without its probabilities of links: its rows have shares."""
    folder = tmp_path_factory.mktemp("atlas") / "model"
    shutil.copytree(embedded.model_path(), folder, ignore=shutil.ignore_patterns(store.LINKS_FILE))
    return biqe.open(folder, graph=embedded.path(), known=biqe.open("atlas").known)


def missing(why) -> dict:
    links = why.to_json()["witness"]["links"]
    return {
        (link["subject"], link["relation"], link["object"]): link["probability"] for link in links if not link["stored"]
    }


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?x { ?x :located_on ?r . ?r :flows_through ?c . ?c :borders :Germany }",
        "SELECT ?x { ?x :located_on ?r . ?x :located_in :Germany }",
        "SELECT ?x { ?r :flows_through ?x . ?x :borders :Germany }",
        "SELECT ?a ?b ?c { ?a :borders ?b . ?b :borders ?c . ?c :borders ?a . ?a :borders :Hungary }",
        "SELECT ?x ?r { ?x :located_on ?r VALUES ?r { :Rhine } }",
        "SELECT ?x ?r { ?x :located_on ?r VALUES (?x ?r) { (UNDEF :Rhine) (UNDEF :Elbe) } }",
        "SELECT ?x ?y { ?x :located_on :Rhine . ?y :located_on :Elbe }",
        "SELECT ?x { ?x :located_on :Rhine . :Kassel :located_on ?r }",
        "SELECT ?x { ?x :located_on ?y . ?y :flows_through :Germany FILTER(?y != :Rhine) }",
        "SELECT ?x { { ?x :located_on :Rhine } UNION { ?x :located_on ?r . ?r :flows_through :France } }",
        "ASK { :Heidelberg :located_on ?r . ?r :flows_through :France }",
        "ASK { :Kassel :located_on ?r FILTER(?r != :Rhine) }",
    ],
)
def test_a_row_and_its_explanation_agree(atlas, text):
    rows = [row for row in atlas.ask(text, top=8, joint="beam") if row.status == "predicted"]
    assert rows
    for row in rows:
        why = atlas.explain(row, views=["witness", "counterfactual"])
        said = {(link.subject, link.relation, link.object): link.probability for link in row.missing}
        assert len(said) == len(row.missing), "each link is listed once"
        assert all(chance is not None for chance in said.values())
        assert missing(why) == said
        assert why.probability == row.probability
        # Three unknowns and more may be filled in another order, and the encoder's shares depend on it.
        # The explanation says so then.
        is_same = why.share == pytest.approx(row.probability, rel=1e-3)
        assert why.share == why.counterfactual.share and is_same == (why.baseline == "")
        assert is_same or len(row.values) > 2
        assert missing(atlas.explain(row)) == said


def test_rows_that_were_found_by_links_have_another_share_and_say_why(atlas):
    text = "SELECT ?a ?b { ?a :flows_through :Germany . ?b :located_on ?a }"
    row = next(row for row in atlas.ask(text) if row.status == "predicted")
    why = atlas.explain(row, views=["counterfactual"])
    assert why.share == why.counterfactual.share != pytest.approx(row.probability, rel=0.01)
    assert "found by links" in why.baseline


def test_the_missing_link_is_the_most_probable_one():
    text = "SELECT ?x { ?x :located_on ?r . ?r :flows_through ?c . ?c :borders :Germany }"
    answers = biqe.open("atlas").ask(text, top=40)
    (row,) = [row for row in answers if row.x == "Heidelberg"]
    assert [str(link) for link in row.missing] == ["Heidelberg located_on Rhine"]


def test_a_row_that_was_found_otherwise_says_so(atlas):
    text = "SELECT ?r ?x { ?r :flows_through :Germany, :France . ?x :located_on ?r }"
    rows = atlas.ask(text, mode="predicted", joint="product", top=20)
    said = {atlas.explain(row, views=["counterfactual"]).baseline for row in rows}
    assert said - {""} == {
        "This is its share of the row when the unknowns are filled one after the other; the probability above was "
        "found by product."
    }


@pytest.mark.parametrize("text", ["ASK { ?x :located_on :Rhine }", "ASK { ?x :located_on ?r FILTER(?r = :Elbe) }"])
def test_a_known_verdict_is_explained(atlas, text):
    (row,) = atlas.ask(text)
    why = atlas.explain(row)
    assert (why.status, missing(why), why.probability) == ("known", {}, 1.0)
    assert {link.relation for link in row.held} == {"located_on"}
    if "Elbe" in text:
        assert why.to_json()["witness"]["hidden"]["r"] == "Elbe"
