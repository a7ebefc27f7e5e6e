"""The layers: "the elements above depend on the elements below", and torch begins at links."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
LAYERS = (
    "errors",
    "graph",
    "atlas",
    "query",
    "exact",
    "mine",
    "benchmarks",
    "links",
    "models",
    "evaluate",
    "training",
    "predict",
    "explain",
    "suggest",
    "answer",
    "knowledge_base",
    "agents",
    "reproduce",
    "serve",
    "cli",
)
"""From the ground up. docs/architecture.md draws the same list."""
TORCH_BEGINS = LAYERS.index("links")
HEAVY = {"torch", "transformers"}


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements that run, at module level or inside functions; ``if TYPE_CHECKING`` never runs."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.orelse:
            yield from _statements(child)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _statements(child)


def imports(module: str) -> set[str]:
    """Modules that ``module`` imports; ``from biqe.graph import index`` counts as biqe.graph.index."""
    found: set[str] = set()
    for statement in _statements(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
            continue
        assert statement.level == 0, f"{module} imports relatively; write the full name"
        for alias in statement.names:
            if (statement.module, alias.name) == ("biqe", "__version__"):
                continue  # a constant of the front door, which drags nothing in
            submodule = f"{statement.module}.{alias.name}"
            found.add(submodule if submodule in MODULES else str(statement.module))
    return found


IMPORTS = {module: imports(module) for module in MODULES}


def room(module: str) -> str:
    """First part below ``biqe``; '' for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def reached(module: str) -> set[str]:
    """All that importing ``module``, and calling anything in it, may import."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo.extend(IMPORTS.get(current, ()))
    return seen


def test_every_room_has_its_place():
    rooms = {room(module) for module in MODULES} - {"", "__main__"}
    assert rooms <= set(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    own = room(module)
    if own in ("", "__main__"):  # the front doors may name every room
        return
    for target in IMPORTS[module]:
        if target == "biqe":
            assert own == "cli", f"{module} imports the package's front door, which stands above it"
        elif target.startswith("biqe."):
            assert LAYERS.index(room(target)) <= LAYERS.index(own), f"{module} imports {target}, which stands above it"


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) in LAYERS[:TORCH_BEGINS]])
def test_below_links_nothing_reaches_torch(module):
    assert not {target.partition(".")[0] for target in reached(module)} & HEAVY


CONSTRUCTORS = ("biqe.graph.knowledge_graph", "biqe.graph.from_python")
"""The one import against the direction: Graph offers constructors, which are built on all that reads graphs."""


def test_imports_have_no_cycle():
    graph = {module: {t for t in targets if t in MODULES and t != module} for module, targets in IMPORTS.items()}
    graph[CONSTRUCTORS[0]].remove(CONSTRUCTORS[1])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " -> ".join(error.args[1]))


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("statement", ["import biqe", "import biqe.cli", "import biqe; biqe.Graph; biqe.Query"])
def test_the_front_doors_are_light(statement):
    assert not loaded_by(statement) & {"torch", "numba", "rdflib", "pyoxigraph", "pyarrow", "transformers"}


def test_help_is_light():
    loaded = loaded_by("import biqe.cli; assert biqe.cli.main(['--help']) == 0")
    assert not loaded & {"torch", "numba", "numpy", "rdflib", "pyoxigraph", "pyarrow"}


@pytest.mark.parametrize("low", [layer for layer in LAYERS[:TORCH_BEGINS] if f"biqe.{layer}" in MODULES])
def test_front_doors_below_links_do_not_load_torch(low):
    assert not loaded_by(f"import biqe.{low}") & HEAVY


def test_the_architecture_page_draws_these_layers():
    page = (SOURCE.parent / "docs" / "architecture.md").read_text("utf-8")
    picture = page.lower().split("the elements above depend on the elements below", 1)[1].split("```")[1]
    above, below = picture.split("torch begins above this line")
    drawn = [[*takewhile(LAYERS.__contains__, line.split())] for part in (above, below) for line in part.splitlines()]
    built = [layer for layer in LAYERS if any(room(module) == layer for module in MODULES)]
    assert sum(drawn, []) == built[::-1], "the picture stands with the foundations at the bottom"
    assert set(sum(([*takewhile(LAYERS.__contains__, line.split())] for line in below.splitlines()), [])) == set(
        LAYERS[:TORCH_BEGINS]
    )
