"""The notebooks of examples/ run from their first cell to the last, in a kernel of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def shown(notebook, text: str) -> str:
    """What the cell with this text shows as HTML."""
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code" and text in cell.source)
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


@pytest.mark.slow
def test_from_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(EXAMPLES / "from-a-table.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=280, kernel_name="python3").execute()
    assert "located_on" in shown(notebook, "from_pandas")
    training = shown(notebook, "biqe.train")
    assert "open it again with biqe.open" in training and "model hybrid" in training and "<progress" not in training
    answers = shown(notebook, "top=5")
    assert "<td>known</td>" in answers and "<td>predicted</td>" in answers
    assert "Cologne" in shown(notebook, "kb.find") and ":flows_through" in shown(notebook, "kb.schema")
    assert "REASONS for" in shown(notebook, "kb.explain") and "missing links" in shown(notebook, "kb.suggest")
    assert (tmp_path / "runs" / "graph" / "model").is_dir()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
