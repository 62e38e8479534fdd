"""The paper's evaluation: its points, its lateness, and its plots."""

from dataclasses import replace

import pytest
from optim_studies.paper import SIZES, draw, lateness, utility_class

from optim.benchmarks.suite import SUITES, BenchRequest, choose_suites
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.admission.data import SigmoidUtility
from optim.models.admission.decision import AdmissionPlan
from optim.workloads.admission.generator import GeneratorOptions, generate
from optim.workloads.instances import GeneratedSource, NamedSource

PAPER = SUITES.get("paper")
TINY = GeneratorOptions(num_jobs=6, num_slots=6, num_worker_servers=2, num_ps_servers=2)
REQUEST = BenchRequest(sources=(GeneratedSource(options=TINY),), solvers=("online", "rrh", "column-generation"))


@pytest.fixture(scope="module")
def records():
    """Records of the complete evaluation of a tiny instance, by three solvers."""
    return [piece.run(Never(), SilentProgress()) for piece in PAPER.build(REQUEST)]


def test_is_a_suite_of_the_admission_problem():
    assert choose_suites(("admission",), ("paper",)) == (PAPER,)


def test_sweeps_jobs_slots_and_urgency_through_one_middle():
    sweep = [piece.labels for piece in PAPER.build(REQUEST) if piece.labels["figure"] == "sweep"]
    points = {(labels["jobs"], labels["slots"], labels["critical"]) for labels in sweep}
    assert points == {(3, 6, 35), (6, 6, 35), (12, 6, 35), (6, 3, 35), (6, 12, 35), (6, 6, 0), (6, 6, 70)}


def test_makes_u_and_the_lower_scale_wrong_by_factors_of_two_for_both_prices():
    wrong = [piece.labels for piece in PAPER.build(REQUEST) if piece.labels["figure"] == "constants"]
    assert len(wrong) == 4 * 7
    assert {labels["factor"] for labels in wrong} == {2.0**k for k in range(-3, 4)}


def test_a_users_options_go_before_the_suites_own():
    request = replace(REQUEST, options={"column-generation.tol": 0.5})
    bounding = [piece for piece in PAPER.build(request) if piece.solver == "column-generation"]
    assert {piece.resolved_options()["tol"] for piece in bounding} == {0.5}


def test_refuses_an_instance_that_it_can_not_vary():
    with pytest.raises(InvalidOptionError, match="varies a generated instance"):
        list(PAPER.build(replace(REQUEST, sources=(NamedSource("tiny-0"),))))


def test_every_record_is_verified(records):
    assert [record.error or record.violations for record in records if not record.verified] == []


def test_every_figure_is_drawn(records, monkeypatch):
    monkeypatch.setattr("optim.report.plots.as_svg", lambda drawing, name: name)  # writing takes longest
    titles = [figure.title.split(":")[0] for figure in draw(records)]
    assert titles == ["F1 to F3", "F4", "F5", "F6", "F7", "F7"]


def test_no_figure_is_drawn_of_nothing():
    assert draw([]) == []


def test_lateness_is_completion_less_arrival_less_target():
    instance = generate(TINY, 0)
    job = 0
    utility = instance.jobs.utilities[job]
    slot = int(instance.jobs.arrival[job]) + 1
    plan = AdmissionPlan.from_rows([(job, slot, 0, 1)], [(job, slot, 0, 1)])
    late = lateness(instance, plan)
    assert late.pop(utility_class(utility)) == [1 - utility.theta3]
    assert list(late.values()) == [[], []]


@pytest.mark.parametrize(
    ("theta2", "kind"), [(0.0, "insensitive"), (0.01, "sensitive"), (1.0, "sensitive"), (4.0, "critical")]
)
def test_classes_follow_the_papers_ranges_of_urgency(theta2, kind):
    assert utility_class(SigmoidUtility(theta1=1.0, theta2=theta2, theta3=1.0)) == kind


def test_every_size_passes_through_its_middle():
    for size in SIZES.values():
        assert 1.0 in size.job_factors
        assert 1.0 in size.slot_factors


def test_another_seed_draws_other_instances():
    drawn = [
        {
            piece.seed
            for piece in PAPER.build(replace(REQUEST, seeds=(seed,), size="full"))
            if piece.labels["figure"] == "tiny"
        }
        for seed in range(3)
    ]
    assert len(drawn[0]) == SIZES["full"].num_tiny > 1
    assert not (drawn[0] & drawn[1] | drawn[1] & drawn[2] | drawn[0] & drawn[2])
