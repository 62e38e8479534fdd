"""Uses every public name as users do; type checkers must report no error (see tests/test_public_names.py)."""

from pathlib import Path
from typing import assert_type

import optim


def instances(folder: Path) -> None:
    """Instances by name, from files, from generators and from plain Python."""
    admission = assert_type(optim.reference_instance("tiny-0"), optim.AdmissionInstance)
    auction = assert_type(optim.reference_instance("auction-tiny-0"), optim.AuctionInstance)
    bidding = assert_type(optim.reference_instance("spot-tiny-own"), optim.BiddingInstance)
    for name in optim.reference_names("auction"):
        assert_type(optim.reference_instance(name, optim.AuctionInstance), optim.AuctionInstance)
    assert_type(optim.generate("admission", seed=1, num_jobs=4, num_slots=6), optim.AdmissionInstance)
    assert_type(optim.generate("auction", num_apps=3, num_gpus=8, num_machines=2), optim.AuctionInstance)
    assert_type(optim.generate("bidding"), optim.BiddingInstance)
    optim.save(admission, folder / "i.json")
    assert_type(optim.load(folder / "i.json", optim.AdmissionInstance), optim.AdmissionInstance)
    text: str = optim.export(auction, "lp")
    assert text
    assert optim.export(bidding, "mps", folder / "b.mps.gz", ratio=0.1)
    frame = admission.to_frame()
    again = optim.AdmissionInstance.from_jobs(
        frame, horizon=4, worker_servers=[{"capacity": {"gpu": 8}, "count": 2}], resources=["gpu"]
    )
    assert_type(again, optim.AdmissionInstance)
    assert_type(
        optim.AuctionInstance.from_bids([4, [2, 2]], {"a": [(2, "machine", 0.5)]}, empty_rho=2.0), optim.AuctionInstance
    )
    bids = [{"market": "a", "max_count": 2, "price_usd": 0.1, "evicted": 0.1, "usable_h": 0.9}]
    assert_type(optim.BiddingInstance.from_bids(bids, caps={"machines": 2}), optim.BiddingInstance)


def solutions(folder: Path) -> None:
    """Solutions, their files, their checks and their plots."""
    instance = optim.reference_instance("tiny-0")
    names: tuple[str, ...] = optim.solver_names("admission") + optim.policy_names("cluster")
    solution = assert_type(optim.solve(instance, names[0], time_limit_s=1.0, seed=0), optim.Solution)
    try:
        solution = optim.solve(instance, names[0], progress=True, on_interrupt="raise")
    except optim.SolveInterrupted as interrupted:
        solution = assert_type(interrupted.solution, optim.Solution)
    optim.save_solution(solution, instance, folder / "s.json")
    assert_type(optim.load_solution(folder / "s.json", instance), optim.Solution)
    print(optim.load_run(folder / "run.npz").to_frame())
    best = assert_type(optim.reference_solution("tiny-0"), optim.Solution)
    verification = assert_type(optim.verify(instance, best), optim.Verification)
    assert verification.raise_unless_ok().is_ok
    certificate: optim.Certificate | None = best.certificate
    assert certificate is not None
    print(certificate.statement)
    print(optim.__version__, solution.to_frame(instance), solution.gap, solution.raise_unless_optimal())


def checks() -> None:
    """The names that tests of custom solvers use."""
    example = optim.testing.bidding_instances(max_markets=1).example()
    print(optim.testing.failures(optim.testing.Trial(example, "greedy")))


def decisions() -> None:
    """Decisions and their plots."""
    plan = optim.AdmissionPlan.from_rows(workers=[(0, 0, 0, 1)], ps=[(0, 0, 0, 1)])
    footprint = optim.FootprintPlan.of([1, 0])
    print(plan.completion, footprint.counts)
    auction = optim.reference_instance("auction-tiny-0")
    awarded = optim.solve(auction, "exact")
    if isinstance(awarded.decision, optim.AuctionPlan):
        optim.plot.allocation(auction, awarded).savefig("allocation.svg")
    try:
        optim.plot.bids(auction)
        optim.plot.switching(optim.deadlines.DeadlinePolicy.load("rule.npz"))
    except optim.OptimError as error:
        print(error)
