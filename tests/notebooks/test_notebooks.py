"""Every notebook is stored without outputs and runs from its first cell to its last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LIMIT_S = 300
"""Maximum seconds per cell on a busy machine; on an idle machine a cell takes a few seconds."""


def name_of(path: Path) -> str:
    """Return the name of a notebook in tests."""
    return path.stem


def test_there_is_a_notebook_on_admission():
    assert "admission" in map(name_of, NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_is_stored_without_outputs(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == [], f"outputs of: {cell.source[:60]}"
            assert cell.execution_count is None, f"execution count of: {cell.source[:60]}"


@pytest.mark.prove
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
@pytest.mark.filterwarnings("default")  # of the notebook machinery; the kernel is another process anyway
def test_runs_to_its_end(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    client = NotebookClient(
        notebook, timeout=LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), "every code cell was run"
    pictures = sum("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert pictures >= 1, "a notebook without a picture"
