"""Models in files that other solvers read, and sums over uninitialised memory."""

import gzip
import warnings
from dataclasses import replace
from pathlib import Path

import highspy
import numpy as np
import pytest
from optim_studies.packing_programme import enumerate_schedules, packing_dual, packing_model

import optim
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.admission.compact_programme import compact_model
from optim.models.programmes import export_model, unfilled_sums
from optim.models.reference import reference_instance
from optim.solvers.lp.highs import silent_highs
from tests.support.admission.small_clusters import instance, job, servers
from tests.support.admission.solving import optimum


def optimum_of_file(path: Path) -> float:
    """Let HiGHS read a file and solve it."""
    highs = silent_highs()
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


@pytest.mark.parametrize("format", ["mps", "lp"])
def test_an_exported_text_is_the_instance(tmp_path: Path, format: str):
    path = tmp_path / f"model.{format}.gz"
    text = optim.export(reference_instance("tiny-0"), format, path)
    (tmp_path / f"plain.{format}").write_text(text)
    assert optimum_of_file(tmp_path / f"plain.{format}") == pytest.approx(optim.reference_solution("tiny-0").objective)
    assert gzip.decompress(path.read_bytes()).decode() == text


def test_an_exported_auction_has_the_welfare_that_exact_proves(tmp_path: Path):
    auction = optim.AuctionInstance.from_bids(
        [4, 4], {"a": [(4, "machine", 0.5)], "b": [(4, "cluster", 0.8), (2, "slot", 0.9)]}, empty_rho=2.0
    )
    (tmp_path / "a.lp").write_text(optim.export(auction, "lp"))
    plan = optim.solve(auction, "exact").decision
    assert optimum_of_file(tmp_path / "a.lp") == pytest.approx(plan.welfare(auction))


def test_an_exported_bidding_relaxation_bounds_the_ratio_and_a_ratio_makes_it_whole(tmp_path: Path):
    instance = reference_instance("spot-tiny-own")
    best = optim.solve(instance, "dinkelbach").objective
    (tmp_path / "b.mps").write_text(optim.export(instance))
    assert optimum_of_file(tmp_path / "b.mps") <= best * (1 + 1e-6)
    (tmp_path / "c.mps").write_text(optim.export(instance, ratio=best * 1.1))
    assert optimum_of_file(tmp_path / "c.mps") < 0 < best  # at more than the least ratio the difference is negative


def test_an_unknown_format_or_a_ratio_out_of_place_is_refused():
    with pytest.raises(InvalidOptionError, match="format must be one of mps, lp, got 'nl'"):
        optim.export(reference_instance("tiny-0"), "nl")
    with pytest.raises(InvalidOptionError, match=r"applies only to objectives that are a ratio, not to .admission"):
        optim.export(reference_instance("tiny-0"), ratio=0.5)


@pytest.mark.parametrize("format", ["lp", "mps"])
@pytest.mark.parametrize("name", ["a *\\\nmin\nx: 1 y", "x\nOBJSENSE\n    MIN", "a\rb", "a\u2028b", "\x1b[2J", "é $x$"])
def test_a_name_adds_no_line_to_a_model(name, format):
    """An instance's name is in a remark: for any name, all other lines equal those of the plain instance."""
    instance = optim.reference_instance("tiny-0")
    plain, hostile = (optim.export(replace(instance, name=given), format).split("\n") for given in ("plain", name))
    differing = [line for line, other in zip(hostile, plain, strict=True) if line != other]
    assert len(differing) <= 1
    assert all(line.isascii() and line.isprintable() for line in differing)


UNFILLED = np.array([np.inf, -np.inf, 1e308, 1e308])


@unfilled_sums
def summed(depth):
    return summed(depth - 1) if depth else float(np.sum(UNFILLED))


def test_nothing_is_said_of_infinities_of_both_signs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(np.isnan(summed(depth)) for depth in (0, 2, 0))
        with pytest.raises(RuntimeWarning, match="invalid value"):
            np.sum(UNFILLED)
