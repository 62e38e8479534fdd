"""The solver `online`: its decisions, their order, its records and its claims."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.core.solution import CertificateKind, Termination
from optim.core.stopping import IterationLimit
from optim.models.admission.instance import AdmissionInstance
from optim.models.files import verify
from optim.models.reference import reference_instance
from optim.solvers.admission.online import BoundSource, OnlineOptions, PriceKind, make_bounds
from optim.solvers.admission.posted_prices.online_run import OnlineRun, run_online
from optim.solvers.admission.posted_prices.price_functions import (
    ExponentialPrice,
    PriceFloorRule,
    PriceFunction,
    ZeroStartPrice,
    price_ranges,
)
from optim.solvers.admission.pricing.servers import FoundSchedule, ResidualSearch
from optim.solvers.solve import solve
from tests.support.admission.strategies import ServerSketch, make_instance
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance

DUAL_TOL = 1e-9
"""Relative tolerance: a dual value is a sum of a few thousand prices times capacities."""

STEP = {"kind": "step", "value": 4, "deadline": 0}


def run(
    instance: AdmissionInstance,
    lower: PriceFloorRule = PriceFloorRule.UNIT_FREE_L,
    function: PriceFunction | None = None,
    **parts: Any,
) -> OnlineRun:
    function = ExponentialPrice() if function is None else function
    return run_online(instance, bounds=price_ranges(instance, lower), function=function, **parts)


class AcceptAll:
    """Admit every job that fits."""

    floor = -np.inf

    def accepts(self, schedule: FoundSchedule) -> bool:
        return True


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"price": "exponential"},
        {"price": "exponential", "bounds": "paper"},
        {"unit_free": False},
        {"bounds": "estimated"},
    ],
    ids=["default", "exponential", "paper", "units", "estimated"],
)
def test_every_claim_is_verified_whatever_the_instances_traits(name: str, options: dict[str, Any]) -> None:
    instance = BY_HAND[name]
    solution = solve(instance, "online", options=options)
    assert verify(instance, solution).violations == ()
    assert solution.termination is Termination.COMPLETED
    assert solution.certificate is not None
    assert solution.certificate.kind is CertificateKind.BOUND
    assert len(solution.stats.decision_ms) == instance.num_jobs
    assert solution.stats.counts["admitted"] + solution.stats.counts["refused"] == instance.num_jobs


@pytest.mark.parametrize(
    ("name", "worth"), [("small-2", 262.28695453), pytest.param("medium-0", 1978.34412811, marks=pytest.mark.prove)]
)
def test_reference_instances_are_decided_as_ever_and_verified(name: str, worth: float) -> None:
    """Prices that differ in their last digits break ties otherwise, which earns 4 % less on medium-0."""
    instance = reference_instance(name)
    solution = solve(instance, "online")
    assert verify(instance, solution).violations == ()
    assert solution.objective == pytest.approx(worth, rel=1e-9)


def test_jobs_are_decided_by_arrival_and_then_as_listed() -> None:
    jobs = [job_document(name, arrival=arrival) for name, arrival in [("a", 1), ("b", 0), ("c", 1), ("d", 0)]]
    assert [decision.job for decision in run(tiny_instance(*jobs)).decisions] == [1, 3, 0, 2]


def test_a_decision_knows_nothing_of_later_jobs() -> None:
    jobs = [job_document(f"j{k}", arrival=k // 2, epochs=1 + k % 2) for k in range(6)]
    whole, part = tiny_instance(*jobs), tiny_instance(*jobs[:4])
    bounds = price_ranges(whole, PriceFloorRule.UNIT_FREE_L)
    runs = [run_online(instance, bounds=bounds, function=ExponentialPrice()) for instance in (whole, part)]
    for first, second in zip(runs[0].decisions[:4], runs[1].decisions, strict=True):
        assert first.is_accepted == second.is_accepted
        assert first.payoff == second.payoff


@pytest.mark.parametrize("function", [ExponentialPrice(), ZeroStartPrice()], ids=["exponential", "zero-start"])
@pytest.mark.parametrize("name", ["plain", "segments", "shared-capped", "by-slot"])
def test_the_duals_steps_add_up(name: str, function: PriceFunction) -> None:
    found = run(BY_HAND[name], function=function)
    steps = sum(decision.dual_step for decision in found.decisions)
    assert found.initial_dual + steps == pytest.approx(found.final_dual, rel=DUAL_TOL)
    assert found.plan.objective(BY_HAND[name]) == pytest.approx(found.objective)
    assert any(decision.is_accepted for decision in found.decisions)


def test_a_full_server_costs_u_and_an_untouched_one_l() -> None:
    job = job_document("a", epochs=1, chunks=2)
    instance = tiny_instance(job)
    bounds = price_ranges(instance, PriceFloorRule.UNIT_FREE_L)
    price = run(instance).state.worker.prices_by_server()[:, 0, 0]
    assert price == pytest.approx(np.exp([bounds.worker.log_upper[0, 0, 0], bounds.worker.log_lower[0, 0, 0]]))


def test_prices_are_kept_on_request_only() -> None:
    instance = BY_HAND["plain"]
    assert run(instance).decisions[0].worker_price is None
    kept = run(instance, keeps_prices=True).decisions
    assert kept[0].worker_price is not None
    assert kept[0].worker_price.shape == (2, 4, 2)
    assert kept[1].worker_price is not None
    assert (kept[1].worker_price > kept[0].worker_price).any()


def test_a_refused_job_leaves_no_trace() -> None:
    two = [job_document("a", chunks=1, epochs=1), job_document("b", chunks=1, epochs=1)]
    poor = job_document("poor", utility={"kind": "constant", "value": 1e-6})
    alone, instance = tiny_instance(*two), tiny_instance(*two, poor)
    bounds = price_ranges(alone, PriceFloorRule.UNIT_FREE_L)
    runs = [run_online(each, bounds=bounds, function=ExponentialPrice()) for each in (instance, alone)]
    assert [decision.is_accepted for decision in runs[0].decisions] == [True, True, False]
    assert runs[0].decisions[2].dual_step == 0.0
    assert runs[0].plan.admitted.tolist() == [0, 1]
    for side, other in zip(runs[0].state.sides, runs[1].state.sides, strict=True):
        assert (side.residual == other.residual).all()
        assert (side.price == other.price).all()


def test_two_coarse_jobs_break_the_papers_ratio() -> None:
    # The first takes .6 of the only server at a positive payoff. The second, of value V, then doesn't fit: the ratio is
    # V, whereas the paper's 2 alpha grows only with its logarithm. Integral jobs need eps below 1/2.
    for value in (10.0, 100.0, 1000.0):
        jobs = [
            job_document(
                name, epochs=1, chunks=1, worker=[0.6, 0], ps=[0, 0.001], utility={"kind": "constant", "value": v}
            )
            for name, v in (("first", 1.0), ("second", value))
        ]
        servers = [{"type": "w", "capacity": [1, 0], "count": 1}]
        instance = tiny_instance(*jobs, horizon=1, worker_servers=servers)
        found = run(instance, PriceFloorRule.SIMPLE_L)
        assert found.plan.admitted.tolist() == [0]
        alpha = np.log(4 * value / 0.6)
        assert value / found.objective > 2 * alpha
        if value == 1000.0:
            assert found.final_dual < value, "then the running dual is no bound either"


def test_another_acceptance_rule_may_admit_whatever_fits() -> None:
    instance = tiny_instance(*[job_document(f"j{k}", epochs=1, chunks=1, utility=STEP) for k in range(6)])
    found = run(instance, acceptance=AcceptAll())
    assert [decision.is_accepted for decision in found.decisions] == [True, True, False, False, False, False]
    assert all(decision.schedule is None for decision in found.decisions[2:])


def test_a_finder_can_be_exchanged() -> None:
    instance = BY_HAND["plain"]
    free = run(instance, finder=ResidualSearch(instance, is_residual_checked=False))
    assert len(free.decisions) == instance.num_jobs


def test_the_same_seed_gives_the_same_estimate_and_another_one_may_not() -> None:
    instance = reference_instance("medium-0")
    options = OnlineOptions(bounds=BoundSource.ESTIMATED, sample_share=0.05)
    tops = [make_bounds(instance, options, np.random.default_rng(seed)).worker.log_upper.max() for seed in (1, 1, 2, 3)]
    assert tops[0] == tops[1]
    assert len(set(tops)) > 1


def test_scales_make_bounds_wrong_on_purpose() -> None:
    instance = BY_HAND["plain"]
    rng = np.random.default_rng(0)
    for kind in PriceKind:
        true = make_bounds(instance, OnlineOptions(price=kind), rng)
        wrong = make_bounds(instance, OnlineOptions(price=kind, upper_scale=2.0, lower_scale=0.25), rng)
        used = np.isfinite(true.worker.log_lower)
        assert wrong.worker.log_upper[used] == pytest.approx(true.worker.log_upper[used] + np.log(2))
        assert wrong.worker.log_lower[used] == pytest.approx(true.worker.log_lower[used] - np.log(4))


def test_learning_from_all_jobs_is_the_oracle() -> None:
    instance = reference_instance("small-0")
    oracle = solve(instance, "online")
    for source in ("estimated", "first"):
        assert solve(instance, "online", options={"bounds": source, "sample_share": 1.0}).objective == oracle.objective


def test_a_run_cut_short_keeps_what_it_decided_and_claims_no_bound() -> None:
    instance = reference_instance("small-1")
    solution = solve(instance, "online", stop=IterationLimit(9))
    assert solution.termination is Termination.ITERATION_LIMIT
    assert solution.stats.iterations == 9
    assert solution.bound is None
    assert verify(instance, solution).violations == ()
    whole = solve(instance, "online")
    assert 0 < len(solution.decision.admitted) < len(whole.decision.admitted)
    assert set(solution.decision.admitted) <= set(whole.decision.admitted)


def test_strict_prices_state_their_ratio_and_its_conditions() -> None:
    servers = {
        "worker_servers": [{"type": "w", "capacity": [40, 0], "count": 1}],
        "ps_servers": [{"type": "p", "capacity": [0, 40], "count": 1}],
    }
    instance = tiny_instance(*[job_document(f"j{k}") for k in range(3)], **servers)
    certificate = solve(instance, "online", options={"strict": True}).certificate
    assert certificate is not None
    assert " by the zero-start price with ln(U / lower scale) up to " in certificate.statement
    assert certificate.competitive_ratio is not None
    assert [condition[:8] for condition in certificate.conditions] == [f"C{k} holds"[:8] for k in range(1, 7)]
    wrong = solve(instance, "online", options={"strict": True, "upper_scale": 0.1}).certificate
    assert wrong is not None
    assert "no competitive ratio is claimed: C2" in wrong.statement


def test_strict_prices_that_prove_no_ratio_say_why(tmp_path) -> None:
    """A user's class states no theorem, and with bounds=seen U grows with the jobs."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from optim.solvers.admission.posted_prices.price_functions import ZeroStartPrice\n\nclass Mine(ZeroStartPrice):\n    pass\n"
    )
    for options, said in (
        ({"price": f"{mine}:Mine"}, "states no theorem"),
        ({"bounds": "seen"}, "with bounds=seen U grows with the jobs"),
    ):
        solution = solve(BY_HAND["plain"], "online", options={"strict": True, "eps": 0.5, **options})
        assert said in solution.message
        assert "times the objective" not in solution.certificate.statement
    assert "strict" not in solve(BY_HAND["plain"], "online", options={"strict": True, "eps": 0.5}).message
    assert "strict" not in solve(BY_HAND["plain"], "online", options={"price": f"{mine}:Mine"}).message


