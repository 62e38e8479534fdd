"""The names of `import optim`: they load on first use, and missing names raise."""

import math
import pickle
import re
import runpy
import sys
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest

import optim
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import Workload


def test_every_public_name_is_there():
    assert {name for name in optim.__all__ if getattr(optim, name) is None} == set()
    assert set(optim.__all__) < set(dir(optim))


def test_the_version_is_that_of_the_distribution():
    assert optim.__version__ == version("mlcluster-optim")


def test_a_misspelt_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'optim' has no attribute 'slove'"):
        _ = optim.slove


def test_solver_names_are_those_that_solve_takes():
    names = optim.solver_names("admission")
    assert list(names) == sorted(names)
    assert {"online", "search", "branch-and-price"} <= set(names)
    assert "themis" not in names
    with pytest.raises(InvalidProblemError, match="there are: admission, auction, bidding"):
        optim.solver_names("admision")


def test_python_dash_m_optim_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["optim", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("optim", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"optim {version('mlcluster-optim')}\n"


@pytest.mark.prove
def test_type_checkers_find_a_misspelt_name(tmp_path):
    from mypy import api

    (tmp_path / "wrong.py").write_text("import optim\n\noptim.slove(None, 'online')\n")
    (tmp_path / "right.py").write_text("import optim\n\nnames: tuple[str, ...] = optim.solver_names('admission')\n")
    out, _, _ = api.run(["--strict", "--config-file=", "--follow-imports=silent", str(tmp_path)])
    assert 'Module has no attribute "slove"' in out
    assert "right.py" not in out


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ({"solver": 5}, "solver must be a name from optim.solver_names('admission'), got 5"),
        ({"time_limit_s": "5"}, "time limit must be a number of at least 0 seconds, got '5'"),
        ({"time_limit_s": True}, "time limit must be a number of at least 0 seconds, got True"),
        ({"stop": 5}, "stop must be a stopping rule, such as optim.core.stopping.IterationLimit(5), got 5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": 1.0}, "seed must be a whole number of at least 0, got 1.0"),
    ],
)
def test_wrong_arguments_of_solve_are_named(arguments, cause):
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(cause)}$"):
        optim.solve(optim.reference_instance("tiny-0"), **{"solver": "fifo", **arguments})


@pytest.mark.parametrize(
    ("job", "fields", "cause"),
    [
        ({"value": math.nan}, {}, "jobs[0].value must be a finite number"),
        ({}, {"slot_s": 0}, "slot_s must be a positive number of seconds, got 0"),
        ({}, {"slot_s": math.nan}, "slot_s must be a positive number of seconds, got nan"),
    ],
)
def test_numbers_that_are_none_are_no_missing_fields(job, fields, cause):
    jobs = [{"id": "a", "work": 2, "value": 1, "worker": {"gpu": 1}, **job}]
    with pytest.raises(InvalidProblemError, match=re.escape(cause)):
        optim.AdmissionInstance.from_jobs(jobs, horizon=2, worker_servers=[{"capacity": {"gpu": 1}}], **fields)


def test_a_gap_of_a_frame_is_a_missing_field():
    frame = pd.DataFrame({"id": ["a", "b"], "work": 2, "worker.gpu": 1, "value": 1, "deadline": [1, math.nan]})
    instance = optim.AdmissionInstance.from_jobs(frame, horizon=4, worker_servers=[{"capacity": {"gpu": 1}}])
    assert instance.value[1, 3] == 1


@pytest.mark.parametrize("format", ["mps", "lp"])
def test_export_prints_nothing(format, capfd, caplog):
    assert optim.export(optim.reference_instance("tiny-0"), format)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_there_is_no_lp_gap_before_there_is_a_fractional_plan():
    counts = optim.solve(optim.reference_instance("tiny-0"), "column-generation", time_limit_s=0).stats.counts
    assert counts["master"] == 0
    assert "lp_gap" not in counts


@pytest.mark.parametrize("module", [optim.deadlines, optim.plot, optim.testing])
def test_a_module_lists_its_public_names(module):
    assert dir(module) == sorted(module.__all__)


SOLVED = {"tiny-0": "column-generation", "tiny-1": "online", "spot-hour-0": "dinkelbach", "auction-tiny-0": "exact"}


@pytest.mark.parametrize("name", SOLVED)
def test_instances_and_solutions_are_equal_after_pickling_and_after_a_file(name, tmp_path):
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, SOLVED[name])
    for value in (instance, solution):
        copied = pickle.loads(pickle.dumps(value))
        assert copied == value
        assert hash(copied) == hash(value)
        assert {value: "found"}[copied] == "found"
    optim.save(instance, tmp_path / "i.json")
    optim.save_solution(solution, instance, tmp_path / "s.json")
    assert optim.load(tmp_path / "i.json") == instance
    read = optim.load_solution(tmp_path / "s.json", instance)
    assert read.decision == solution.decision
    assert read.certificate == solution.certificate
    assert optim.reference_instance("tiny-2") != instance


def test_a_workload_and_a_cluster_are_equal_after_pickling():
    cluster = Cluster(gpus=np.array([4, 2]))
    jobs = Workload(submit_us=np.array([0, 5]), gpus=np.array([1, 2]), duration_us=np.array([7, 8]))
    assert pickle.loads(pickle.dumps((jobs, cluster))) == (jobs, cluster)
    assert jobs != replace(jobs, gpus=np.array([1, 1]))
