"""Real processes that train together: to the end, through kills and interrupts, and refused where they cannot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from biqe import knowledge_base
from biqe.errors import EmptyResult, InvalidOption, RanksFailed
from biqe.graph import folder as graphs
from biqe.graph.knowledge_graph import Splits
from biqe.graph.triples import difference
from biqe.models import _catalogue, store
from biqe.models._split_entities import split
from biqe.training import checkpoint
from biqe.training import ranks as ranks_module
from biqe.training.ranks import ALONE, Ranks, job, joined
from biqe.training.run import Run
from biqe.training.stream import Stream

SETTINGS = (
    "learning_rate=0.01 paths=80 dags=80 batch_tokens=150 warmup_steps=10 validations=4 heads=2 feed_forward=32"
    " rank_timeout=60"
)
ARGUMENTS = [
    *"--epochs 3 --width 16 --layers 1 --threads 1".split(),
    *(word for setting in SETTINGS.split() for word in ("-O", setting)),
]
TORCHRUN = [Path(sys.executable).with_name("torchrun"), "--nproc-per-node", "2"]


@contextlib.contextmanager
def started(*words, **environment):
    """A process of a session of its own, so that all that it starts ends with the test."""
    process = subprocess.Popen(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(OSError):
            left = workers(process).values()  # torchrun gives each rank a session of its own
            os.killpg(process.pid, signal.SIGKILL)
            for rank in left:
                os.kill(rank, signal.SIGKILL)
        process.communicate()


def biqe_ranks(*words):
    """Two ranks of one command each, met without torchrun; each gives (exit code, what it said)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with contextlib.ExitStack() as held:
        processes = [
            held.enter_context(
                started(
                    sys.executable,
                    "-m",
                    "biqe",
                    "train",
                    *command,
                    RANK=str(rank),
                    WORLD_SIZE="2",
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=port,
                )
            )
            for rank, command in enumerate(words)
        ]
        said = [process.communicate(timeout=200)[1] for process in processes]
        return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def workers(process) -> dict[int, int]:
    """Process ids of the ranks that a torchrun has started, by rank."""
    found = {}
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            for word in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                if word.startswith(b"RANK="):
                    found[int(word[5:])] = int(child)
    return found


def wait_for(condition, process, seconds=200):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return found


def events(run, kind):
    return [event for event in Run(run, {}).trace() if event["event"] == kind]


@pytest.mark.slow
def test_a_killed_rank_costs_at_most_the_time_since_the_last_checkpoint(graph_folder, tmp_path):
    """Entities split over two ranks; rank 1 is killed, then rank 0. torchrun starts both again, and the run goes on
    from its last checkpoint to its end. Its model folder is an ordinary one."""
    run = tmp_path / "run"
    words = [*ARGUMENTS, "--epochs", "6", "--shard-entities", "-O", "checkpoint_minutes=0.005"]
    command = [*TORCHRUN, "--max-restarts", "3", "-m", "biqe", "train", graph_folder, "--out", run, *words]
    with started(*command) as process:
        for kills, rank in enumerate((1, 0)):
            wait_for(lambda kills=kills: len(events(run, "resumed")) == kills and newer(run), process)
            os.kill(workers(process)[rank], signal.SIGKILL)
            before = events(run, "checkpoint")[-1]["step"]
            wait_for(lambda kills=kills: len(events(run, "resumed")) > kills, process)
            assert events(run, "resumed")[-1]["step"] >= before
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert " ".join(out.split()).count("finished after") == 1, "rank 0 alone says how it went"
    trace = Run.open(run).trace()
    last = -1
    for event in trace:
        if event["event"] == "checkpoint":
            last = event["step"]
        if event["event"] == "resumed":
            assert event["step"] == last, "the last checkpoint is where it goes on"
    assert [event["reason"] for event in trace if event["event"] == "ended"] == ["finished"]
    assert checkpoint.read_place(checkpoint.latest(run / "checkpoints")).finished
    loaded = store.load(run / "model")
    assert loaded.model.embed_entities.weight.shape == (len(loaded.vocabulary.entities), 16)
    answers = knowledge_base.open(run).ask("SELECT ?t WHERE { :street3 :in ?t }")
    assert len(answers) > 0


def newer(run):
    """Whether there is a checkpoint since the run last went on."""
    trace = Run(run, {}).trace() if run.exists() else []
    kinds = [event["event"] for event in trace]
    since = max((place for place, kind in enumerate(kinds) if kind in ("started", "resumed")), default=None)
    return since is not None and "checkpoint" in kinds[since:]


