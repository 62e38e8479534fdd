"""Plans and claims: accepted ones, the violated row of rejected ones, and the valid ranges of counters."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import optim
from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
from optim.models.admission.check import check
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.check.price_scales import RatioRefusedError, least_spread, recompute_ratio
from optim.models.admission.check.ratio import ratio_of
from optim.models.admission.check.schedules import max_share
from optim.models.admission.decision import AdmissionPlan, PriceProof
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.summary import describe
from optim.solvers.admission.online import OnlineOptions, make_bounds, make_function
from optim.solvers.admission.posted_prices.price_functions import PriceFloorRule, price_ranges
from optim.solvers.admission.posted_prices.theorems import log_spread, ratio_claim
from tests.support.admission.plans import families, greedy_plan, proven_by, raw_plan, solution_of
from tests.support.admission.strategies import tiny_instances
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance

REFERENCES = [*(f"tiny-{seed}" for seed in range(3)), *(f"small-{seed}" for seed in range(3))]


def check_rows(tiny: Any, workers: list[Any], ps: list[Any], /, **fields: Any) -> Any:
    """Check a plan that consists of the given rows."""
    return check(tiny, solution_of(tiny, raw_plan(workers, ps), **({"objective": 0.0} | fields)))


def one_job(**fields: Any) -> Any:
    """Return an instance of one job that two workers finish in two slots."""
    return tiny_instance(job_document("a", **fields))


TWO_SLOTS = [(0, 0, 0, 2), (0, 1, 0, 2)]
ONE_PS = [(0, 0, 0, 1), (0, 1, 0, 1)]


@pytest.mark.parametrize("name", REFERENCES)
def test_accepts_a_greedy_plan_of_a_reference_instance(name: str) -> None:
    instance = optim.reference_instance(name)
    plan = greedy_plan(instance)
    assert len(plan.admitted) > 0
    found = check(instance, solution_of(instance, plan))
    assert found.is_ok
    assert found.objective == pytest.approx(plan.objective(instance), rel=1e-12)


@pytest.mark.parametrize("trait", BY_HAND)
def test_accepts_a_greedy_plan_of_every_trait(trait: str) -> None:
    instance = BY_HAND[trait]
    plan = greedy_plan(instance)
    assert len(plan.admitted) > 0
    assert check(instance, solution_of(instance, plan)).violations == ()


def test_accepts_that_every_job_is_refused() -> None:
    instance = one_job()
    found = check(instance, solution_of(instance, raw_plan([], [])))
    assert found.is_ok
    assert found.objective == 0.0


def test_accepts_an_instance_without_jobs() -> None:
    instance = tiny_instance(jobs=[])
    prices = PriceProof(worker_price=np.zeros((1, 4, 2)), ps_price=np.zeros((1, 4, 2)), payoff=np.zeros(0))
    solution = solution_of(
        instance,
        raw_plan([], []),
        termination=Termination.OPTIMAL,
        **proven_by(prices, 0.0, CertificateKind.OPTIMALITY),
    )
    found = check(instance, solution)
    assert found.is_ok
    assert found.bound == 0.0


@pytest.mark.parametrize(
    ("solver", "kind", "false"),
    [
        ("online", CertificateKind.BOUND, "no plan is worth more than {}: the leaves of a tree of 7777 nodes"),
        ("column-generation", CertificateKind.BOUND, "no plan is worth more than {}: the leaves of a tree of 1 nodes"),
        (
            "branch-and-price",
            CertificateKind.OPTIMALITY,
            "the plan attains the bound {} of a tree of 7777 nodes to 1e-06",
        ),
        (
            "branch-and-price",
            CertificateKind.OPTIMALITY,
            "the plan attains the bound {} of the packing LP's dual to 1e-06",
        ),
    ],
)
def test_a_sentence_is_of_its_kind_of_proof(solver: str, kind: CertificateKind, false: str) -> None:
    instance = optim.reference_instance("tiny-0")
    found = optim.solve(instance, solver)
    assert found.certificate is not None
    assert found.certificate.kind == kind
    assert check(instance, found).is_ok
    forged = replace(found.certificate, statement=false.format(found.bound), conditions=())
    assert [wrong.row for wrong in check(instance, replace(found, certificate=forged)).violations] == ["certificate"]


def test_states_what_it_has_proven() -> None:
    instance = one_job()
    found = check_rows(instance, TWO_SLOTS, ONE_PS, objective=8.0)
    assert found.proven == ("the plan meets rows (2)-(13) exactly and earns 8.0",)


@pytest.mark.parametrize(
    ("row", "workers", "ps"),
    [
        ("(2) work [job a]", [(0, 0, 0, 2), (0, 1, 0, 1)], ONE_PS),
        ("(3) workers at once [job a, slot 0]", [*TWO_SLOTS, (0, 0, 1, 1)], [*ONE_PS, (0, 2, 0, 1)]),
        ("(6) bandwidth [job a, slot 1]", TWO_SLOTS, ONE_PS[:1]),
        ("(7) PS at most workers [job a, slot 2]", TWO_SLOTS, [*ONE_PS, (0, 2, 0, 1)]),
        ("(9)-(13) index [workers: job 0, slot 4, server 0]", [*TWO_SLOTS, (0, 4, 0, 1)], ONE_PS),
        ("(9)-(13) index [PSs: job 0, slot 0, server 1]", TWO_SLOTS, [*ONE_PS, (0, 0, 1, 1)]),
        ("(9)-(13) count [workers: job a, server 1 (gpus), slot 0]", [*TWO_SLOTS, (0, 0, 1, -1)], ONE_PS),
        ("(9)-(13) rows [workers: job a, server 0 (gpus), slot 0]", [TWO_SLOTS[0], *TWO_SLOTS], ONE_PS),
    ],
)
def test_names_the_row_with_its_indices_in_words(row: str, workers: list[Any], ps: list[Any]) -> None:
    found = check_rows(one_job(), workers, ps, objective=8.0)
    assert row in [violation.row for violation in found.violations]


def test_names_resource_server_and_slot_of_an_exceeded_capacity() -> None:
    instance = one_job(worker=[1.5, 0])
    found = check_rows(instance, TWO_SLOTS, ONE_PS, objective=8.0)
    assert [violation.row for violation in found.violations] == [
        "(4) worker capacity [gpu, server 0 (gpus), slot 0]",
        "(4) worker capacity [gpu, server 0 (gpus), slot 1]",
    ]
    assert found.violations[0].amount == "1"
    assert "3 gpu used, the capacity is 2" in found.violations[0].message


def test_adds_up_the_jobs_on_a_ps_server() -> None:
    instance = tiny_instance(job_document("a", ps=[0, 1.25]), job_document("b", ps=[0, 1.25]))
    workers = [(0, 0, 0, 2), (0, 1, 0, 2), (1, 0, 1, 2), (1, 1, 1, 2)]
    found = check_rows(instance, workers, [(0, 0, 0, 1), (0, 1, 0, 1), (1, 0, 0, 1), (1, 1, 0, 1)], objective=16.0)
    assert families(found.violations) == {"(5)"}
    assert found.violations[0].amount == "0.5"


def test_decides_capacities_on_the_decimals_of_the_file() -> None:
    """3 * 0.1 <= 0.3 holds in decimals and fails in doubles."""
    instance = tiny_instance(
        job_document("a", epochs=1, chunks=3, worker=[0.1, 0]),
        worker_servers=[{"type": "gpus", "capacity": [0.3, 0], "count": 1}],
    )
    assert check_rows(instance, [(0, 0, 0, 3)], [(0, 0, 0, 2)], objective=16.0).is_ok
    more = tiny_instance(
        job_document("a", epochs=1, chunks=1, worker=[0.300001, 0]),
        worker_servers=[{"type": "gpus", "capacity": [0.3, 0], "count": 1}],
    )
    found = check_rows(more, [(0, 0, 0, 1)], [(0, 0, 0, 1)], objective=16.0)
    assert [(violation.row[:3], violation.amount) for violation in found.violations] == [("(4)", "0.000001")]


def test_uses_the_capacity_of_the_slot() -> None:
    capacity = [[2, 0], [1, 0], [2, 0], [2, 0]]
    instance = tiny_instance(worker_servers=[{"type": "gpus", "capacity": capacity, "count": 1}])
    assert families(check_rows(instance, TWO_SLOTS, ONE_PS, objective=8.0).violations) == {"(4)"}
    later = [(0, 0, 0, 2), (0, 2, 0, 2)], [(0, 0, 0, 1), (0, 2, 0, 1)]
    assert check_rows(instance, *later, objective=4.0).is_ok


def test_refuses_work_before_arrival() -> None:
    found = check_rows(one_job(arrival=1), TWO_SLOTS, ONE_PS, objective=16.0)
    assert families(found.violations) == {"(9)-(13) arrival"}


def test_refuses_a_completion_that_earns_less_than_the_minimum() -> None:
    late = [(0, 0, 0, 2), (0, 3, 0, 2)], [(0, 0, 0, 1), (0, 3, 0, 1)]
    assert check_rows(one_job(min_utility=2), *late, objective=2.0).is_ok
    found = check_rows(one_job(min_utility=2.5), *late)
    assert [violation.row for violation in found.violations] == ["(8) completion [job a, slot 3]"]


def test_takes_the_demands_of_the_segment_in_which_the_slot_starts() -> None:
    instance = BY_HAND["segments"]
    # The first slot's two workers need one GPU each, the second slot's two GPUs each: one per server.
    spread = [(0, 0, 0, 2), (0, 1, 0, 1), (0, 1, 1, 1)]
    assert check_rows(instance, spread, ONE_PS, objective=8.0).is_ok
    assert families(check_rows(instance, TWO_SLOTS, ONE_PS, objective=8.0).violations) == {"(4)"}
    # A segment that starts within a slot begins with the next slot only.
    slow = [(0, 0, 0, 1), (0, 1, 0, 2), (0, 2, 0, 1)]
    assert check_rows(instance, slow, [(0, t, 0, 1) for t in range(3)], objective=4.0).is_ok


def test_counts_only_whole_chunks_where_chunks_are_integral() -> None:
    # A chunk takes 0.4 worker-slots: one worker finishes two a slot and wastes the rest.
    instance = tiny_instance(job_document("a", minibatch_s=4, epochs=2, chunks=2), chunk_integral=True)
    assert check_rows(instance, [(0, 0, 0, 1), (0, 1, 0, 1)], ONE_PS, objective=8.0).is_ok
    found = check_rows(instance, [(0, 0, 0, 1)], ONE_PS[:1], objective=16.0)
    assert [(violation.row, violation.amount) for violation in found.violations] == [("(2) work [job a]", "2")]


def test_sums_workers_and_ps_on_a_shared_server() -> None:
    instance = tiny_instance(
        job_document("a", worker=[1, 1], ps=[0, 1]),
        shared_servers=[{"type": "box", "capacity": [2, 2], "count": 2}],
    )
    assert check_rows(instance, TWO_SLOTS, [(0, 0, 1, 1), (0, 1, 1, 1)], objective=8.0).is_ok
    found = check_rows(instance, TWO_SLOTS, ONE_PS, objective=8.0)
    assert found.violations[0].row == "(4)+(5) shared capacity [cpu, server 0 (box), slot 0]"


def test_caps_a_jobs_share_of_a_server_but_lets_one_worker_be() -> None:
    instance = tiny_instance(job_document("a", worker=[1.5, 0]), max_share_per_server=0.7)
    spread = [(0, t, h, 1) for t in range(2) for h in range(2)]
    assert check_rows(instance, spread, ONE_PS, objective=8.0).is_ok
    capped = tiny_instance(job_document("a"), max_share_per_server=0.7)
    found = check_rows(capped, TWO_SLOTS, ONE_PS, objective=8.0)
    assert families(found.violations) == {"max_share_per_server"}


def test_caps_workers_and_ps_together_on_a_shared_server() -> None:
    # Half of four CPUs: a worker and a PS of one CPU each may share a server, two workers and a PS may not.
    instance = BY_HAND["shared-capped"]
    apart = [(0, t, h, 1) for t in range(3) for h in range(2)], [(0, t, 0, 1) for t in range(3)]
    assert check_rows(instance, *apart, objective=4.0).is_ok
    together = [(0, t, 0, 2) for t in range(3)], [(0, t, 0, 1) for t in range(3)]
    assert families(check_rows(instance, *together, objective=4.0).violations) == {"max_share_per_server"}


@pytest.mark.parametrize("objective", [8.0 * (1 + 1e-8), 8.0 * (1 - 1e-8), 9.0, -8.0, 0.0, np.nan, np.inf, None, "8"])
def test_refuses_an_objective_that_is_not_the_plans(objective: Any) -> None:
    found = check_rows(one_job(), TWO_SLOTS, ONE_PS, objective=objective)
    assert families(found.violations) == {"objective"}
    assert found.objective == 8.0


def test_refuses_an_objective_without_a_decision() -> None:
    assert families(check(one_job(), solution_of(one_job(), None, objective=8.0)).violations) == {"objective"}


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ("problem", {"problem": "auction"}),
        ("instance", {"instance": "another"}),
        ("sense", {"sense": Sense.MINIMISE}),
        ("primal status", {"primal": PointStatus.NONE}),
        ("primal status", {"primal": PointStatus.NEARLY_FEASIBLE}),
        ("dual status", {"dual": PointStatus.FEASIBLE}),
        ("bound", {"bound": 100.0}),
        ("termination", {"termination": Termination.OPTIMAL}),
        ("termination", {"termination": Termination.INFEASIBLE}),
        ("termination", {"termination": Termination.DUAL_INFEASIBLE}),
        ("certificate", {"certificate": Certificate(kind=CertificateKind.BOUND, statement="")}),
        ("termination", {"termination": Termination.NUMERICAL_ERROR}),
        (
            "certificate",
            {
                "certificate": Certificate(kind=CertificateKind.OPTIMALITY, statement=""),
                "termination": Termination.OPTIMAL,
            },
        ),
    ],
)
def test_refuses_a_claim_that_nothing_backs(row: str, fields: dict[str, Any]) -> None:
    found = check_rows(one_job(), TWO_SLOTS, ONE_PS, **({"objective": 8.0} | fields))
    assert families(found.violations) == {row}


def test_refuses_a_primal_status_without_a_decision() -> None:
    found = check(one_job(), solution_of(one_job(), None, primal=PointStatus.FEASIBLE))
    assert families(found.violations) == {"primal status"}


def test_refuses_feasibility_that_is_certified_without_a_decision() -> None:
    certificate = Certificate(kind=CertificateKind.FEASIBLE_ONLY, statement="")
    found = check(one_job(), solution_of(one_job(), None, certificate=certificate))
    assert families(found.violations) == {"certificate"}


def test_refuses_a_decision_of_another_type() -> None:
    foreign = replace(solution_of(one_job(), None), decision="a plan", primal=PointStatus.FEASIBLE, objective=0.0)
    assert families(check(one_job(), foreign).violations) == {"decision"}


def forged(**arrays: Any) -> AdmissionPlan:
    """Return a plan that the constructors would reject."""
    plan = object.__new__(AdmissionPlan)
    for name, array in arrays.items():
        object.__setattr__(plan, name, array)
    return plan


@pytest.mark.parametrize(
    "decision",
    [
        forged(workers=np.full((1, 4), np.nan), ps=np.zeros((0, 4))),
        AdmissionPlan(workers=np.ones((2, 3), dtype=np.int64), ps=np.zeros((0, 4), dtype=np.int64)),
        forged(workers=np.zeros((0, 4), dtype=np.int64), ps=np.array([[0.0, 0.0, 0.0, 0.5]])),
    ],
)
def test_refuses_what_is_no_plan_at_all(decision: Any) -> None:
    found = check(
        one_job(),
        replace(solution_of(one_job(), None), decision=decision, primal=PointStatus.FEASIBLE, objective=0.0),
    )
    assert families(found.violations) == {"(9)-(13) rows"}
    assert found.objective is None


def test_is_what_the_public_verify_calls() -> None:
    instance = one_job()
    assert optim.verify(instance, solution_of(instance, raw_plan(TWO_SLOTS, ONE_PS))).objective == 8.0
    assert not optim.verify(instance, solution_of(instance, raw_plan(TWO_SLOTS, []))).is_ok


@cache
def strict() -> tuple[AdmissionInstance, Solution]:
    """A run of the online algorithm that claims a competitive ratio, on an instance that satisfies its conditions."""
    instance = optim.reference_instance("adversary-zero-start-strict-small")
    return instance, optim.solve(instance, solver="online", options={"strict": True})


def with_certificate(**changes: Any) -> Any:
    instance, solution = strict()
    return check(instance, replace(solution, certificate=replace(solution.certificate, **changes)))


def test_accepts_the_ratio_of_an_online_rule_with_its_conditions() -> None:
    instance, solution = strict()
    assert "C1 to C6 hold" in solution.certificate.statement
    found = check(instance, solution)
    assert found.is_ok
    ratio = f"the competitive ratio is {solution.certificate.competitive_ratio:.6g} if online made the plan"
    assert found.proven[-1] == ratio
    for options, premise in (
        ({"bounds": "estimated"}, " and U and the lower scale are as stated"),
        ({"price": "./mine.py:Mine"}, " and the price class computes the theorem's curve"),
    ):
        other = check(instance, replace(solution, options={**solution.options, **options}))
        assert other.proven[-1] == ratio + premise


def test_refuses_the_ratio_of_a_solver_that_no_theorem_covers() -> None:
    instance, solution = strict()
    assert families(check(instance, replace(solution, solver="fifo")).violations) == {"certificate"}


@pytest.mark.parametrize("at", range(6))
def test_refuses_a_condition_that_says_the_opposite(at: int) -> None:
    conditions = list(strict()[1].certificate.conditions)
    conditions[at] = conditions[at].replace("holds", "fails")
    assert families(with_certificate(conditions=tuple(conditions)).violations) == {"certificate"}


@pytest.mark.parametrize(
    "conditions",
    [
        (),
        ("C1 holds: eps = 1/1000",),
        ("C2 holds: U is at least 0.5 times the largest density",),
        ("C3 holds: U is reached at 1 of the capacity",),
        ("C5 holds: sum of lambda a is at most 1.1 of the value",),
        ("C5 holds: D_0 = 3, optimum >= 5",),
        ("C5 holds: sum of lambda a is at most many of the value",),
        ("C7 holds: all is well",),
    ],
)
def test_refuses_conditions_that_their_figures_do_not_give(conditions: tuple[str, ...]) -> None:
    known = {text[:2]: text for text in strict()[1].certificate.conditions}
    changed = tuple((known | {text[:2]: text for text in conditions}).values()) if conditions else ()
    assert families(with_certificate(conditions=changed).violations) == {"certificate"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"ratio \S+ by", "ratio 9.3 by"),
        (r"ratio \S+ by", "ratio 9.4 by"),
        (r"ratio \S+ by", "ratio no by"),
        (r"up to [^;]+", "up to 3.4"),
        (r"ratio \S+ by (.*) up to [^;]+", r"ratio 3.93503 by \1 up to 2"),
        (r"ratio (\S+) by", r"ratio \1 plus 0 on the guard's servers by"),
        ("zero-start", "fancy"),
        ("C1 to C6 hold", "C1 to C7 hold"),
        (r"; competitive.*", "; no competitive ratio is claimed: C2 of the zero-start price's conditions fail"),
    ],
)
def test_refuses_a_ratio_that_the_bound_does_not_show(old: str, new: str) -> None:
    statement = re.sub(old, new, strict()[1].certificate.statement)
    assert families(with_certificate(statement=statement).violations) == {"certificate"}


def test_says_which_conditions_fail_and_claims_no_ratio() -> None:
    solution = strict()[1]
    conditions = list(solution.certificate.conditions)
    conditions[1] = "C2 fails: U is at least 0.5 times the largest density"
    told = "; no competitive ratio is claimed: C2 of the zero-start price's conditions fail"
    statement = re.sub(r"; competitive.*", told, solution.certificate.statement)
    assert with_certificate(conditions=tuple(conditions), statement=statement).is_ok
    wrong = statement.replace("C2", "C2, C3")
    assert not with_certificate(conditions=tuple(conditions), statement=wrong).is_ok


def test_the_fifth_condition_is_the_named_theorems() -> None:
    """A ratio of the zero-start price doesn't depend on the conditions of the exponential price."""
    conditions = list(strict()[1].certificate.conditions)
    assert conditions[4].startswith("C5 holds: sum of lambda a")
    conditions[4] = "C5 holds: D_0 = 1, optimum >= 2"
    assert families(with_certificate(conditions=tuple(conditions)).violations) == {"certificate"}


