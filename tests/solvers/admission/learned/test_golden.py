"""What days at posted prices do on the way, against a record: see `tests.support.golden`.

Prices are drawn, not learned: what a linear programme's many optimal prices lead to differs from processor to processor.
"""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.driver import Monitor
from optim.models.admission.forecast import without_jobs
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.online_learned import OnlineLearnedOptions, run_day
from optim.solvers.admission.posted_prices.forecast import PriceForecast
from tests.support.admission.days import days
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check


def drawn(today: AdmissionInstance, past: tuple[AdmissionInstance, ...], seed: int) -> PriceForecast:
    """Return a forecast of drawn prices, dear in some slots and free in others."""
    rng = np.random.default_rng(seed)
    sides = [
        rng.random(servers.capacity.shape) ** 3 * (rng.random((1, today.horizon, 1)) < 0.7)
        for servers in (today.worker_servers, today.ps_servers)
    ]
    if today.has_shared_servers:
        sides[1] = sides[1][:0]
    return PriceForecast(cluster=without_jobs(today), days=past, fill=1.0, worker_price=sides[0], ps_price=sides[1])


def lived(today: AdmissionInstance, past: tuple[AdmissionInstance, ...], seed: int, **options):
    """Live through a day at drawn prices."""
    return run_day(today, drawn(today, past, seed), OnlineLearnedOptions(history="given", **options), Monitor(), seed)


def in_clusters(**options):
    """Live through a day of each cluster."""
    return [lived(days(k)[-1], days(k)[:-1], k, **{"replan": 6, "smoothing": 3, **options}) for k in range(3)]


RUNS = {
    "static": lambda: in_clusters(replan=0, standby=0),
    "replan": lambda: in_clusters(standby=0),
    "standby": in_clusters,
    "few-on-standby": lambda: in_clusters(replan=0, standby=2, price_scale=3.0),
    "firm": lambda: in_clusters(promised_share=1.0, price_scale=0.3),
    "guarded": lambda: in_clusters(guard=0.4),
    "no-history": lambda: [
        run_day(days(k)[-1], None, OnlineLearnedOptions(warm_up=1.0, replan=4), Monitor(), k) for k in range(3)
    ],
    "by-hand": lambda: [lived(one, (replace(one, name="past"),), 1, guard=0.5) for one in BY_HAND.values()],
    "seeded": lambda: [lived(seeded_instance(s, max_jobs=9), (seeded_instance(s),), s) for s in range(6)],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/learned", name, RUNS[name])
