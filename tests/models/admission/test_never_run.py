"""Jobs that can never run: found as the checker's dynamic programme finds them, each with a reason that is right."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import optim
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.check.schedules import FREE, Prices, min_payoff
from optim.solvers.solve import solvers_of
from tests.support.admission.slot_runs import seeded_instance

GPU4 = [{"capacity": {"gpu": 4}}]
JOB = {"id": "a", "work": 6, "max_workers": 3, "worker": {"gpu": 1}, "value": 10}


def build(*jobs, **cluster):
    cluster = {"horizon": 4, "worker_servers": GPU4, **cluster}
    return optim.AdmissionInstance.from_jobs([{**JOB, **job} for job in jobs], **cluster)


def worth_nothing_alone(instance):
    """Return the jobs for which no schedule on the empty cluster has a positive value, by the checker's dynamic programme."""
    exact = read_exact_instance(instance)
    size = (exact.horizon, len(exact.resources))
    worker = np.zeros((len(exact.worker_servers.count), *size))
    ps = worker if exact.is_shared else np.zeros((len(exact.ps_servers.count), *size))
    free = Prices(worker=worker, ps=ps, charges={})
    return {instance.jobs.ids[job.index] for job in exact.jobs if min_payoff(exact, job, free, FREE, enough=0.0) <= 0}


def test_they_are_the_jobs_without_a_schedule_that_is_worth_anything():
    some = 0
    for seed in range(200):
        instance = seeded_instance(seed, max_jobs=8)
        assert set(instance.never_run) == worth_nothing_alone(instance)
        some += len(instance.never_run)
    assert some > 100


@pytest.mark.parametrize(
    ("job", "cluster", "reason"),
    [
        ({"ps": {"gpu": 1}}, {}, "needs parameter servers that fit no host of parameter servers (gpu: 1 needed, at most 0 per server)"),
        ({"worker": {"gpu": 5}}, {}, "has workers that fit no worker server (gpu: 5 needed, at most 4 per server)"),
        (
            {"worker": {"gpu": 3, "cpu": 3}},
            {"worker_servers": [{"capacity": {"gpu": 4}}, {"capacity": {"cpu": 4}}], "resources": ["gpu", "cpu"]},
            "has workers that fit no worker server in all resources at once",
        ),
        (
            {"worker": {"gpu": 3}, "ps": {"gpu": 2}},
            {"worker_servers": None, "shared_servers": GPU4},
            "has no slot in which workers and the parameter servers that they need fit together",
        ),
        (
            {"worker": {"gpu": 1}, "ps": {"gpu": 5}},
            {"worker_servers": None, "shared_servers": GPU4},
            "needs parameter servers that fit no shared server (gpu: 5 needed, at most 4 per server)",
        ),
        ({"work": 20}, {}, "cannot complete alone by slot 3, after which it earns nothing: at most 60% of its work fits from slot 0 on"),
        ({"arrival": 2, "deadline": 2}, {}, "cannot complete alone by slot 2, after which it earns nothing: at most 50% of its work fits from slot 2 on"),
        ({"value": 0}, {}, "earns nothing in any slot from its arrival on"),
    ],
)  # fmt: skip
def test_the_reason_says_what_is_lacking(job, cluster, reason):
    with pytest.warns(UserWarning, match="1 of 2 jobs can never run: 'a' "):
        instance = build(job, {"id": "b", "work": 1, "max_workers": 1}, **cluster)
    assert dict(instance.never_run) == {"a": reason}


def test_many_are_counted_and_a_few_named():
    with pytest.warns(UserWarning, match="can never run") as caught:
        build(*({"id": f"j{k}", "worker": {"gpu": 9}} for k in range(5)))
    said = str(caught[0].message)
    assert said.startswith("5 of 5 jobs can never run: 'j0' has workers")
    assert said.endswith("; and 2 more")


@pytest.mark.filterwarnings("ignore:1 of 2 jobs can never run")
@pytest.mark.parametrize("solver", [solver.name for solver in solvers_of("admission")])
def test_every_answer_counts_them_and_says_why(solver):
    instance = build({"ps": {"gpu": 1}}, {"id": "b", "work": 1, "max_workers": 1})
    solution = optim.solve(instance, solver)
    assert solution.stats.counts["never_run"] == 1
    assert "1 of 2 jobs can never run: 'a' needs parameter servers" in solution.message
    assert optim.verify(instance, solution).is_ok
    other = replace(solution, stats=replace(solution.stats, counts={**solution.stats.counts, "never_run": 2.0}))
    assert not optim.verify(instance, other).is_ok


@pytest.mark.filterwarnings("ignore:1 of 1 jobs can never run")
def test_an_instance_that_was_asked_travels_to_other_processes_and_is_not_changed():
    instance = build({"ps": {"gpu": 1}})
    with pytest.raises(TypeError, match="item assignment"):
        instance.never_run["b"] = "of no avail"
    again = pickle.loads(pickle.dumps(instance))
    assert again.never_run == instance.never_run == {"a": instance.never_run["a"]}


def test_where_every_job_can_run_nothing_is_said(recwarn):
    instance = build({})
    assert (dict(instance.never_run), list(recwarn)) == ({}, [])
    solution = optim.solve(instance, "fifo")
    assert (solution.message, solution.stats.counts["never_run"]) == ("", 0)