def test_the_theorem_is_the_one_on_the_price_that_the_run_used() -> None:
    """The certificate names the exponential price and its condition C5, but the run used the zero-start price."""
    instance, solution = strict()
    certificate = solution.certificate
    conditions = (*certificate.conditions[:4], "C5 holds: D_0 = 1, optimum >= 2", certificate.conditions[5])
    statement = certificate.statement.replace("zero-start price", "exponential price")
    relabelled = replace(solution, certificate=replace(certificate, statement=statement, conditions=conditions))
    assert families(check(instance, relabelled).violations) == {"certificate"}
    assert "but the run's option price is zero-start" in check(instance, relabelled).violations[0].message


def test_conditions_without_a_ratio_are_refused() -> None:
    statement = strict()[1].certificate.statement.partition(";")[0]
    assert families(with_certificate(statement=statement).violations) == {"certificate"}


@pytest.mark.parametrize("trait", BY_HAND)
def test_the_largest_share_is_what_one_job_alone_takes_of_a_server(trait: str) -> None:
    """The checker's server-by-server result equals `max_share_of_server` of `describe`, which uses arrays."""
    assert float(max_share(read_exact_instance(BY_HAND[trait]))) == pytest.approx(
        describe(BY_HAND[trait])["max_share_of_server"]
    )


