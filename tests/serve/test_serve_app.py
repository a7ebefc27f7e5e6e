"""The application: long answers are compressed for clients that accept it."""

from __future__ import annotations

import gzip
import threading
import time

import pytest

from biqe.serve.live import LiveGraph
from biqe.serve.metrics_and_logs import new_log

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


def test_a_damaged_live_graph_is_told_and_its_worker_is_not_ready(serve, atlas_kb, tmp_path):
    live = LiveGraph(tmp_path / "live", atlas_kb.splits)
    path, log = tmp_path / "live" / "acknowledged", tmp_path / "log"
    with log.open("w+") as stream, serve(atlas_kb, live=live, log=new_log(stream)) as client:
        insert = {"update": "INSERT DATA { :Nowhere :located_on :Rhine }"}
        assert client.post("/update", data=insert).status_code == client.get("/ready").status_code == 200
        whole = path.read_bytes()
        for damaged in (b"", bytes([whole[0] ^ 1]) + whole[1:], b"\0" * len(whole)):
            path.write_bytes(damaged)
            for response in (client.post("/update", data=insert), client.get("/api/graph")):
                error = response.json()["error"]
                assert response.status_code == 500 and error["type"] == "UnreadableFile"
                assert "file of this server" in error["message"] and str(tmp_path) not in response.text
            assert client.get("/health").status_code == 200
            ready = client.get("/ready")
            assert ready.status_code == 503 and str(tmp_path) not in ready.text
            path.write_bytes(whole)
            assert client.get("/ready").status_code == 200
        assert client.post("/update", data=insert).json()["version"] == 1
    live.close()
    assert log.read_text().count(f"{path} is damaged") == 9, "three requests for each kind of damage"


def test_a_stuck_write_is_seen_at_ready_and_others_are_answered(serve, atlas_kb, tmp_path, monkeypatch):
    monkeypatch.setattr("biqe.serve.engine.WRITE_GRACE", 0.2)
    live, gate = LiveGraph(tmp_path / "live", atlas_kb.splits), threading.Event()
    insert = {"update": "INSERT DATA { :Nowhere :located_on :Rhine }"}
    with serve(atlas_kb, live=live, seconds=5.0) as client:
        assert client.get("/ready").status_code == 200
        monkeypatch.setattr(live, "apply", lambda *_, **__: gate.wait(60))
        assert client.post("/update", data=insert).status_code == 503
        until(lambda: client.get("/ready").status_code == 503)
        assert client.engine.is_stuck, "which is what replaces a worker"
        assert "hang" in client.get("/ready").json()["error"]["message"]
        assert client.get("/sparql", params={"query": "ASK { :Bonn :located_on :Rhine }"}).json()["boolean"] is True
        monkeypatch.undo()
        gate.set()
        until(lambda: client.get("/ready").status_code == 200)
        assert client.post("/update", data=insert).json()["inserted"] == 1
    live.close()


def until(condition):
    while not condition():
        time.sleep(0.05)
