"""The study of Themis' rounds says when a world's play begins and when it is over."""

from optim.benchmarks.spec import BenchRequest
from optim.benchmarks.suites.themis import SPEC
from optim.core.intervals import Interval
from optim.core.stopping import Never
from tests.support.pieces import Heard


def test_each_piece_of_work_is_announced_with_its_setting_and_ends(monkeypatch):
    monkeypatch.setattr(
        "optim.benchmarks.suites.themis.measured", lambda *_, **__: {"rho_max": Interval(mean=1.0, half=0.0)}
    )
    first, second, *_ = SPEC.build(BenchRequest())
    progress = Heard()
    for work in (first, second):
        work.measure(Never(), progress)
    assert progress.news == ["start themis  None", "finish", "start themis {'fairness': 0.0} None", "finish"]