@pytest.mark.parametrize(("name", "value"), [("admitted", 2.0), ("refused", 1.0), ("nodes", 5.0)])
def test_refuses_counters_that_are_not_the_plans(name: str, value: float) -> None:
    instance, solution = optim.reference_instance("tiny-0"), optim.reference_solution("tiny-0")
    honest = {"admitted": 2.0, "refused": instance.num_jobs - 2.0, "nodes": 5.0}
    weaker = replace(solution.certificate, kind=CertificateKind.BOUND, statement="")
    done = replace(solution, termination=Termination.COMPLETED, certificate=weaker)
    assert check(instance, replace(done, stats=replace(solution.stats, counts=honest))).is_ok
    lying = replace(done, stats=replace(solution.stats, counts=honest | {name: value + 1}))
    assert families(check(instance, lying).violations) == {"counts"}


@pytest.mark.parametrize(("theorem", "curve"), [("zero-start", lambda s: 1 + s), ("exponential", lambda s: s)])
@pytest.mark.parametrize("eps", [Fraction(1, 10), Fraction(1, 3), Fraction(2, 3)])
def test_the_ratio_is_that_of_the_largest_step_of_the_price(theorem, curve, eps):
    """A step raises the price by the factor curve ^ (eps / full), here as a power instead of an exponential."""
    for spread, full in ((7.5, 1 - eps), (40.0, Fraction(1, 4)), (2.0, Fraction(1, 20))):
        growth = (curve(spread) ** float(eps / full) - 1) / float(eps)
        expected = 2 * max(1, growth) if theorem == "exponential" else growth + max(1, growth)
        assert ratio_of(theorem, eps, float(full), math.log(spread)) == pytest.approx(expected)


