"""Models in files that other solvers read."""

from pathlib import Path

import highspy
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.admission.compact import compact_model
from optim.models.admission.packing import packing_dual, packing_model
from optim.models.admission.schedules import enumerate_schedules
from optim.models.export import export_model
from optim.models.reference import reference_instance
from tests.support.admission.small_clusters import instance, job, servers
from tests.support.admission.solving import optimum


def optimum_of_file(path: Path) -> float:
    """Let HiGHS read a file and solve it."""
    highs = highspy.Highs()
    highs.silent()
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return highs.getInfo().objective_function_value


@pytest.mark.parametrize("name", ["model.mps", "model.lp", "model.mps.gz"])
def test_a_compact_model_read_back_has_the_same_optimum(tmp_path: Path, name: str):
    model = compact_model(reference_instance("tiny-1"))
    export_model(model, tmp_path / name)
    assert optimum_of_file(tmp_path / name) == pytest.approx(optimum(model), rel=1e-9)


@pytest.mark.parametrize("name", ["model.mps", "model.lp"])
def test_packing_models_read_back_have_the_same_optimum(tmp_path: Path, name: str):
    scarce = instance(*[job(f"j{i}") for i in range(3)], worker_servers=servers([2], [1]))
    schedules = enumerate_schedules(scarce)
    for model in (packing_model(scarce, schedules), packing_dual(scarce, schedules)):
        export_model(model, tmp_path / name)
        assert optimum_of_file(tmp_path / name) == pytest.approx(optimum(model), rel=1e-9)


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_files_keep_the_names_of_rows(tmp_path: Path, suffix: str):
    export_model(compact_model(instance(job())), tmp_path / f"model{suffix}")
    text = (tmp_path / f"model{suffix}").read_text()
    for name in ("work_2", "worker_capacity_4", "completion_8", "workers"):
        assert f"{name}(" in text


def test_the_same_model_gives_the_same_file(tmp_path: Path):
    for name in ("a.mps", "b.mps"):
        export_model(compact_model(reference_instance("tiny-0")), tmp_path / name)
    assert (tmp_path / "a.mps").read_bytes() == (tmp_path / "b.mps").read_bytes()


@pytest.mark.parametrize("name", ["model.nl", "model", "model.gz", "model.mps.zip"])
def test_refuses_a_name_with_another_ending(tmp_path: Path, name: str):
    with pytest.raises(InvalidOptionError, match=r"must end in \.mps or \.lp"):
        export_model(compact_model(instance(job())), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_refuses_a_folder_that_does_not_exist(tmp_path: Path):
    with pytest.raises(InvalidProblemError, match="can't be written"):
        export_model(compact_model(instance(job())), tmp_path / "nowhere" / "model.mps")


def test_leaves_the_old_file_whole_when_a_model_cannot_be_written(tmp_path: Path):
    path = tmp_path / "model.lp"
    export_model(compact_model(instance(job())), path)
    before = path.read_bytes()
    model = compact_model(instance(job()))
    model.broken = _nonlinear(model)
    with pytest.raises(Exception, match="nonlinear"):
        export_model(model, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _nonlinear(model):
    import pyomo.environ as pyo

    x = model.admitted[0]
    return pyo.Constraint(expr=x**3 <= 1)
