"""What a plan gives its jobs, and the refusals; the playing itself is tested through the command."""

import pytest

import optim
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.simulation.live.job_plan import JobPlan, PlanOptions, read_plan
from optim.simulation.live.job_run import JobRow, JobRun
from optim.simulation.live.plan_run import run_plan, summary_of


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
    # Work is the job's own, not what the plan allots: rounded up it is what the solvers count with.
    assert all(instance.work[job.job] - 1 < job.work <= instance.work[job.job] for job in jobs)
    assert all(job.last_slot < job.planned_slots <= job.last_slot + 1 for job in jobs)


def test_too_many_processes_are_refused_before_any_starts(instance, plan):
    with pytest.raises(UnsupportedProblemError, match="more than max_processes 2"):
        run_plan(instance, plan, PlanOptions(max_processes=2))


@pytest.mark.parametrize("wrong", [{"slot_s": 0.0}, {"gradient_s": 4.0}, {"overrun": -1}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError):
        PlanOptions(**wrong)


def plan_of(machines, work, **fields):
    """A job's plan, at linear speed unless told otherwise."""
    return JobPlan(job=0, name="j", machines=machines, work=work, **{"speeds": (1.0, 2.0, 3.0), **fields})


def test_a_plan_is_done_when_its_speeds_say():
    machines = {1: (2, 1), 3: (1, 1), 4: (3, 1)}
    assert plan_of(machines, 4.5).planned_slots == 4.5
    assert plan_of(machines, 3.0).planned_slots == 4.0
    assert plan_of(machines, 3.0, speeds=(1.0, 1.5, 1.75)).planned_slots == pytest.approx(4 + 0.5 / 1.75)
    assert plan_of(machines, 99.0).planned_slots == 5.0


@pytest.mark.parametrize("work", [2.0, 7.7])
def test_a_jobs_gradients_add_up_to_its_own_work_at_the_scale_of_time(work):
    run = JobRun(plan_of({0: (2, 1), 1: (3, 1)}, work, link_share=0.25), PlanOptions(slot_s=4.0), share=0.4)
    played, gradients = run._played, run.clocks * run.application.num_partitions
    assert run.application.num_partitions == 6, "whole for two workers and for three"
    assert gradients * (played.compute_s + played.link_s) == pytest.approx(4.0 * work)
    assert played.link_s == pytest.approx((played.compute_s + played.link_s) / 4)
    assert played.share == 0.4
    assert played.compute_s + played.link_s >= 0.05
    played.pace.close()


def test_vectors_have_the_jobs_size_at_the_scale_of_time_and_an_end():
    def floats(number, scale):
        run = JobRun(plan_of({0: (1, 1)}, 1.0, gradient_floats=number), PlanOptions(most_floats=20_000), scale=scale)
        run._played.pace.close()
        return run.application.num_parameters

    assert floats(10**6, 0.01) == 10_000
    assert floats(10**6, 1.0) == 20_000
    assert floats(10, 1.0) == floats(0, 1.0) > 10, "what the application needs"


def test_many_numbers_of_workers_share_a_multiple_of_the_most():
    run = JobRun(plan_of({k: (k, 1) for k in (3, 5, 7)}, 9.0, speeds=tuple(map(float, range(1, 8)))), PlanOptions())
    run._played.pace.close()
    assert run.application.num_partitions == 28


def row(planned, realised, utility):
    """A job's row, of which only these count here."""
    return JobRow(
        job="j", application="a", planned_slots=planned, realised_slots=realised,
        error=None if realised is None else realised / planned - 1, planned_utility=10.0, realised_utility=utility,
        clocks=1, gradients=1, changes=0, first_loss=None, last_loss=None, is_exact=None,
    )  # fmt: skip


def test_errors_are_summed_up_with_what_they_do_to_utility():
    found = summary_of([row(2.0, 2.2, 10.0), row(2.0, 1.0, 12.0), row(4.0, 4.0, 9.0), row(4.0, None, 0.0)])
    assert (found.jobs, found.unfinished) == (4, 1)
    assert found.median_error == pytest.approx(0.1)
    assert found.max_error == pytest.approx(0.5)
    assert found.mean_error == pytest.approx(-0.4 / 3)
    assert (found.planned_utility, found.realised_utility) == (40.0, 31.0)
    assert summary_of([row(1.0, None, 0.0)]).median_error is None


def test_three_kinds_of_jobs_take_turns_and_have_data_of_their_own():
    runs = [
        JobRun(
            plan=JobPlan(job=job, name="j", machines={0: (1, 1)}, work=1.0, speeds=(1.0,)), options=PlanOptions(seed=2)
        )
        for job in range(4)
    ]
    assert [type(run.application.application).__name__ for run in runs] == [
        "MatrixFactorisation",
        "LogisticRegression",
        "TopicModel",
        "MatrixFactorisation",
    ]
    assert [run.application.application.seed for run in runs] == [2000, 2001, 2002, 2003]
