"""The study of Themis' rounds says when a world's play begins and when it is over."""

from optim_studies.themis import SPEC

from optim.benchmarks.suite import BenchRequest
from optim.core.stopping import Never
from optim.statistics import Interval
from tests.support.sample_tasks import RecordedProgress


def test_each_piece_of_work_is_announced_with_its_setting_and_ends(monkeypatch):
    monkeypatch.setattr("optim_studies.themis.measured", lambda *_, **__: {"rho_max": Interval(mean=1.0, half=0.0)})
    first, second, *_ = SPEC.build(BenchRequest())
    progress = RecordedProgress()
    for work in (first, second):
        work.measure(Never(), progress)
    assert progress.news == ["start themis  None", "finish", "start themis {'fairness': 0.0} None", "finish"]
