"""The solver `online-learned`: histories and forecasts as files and names, and how much learning earns."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optim.core.driver import Monitor
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.solution import Termination
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.models.files import save, verify
from optim.models.reference import history_instance, history_names, reference_instance
from optim.solvers.admission.online_learned import OnlineLearnedOptions, _counts, read_history, run_day
from optim.solvers.admission.posted_prices.forecast import PriceForecast
from optim.solvers.admission.posted_prices.learned_run import DayResult
from optim.solvers.admission.pricing.classes import Prices
from optim.solvers.solve import solve
from optim.workloads.admission.generator import GeneratorOptions, generate
from tests.support.admission.days import days, forecast
from tests.support.admission.tiny import job_document, tiny_instance


def planted() -> tuple[AdmissionInstance, AdmissionInstance]:
    """Return a day and a similar earlier one.

    A job of low value comes first and takes capacity that one of high value needs later.
    """

    def day(dear: float) -> AdmissionInstance:
        return tiny_instance(
            job_document("cheap", chunks=1, epochs=2, utility={"kind": "constant", "value": 2}),
            job_document("dear", arrival=1, chunks=1, epochs=1, utility={"kind": "step", "value": dear, "deadline": 0}),
            horizon=2,
            worker_servers=[{"type": "gpus", "capacity": [1, 0], "count": 1}],
        )

    return day(9.0), day(8.0)


def test_room_is_kept_for_what_yesterday_teaches(tmp_path: Path) -> None:
    today, yesterday = planted()
    save(yesterday, tmp_path / "yesterday.json")
    learned = solve(today, "online-learned", options={"history": str(tmp_path / "yesterday.json"), "smoothing": 1})
    assert learned.objective == 9.0  # all that there is: the cheap job needs both slots
    assert solve(today, "online").objective == 2.0


@pytest.mark.prove
def test_learning_and_packing_anew_earn_more_in_all_than_the_paper_s_rule() -> None:
    # A ratchet: the earnings on two loaded days when this was written, minus three per cent.
    size = GeneratorOptions(num_jobs=30, num_slots=20, num_worker_servers=4, num_ps_servers=4)
    drawn = [generate(size, seed=k) for k in range(4)]
    earned = {"online": 0.0, "static": 0.0, "replan": 0.0}
    for past, today in ((drawn[0], drawn[1]), (drawn[2], drawn[3])):
        known = PriceForecast.fit([past], today)
        earned["online"] += solve(today, "online").objective
        for name, moves in (("static", 0), ("replan", 20)):
            outcome = run_day(today, known, OnlineLearnedOptions(history="given", replan=moves), Monitor())
            earned[name] += outcome.objective
    assert earned["online"] == pytest.approx(584.634, abs=1e-3)
    assert earned["static"] > 0.97 * 828.8
    assert earned["replan"] > 0.97 * 871.9


def test_a_forecast_file_is_as_good_as_its_days(tmp_path: Path) -> None:
    today, name = days(0)[-1], str(tmp_path / "forecast.json.gz")
    forecast(0).save(name)
    solution = solve(today, "online-learned", options={"history": name})
    assert solution.termination is Termination.COMPLETED
    assert solution.stats.counts["days"] == 3
    assert len(solution.stats.decision_ms) == today.num_jobs
    assert verify(today, solution).violations == ()


def test_solves_for_new_prices_are_told_in_milliseconds() -> None:
    nothing = AdmissionPlan.from_rows(workers=(), ps=())
    result = DayResult(
        plan=nothing,
        unfinished=nothing,
        decisions={},
        promised={},
        completed_on_standby={},
        prices=Prices(worker=np.zeros(0), ps=np.zeros(0)),
        resolve_s=[0.25, 0.5, 2.0],
    )
    counts = _counts(result, None)
    assert (counts["resolves"], counts["resolve_ms"], counts["resolve_max_ms"]) == (3, 500.0, 2000.0)


def test_bad_histories_end_in_one_clear_line(tmp_path: Path) -> None:
    today, name = days(0)[-1], str(tmp_path / "forecast.json")
    forecast(0).save(name)
    with pytest.raises(InvalidOptionError, match="give it alone"):
        read_history(f"{name},{name}", today)
    with pytest.raises(InvalidProblemError, match="neither a file nor the name of a shipped earlier day"):
        read_history("yesterday.json", today)
    with pytest.raises(InvalidProblemError, match="resources"):
        read_history(name, replace(today, resources=("a", "b", "c", "d")))
    with pytest.raises(InvalidProblemError, match="slots of"):
        read_history(name, replace(today, slot_micro_s=1))
    assert read_history(" , ", today) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"guard": 0.5}, "guard needs a history"),
        ({"warm_up": 0}, "warm_up"),
        ({"promised_share": 1.5}, "promised_share"),
        ({"smoothing": 0}, "smoothing"),
        ({"replan": -1}, "replan"),
        ({"price_scale": 0}, "price_scale"),
    ],
)
def test_options_out_of_range_are_refused(options, text) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        solve(days(0)[-1], "online-learned", options=options)


def test_eight_earlier_days_ship_for_the_large_references() -> None:
    for size in ("light", "medium", "heavy"):
        for number in range(3):
            names = history_names(f"{size}-{number}")
            assert names == tuple(f"{size}-{number}-day{k}" for k in range(1, 9))
    today, day = reference_instance("heavy-0"), history_instance("heavy-0-day1")
    assert day.worker_servers.count.tolist() == today.worker_servers.count.tolist()
    assert history_names("tiny-0") == ()
