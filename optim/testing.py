"""Tests of custom solvers and policies: strategies for random instances, and the checks that every solver must pass.

The strategies are those of Hypothesis; the extra ``testing`` installs it: ``pip install 'mlcluster-optim[testing]'``.
Instances are built by the public constructors from small whole numbers, so that a failing example is small and exact.

>>> from hypothesis import given, settings
>>> import optim
>>> from optim.testing import admission_instances
>>> @settings(max_examples=5, deadline=None)  # the first solve compiles
... @given(admission_instances(max_jobs=3))
... def test_online_is_verified(instance):
...     assert optim.verify(instance, optim.solve(instance, "online")).is_ok
>>> test_online_is_verified()
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.optional import import_extra
from optim.models.admission.instance import AdmissionInstance
from optim.models.auction.instance import AuctionInstance
from optim.models.bidding.instance import BiddingInstance
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.conformance import check_policy
from optim.solvers.conformance import ConformanceError, Trial, failures

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "ConformanceError",
    "Trial",
    "admission_instances",
    "auction_instances",
    "bidding_instances",
    "check_policy",
    "clusters",
    "failures",
    "workloads",
]


def __dir__() -> list[str]:
    return __all__


LOCALITIES = ("slot", "machine", "rack", "cluster")


def admission_instances(
    *, max_jobs: int = 4, max_slots: int = 4, max_servers: int = 2, max_gpus: int = 4, is_shared: bool | None = None
) -> "SearchStrategy[AdmissionInstance]":
    """Draw admission instances: jobs with integer work, values and deadlines on servers of one or two resources.

    Parameters
    ----------
    max_jobs, max_slots
        Maximum numbers of jobs and of slots, each at least 1.
    max_servers, max_gpus
        Maximum numbers of servers (of a single class) and of GPUs per server.
    is_shared
        Whether workers and parameter servers share the servers; either if None.

    Raises
    ------
    MissingDependencyError
        If Hypothesis isn't installed.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(admission_instances(), lambda instance: len(instance.jobs) == 2).jobs.ids
    ('job-0', 'job-1')
    """
    st = _strategies()

    @st.composite
    def instances(draw: Any) -> AdmissionInstance:
        horizon = draw(st.integers(1, max_slots))
        shares = is_shared if is_shared is not None else draw(st.booleans())
        jobs = [_admission_job(draw, st, job, horizon, max_gpus) for job in range(draw(st.integers(1, max_jobs)))]
        count = draw(st.integers(1, max_servers))
        worker = {"capacity": {"gpu": draw(st.integers(1, max_gpus)), "vcpu": draw(st.integers(2, 16))}, "count": count}
        if shares:
            return _from_jobs(jobs, horizon, shared_servers=[worker])
        ps = {"capacity": {"gpu": 0, "vcpu": draw(st.integers(1, 8))}, "count": draw(st.integers(1, max_servers))}
        return _from_jobs(jobs, horizon, worker_servers=[worker], ps_servers=[ps])

    return instances()


def bidding_instances(
    *, max_markets: int = 3, max_bids: int = 3, max_count: int = 4
) -> "SearchStrategy[BiddingInstance]":
    """Draw bidding instances of one hour: bids on spot markets with prices, evictions and usable time, under one cap.

    Parameters
    ----------
    max_markets, max_bids
        Maximum numbers of markets and of bids per market, each at least 1.
    max_count
        Maximum number of instances of a bid.

    Raises
    ------
    MissingDependencyError
        If Hypothesis isn't installed.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(bidding_instances(), lambda instance: instance.num_bids == 2).num_bids
    2
    """
    st = _strategies()

    @st.composite
    def instances(draw: Any) -> BiddingInstance:
        bids = []
        for market in range(draw(st.integers(1, max_markets))):
            evicted = draw(st.lists(st.integers(0, 7), min_size=1, max_size=max_bids))
            for bid, eighths in enumerate(sorted(evicted, reverse=True)):  # a higher bid lasts longer
                bids.append(_spot_bid(draw, st, f"market-{market}", bid, eighths / 8, max_count))
        return BiddingInstance.from_bids(bids, caps={"machines": draw(st.integers(1, 3 * max_count))})

    return instances()


def auction_instances(
    *, max_apps: int = 3, max_machines: int = 3, max_gpus: int = 4, max_rows: int = 3
) -> "SearchStrategy[AuctionInstance]":
    """Draw auctions: bids of apps, by number and locality of GPUs, on machines in up to two racks.

    Parameters
    ----------
    max_apps, max_rows
        Maximum numbers of apps and of rows per bid (a bid may have none).
    max_machines, max_gpus
        Maximum numbers of machines and of GPUs per machine, each at least 1.

    Raises
    ------
    MissingDependencyError
        If Hypothesis isn't installed.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(auction_instances(), lambda instance: instance.num_apps == 2).num_apps
    2
    """
    st = _strategies()

    @st.composite
    def instances(draw: Any) -> AuctionInstance:
        machines = draw(st.lists(st.integers(1, max_gpus), min_size=1, max_size=max_machines))
        first_of_second_rack = draw(st.integers(1, len(machines)))
        racks = [int(machine >= first_of_second_rack) for machine in range(len(machines))]
        row = st.tuples(
            st.integers(1, max(2, sum(machines))), st.sampled_from(LOCALITIES), st.integers(1, 15).map(lambda n: n / 8)
        )
        bids = {f"app-{app}": draw(st.lists(row, max_size=max_rows)) for app in range(draw(st.integers(1, max_apps)))}
        return AuctionInstance.from_bids(machines, bids, empty_rho=2.0, racks=racks)

    return instances()


def clusters(*, max_machines: int = 3, max_gpus: int = 4) -> "SearchStrategy[Cluster]":
    """Draw clusters of one type of GPU, in up to two racks.

    Parameters
    ----------
    max_machines, max_gpus
        Maximum numbers of machines and of GPUs per machine, each at least 1.

    Raises
    ------
    MissingDependencyError
        If Hypothesis isn't installed.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(clusters(), lambda cluster: cluster.gpus.sum() == 5).gpus.sum()
    np.int64(5)
    """
    st = _strategies()
    machine = st.tuples(st.integers(1, max_gpus), st.integers(0, 1))

    def build(machines: list[tuple[int, int]]) -> Cluster:
        gpus, racks = zip(*machines, strict=True)
        return Cluster(gpus=np.array(gpus), rack=np.unique(racks, return_inverse=True)[1])

    return st.lists(machine, min_size=1, max_size=max_machines).map(build)


def workloads(*, max_jobs: int = 8, max_gpus: int = 4, max_submit_s: int = 20) -> "SearchStrategy[Workload]":
    """Draw jobs of a cluster: times in integer seconds, gangs, and apps with one or more jobs.

    Parameters
    ----------
    max_jobs, max_gpus
        Maximum number of jobs, and maximum gang in GPUs, each at least 1. A cluster with fewer GPUs can't run such a gang:
        draw the cluster first, and pass its number of GPUs.
    max_submit_s
        Latest submission in seconds.

    Raises
    ------
    MissingDependencyError
        If Hypothesis isn't installed.

    Examples
    --------
    >>> from hypothesis import find
    >>> len(find(workloads(), lambda jobs: len(jobs) >= 2))
    2
    """
    st = _strategies()
    job = st.tuples(
        st.integers(0, max_submit_s), st.integers(1, max_gpus), st.integers(1, 30), st.integers(0, max(0, max_jobs - 1))
    )

    def build(rows: list[tuple[int, int, int, int]]) -> Workload:
        submit, gpus, duration, app = (np.array(column, np.int64) for column in zip(*sorted(rows), strict=True))
        return Workload(submit_us=(submit - submit[0]) * US, gpus=gpus, duration_us=duration * US, app=app)

    return st.lists(job, min_size=1, max_size=max_jobs).map(build)


def _admission_job(draw: Any, st: Any, job: int, horizon: int, max_gpus: int) -> Mapping[str, Any]:
    arrival = draw(st.integers(0, horizon - 1))
    row = {
        "id": f"job-{job}",
        "arrival": arrival,
        "work": draw(st.integers(1, 2 * max_gpus)),
        "max_workers": draw(st.integers(1, max_gpus)),
        "worker": {"gpu": draw(st.integers(1, 2)), "vcpu": draw(st.integers(0, 2))},
        "ps": {"gpu": 0, "vcpu": draw(st.integers(0, 2))},
        "value": draw(st.integers(1, 100)),
    }
    if draw(st.booleans()):
        row["deadline"] = draw(st.integers(arrival, horizon))
    return row


def _from_jobs(jobs: Any, horizon: int, **servers: Any) -> AdmissionInstance:
    """Build an instance without warnings about jobs that can never run, which are drawn on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return AdmissionInstance.from_jobs(jobs, horizon=horizon, **servers)


def _spot_bid(draw: Any, st: Any, market: str, bid: int, evicted: float, max_count: int) -> Mapping[str, Any]:
    return {
        "market": market,
        "max_count": draw(st.integers(1, max_count)),
        "delta_usd": bid / 100,
        "rate": draw(st.sampled_from([1.0, 2.0, 4.0])),
        "price_usd": draw(st.integers(1, 40)) / 40,
        "evicted": evicted,
        "usable_h": draw(st.integers(1, 8)) / 8,
    }


def _strategies() -> Any:
    return import_extra("hypothesis.strategies", "optim.testing")
