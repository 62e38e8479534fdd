"""The suites of clusters: policies over seeds, and published figures."""

import numpy as np
import pytest
from optim_studies.replications import FIGURES, ReplicationOptions
from optim_studies.replications import SPEC as REPLICATIONS

from optim.benchmarks.suite import BenchRequest
from optim.benchmarks.suites.cluster import SPEC, ClusterBenchOptions
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never


def _run(spec, **request):
    return [work.run(Never(), SilentProgress()) for work in spec.build(BenchRequest(**request))]


def test_policies_are_played_and_replayed_for_every_seed():
    options = {"jobs": 12, "gpus": "4x8", "bound_steps": 1}
    records = _run(SPEC, solvers=("fifo", "srtf"), seeds=(0, 1), options=options)
    assert [(record.solver, record.seed) for record in records] == [("fifo", 0), ("srtf", 0), ("fifo", 1), ("srtf", 1)]
    assert all(record.verified for record in records)
    assert all(record.findings["ratio_to_bound"] >= 1 for record in records)
    assert records[0].findings["jct_mean_h"] != records[2].findings["jct_mean_h"]
    figures = SPEC.figures(records)
    assert [figure.title for figure in figures] == ["Policies over seeds"]
    assert SPEC.figures([]) == []


def test_apps_and_traces_can_be_played(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("submit,gpus,duration\n0,1,5\n0,2,5\n")
    (record,) = _run(SPEC, solvers=("fifo",), options={"trace": str(path), "gpus": "1x2", "bound_steps": 0})
    assert (record.verified, record.parameters["jobs"]) == (True, 2)
    options = {"generate": "themis", "apps": 1, "bound_steps": 0, "gpus": "8x8"}
    (record,) = _run(SPEC, solvers=("fifo",), options=options)
    assert record.verified


@pytest.mark.parametrize("options", [{"generate": "x"}, {"jobs": 0}, {"trace": "absent.csv"}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidOptionError, match=next(iter(options))):
        list(SPEC.build(BenchRequest(options=options)))
    assert ClusterBenchOptions().gpus == "24x8"


def test_the_worked_example_comes_out_as_published():
    works = [
        w for w in REPLICATIONS.build(BenchRequest(options={"jobs": 200, "apps": 40})) if "worked" in w.subject.name
    ]
    records = [work.run(Never(), SilentProgress()) for work in works]
    assert [round(record.findings["ours"], 2) for record in records] == [9.33, 11.67, 9.33]
    assert [record.findings["why"] for record in records[:2]] == ["the same", "the same"]
    assert "2, 10, 16" in records[2].findings["why"]
    assert all(record.verified for record in records)


def test_delays_have_a_share_that_fragmentation_causes_where_there_are_any():
    delays = [figure.ours for name, figure in FIGURES.items() if name.startswith("delayed by fragmentation")]
    assert len(delays) == 3
    for jobs, num_known in ((20, 0), (1000, 3)):  # twenty jobs never meet on 320 GPUs
        shares = [share(ReplicationOptions(jobs=jobs), 0) for share in delays]
        assert np.isfinite(shares).sum() == num_known
        assert all(0 <= share <= 1 for share in shares if np.isfinite(share))


def test_figures_of_traces_need_the_folder(tmp_path):
    names = {work.subject.name for work in REPLICATIONS.build(BenchRequest())}
    assert names == {name for name, figure in FIGURES.items() if not figure.needs_data}
    with_data = {work.subject.name for work in REPLICATIONS.build(BenchRequest(options={"data": str(tmp_path)}))}
    assert with_data == set(FIGURES)
    with pytest.raises(InvalidOptionError, match="isn't a folder"):
        list(REPLICATIONS.build(BenchRequest(options={"data": str(tmp_path / "absent")})))
