"""EASY and conservative backfilling: examples worked by hand, and promises compared with schedules of unit steps."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.models.cluster.check.replay import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.catalogue import make_policy, wrap
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.index.policy import IndexPolicy, Key, Preempts, Reservations
from optim.simulation.cluster.options import EngineOptions, outages
from tests.support.small_clusters import workload

NEVER = 2**62


def _starts(name, cluster, rows, estimates=None, **options):
    """Return when jobs (submission, GPUs, run time in seconds) start and end, in seconds."""
    jobs = workload(rows, estimate_us=np.array(estimates or [row[2] for row in rows]) * US)
    run = simulate(jobs, Cluster.grid(cluster), make_policy(name, jobs, options))
    assert not replay(jobs, Cluster.grid(cluster), run.log, run.rules)[1]
    return (run.first_start_us / US).tolist(), (run.end_us / US).tolist()


class TestEasyByHand:
    """Lifka 1995 and Mu'alem and Feitelson 2001, section 3: a job behind the first that waits starts if it ends before the shadow time, or
    needs no more than the extra nodes: those left over when the first one starts."""

    def test_a_short_job_runs_before_the_shadow_time(self):
        """10 nodes: A (6, 10 s) runs; B (8) waits until 10; C (4, 10 s) ends at 10, when B starts; D (4, 11 s) would hold B up."""
        rows = [(0, 6, 10), (0, 8, 5), (0, 4, 11), (0, 4, 10)]
        assert _starts("easy", "1x10", rows)[0] == [0, 10, 15, 0]

    def test_a_long_job_runs_on_the_extra_nodes(self):
        """10 nodes: at the shadow time 10 B needs 7 of 10; the extra 3 run C (2, 100 s), and D (1, 100 s), but not E (1, 100 s)."""
        rows = [(0, 6, 10), (0, 7, 5), (0, 2, 100), (0, 1, 100), (0, 1, 100)]
        assert _starts("easy", "1x10", rows)[0] == [0, 10, 0, 0, 10 + 5]

    def test_the_second_that_waits_may_be_held_up(self):
        """Only the first has a reservation: D starts at once and delays C from 14 to 20, where conservative backfilling makes D wait."""
        rows = [(0, 3, 10), (0, 4, 4), (0, 4, 5), (0, 1, 20)]
        cluster = "1x5"
        assert _starts("easy", cluster, rows)[0] == [0, 10, 14, 0]
        rows = [(0, 3, 10), (0, 4, 4), (0, 5, 5), (0, 1, 20)]
        assert _starts("easy", cluster, rows)[0] == [0, 10, 20, 0]
        assert _starts("conservative", cluster, rows)[0] == [0, 10, 14, 19]


class TestConservativeByHand:
    """Srinivasan et al. 2002, sections 2 and 3: each job gets the earliest start that holds up none before it, and early ends compress."""

    def test_a_job_fills_a_hole_that_delays_nobody(self):
        """4 nodes: A (2, 10 s); B (4, 4 s) at 10; C (2, 10 s) fills the gap at once; D (2, 6 s) has no gap left and starts after B, with E."""
        rows = [(0, 2, 10), (0, 4, 4), (0, 2, 10), (0, 2, 6), (0, 2, 3)]
        assert _starts("conservative", "1x4", rows)[0] == [0, 10, 0, 14, 14]

    def test_an_early_end_compresses_the_schedule_in_order(self):
        """4 nodes: A estimates 20 s and ends after 5.

        B moves from 20 to 5, and C, reserved at 24, to 9; D, which started in the gap, stays.
        """
        rows = [(0, 3, 5), (0, 4, 4), (0, 2, 6), (1, 1, 4)]
        estimates = [20, 4, 6, 4]
        assert _starts("conservative", "1x4", rows, estimates)[0] == [0, 5, 9, 1]

    def test_a_reserved_start_never_moves_back_for_one_that_moves_ahead(self):
        """4 nodes: C (1, 6 s), in the hole before B, would lose it to B if all were planned again when A ends early; it starts by 8."""
        rows = [(0, 2, 4), (0, 2, 8), (0, 4, 3), (0, 2, 6)]
        estimates = [10, 8, 3, 6]
        starts, _ = _starts("conservative", "1x4", rows, estimates)
        assert starts == [0, 0, 8, 11]


def test_a_gang_behind_a_stream_of_single_gpus_waits_at_most_for_those_that_run():
    """Jobs of 1,800 s arrive every 225 s; the gang of 8 at 450 s starts when the third one ends, at 2,250 s, and starves without a reservation."""
    rows = sorted([(225 * nth, 1, 1800) for nth in range(200)] + [(450, 8, 1800)], key=lambda row: row[0])
    jobs = workload(rows, estimate_us=np.full(len(rows), 1800 * US))
    gang = int(jobs.gpus.argmax())
    waits = {}
    for name, options in (("easy", {}), ("conservative", {}), ("fifo", {"backfill": True})):
        run = simulate(jobs, Cluster.grid("1x8"), make_policy(name, jobs, options))
        waits[name] = int(run.first_start_us[gang] - jobs.submit_us[gang]) / US
    assert waits["easy"] == waits["conservative"] == 1800
    assert waits["fifo"] == 199 * 225 + 1800 - 450  # until the last of the stream is done


def _random(seed, exact=False):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 14))
    cluster = Cluster(gpus=np.full(int(rng.integers(1, 4)), int(rng.choice([2, 4]))))
    duration = rng.integers(1, 30, count)
    rows = [
        *zip(np.sort(rng.integers(0, 40, count)), rng.integers(1, cluster.num_gpus + 1, count), duration, strict=True)
    ]
    return workload(rows, estimate_us=duration * (1 if exact else rng.integers(1, 4, count)) * US), cluster


def _places(cluster, free, gang):
    """Return the machines of each place that a gang could take, free[m] being free; an oracle that tries all."""
    if gang <= max(cluster):
        return [(m,) for m in range(len(cluster)) if free[m] >= gang]
    whole = [m for m in range(len(cluster)) if free[m] == cluster[m]]
    return [tuple(whole)] if sum(cluster[m] for m in whole) >= gang else []


def _held(run, jobs, at, by_estimate):
    """Return (end, machine, GPUs) of the jobs running at a time, by estimate or by their true run time."""
    found = []
    ends = {job: time for time, kind, job, _ in run.log.rows() if kind == Event.END}
    for time, kind, job, places in run.log.rows():
        if kind == Event.START and time <= at < ends[job]:
            end = time + int(jobs.estimate_us[job]) if by_estimate else ends[job]
            found += [(end, machine, gpus) for machine, gpus in places]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_first_in_line_starts_no_later_than_if_nothing_had_passed_it(seed):
    """The oracle: from any instant at which a job is the first to wait, with no job started after it, ends equal the estimates."""
    jobs, cluster = _random(seed)
    run = simulate(jobs, cluster, make_policy("easy", jobs))
    sizes, checked = cluster.gpus.tolist(), 0
    for time in sorted({*run.log.time_us.tolist(), *jobs.submit_us.tolist()}):
        waiting = [j for j in range(len(jobs)) if jobs.submit_us[j] <= time < run.first_start_us[j]]
        if not waiting:
            continue
        first, held = waiting[0], _held(run, jobs, time, by_estimate=True)
        for when in sorted({time, *(end for end, _, _ in held)}):
            free = list(sizes)
            for end, machine, gpus in held:
                free[machine] -= gpus if end > when else 0
            if _places(sizes, free, int(jobs.gpus[first])):
                assert run.first_start_us[first] <= when
                checked += 1
                break
    assert checked or (run.first_start_us == jobs.submit_us).all()


def _planned_by_steps(jobs, cluster, known):
    """Return when each job starts if jobs are planned one by one at their submissions, on a grid of seconds, by exact estimates."""
    sizes, horizon = cluster.gpus.tolist(), 3000
    free = np.tile(np.array(sizes), (horizon, 1))
    starts = []
    for job in range(known):
        gang, need = int(jobs.gpus[job]), int(jobs.estimate_us[job]) // US
        for when in range(int(jobs.submit_us[job]) // US, horizon - need):
            places = _places(sizes, free[when : when + need].min(axis=0).tolist(), gang)
            if places:
                starts.append((when, places))
                left = gang
                for machine in places[0]:
                    free[when : when + need, machine] -= min(left, sizes[machine])
                    left -= min(left, sizes[machine])
                break
    return [when for when, _ in starts]


@pytest.mark.parametrize("seed", range(60))
def test_conservative_is_the_plan_made_job_by_job_where_estimates_are_exact(seed):
    """On one machine, where a plan has no choice of places."""
    jobs, cluster = _random(seed, exact=True)
    cluster = Cluster(gpus=np.array([cluster.num_gpus]))
    run = simulate(jobs, cluster, make_policy("conservative", jobs))
    assert (run.first_start_us // US).tolist() == _planned_by_steps(jobs, cluster, len(jobs))


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("name", ["easy", "conservative"])
def test_no_reserved_start_is_late_while_no_estimate_is_too_short(name, seed):
    jobs, cluster = _random(seed)
    run = simulate(jobs, cluster, make_policy(name, jobs, {"depth": seed % 4} if name == "conservative" else {}))
    assert run.figures["started_late"] == 0
    assert run.is_done.all()


class TestWrongEstimates:
    def test_a_job_that_outruns_its_estimate_is_thought_to_take_twice_as_long(self):
        """B waits for A, estimated to end at 5.

        From 5 on, A is expected to end at 10, so D (5 s) may pass but not C (6 s); from 10 on at 20, so C may pass. A
        ends at 12, and B starts after C.
        """
        rows = [(0, 3, 12), (1, 4, 2), (5, 1, 6), (5, 1, 5)]
        starts, ends = _starts("easy", "1x4", rows, [5, 2, 6, 5])
        assert starts == [0, 16, 10, 5]
        assert ends[0] == 12

    def test_a_job_is_stopped_at_its_limit_where_limits_kill(self):
        jobs = workload([(0, 1, 10), (0, 1, 4)], estimate_us=np.array([6, 6]) * US)
        run = simulate(jobs, Cluster.grid("1x1"), make_policy("easy", jobs, {"kills": True}))
        assert [row[:3] for row in run.log.rows()] == [
            (0, Event.START, 0),
            (6 * US, Event.LEAVE, 0),
            (6 * US, Event.START, 1),
            (10 * US, Event.END, 1),
        ]
        assert run.is_done.tolist() == [False, True]
        assert not replay(jobs, Cluster.grid("1x1"), run.log, run.rules)[1]

    def test_a_limit_counts_where_it_is_stated_only(self):
        jobs = workload([(0, 1, 10)], estimate_us=np.array([0]))
        run = simulate(jobs, Cluster.grid("1x1"), make_policy("easy", jobs, {"kills": True, "default_h": 0.001}))
        assert run.is_done.all()

    @pytest.mark.parametrize(
        ("limit", "said"), [(7, "before its limit"), (5, "longer than the limit of 5000000 us"), (0, "may not")]
    )
    def test_the_checker_refuses_a_job_that_is_stopped_at_another_time(self, limit, said):
        jobs = workload([(0, 1, 10), (0, 1, 4)], estimate_us=np.array([6, 6]) * US)
        run = simulate(jobs, Cluster.grid("1x1"), make_policy("easy", jobs, {"kills": True}))
        other = replace(jobs, estimate_us=np.array([limit, 9]) * US)
        assert said in str(replay(other, Cluster.grid("1x1"), run.log, run.rules)[1])

    def test_a_guess_is_a_quantile_of_the_users_past(self):
        """u ran for 2, 4 and 6 s.

        With the median, B is expected to take 4 s and passes the gang, which waits 5 s more; v has no history yet.
        """
        rows = [(0, 1, 2), (2, 1, 4), (6, 1, 6), (12, 1, 5), (12, 2, 1), (12, 1, 4)]
        stated = np.array([2, 4, 6, 5, 1, 0]) * US
        for quantile, start in ((0.5, 12), (1.0, 18)):
            jobs = workload(rows, estimate_us=stated, user=np.array([0, 0, 0, 1, 1, 0]), users=("u", "v"))
            run = simulate(jobs, Cluster.grid("1x2"), make_policy("easy", jobs, {"quantile": quantile}))
            assert run.first_start_us[5] == start * US

    def test_a_factor_of_the_true_run_time_is_declared(self):
        jobs = workload([(0, 1, 10)])
        assert make_policy("easy", jobs, {"guess": "factor"}).needs
        assert not make_policy("easy", jobs).needs


class TestTypes:
    def test_a_reservation_is_on_the_types_that_the_job_can_use(self):
        """The gang needs the second machine's type: the GPUs of the first need not be reserved."""
        cluster = Cluster(gpus=np.array([2, 2]), kind=np.array([0, 1]), kinds=("old", "new"))
        either, new = [PPM, PPM], [0, PPM]
        jobs = Workload(
            submit_us=np.array([0, 1, 2, 2]) * US,
            gpus=np.array([1, 2, 1, 1]),
            duration_us=np.array([10, 5, 50, 50]) * US,
            estimate_us=np.array([10, 5, 50, 50]) * US,
            gpu_type_slowdown_ppm=np.array([new, new, either, new]),
        )
        run = simulate(jobs, cluster, make_policy("easy", jobs))
        assert (run.first_start_us / US).tolist() == [0, 10, 2, 15]
        assert not replay(jobs, cluster, run.log, run.rules)[1]

    def test_hosts_that_are_full_by_then_count(self):
        """B needs all memory from 10 on: C (20 s) may take no GPU together with B, although one is free."""
        cluster = Cluster(gpus=np.array([4]), cpus=np.array([8.0]), memory_gb=np.array([64.0]))
        jobs = workload(
            [(0, 2, 10), (0, 2, 5), (0, 1, 20)],
            estimate_us=np.array([10, 5, 20]) * US,
            memory_mib=np.array([16, 32, 1]) * 1024,
        )
        run = simulate(jobs, cluster, make_policy("easy", jobs))
        assert (run.first_start_us / US).tolist() == [0, 10, 15]

    def test_jobs_that_share_gpus_are_refused(self):
        jobs = workload([(0, 1, 10)], share_milli=np.array([500]))
        with pytest.raises(UnsupportedProblemError, match="reserves complete GPUs"):
            simulate(jobs, Cluster.grid("1x1"), make_policy("easy", jobs), EngineOptions(sharing=True))

    def test_a_wrapper_steers_where_reserved_jobs_run(self):
        jobs = workload([(0, 1, 100), (0, 8, 50), (1, 2, 30)], estimate_us=np.array([100, 50, 30]) * US)
        run = simulate(jobs, Cluster.grid("2x8"), wrap("isolate", make_policy("easy", jobs), jobs))
        assert run.is_done.all()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"depth": -1}, "depth"), ({"past": 0}, "past"), ({"quantile": 2}, "quantile"), ({"guess": "x"}, "guess")],
)
def test_options_outside_their_range_are_refused(options, said):
    with pytest.raises(InvalidOptionError, match=said):
        make_policy("easy", workload([(0, 1, 1)]), options)


