"""Suggestions over the server: what is suggested, and what becomes of it."""

from __future__ import annotations

import pytest

from biqe.serve.config import ServeConfig
from biqe.serve.live import LiveGraph
from biqe.suggest import Suggester


@pytest.fixture
def live(serve, atlas_kb, tmp_path):
    graph = LiveGraph(tmp_path / "live", atlas_kb.splits, known=atlas_kb.known, prefixes=atlas_kb.prefixes)
    with serve(atlas_kb, live=graph, seconds=300.0) as client:
        yield client


def suggested(client, **options):
    found = client.get("/api/suggest", params={"relation": ":outlet_of", "top": 3, **options}).json()
    return found, [
        (each["subject"]["name"], each["predicate"], each["object"]["name"]) for each in found["suggestions"]
    ]


def decide(client, link, verdict):
    names = dict(zip(("subject", "predicate", "object"), link, strict=True))
    return client.post("/api/review", json={**names, "verdict": verdict})


def test_suggestions_are_those_of_the_suggester_and_can_be_decided_on(live, atlas_kb):
    wanted = list(Suggester(atlas_kb.predictor, atlas_kb.prefixes).suggest(":outlet_of", top=5))
    answer, links = suggested(live)
    assert links == [(each.subject, each.relation, each.object) for each in wanted[:3]]
    assert [each["probability"] for each in answer["suggestions"]] == pytest.approx(
        [each.probability for each in wanted[:3]], abs=1e-6
    )
    assert [each["why"] for each in answer["suggestions"]] == [each.why for each in wanted[:3]] and answer["writable"]
    assert suggested(live, skip=2)[1][0] == links[2]
    assert decide(live, links[0], "reject").json()["version"] is None
    assert suggested(live)[1][:2] == links[1:]
    assert decide(live, links[0], "undo").json()["version"] is None
    assert suggested(live)[1] == links
    # A label, and a name in another spelling, mean the same.
    accepted = decide(live, [name.replace("_", " ") for name in links[0]], "accept").json()
    assert (accepted["subject"], accepted["predicate"], accepted["object"]) == links[0] and accepted["version"] == 1
    assert links[0] not in suggested(live)[1]
    assert decide(live, links[0], "undo").json()["version"] == 2


def test_what_cannot_be_decided_is_refused(live, atlas, serve, odd_kb, tmp_path):
    link = ("Bonn", "located_on", "Rhine")
    assert decide(atlas, link, "accept").status_code == 403  # it takes no changes
    assert decide(live, ("Bonn", "located_on", "Atlantis"), "accept").status_code == 400
    assert decide(live, ("Bonn", "no_such", "Rhine"), "reject").status_code == 400
    assert decide(live, link, "perhaps").status_code == 400
    assert live.get("/api/suggest", params={"relation": "no_such"}).status_code == 400
    tokens = tmp_path / "tokens"
    tokens.write_text("read open-sesame-0123456789\n")
    tokens.chmod(0o600)
    with serve(odd_kb, ServeConfig(token_file=tokens)) as client:
        client.headers["Authorization"] = "Bearer open-sesame-0123456789"
        assert decide(client, ("a b", "knows", "50%"), "reject").status_code == 403
        found, links = suggested(client, relation="knows")
        assert links == [] and "nothing can be suggested" in found["note"]
