"""The application: long answers are compressed for clients that accept it."""

from __future__ import annotations

import gzip

import pytest

EVERYTHING = "SELECT ?city ?country WHERE { ?city :located_in ?country } ORDER BY ?city ?country"


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("*", True), ("identity", False), ("gzip;q=0, *", False)],
)
@pytest.mark.parametrize("mode", ["known", "both"])
def test_long_answers_are_compressed_for_clients_that_accept_it(atlas, accepted, is_compressed, mode):
    form = {"query": EVERYTHING, "mode": mode}
    plain = atlas.post("/sparql", data=form, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and len(plain.content) > 100_000
    with atlas.stream("POST", "/sparql", data=form, headers={"Accept-Encoding": accepted}) as response:
        sent = b"".join(response.iter_raw())
    assert (response.headers.get("content-encoding") == "gzip") == is_compressed
    assert (gzip.decompress(sent) if is_compressed else sent) == plain.content
    assert is_compressed == (len(sent) < len(plain.content) / 5)
    if is_compressed:
        assert "accept-encoding" in response.headers["vary"].lower()
        assert int(response.headers.get("content-length", len(sent))) == len(sent)


def test_short_answers_and_refusals_are_sent_as_they_are(atlas):
    for query, status in (("ASK { :Bonn :located_on :Rhine }", 200), ("SELECT", 400)):
        response = atlas.get("/sparql", params={"query": query}, headers={"Accept-Encoding": "gzip"})
        assert response.status_code == status
        assert "content-encoding" not in response.headers
        assert response.json()