def test_the_ratio_of_jobs_without_size_is_the_logarithm():
    assert ratio_of("exponential", Fraction(0), 1.0, math.log(1e6)) == pytest.approx(2 * math.log(1e6))
    assert ratio_of("zero-start", Fraction(1, 2), 1e-3, 1e3) == math.inf
    assert ratio_of("zero-start", Fraction(1, 2), 1.0, -math.inf) == 1.0


def lowered(solution: Solution, price: str, full: float, spread: float, eps: Fraction, **options: Any) -> Solution:
    """Return a solution that states the ratio of another spread under other options."""
    ratio = ratio_of(price, eps, full, spread)
    stated = re.sub(r"ratio \S+ by", f"ratio {ratio:.12g} by", solution.certificate.statement)
    stated = re.sub(r"up to [^;]+", f"up to {spread:.12g}", stated)
    certificate = replace(solution.certificate, statement=stated)
    return replace(solution, certificate=certificate, options={**solution.options, **options})


@pytest.mark.parametrize("price", ["zero-start", "exponential"])
@pytest.mark.parametrize("name", ["tiny-1", "adversary-zero-start-strict-small"])
def test_a_smaller_spread_than_the_jobs_need_is_refused_with_its_own_ratio(name, price):
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, "online", options={"strict": True, "price": price})
    exact, full = read_exact_instance(instance), float(solution.certificate.conditions[2].split()[6])
    least, eps = least_spread(exact, price), max_share(exact)
    assert 0 < least < float(re.search(r"up to ([^;]+)", solution.certificate.statement)[1])
    for spread, is_accepted in ((least + 1e-3, True), (least - 1e-3, False)):
        forged = lowered(solution, price, full, spread, eps, bounds="history", history="tiny-0")
        shown = ratio_of(price, eps, full, spread) * solution.objective
        assert optim.verify(instance, forged).is_ok == is_accepted or shown < solution.bound


