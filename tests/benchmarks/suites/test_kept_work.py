"""What every suite would do at each size, for the first pieces of its work: subjects, ways, labels and options are kept."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from optim_studies.time_shares import TimeShareOptions, draw_problem

from optim.benchmarks.suite import FULL, SMALL, SUITES, BenchRequest, Skipped
from optim.benchmarks.suites.admission import SPEC as ADMISSION
from tests.support.kept import assert_kept, outcome

KEPT = Path(__file__).parent / "kept"
MOST = 40
DRAWN = ("auction", "paper", "pricing")
"""Suites whose subjects are drawn when work is listed: only the first few are looked at, at small size."""


def test_what_shares_are_drawn_from():
    found = {f"{seed}": draw_problem(TimeShareOptions(jobs=6), seed) for seed in range(2)}
    assert_kept(KEPT / "test_kept_work.json", found, is_part=True)


def told(work):
    """Return what a piece of work is about."""
    if isinstance(work, Skipped):
        return work
    named = [
        work.suite,
        work.subject.name,
        work.subject.topic,
        work.solver,
        work.seed,
        work.time_limit_s,
        dict(work.labels),
    ]
    return [*named, dict(work.options), getattr(work.subject, "drawn_from", None), work.resolved_options()]


@pytest.mark.parametrize("name", [spec.name for spec in SUITES if spec.name not in ("bidding", "fractional")])
def test_what_a_suite_would_do(name):
    spec, found = SUITES.get(name), {}
    for size in (SMALL,) if name in DRAWN or spec is ADMISSION else (SMALL, FULL):
        request = BenchRequest(size=size, seeds=(0, 3))
        most = 12 if name in DRAWN else MOST
        found[f"{name} {size}"] = [told(work) for work in islice(spec.build(request), most)]
        if name not in DRAWN:
            asked = replace(request, solvers=("exact", "online", "none such"), time_limit_s=2.0)
            found[f"{name} {size} asked"] = outcome(
                lambda given=asked, most=most: [told(work) for work in islice(spec.build(given), most)]
            )
    assert_kept(KEPT / "test_kept_work.json", found, is_part=True)