@pytest.mark.slow
def test_interrupted_ranks_stop_together_and_one_process_goes_on(graph_folder, tmp_path):
    run = tmp_path / "run"
    with started(*TORCHRUN, "-m", "biqe", "train", graph_folder, "--out", run, *ARGUMENTS) as process:
        wait_for(lambda: run.exists() and newer(run), process)
        for rank in workers(process).values():  # what a terminal does; torchrun passes it on once more
            os.kill(rank, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert events(run, "ended")[-1]["reason"] == "interrupted"
    stopped = checkpoint.read_place(checkpoint.latest(run / "checkpoints"))
    assert not stopped.finished and stopped.step > 0
    with started(sys.executable, "-m", "biqe", "train", "--resume", run) as process:
        _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert events(run, "resumed")[-1]["step"] == stopped.step
    assert [event["ranks"] for event in events(run, "started")] == [2, 1]


@pytest.mark.slow
def test_ranks_that_see_different_graphs_are_refused_on_every_rank(graph_folder, tmp_path):
    splits = graphs.load(graph_folder)
    graphs.save(Splits(splits.vocabulary, difference(splits.train, splits.train[:1]), splits.valid), tmp_path / "other")
    words = ["--out", tmp_path / "run", *ARGUMENTS]
    for code, said in biqe_ranks([graph_folder, *words], [tmp_path / "other", *words]):
        assert code == 2 and "different graphs" in said and "hint:" in said and "Traceback" not in said, said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_rank_that_does_not_answer_ends_the_others_in_time(graph_folder, tmp_path):
    """Rank 1 is stopped, not killed, as when a machine hangs: only a time-out can tell."""
    run = tmp_path / "run"
    words = [*ARGUMENTS, "-O", "rank_timeout=12", "-O", "checkpoint_minutes=0.001"]
    with started(*TORCHRUN, "-m", "biqe", "train", graph_folder, "--out", run, *words) as process:
        wait_for(lambda: run.exists() and newer(run), process)
        os.kill(workers(process)[1], signal.SIGSTOP)
        _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "rank 0 of 2 lost the others" in " ".join(err.split()) and "hint:" in err


def test_a_rank_that_waits_for_nobody_says_so(graph_folder, tmp_path):
    words = [graph_folder, "--out", tmp_path / "run", *ARGUMENTS, "-O", "rank_timeout=1"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with started(sys.executable, "-m", "biqe", "train", *words, **meeting) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "did not meet the others" in " ".join(err.split()) and "hint:" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT are not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_PORT": "1"}, "MASTER_ADDR is not set"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, "from 0 to 1"),
        ({"WORLD_SIZE": "many"}, "must be a number"),
    ],
)
def test_a_meeting_that_nobody_described_is_refused(monkeypatch, environment, complaint):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RanksFailed, match=complaint), joined(1.0):
        pass


class Together(Ranks):
    """A rank whose others say what the test makes them say."""

    def gather(self, value):
        return self.say(value)


def rank_of(rank, say, world=2):
    found = Together(rank, world)
    object.__setattr__(found, "say", say)
    return found