def test_the_least_spread_of_an_exponential_price_is_that_of_twice_the_value_of_all_servers():
    """Workers and PSs need one unit each, so U is at least the job's value for each unit of the servers."""
    day = tiny_instance(job_document("one"))
    capacity = sum(
        float((side.capacity.sum(axis=(1, 2)) * side.count).sum()) / 1e6
        for side in (day.worker_servers, day.ps_servers)
    )
    assert least_spread(read_exact_instance(day), "exponential") == pytest.approx(math.log(2 * capacity))


@given(tiny_instances())
def test_no_price_that_meets_the_conditions_has_a_smaller_spread(instance):
    """U of C2 and the lower scale of C5 are taken by the solver's own constants."""
    ranges = price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA)
    sides = (ranges.worker,) if instance.has_shared_servers else (ranges.worker, ranges.ps)
    assert least_spread(read_exact_instance(instance), "zero-start") <= max(map(log_spread, sides)) + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": "seen"}, "a run with bounds=seen cannot claim a ratio"),
        ({"bounds": "none"}, "a run with bounds=none cannot claim a ratio"),
        ({"bounds": None}, "a run with bounds=None cannot claim a ratio"),
        ({"bounds": "history"}, "bounds=history contradicts history=''"),
        ({"bounds": "estimated", "history": "tiny-0"}, "bounds=estimated contradicts history='tiny-0'"),
        (
            {"bounds": "estimated", "strict": False},
            "C3 fails: with the run's options, U is reached at the full capacity",
        ),
        ({"bounds": "estimated", "eps": 0.2}, "with the run's options, U is reached at 0.8 of the capacity"),
        ({"bounds": "estimated", "upper_scale": -1}, "upper_scale is -1"),
        ({"bounds": "estimated", "lower_scale": "inf"}, "lower_scale is inf"),
        ({"bounds": "estimated", "sample_share": 2}, "sample_share is 2"),
        ({"bounds": "estimated", "sample_share": None}, "one of them is null"),
    ],
)
def test_refuses_a_ratio_under_options_that_claim_none(options: dict[str, Any], message: str) -> None:
    """The stated spread of prices suffices for the jobs, but no theorem holds under the stated options."""
    instance, solution = strict()
    forged = replace(solution, options={**solution.options, **options})
    assert message in check(instance, forged).violations[0].message
    honest = {**solution.options, "bounds": "estimated"}
    assert check(instance, replace(solution, options=honest)).is_ok


