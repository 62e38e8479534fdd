"""Rows cached in a file: each under the key of its policy, for every interruption of a run."""

import pytest

from optim.benchmarks.cluster_rows import CachedRow, PolicyResultCache
from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption
from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.comparison import Comparison, PolicyRequest
from optim.simulation.cluster.options import EngineOptions
from tests.support.sample_tasks import InterruptedEngine
from tests.support.small_clusters import workload

NAMES = ("fifo", "srtf", "las")
ASKED = tuple(PolicyRequest(name=name) for name in NAMES)


@pytest.fixture
def task():
    """Two jobs, of which the short one waits behind the long one unless a policy knows better."""
    return Comparison(workload([(0, 1, 100), (0, 1, 10)]), Cluster.grid("1x1"), EngineOptions(overhead_s=0), 0)


@pytest.mark.parametrize(
    ("ended", "done"),
    [
        ([(1, True), (0, False)], ["srtf"]),
        ([(2, True), (1, False), (0, True)], ["fifo", "las"]),
        ([(2, True), (1, True)], ["srtf", "las"]),
        ([(0, False)], []),
    ],
)
def test_rows_of_a_run_that_was_cut_are_kept_under_their_own_keys(tmp_path, task, ended, done):
    path, calm = tmp_path / "rows.jsonl", (Interruption(), SilentProgress())
    given = list(PolicyResultCache(results=path, engine=InterruptedEngine(*ended)).rows(task, ASKED, *calm))
    assert [each.row["policy"] for each in given] == done
    assert [each.key.split(":")[0] for each in given] == done
    kept = [CachedRow.from_json(line) for line in path.read_bytes().splitlines()]
    assert [(each.key.split(":")[0], each.row["policy"]) for each in kept] == [(name, name) for name in done]
    again = list(PolicyResultCache(results=path).rows(task, ASKED, *calm))
    assert [(each.row["policy"], each.is_kept) for each in again] == [(name, name in done) for name in NAMES]
    assert [each.key for each in again] == [task.key(request) for request in ASKED]
