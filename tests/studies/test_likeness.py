"""The study of calibration: a fit is no worse than the defaults on its own draws; figures are statistics of both series."""

import numpy as np
import pytest
from optim_studies.generator_fit import distance, drawn_traits, summary_statistics
from optim_studies.likeness import LikenessOptions, matched_series

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.workloads.containers import ContainerOptions


def works(**request):
    return list(SUITES.get("likeness").build(BenchRequest(**request)))


def test_the_usual_knobs_are_off_by_the_distance_of_the_traits_that_are_shown():
    (work,) = works(solvers=("usual",), options={"containers": 5})
    record = work.run(Never(), SilentProgress())
    assert record.error is None
    given = summary_statistics(matched_series(LikenessOptions(containers=5), 0))
    drawn = drawn_traits(ContainerOptions(num_containers=5), 1)
    assert record.findings["off"] == pytest.approx(distance(given, drawn))
    assert record.findings["memory_ramps"] == [given[1, 4], drawn[1, 4]]
    assert (record.findings["idle_share"], record.findings["noise"]) == (0.0, 1.0)


@pytest.mark.prove
def test_a_file_of_idle_containers_is_matched(tmp_path):
    rng = np.random.default_rng(0)
    cpu = np.where(np.arange(300) < 60, 1.0, 0.01) * (1 + 0.1 * rng.random(300))
    rows = [f"a,{15 * k},{own:.6f},{0.1 + own:.6f}" for k, own in enumerate(cpu)]
    path = tmp_path / "idle.csv"
    path.write_text("container,time_s,cpu,memory\n" + "\n".join(rows))
    usual, fitted = (
        work.run(Never(), SilentProgress()).findings for work in works(options={"series": str(path), "containers": 8})
    )
    assert fitted["off"] < 0.5 * usual["off"]
    assert fitted["idle_share"] > 0.5


@pytest.mark.parametrize("request_", [{"solvers": ("vpa",)}, {"options": {"containers": 0}}, {"options": {"x": 1}}])
def test_refuses_other_ways_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)
