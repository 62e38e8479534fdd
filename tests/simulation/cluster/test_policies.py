"""Policies by name: worked examples, exact indices, and their orders."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption
from optim.execution import SerialExecutor
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.columns import columns_of
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import Comparison, PolicyRequest, split_settings
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions, Placement
from optim.simulation.cluster.policies.tiresias import gittins_index
from tests.support.policies import CLUSTER_POLICIES
from tests.support.sample_tasks import InterruptedEngine
from tests.support.small_clusters import least_total_completion, small_worlds, workload

FREE = EngineOptions(overhead_s=0)


@pytest.mark.parametrize(
    ("name", "options", "ends"),
    [
        ("srsf", {}, [2, 10, 16]),
        ("las", {"quantum_s": 1}, [5, 14, 16]),
        ("tiresias-gittins", {}, [2, 10, 16]),
        ("fifo", {}, [2, 10, 16]),
    ],
)
def test_ends_of_the_worked_example(name, options, ends):
    """Two GPUs; jobs (GPUs, time) (2, 2), (1, 8), (2, 6): Gu et al., Tiresias, NSDI 2019."""
    jobs = workload([(0, 2, 2), (0, 1, 8), (0, 2, 6)])
    run = simulate(jobs, Cluster.grid("1x2"), make_policy(name, jobs, options), FREE)
    assert (run.end_us / US).tolist() == ends


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 9))
def test_the_index_is_the_supremum_over_all_times(service, attained):
    left = [Fraction(total - attained) for total in service if total > attained]
    best = Fraction(0)
    for until in (Fraction(step, 4) for step in range(1, 41)):
        if left:
            ends = sum(value <= until for value in left)
            best = max(best, Fraction(ends) / sum(min(value, until) for value in left))
    assert gittins_index(np.array(service), np.array([attained]))[0] == pytest.approx(float(best))


@given(small_worlds())
def test_shortest_remaining_time_is_optimal_on_one_gpu(world):
    rows = [(submit, 1, duration) for submit, _, duration in world[0]]
    jobs = workload(rows)
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("srtf", jobs), FREE)
    assert (run.end_us - jobs.submit_us).sum() / US == least_total_completion(rows, 1)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_least_attained_service_tends_to_sharing_the_processor(durations):
    jobs = workload([(0, 1, duration) for duration in durations])
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("las", jobs, {"quantum_s": 0.01}), FREE)
    for duration, end in zip(durations, (run.end_us / US).tolist(), strict=True):
        shared = sum(min(duration, other) for other in durations)
        assert end == pytest.approx(shared, abs=0.01 * len(durations))


def test_a_seed_draws_one_order():
    jobs = workload([(0, 1, 1)] * 6)
    policy = make_policy("random", jobs)
    ends = [simulate(jobs, Cluster.grid("1x1"), policy, FREE, seed).end_us.tolist() for seed in (0, 0, 1)]
    assert ends[0] == ends[1] != ends[2]


def test_tiresias_keeps_who_started_first_within_a_queue():
    """Both fall into the second queue after a GPU-second; there the first one runs to its end."""
    jobs = workload([(0, 1, 3), (0, 1, 3)])
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("tiresias", jobs, {"limits_gpu_s": "1"}), FREE)
    assert (run.end_us / US).tolist() == [4, 6]


def test_options_go_to_the_engine_or_to_a_policy():
    jobs = workload([(0, 1, 1)])
    options, requests = split_settings({"overhead_s": 5, "las.quantum_s": 7, "fifo.backfill": True}, ("las", "fifo"))
    las, fifo = (request.build(jobs) for request in requests)
    assert options.overhead_us == 5 * US
    assert las.quantum_us == 7 * US
    assert fifo.backfill


def test_options_of_a_wrapper_go_to_the_policies_that_it_wraps():
    _, requests = split_settings({"patience.wait_s": 7}, ("patience+srtf", "srsf", "fail-early+patience+fifo"))
    assert [request.options for request in requests] == [(("patience.wait_s", 7),), (), (("patience.wait_s", 7),)]


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"nonsense": "1"}, "there are: by_time, checkpoint_min, max_retries, mtbf_hours"),
        ({"srtf.preempt": "no"}, "not simulated"),
        ({"las.nonsense": "1"}, "unknown option 'nonsense'"),
        ({"las.quantum_s": 0}, "quantum_s must lie"),
        ({"overhead_s": -1}, "overhead_s must be in"),
    ],
)
def test_options_of_nobody_are_refused(settings, cause):
    def build():
        return [request.build(workload([(0, 1, 1)])) for request in split_settings(settings, ("las",))[1]]

    with pytest.raises(InvalidOptionError, match=cause):
        build()


def test_limits_are_quantiles_of_the_service_or_those_of_the_authors():
    """Of 1,024 jobs all but 256, 64, 16, 4 and 1 end below the limits."""
    service = np.random.default_rng(3).permutation(1024) + 1
    jobs = workload([(0, 1, int(each)) for each in service])
    policy = make_policy("tiresias", jobs)
    assert [(service * US >= limit).sum() for limit in policy.thresholds] == [256, 64, 16, 4, 1]
    assert "distribution" not in policy.needs
    assert "quantiles" in policy.needs
    fixed = make_policy("tiresias", jobs, {"limits_gpu_s": "authors"})
    assert fixed.thresholds == (3250 * US, 7200 * US, 18000 * US)
    assert fixed == make_policy("tiresias", jobs, {"limits_gpu_s": "3250:7200:18000"})
    assert not fixed.needs


def test_a_job_that_starves_is_promoted():
    """A job falls to the second queue after 2 s; jobs of 1 s keep coming. Having waited 3 x 2 s, it is back in the first
    queue, where the earliest start goes first, and runs another 2 s; so again."""
    jobs = workload([(0, 1, 6), *((when, 1, 1) for when in range(2, 40))])
    ends = {}
    for promote in (0, 3):
        policy = make_policy("tiresias", jobs, {"limits_gpu_s": "2", "promote": promote})
        run = simulate(jobs, Cluster.grid("1x1"), policy, FREE)
        ends[promote] = int(run.end_us[0] // US)
        assert run.figures == ({"promotions": 2.0} if promote else {})
    assert ends == {0: 44, 3: 18}


@pytest.mark.parametrize("limits", ["", "5:3", "x", "0:1", "1:1"])
def test_queues_have_increasing_limits(limits):
    with pytest.raises(InvalidOptionError, match="increasing numbers"):
        make_policy("tiresias", workload([(0, 1, 1)]), {"limits_gpu_s": limits})


def test_an_unknown_policy_is_named_with_the_known_ones():
    with pytest.raises(InvalidOptionError, match=", ".join(sorted(CLUSTER_POLICIES))):
        make_policy("nonsense", workload([(0, 1, 1)]))


def test_a_stop_that_is_requested_ends_a_run_and_gives_no_row():
    stop, task = Interruption(), Comparison(workload([(0, 1, 1)] * 3), Cluster.grid("1x1"), FREE, 0)
    rows = task.play([PolicyRequest(name="fifo"), PolicyRequest(name="srtf")], SerialExecutor(), stop, SilentProgress())
    assert next(rows).row.policy == "fifo"
    stop.request()
    assert list(rows) == [None]


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        ([(1, True), (0, False)], [None, "srtf", None]),
        ([(2, True), (1, False), (0, False)], [None, None, "las"]),
        ([(2, True), (1, True)], [None, "srtf", "las"]),
        ([(2, True), (0, True)], ["fifo", None, "las"]),
        ([], [None, None, None]),
    ],
)
def test_what_was_played_stands_in_the_place_of_its_policy_whoever_else_was_cut(ended, found):
    task = Comparison(workload([(0, 1, 9), (0, 1, 1)]), Cluster.grid("1x1"), FREE, 0)
    asked = [PolicyRequest(name=name) for name in ("fifo", "srtf", "las")]
    rows = list(task.play(asked, InterruptedEngine(*ended), Interruption(), SilentProgress()))
    assert [played and played.row.policy for played in rows] == found


def test_a_key_tells_apart_whatever_a_run_depends_on():
    jobs, cluster, request = workload([(0, 1, 1)] * 3), Cluster.grid("1x1"), PolicyRequest(name="fifo")
    keys = {
        Comparison(jobs, cluster, FREE, 0).key(request),
        Comparison(jobs, cluster, FREE, 1).key(request),
        Comparison(jobs, cluster, FREE, 0, 2.0).key(request),
        Comparison(jobs, cluster, EngineOptions(), 0).key(request),
        Comparison(jobs, Cluster.grid("1x2"), FREE, 0).key(request),
        Comparison(workload([(0, 1, 1)] * 2), cluster, FREE, 0).key(request),
        Comparison(jobs, cluster, FREE, 0).key(PolicyRequest(name="srtf")),
        Comparison(jobs, cluster, FREE, 0).key(PolicyRequest(name="fifo", options=(("backfill", True),))),
    }
    assert len(keys) == 8
    assert Comparison(workload([(0, 1, 1)] * 3), cluster, FREE, 0).key(request) in keys


@pytest.mark.parametrize("column", columns_of(Cluster))
def test_a_key_tells_apart_machines_that_differ_in_any_column(column):
    jobs, request = workload([(0, 1, 1)] * 3), PolicyRequest(name="fifo")
    same = {"gpus": [2, 2], "rack": [0, 0], "kind": [0, 0], "cpus": [64.0, 64.0], "memory_gb": [64.0, 64.0]}
    other = {**same, column: [1, 1]}
    clusters = [
        Cluster(kinds=("a", "b"), **{name: np.array(values) for name, values in each.items()}) for each in (same, other)
    ]
    assert len({Comparison(jobs, cluster, FREE, 0).key(request) for cluster in clusters}) == 2


@pytest.mark.parametrize("wrapped", ["", "patience+"])
def test_a_key_goes_by_what_is_in_files(tmp_path, wrapped):
    """The key contains the contents of a sample of service times and of a user's policy, but not the sample's path."""
    task = Comparison(workload([(0, 1, 1)] * 3), Cluster.grid("1x1"), FREE, 0)
    sample, mine = tmp_path / "sample.csv", tmp_path / "mine.py"
    sample.write_text("duration\n5\n")
    mine.write_text("class Mine: ...")
    (tmp_path / "again.csv").write_text("duration\n5\n")
    asked = PolicyRequest(name=f"{wrapped}tiresias-gittins", options=(("service", str(sample)),))
    again = PolicyRequest(name=f"{wrapped}tiresias-gittins", options=(("service", str(tmp_path / "again.csv")),))
    own = PolicyRequest(name=f"{wrapped}{mine}:Mine")
    before = [task.key(asked), task.key(own)]
    assert task.key(again) == before[0]
    sample.write_text("duration\n6\n")
    mine.write_text("class Mine: pass")
    assert not {task.key(asked), task.key(own)} & set(before)


def test_a_placement_may_be_written_as_a_text():
    assert EngineOptions(placement="worst-fit").placement is Placement.WORST_FIT
    with pytest.raises(InvalidOptionError, match="placement must be one of best-fit"):
        EngineOptions(placement="anywhere")


def test_gittins_goes_by_a_sample_of_service(tmp_path):
    """Of 2 and 12 GPU-seconds: at 0 the index is (1 / 2) / 2, at 2 it is 1 / 10, and from 12 on no job is left."""
    path = tmp_path / "service.csv"
    path.write_text("duration\n2\n12\n")
    jobs = workload([(0, 1, 5)])
    policy = make_policy("tiresias-gittins", jobs, {"service": str(path)})
    assert (policy.thresholds, policy.ranks, policy.needs) == ((2 * US, 12 * US), (0, 1, 2), "")
    own = make_policy("tiresias-gittins", jobs)
    assert own.thresholds == (5 * US,)
    assert "distribution" in own.needs
    with pytest.raises(InvalidOptionError, match="must be the path of a file"):
        make_policy("tiresias-gittins", jobs, {"service": "absent"})
