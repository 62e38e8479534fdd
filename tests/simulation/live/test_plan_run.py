"""What a plan gives its jobs, and the refusals; the playing itself is tested through the command."""

import numpy as np
import pytest

import optim
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.simulation.live.job_plan import JobPlan, PlanOptions, read_plan
from optim.simulation.live.job_run import JobRun
from optim.simulation.live.paced import Paced
from optim.simulation.live.plan_run import run_plan
from tests.support.training.oracle import CountingApplication


@pytest.fixture(scope="module")
def instance():
    """Six small jobs, of which the online algorithm admits some."""
    return optim.reference_instance("tiny-0")


@pytest.fixture(scope="module")
def plan(instance):
    """The online algorithm's plan."""
    return optim.solve(instance, "online").decision


def test_every_worker_of_the_plan_is_given_to_its_job(instance, plan):
    jobs = read_plan(instance, plan)
    assert [job.job for job in jobs] == plan.admitted.tolist()
    assert sum(workers for job in jobs for workers, _ in job.machines.values()) == plan.workers[:, 3].sum()
    assert sum(servers for job in jobs for _, servers in job.machines.values()) == plan.ps[:, 3].sum()
    assert [job.last_slot for job in jobs] == plan.completion.tolist()
    assert all(job.work == instance.work[job.job] for job in jobs)


def test_too_many_processes_are_refused_before_any_starts(instance, plan):
    with pytest.raises(UnsupportedProblemError, match="more than max_processes 2"):
        run_plan(instance, plan, PlanOptions(max_processes=2))


@pytest.mark.parametrize("wrong", [{"slot_s": 0.0}, {"gradient_s": 4.0}, {"overrun": -1}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError):
        PlanOptions(**wrong)


def test_a_paced_application_computes_the_same():
    paced, plain = Paced(application=CountingApplication(2, 5), gradient_s=0.0), CountingApplication(2, 5)
    view = plain.initial_parameters()
    assert np.array_equal(paced.gradient(view, 1, 0)[0], plain.gradient(view, 1, 0)[0])
    assert (paced.num_partitions, paced.num_parameters, paced.weight(0)) == (2, 5, 1.0)


@pytest.mark.parametrize(("work", "clocks"), [(4, 40), (5, 50), (0, 1)])
def test_a_job_trains_for_the_gradients_that_its_work_has_time_for(work, clocks):
    # A worker-slot of 4 s has time for 80 gradients of 0.05 s; two workers at most share 8 partitions.
    plan = JobPlan(job=0, name="j", machines={0: (2, 1), 1: (1, 1)}, work=work)
    run = JobRun(plan=plan, options=PlanOptions(slot_s=4.0, gradient_s=0.05))
    assert (run.application.num_partitions, run.clocks) == (8, clocks)


def test_three_kinds_of_jobs_take_turns_and_have_data_of_their_own():
    runs = [
        JobRun(plan=JobPlan(job=job, name="j", machines={0: (1, 1)}, work=1), options=PlanOptions(seed=2))
        for job in range(4)
    ]
    assert [type(run.application).__name__ for run in runs] == [
        "MatrixFactorisation",
        "LogisticRegression",
        "TopicModel",
        "MatrixFactorisation",
    ]
    assert [run.application.seed for run in runs] == [2000, 2001, 2002, 2003]
