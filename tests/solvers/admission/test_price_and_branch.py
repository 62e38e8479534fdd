"""Price-and-branch: its programme over the columns ends when the run does. Its plans: `test_search`."""

import _thread
import math
import time
from collections.abc import Callable
from threading import Timer

import pytest

import optim
from optim.core.progress import SilentProgress
from optim.core.solution import Termination
from optim.core.stopping import Interruption

SOON_S = 1.0
"""Within this time HiGHS ends when it is asked to, on a busy machine too; by itself it takes longer."""


class InTheProgramme(SilentProgress):
    """Do something a tenth of a second after the LP is solved, when HiGHS is at its programme for a second or two."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action, self._done_at = action, math.inf

    def finish(self) -> None:
        Timer(0.1, self._act).start()

    def _act(self) -> None:
        self._done_at = time.perf_counter()
        self._action()

    @property
    def late_s(self) -> float:
        """How long ago it was done."""
        return time.perf_counter() - self._done_at


def test_an_interruption_is_heard_while_highs_runs() -> None:
    instance, stop = optim.reference_instance("small-2"), Interruption()
    progress = InTheProgramme(stop.request)
    solution = optim.solve(instance, "price-and-branch", stop=stop, progress=progress)
    assert 0 < progress.late_s < SOON_S
    assert solution.termination is Termination.INTERRUPTED
    assert solution.objective > 0
    assert optim.verify(instance, solution).is_ok


@pytest.mark.usefixtures("heeded_ctrl_c")
def test_ctrl_c_passes_through_while_highs_runs() -> None:
    progress = InTheProgramme(_thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        optim.solve(optim.reference_instance("small-2"), "price-and-branch", progress=progress)
    assert 0 < progress.late_s < SOON_S


def test_without_time_for_the_programme_the_plan_comes_from_prices() -> None:
    instance = optim.reference_instance("tiny-1")
    solution = optim.solve(instance, "price-and-branch", options={"mip_seconds": 0.0})
    assert solution.stats.counts["chosen"] == 0
    assert solution.objective > 0
    assert optim.verify(instance, solution).is_ok
