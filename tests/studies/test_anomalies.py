"""The study of detectors: figures equal plain counts, all detectors have equal false alarms, and bad requests are rejected."""

import numpy as np
import pytest
from optim_studies.anomalies import DETECTORS, DetectionOptions, faulty_containers, fitted_detector

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.workloads.containers import ContainerOptions, generate_containers

TINY = {"containers": 15, "usual": 40, "tested": 20, "false_per_day": 4.0}


def works(**request):
    return list(SUITES.get("anomalies").build(BenchRequest(**request)))


@pytest.mark.parametrize(
    "name", ["residual", "neighbours-sum", *(pytest.param(name, marks=pytest.mark.prove) for name in DETECTORS)]
)
def test_recall_and_false_alarms_are_those_of_a_count(name):
    (work,) = [work for work in works(solvers=(name,), options=TINY) if work.labels["fault"] == "restart-loop"]
    record = work.run(Never(), SilentProgress())
    assert record.error is None
    options = DetectionOptions(**TINY)
    detector, faulty = fitted_detector(name, options, 0), faulty_containers("restart-loop", options, 0)
    found = false = 0
    for segment, own in enumerate(faulty.series.segments()):
        scores = detector.scores(faulty.series)[own]
        silent, is_found = 0, False
        for place, score in enumerate(scores.tolist()):
            is_raised = silent == 0 and score > detector.threshold
            silent = 40 if is_raised else max(0, silent - 1)
            is_fault = 0 <= faulty.onset[segment] <= place < faulty.end[segment]
            is_found |= is_raised and is_fault
            false += is_raised and not is_fault
        found += is_found
    faults = int((faulty.onset >= 0).sum())
    assert record.parameters["faults"] == faults
    assert record.findings["recall"] == found / faults
    usual_samples = faulty.series.num_samples - int((faulty.end - faulty.onset)[faulty.onset >= 0].sum())
    assert record.findings["false_per_day"] == pytest.approx(false / (usual_samples * 15 / 86400))


def test_thresholds_keep_the_false_alarms_on_containers_that_nothing_was_fitted_on():
    options = DetectionOptions(**TINY)
    usual = generate_containers(ContainerOptions(num_containers=40), 1_000_000)
    for name in ("residual", "residual-sum"):
        detector = fitted_detector(name, options, 0)
        scores = detector.scores(usual)
        assert np.isfinite(scores).any()
        above = [scores[own] > detector.threshold for own in usual.segments()]
        assert 0 < sum(bool(own.any()) for own in above) <= 4.0 * usual.num_samples * 15 / 86400


def test_every_detector_meets_every_fault_at_full_size():
    full = works(size="full")
    assert {work.solver for work in full} == set(DETECTORS)
    assert len({work.labels["fault"] for work in full}) == 4
    assert len(full) == 4 * len(DETECTORS)


@pytest.mark.parametrize("request_", [{"solvers": ("vpa",)}, {"options": {"faulty": 0.0}}, {"options": {"tested": 1}}])
def test_refuses_other_detectors_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)