def test_a_rank_that_fails_hangs_up(monkeypatch):
    """Left open, the connections bring the process down with an abort, which hides its own exit code and words."""
    done = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(ranks_module, "_connect", lambda world, timeout: Ranks(0, world))
    monkeypatch.setattr(ranks_module.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(ranks_module.dist, "destroy_process_group", lambda: done.append("hung up"))
    with pytest.raises(InvalidOption), joined(1.0):
        raise InvalidOption("wrong")
    assert done == ["hung up"]


def test_differences_are_named():
    facts = {"graphs": {"fingerprint": "a"}, "settings": {"width": 8, "seed": 0}}
    other = {"graphs": {"fingerprint": "a"}, "settings": {"width": 9, "seed": 0}}
    for rank, own in enumerate((facts, other)):
        with pytest.raises(RanksFailed, match="different settings: rank 0 has width 8, rank 1 has width 9") as refused:
            rank_of(rank, lambda value: json.loads(json.dumps([facts, other]))).check_same(
                own, {"settings": "say the same"}
            )
        assert refused.value.hint == "say the same" and f"rank {rank} of 2" in str(refused.value)
    rank_of(0, lambda value: [value, value]).check_same(facts, {})
    ALONE.check_same(facts, {})


def test_what_fails_on_one_rank_fails_on_all():
    def fails():
        raise EmptyResult("nothing there", hint="look elsewhere")

    told = {"kind": "EmptyResult", "message": "nothing there", "hint": "look elsewhere"}
    with pytest.raises(EmptyResult, match="nothing there"):
        rank_of(1, lambda value: [None, value]).all_or_none(fails)
    with pytest.raises(RanksFailed, match="rank 1 failed: EmptyResult: nothing there") as repeated:
        rank_of(0, lambda value: [value, told]).all_or_none(lambda: 1)
    assert repeated.value.hint == "look elsewhere"
    with pytest.raises(EmptyResult):
        rank_of(0, lambda value: [value, None]).from_first(fails)
    with pytest.raises(RanksFailed, match="rank 0 failed"):
        rank_of(1, lambda value: [{"error": told}, value]).from_first(fails)
    assert rank_of(1, lambda value: [{"value": 3}, value]).from_first(fails) == 3
    with pytest.raises(EmptyResult):
        ALONE.all_or_none(fails)


@pytest.mark.parametrize("name", ["batch_tokens", "batch_queries"])
def test_more_ranks_than_a_batch_has_are_refused(graph_folder, settings_of, tiny, name):
    graph = graphs.load(graph_folder)["train"]
    model = _catalogue.build("biqe", tiny, graph.entity_count, graph.relation_count)
    with pytest.raises(InvalidOption, match=f"{name!r} is shared by the ranks.*Got 3 for 4") as refused:
        Stream(graph, model, settings_of(epochs=1, **{name: 3}), ranks=Ranks(3, 4))
    assert "fewer ranks" in refused.value.hint
    Stream(graph, model, settings_of(epochs=1, **{name: 4}), ranks=Ranks(3, 4))


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_share_the_triples_and_mine_their_own_walks(graph_folder, settings_of, tiny, world):
    """Together the ranks learn from every triple once, and from as many paths and DAGs as one process would."""
    graph = graphs.load(graph_folder)["train"]
    model = _catalogue.build("biqe", tiny, graph.entity_count, graph.relation_count)
    seen = []
    model.encode = lambda queries: seen.append(queries) or type(model).encode(model, queries)
    config = settings_of(epochs=1, paths=41, dags=40, triple_answers=1, hide_share=0.0, reveal_share=0.0)
    for rank in range(world):
        encoded, batches = Stream(graph, model, config, ranks=Ranks(rank, world)).own_batches(0)
        assert max(len(rows) * encoded.sizes[rows[0]] for rows in batches) <= config.batch_tokens // world
    triples = [set(map(tuple, of_kind(queries, "triple"))) for queries in seen]
    assert sum(map(len, triples)) == len(set.union(*triples)) == len(graph.triples)
    assert sum(len(of_kind(queries, "path")) for queries in seen) == 41
    walks = [{row.tobytes() for row in of_kind(queries, "path")} for queries in seen]
    assert len({frozenset(own) for own in walks}) == world


def of_kind(queries, kind):
    """Gold entities and relations of the queries of one kind, a row each, padded."""
    from biqe.query.bound import KINDS

    rows = []
    for query in np.flatnonzero(queries.kinds == KINDS.index(kind)):
        nodes = queries.gold[queries.node_offsets[query] : queries.node_offsets[query + 1]]
        edges = queries.edges[queries.edge_offsets[query] : queries.edge_offsets[query + 1], 1]
        rows.append(np.pad(np.concatenate([nodes, edges]), (0, 24 - len(nodes) - len(edges)), constant_values=-7))
    return np.array(rows, np.int64).reshape(len(rows), 24)


def test_models_without_a_table_to_split_are_refused():
    model = _catalogue.build("gqe", {"width": 4}, 6, 2)
    with pytest.raises(InvalidOption, match="gqe cannot be split") as refused:
        split(model, 0, 2)
    assert "--shard-entities" in refused.value.hint
    with pytest.raises(InvalidOption, match="some would have none"):
        split(_catalogue.build("biqe", {"width": 8, "heads": 2, "layers": 1}, 5, 2), 0, 4)


def test_a_job_is_told_from_another(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert job() is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "big-run")
    assert job() == "big-run"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert job() == job() and str(os.getppid()) in job()
