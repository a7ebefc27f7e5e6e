"""What all tests share: quiet, small and repeatable runs, and the benchmark graphs where they are present."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

# Before numpy and torch are imported: tests run side by side, so each keeps to one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["COLUMNS"] = "80"
os.environ.pop("BIQE_DEBUG", None)

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("BIQE_DATA") or ROOT.parent / "shared" / "data")

# Compilation by numba makes the first example of a property slow, on a busy machine any of them.
settings.register_profile(
    "biqe", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("biqe")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def benchmark_data() -> Callable[[str], Path]:
    """Function from a data set's folder name to its folder; skips the test where it is absent."""

    def folder(name: str) -> Path:
        if not (DATA / name).is_dir():
            pytest.skip(f"benchmark data {name} is absent; set BIQE_DATA to the folder that holds it")
        return DATA / name

    return folder


@pytest.fixture(scope="session")
def write_release() -> Callable[..., None]:
    """Function that writes mined queries as the authors released theirs: see biqe.benchmarks.cq_release."""
    from biqe.query.bound import KINDS, TARGET

    def write(queries, vocabulary, directory: Path, *, split: str = "dev", filter_graph: str | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        kind = "dag" if (queries.kinds == KINDS.index("dag")).any() else "path"
        written = [one(queries, vocabulary, row, kind, filter_graph) for row in range(len(queries))]
        for name, items in zip(
            (f"{kind}s_{split}", f"{kind}s_{split}_filters"), zip(*written, strict=True), strict=True
        ):
            (directory / f"{name}.json").write_text(json.dumps(items, ensure_ascii=False), "utf-8")

    def one(queries, vocabulary, row: int, kind: str, filter_graph: str | None):
        query, start, first = queries[row], queries.node_offsets[row], queries.target_offsets[row]
        into = {node: [(s, r) for s, r, o in query.edges if o == node] for node in range(len(query.nodes))}
        answers = queries.filters[filter_graph or ("split" if kind == "dag" else "reach")]

        def names(node: int) -> list[str]:
            return [vocabulary.entities[value] for value in answers[first + query.targets.index(node)]]

        def text(steps: list[tuple[int, int | None]]) -> str:
            tokens = []
            for node, relation in steps:
                tokens.append("[MASK]" if query.nodes[node] == TARGET else vocabulary.entities[query.nodes[node]])
                tokens += [] if relation is None else [vocabulary.relations[relation]]
            golds = [vocabulary.entities[queries.gold[start + n]] for n, _ in steps if query.nodes[n] == TARGET]
            return "\t".join(["-#-".join(tokens), *golds])

        tail = next(node for node in into if all(node != s for s, _, _ in query.edges))
        if kind == "path":
            steps: list[tuple[int, int | None]] = [(tail, None)]
            while into[steps[0][0]]:
                steps.insert(0, into[steps[0][0]][0])
            return text(steps), [names(node) for node, _ in steps if query.nodes[node] == TARGET]
        ((meeting, tail_relation),) = into[tail]
        filters = {"tail": names(tail), "inter": names(meeting)}
        paths = []
        for branch, (node, relation) in enumerate(into[meeting]):
            steps, masks = [(tail, tail_relation), (meeting, relation)], 0
            while into[node]:
                if query.nodes[node] == TARGET:
                    filters[f"{branch}-{masks}"] = names(node)
                    masks += 1
                steps.append((node, into[node][0][1]))
                node = into[node][0][0]
            paths.append(text([*steps, (node, None)]))
        return paths, filters

    return write
