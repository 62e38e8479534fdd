"""Optional packages: compared if they are installed, named if they are requested and missing."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from optim_studies.kernels import baselines

from optim.core.errors import MissingDependencyError


@pytest.mark.parametrize("name", ["torch", "ray"])
def test_names_a_package_that_is_not_installed(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=f"{name} isn't installed.*; install it"):
        baselines.optional(name)


def test_a_folder_on_the_path_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "hollow").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match="hollow is a folder"):
        baselines.optional("hollow")


def test_leaves_out_what_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    w = np.zeros(3, np.float32)
    assert (
        baselines.dense_sgd_of_frameworks(w, [w], 0.1)
        == baselines.sparse_sgd_of_frameworks(w[:, None], np.array([0]), w[:1, None], 0.1)
        == {}
    )


class Tensor:
    """The methods of PyTorch's tensor that the baselines call."""

    def __init__(self, array):
        self.array = array

    def add_(self, other, alpha):
        self.array += alpha * other.array

    def index_add_(self, axis, index, other, alpha):
        assert axis == 0
        np.add.at(self.array, index.array, alpha * other.array)


@pytest.fixture
def made(monkeypatch):
    """Install a stand-in for PyTorch that stores every created tensor; Ray is absent."""
    tensors = []
    torch = SimpleNamespace(from_numpy=lambda array: tensors.append(Tensor(array)) or tensors[-1], __file__="torch.py")
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "ray", None)
    return tensors


def test_torch_steps_against_the_mean_of_the_pushes(made):
    pushes = [np.full(4, 1.0, np.float32), np.full(4, 3.0, np.float32)]
    baselines.dense_sgd_of_frameworks(np.ones(4, np.float32), pushes, 0.1)["torch"]()
    assert made[0].array == pytest.approx(np.full(4, 0.8))


def test_torch_applies_repeated_rows_as_often_as_they_come(made):
    table, values = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    baselines.sparse_sgd_of_frameworks(table, np.array([0, 2, 2]), values, 0.1)["torch"]()
    assert made[0].array == pytest.approx(np.array([[0.9, 0.9], [1.0, 1.0], [0.8, 0.8]]))