@pytest.mark.parametrize(
    ("at", "old", "new"), [(1, r"at least \S+ times", "at least 9 times"), (4, r"at most \S+ of", "at most 0.01 of")]
)
def test_refuses_numbers_of_conditions_that_the_options_do_not_give(at: int, old: str, new: str) -> None:
    conditions = list(strict()[1].certificate.conditions)
    conditions[at] = re.sub(old, new, conditions[at])
    assert "with the run's options, C" in with_certificate(conditions=tuple(conditions)).violations[0].message


def test_refuses_numbers_of_the_exponential_price_that_the_options_do_not_give() -> None:
    instance = optim.reference_instance("adversary-exponential-strict-small")
    solution = optim.solve(instance, "online", options={"strict": True, "price": "exponential"})
    assert solution.certificate.competitive_ratio
    conditions = list(solution.certificate.conditions)
    conditions[4] = re.sub(r"optimum >= \S+", "optimum >= 9999", conditions[4])
    forged = replace(solution, certificate=replace(solution.certificate, conditions=tuple(conditions)))
    assert "with the run's options, C5 has the numbers" in check(instance, forged).violations[0].message


def test_refuses_the_ratio_of_a_run_that_was_cut_short() -> None:
    instance, solution = strict()
    stopped = replace(solution, termination=Termination.TIME_LIMIT)
    assert "a ratio needs a completed run" in check(instance, stopped).violations[0].message


