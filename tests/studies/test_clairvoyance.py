"""The study of bounds: plans are within a per cent of the proven bounds, and unproven ones are marked."""

from dataclasses import replace

import pytest
from optim_studies import clairvoyance

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never


def records(*solvers):
    works = SUITES.get("clairvoyance").build(BenchRequest(solvers=solvers or None))
    return {work.solver: work.run(Never(), SilentProgress()) for work in works}


def test_plans_attain_what_is_proven():
    found = records()
    assert set(found) == {"allowed-harm", "harmless"}
    for record in found.values():
        assert record.verified, record.violations
        assert 0 <= record.findings["cpu_gap"] <= 0.01
        assert 0 <= record.findings["memory_gap"] <= 0.01
        assert record.parameters["series"] == 60


def test_a_bound_that_nothing_proves_is_told(monkeypatch):
    claim_of = clairvoyance.claim_of

    def larger(*given):
        claim = claim_of(*given)
        return replace(claim, bound=1.005 * claim.bound)

    monkeypatch.setattr(clairvoyance, "claim_of", larger)
    record = records("allowed-harm")["allowed-harm"]
    assert not record.verified
    assert any("cpu: " in told and "proves a bound of" in told for told in record.violations)


@pytest.mark.parametrize("request_", [{"solvers": ("vpa",)}, {"options": {"kills": 0.0}}, {"options": {"x": 1}}])
def test_refuses_other_ways_and_options(request_):
    with pytest.raises(InvalidOptionError):
        list(SUITES.get("clairvoyance").build(BenchRequest(**request_)))