def test_strict_prices_are_refused_where_a_job_can_take_a_whole_server() -> None:
    with pytest.raises(InvalidOptionError, match="strict prices need eps < 1"):
        solve(BY_HAND["plain"], "online", options={"strict": True})
    given = solve(BY_HAND["plain"], "online", options={"strict": True, "eps": 0.5})
    assert given.certificate is not None
    assert "C1, C3" in given.certificate.statement


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"price": "linear"}, "price"),
        ({"bounds": "guess"}, "bounds"),
        ({"eps": 1.0}, r"eps must be in \[0, 1\)"),
        ({"sample_share": 0.0}, "sample_share must be in"),
        ({"upper_scale": 0.0}, "upper_scale must be positive"),
        ({"lower_scale": np.inf}, "lower_scale must be positive"),
        ({"speed": 1}, "unknown option"),
    ],
)
def test_refuses_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        solve(BY_HAND["plain"], "online", options=options)


def test_renaming_servers_changes_no_payoff() -> None:
    jobs = [job_document(f"j{k}", worker=[1, k % 3], epochs=1 + k % 2, arrival=k // 3) for k in range(8)]
    servers = [{"type": f"t{c}", "capacity": list(room), "count": 1} for c, room in enumerate([(2, 6), (6, 2), (3, 3)])]
    runs = [run(tiny_instance(*jobs, worker_servers=order)) for order in (servers, servers[::-1])]
    payoffs = [[decision.payoff for decision in found.decisions] for found in runs]
    assert payoffs[0] == payoffs[1]
    assert sum(payoff > 0 for payoff in payoffs[0]) > 3


def test_an_instance_without_jobs_is_done_at_once() -> None:
    server = ServerSketch(capacity=("1",))
    instance = make_instance(jobs=[], worker_servers=[server], ps_servers=[server], horizon=2)
    solution = solve(instance, "online")
    assert (solution.objective, solution.bound) == (0.0, 0.0)
    assert solution.stats.decision_ms == ()


def test_a_claim_whose_conditions_fail_in_several_ways_is_verified():
    instance = reference_instance("tiny-0")
    options = {
        "price": "exponential",
        "bounds": "estimated",
        "sample_share": 0.5,
        "upper_scale": 2.0,
        "strict": True,
        "eps": 0.1,
    }
    solution = solve(instance, "online", options=options)
    assert "C1, C2, C3 of the exponential price's conditions fail" in solution.certificate.statement
    assert verify(instance, solution).violations == ()


MINE = """import numpy as np

from optim.solvers.admission.posted_prices.price_functions import RatioTheorem, ZeroStartPrice


class Quad:
    def price(self, share, log_lower, log_upper):
        return np.where(np.isfinite(log_lower), np.exp(log_upper) * share**2, 0.0)


class Same(ZeroStartPrice):
    theorem = RatioTheorem.ZERO_START


class Other(ZeroStartPrice):
    pass


class Low(ZeroStartPrice):
    theorem = RatioTheorem.ZERO_START

    def price(self, share, log_lower, log_upper):
        return 1e-6 * ZeroStartPrice.price(self, share, log_lower, log_upper)


class Falling:
    def price(self, share, log_lower, log_upper):
        return np.where(np.isfinite(log_lower), np.exp(log_upper) * (1 - np.clip(share, 0.0, 1.0)), 0.0)


class Broken:
    def price(self, share, log_lower, log_upper):
        return np.full(share.shape, np.nan)
"""


def test_a_price_of_ones_own_comes_from_a_file(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    mine, instance = f"{tmp_path / 'mine.py'}:", reference_instance("small-0")
    usual, same, quad = (
        solve(instance, "online", options={"price": price}) for price in ("zero-start", f"{mine}Same", f"{mine}Quad")
    )
    assert same.objective == usual.objective
    assert verify(instance, quad).is_ok
    assert quad.objective != usual.objective
    assert quad.options["price"] == f"{mine}Quad"
    strict = {name: solve(instance, "online", options={"price": price, "strict": True, "eps": 0.5}) for name, price in
              (("usual", "zero-start"), ("same", f"{mine}Same"), ("other", f"{mine}Other"), ("low", f"{mine}Low"))}  # fmt: skip
    assert strict["same"].certificate.statement == strict["usual"].certificate.statement
    assert "competitive ratio" in strict["same"].certificate.statement
    assert "competitive ratio" not in strict["other"].certificate.statement
    assert "C3 fails: Low prices" in strict["low"].certificate.conditions[2]
    assert verify(instance, strict["low"]).is_ok
    assert "the price falls from" not in quad.message + same.message
    falling = solve(instance, "online", options={"price": f"{mine}Falling"})
    assert "in Falling.price: the price falls from" in falling.message
    told = strict["low"].certificate.conditions
    lie = replace(strict["low"].certificate, conditions=(*told[:2], told[2].replace("fails", "holds"), *told[3:]))
    assert not verify(instance, replace(strict["low"], certificate=lie)).is_ok
    for price, said in (
        (f"{mine}Broken", "mine.py:32 in Broken.price: prices must be finite numbers of at least 0, got nan"),
        (f"{mine}Absent", "has no class Absent; it has Quad, Same, Other, Low, Falling, Broken"),
        (mine[:-1], "name one of its classes"),
        ("flat", "price must be one of zero-start, exponential, or ./mine.py:MyPrice, got 'flat'"),
    ):
        with pytest.raises(InvalidOptionError, match=said):
            solve(instance, "online", options={"price": price})
    with pytest.raises(InvalidOptionError, match="but Quad has no full_at; derive it from ZeroStartPrice"):
        solve(instance, "online", options={"price": f"{mine}Quad", "strict": True})