def test_the_guards_ratio_is_over_its_share_of_the_servers(tmp_path):
    """The guard has one of four servers of each class; a unit of a job takes a fortieth of a server."""
    servers = {
        "worker_servers": [{"type": "w", "capacity": [40, 0], "count": 4}],
        "ps_servers": [{"type": "p", "capacity": [0, 40], "count": 4}],
    }
    day = tiny_instance(*[job_document(f"j{k}") for k in range(3)], **servers)
    optim.save(day, tmp_path / "day.json")
    options = {"strict": True, "guard": 0.25, "history": str(tmp_path / "day.json")}
    solution = optim.solve(day, "online-learned", options=options)
    certificate = solution.certificate
    found = optim.verify(day, solution)
    assert found.violations == ()
    assert "plus the stated value of wide jobs, if online-learned made the plan and U" in found.proven[-1]
    spread = float(re.search(r"up to ([^;]+)", certificate.statement)[1])
    exact, full = read_exact_instance(day), float(certificate.conditions[2].split()[6])
    assert certificate.competitive_ratio == pytest.approx(4 * ratio_of("zero-start", max_share(exact), full, spread))
    halved = replace(solution, options={**solution.options, "guard": 0.5})
    lower = re.sub(r"ratio (\S+) plus", lambda m: f"ratio {float(m[1]) / 2} plus", certificate.statement)
    for forged in (halved, replace(solution, certificate=replace(certificate, statement=lower))):
        assert "gives the ratio" in optim.verify(day, forged).violations[0].message
    other = replace(solution, options={**solution.options, "strict": False})
    negative = re.sub(r"plus \S+ on", "plus -1 on", certificate.statement)
    assert "C3 fails" in optim.verify(day, other).violations[0].message
    other = replace(solution, certificate=replace(certificate, statement=negative))
    assert "the value of wide jobs must be at least 0" in optim.verify(day, other).violations[0].message
    other = replace(solution, options={**solution.options, "history": ""})
    assert "bounds=history contradicts history=''" in optim.verify(day, other).violations[0].message
    conditions = (*certificate.conditions[:4], "C5 holds: D_0 = 0, optimum >= 1", certificate.conditions[5])
    stated = certificate.statement.replace("zero-start", "exponential")
    other = replace(solution, certificate=replace(certificate, statement=stated, conditions=conditions))
    assert (
        "the theorem of online-learned applies to the zero-start price"
        in optim.verify(day, other).violations[0].message
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"upper_scale": 0.5}, "C2 fails"),
        ({"upper_scale": 2.0}, "options give the ratio"),
        ({"strict": False}, "C3 fails"),
        ({"eps": 0.0}, "C3 fails"),
        ({"eps": 0.9}, "options give the ratio"),
        ({"lower_scale": 100.0}, "C5 fails"),
        ({"lower_scale": 0.5}, "options give the ratio"),
        ({"eps": "much"}, "not numbers"),
        ({"upper_scale": 0.0}, "out of its range: upper_scale is 0"),
        ({"upper_scale": None}, "not numbers"),
        ({"bounds": "first", "sample_share": "inf"}, "sample_share is inf"),
        ({"bounds": "first", "sample_share": "nan"}, "sample_share is nan"),
    ],
)
def test_refuses_a_ratio_that_the_runs_options_do_not_give(options: dict[str, Any], message: str) -> None:
    instance, solution = strict()
    forged = replace(solution, options={**solution.options, **options})
    assert message in check(instance, forged).violations[0].message