@pytest.mark.parametrize("other", [{"key": Key.REMAINING_TIME}, {"preempts": Preempts.AT_EVENTS}])
def test_only_first_come_first_served_has_reservations(other):
    with pytest.raises(InvalidOptionError, match="reservations require"):
        IndexPolicy(**{"name": "x", "key": Key.SUBMISSION, "reservations": Reservations(), **other})


class TestPlans:
    """Machines with planned outages: no job starts that can't end before, by its estimate."""

    def test_a_job_that_cannot_end_before_waits_until_the_machine_is_back(self):
        """The machine is away from 10 to 20: A (5 s) and C (4 s, at 6) run before, B (8 s, at 5) after; `fifo` starts B at 5 and it crashes."""
        jobs = workload([(0, 1, 5), (5, 1, 8), (6, 1, 4)], estimate_us=np.array([5, 8, 4]) * US)
        options = EngineOptions(planned=((0, 10 * US, 20 * US),), overhead_s=0)
        run = simulate(jobs, Cluster.grid("1x1"), make_policy("easy", jobs), options)
        assert (run.first_start_us / US).tolist() == [0, 20, 6]
        assert not (run.log.kind == Event.CRASH).any()
        other = simulate(jobs, Cluster.grid("1x1"), make_policy("fifo", jobs), options)
        assert (other.first_start_us / US).tolist() == [0, 5, 28]
        assert (other.log.kind == Event.CRASH).sum() == 1
        assert other.end_us[1] == 28 * US  # it begins again at 20, as it had no checkpoint

    @pytest.mark.parametrize("seed", range(100))
    @pytest.mark.parametrize("name", ["easy", "conservative"])
    def test_no_job_is_on_a_machine_that_leaves_while_no_estimate_is_too_short(self, name, seed):
        jobs, cluster = _random(seed)
        rng = np.random.default_rng(seed)
        begin = rng.integers(0, 60, cluster.num_machines) * US
        windows = [
            (m, int(begin[m]), int(begin[m]) + 20 * US) for m in range(cluster.num_machines) if rng.random() < 0.7
        ]
        options = EngineOptions(planned=tuple(windows))
        run = simulate(jobs, cluster, make_policy(name, jobs), options)
        assert run.is_done.all()
        assert not (run.log.kind == Event.CRASH).any()
        assert run.figures["started_late"] == 0
        assert not replay(jobs, cluster, run.log, run.rules)[1]
        assert (run.log.kind == Event.FAIL).sum() == sum(begin <= run.log.time_us[-1] for _, begin, _ in windows)

    def test_a_machine_that_fails_in_its_window_returns_once(self):
        """Reasons of outages are counted: a failure in the window adds no further event."""
        cluster = Cluster.grid("1x1")
        alone = [each[:2] for each in islice(outages(cluster, EngineOptions(mtbf_hours=1, repair_hours=1), 3), 4)]
        (first, _), (back, _), *_ = alone
        planned = EngineOptions(mtbf_hours=1, repair_hours=1, planned=((0, first - 5, back + 5),))
        assert list(islice(outages(cluster, planned, 3), 2)) == [(first - 5, 0, True), (back + 5, 0, False)]
