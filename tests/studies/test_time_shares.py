"""The study of time shares."""

import gzip
import json

import pytest
from optim_studies.time_shares import SPEC, TimeShareOptions, draw_problem

from optim.benchmarks.suite import BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never


def test_all_ways_find_the_same_ratio():
    (work,) = SPEC.build(BenchRequest(options={"jobs": 20, "repeats": 1}))
    record = work.run(Never(), SilentProgress())
    assert record.verified
    assert record.findings["agrees"]
    assert record.measures["ours_s"] > 0


def test_speeds_come_from_gavels_table(tmp_path):
    path = tmp_path / "table.json.gz"
    kinds = {"('one', 1)": {"null": 3.0}, "('one', 4)": {"null": 9.0}}
    path.write_bytes(gzip.compress(json.dumps(dict.fromkeys(("v100", "p100", "k80"), kinds)).encode()))
    problem = draw_problem(TimeShareOptions(jobs=30, throughputs=path), 0)
    assert set(problem.throughput.ravel()) == {3.0, 6.0, 9.0}
    with pytest.raises(InvalidOptionError, match="isn't a file"):
        TimeShareOptions(throughputs=tmp_path / "absent")