RATIO_OPTIONS = [
    {"price": price, "bounds": bounds, "unit_free": unit_free, "upper_scale": upper, "lower_scale": lower}
    for price in ("zero-start", "exponential")
    for bounds, upper in (("oracle", 1.0), ("first", 4.0), ("paper", 1.0))
    for unit_free, lower in ((True, 1.0), (False, 0.5))
]


@pytest.mark.parametrize("options", RATIO_OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("name", ["tiny-1", "adversary-zero-start-strict-small", "shared-capped"])
def test_recomputes_the_solvers_ratio(name: str, options: dict[str, Any]) -> None:
    """Two derivations of U, the lower scale, eps and A agree, and so do their verdicts on the conditions."""
    instance = BY_HAND[name] if name in BY_HAND else optim.reference_instance(name)
    given = OnlineOptions(**options, strict=True, sample_share=0.5)
    bounds = make_bounds(instance, given, np.random.default_rng(0))
    claim = ratio_claim(instance, bounds, make_function(instance, given))
    exact, told = read_exact_instance(instance), {**options, "strict": True, "sample_share": 0.5}
    if claim.holds:
        assert recompute_ratio(exact, options["price"], told).ratio == pytest.approx(claim.ratio, rel=1e-9)
    else:
        with pytest.raises(RatioRefusedError):
            recompute_ratio(exact, options["price"], told)


def test_recomputes_the_documented_example_by_hand() -> None:
    """Eps 2/3, U = 40, lambda = 5 / 24: A = (193^2 - 1) / (2/3) = 55872, and the ratio is twice that."""
    workers = [{"capacity": {"gpu": 3}}]
    jobs = [
        {"id": "a", "arrival": 0, "work": 12, "max_workers": 2, "worker": {"gpu": 1}, "value": 40},
        {"id": "b", "arrival": 0, "work": 12, "max_workers": 2, "worker": {"gpu": 1}, "value": 5},
    ]
    instance = optim.AdmissionInstance.from_jobs(jobs, horizon=12, worker_servers=workers)
    assert recompute_ratio(read_exact_instance(instance), "zero-start", {"strict": True}).ratio == pytest.approx(111744)


def refused(counts, ended=Termination.TIME_LIMIT):
    """Return the rejected rows of a plan of two of six jobs, proven by a tree of five nodes."""
    instance, solution = optim.reference_instance("tiny-0"), optim.reference_solution("tiny-0")
    weaker = replace(solution.certificate, kind=CertificateKind.BOUND, statement="")
    given = replace(solution, termination=ended, certificate=weaker, stats=replace(solution.stats, counts=counts))
    return [found.row for found in optim.verify(instance, given).violations]


@pytest.mark.parametrize(
    "counts",
    [
        {"refused": 0.0},
        {"refused": 4.0},
        {"admitted": 2.0, "unfinished": 1.0, "late": 1.0, "never_started": 3.0},
        {"unfinished": 4.0},
        {"open": 3.0, "nodes": 5.0},
        {"promised": 6.0, "completed_on_standby": 2.0},
        {"master": 0.0, "lp_gap": 1e11, "columns": 5.0},
        {"tight_rows": 1.0, "rejected_jobs": -1e-8},
        {"own": -3.5},
    ],
)
def test_accepts_what_a_run_cut_short_can_count(counts):
    assert refused(counts) == []


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("refused", 77.0),
        ("refused", 5.0),
        ("refused", 1.5),
        ("unfinished", 5.0),
        ("late", -1.0),
        ("never_started", 5.0),
        ("open", 1e308),
        ("open", 4.0),
        ("promised", 7.0),
        ("completed_on_standby", 3.0),
        ("columns", 0.5),
        ("plans_handed_over", -1.0),
        ("master", -1.0),
        ("master", 1e9),
        ("guard_earned", 1e9),
        ("lp_gap", -0.5),
        ("tight_rows", 1.1),
        ("running_dual", -1.0),
    ],
)
def test_refuses_what_no_run_can_count(name, number):
    for ended in (Termination.TIME_LIMIT, Termination.COMPLETED):
        assert refused({name: number}, ended) == [f"counts [{name}]"]


def test_jobs_that_ran_for_nothing_or_never_are_all_that_earn_nothing():
    assert refused({"unfinished": 1.0, "never_started": 4.0}) == ["counts [unfinished]"]
    assert refused({"unfinished": 1.0, "never_started": 2.0}) == ["counts [unfinished]"]


def test_who_is_late_ran_for_nothing():
    assert refused({"unfinished": 1.0, "late": 2.0, "never_started": 3.0}) == ["counts [late]"]
