"""Slurm's multifactor priority: the formula and samples of its documentation, order, fair share, preemption."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.metrics import measure
from optim.models.cluster.waiting import waited_by_job
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.engine import play_plans
from optim.simulation.cluster.policies.multifactor import Multifactor, MultifactorOptions
from tests.support.small_clusters import small_worlds, workload

FREE = EngineOptions(overhead_s=0)
HOUR = 3600
SAMPLE = """# Activate the Multifactor Job Priority Plugin with decay
PriorityType=priority/multifactor
PriorityDecayHalfLife=14-0
PriorityFavorSmall=NO
PriorityMaxAge=14-0
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
PriorityWeightQOS=0 # don't use the qos factor
"""
"""The first sample of "Multifactor Priority Plugin", section Configuration Example."""


class FakeView:
    """The attributes of a view that `priorities` reads."""

    def __init__(self, jobs, stopped_s=()):
        self.submit_us = jobs.submit_us
        self.stopped_us = np.array([each * US for each in stopped_s] or [-1] * len(jobs))


def ends(jobs, grid="1x1", **options):
    policy = Multifactor(MultifactorOptions(**options), jobs)
    run = simulate(jobs, Cluster.grid(grid), policy, FREE)
    assert not replay(jobs, Cluster.grid(grid), run.log, run.rules)[1]
    return (run.end_us / US).tolist(), run


def test_the_sample_configuration_gives_the_defaults(tmp_path):
    (tmp_path / "slurm.conf").write_text(SAMPLE)
    jobs = workload([(0, 1, 1)])
    policy = Multifactor(MultifactorOptions(conf=tmp_path / "slurm.conf"), jobs)
    assert policy.settings == MultifactorOptions()
    assert [note.partition(": ")[2] for note in policy.notes] == [
        "SchedulerType (absent: sched/backfill) is not applied: multifactor runs strict, as sched/builtin; for backfill add "
        "--option multifactor.reservations=easy (or conservative: reserve for every job)"
    ]


def test_the_priority_is_the_weighted_sum_of_the_factors_that_the_documentation_states():
    """Seven of fourteen days in the queue, half of the machine, half of the largest partition's and quality's priority."""
    jobs = workload([(0, 4, 60)], groups=("gpu",), qos_names=("low",))
    policy = Multifactor(MultifactorOptions(weight_qos=3000, weight_fair_share=2000), jobs)
    policy.partition_factor, policy.qos_factor = np.array([0.5]), np.array([0.25])
    policy.begin(Cluster.grid("1x8"), 0)
    policy.fair_share = np.array([0, 0.75])
    assert policy.association.tolist() == [1]
    policy.looked_us = 7 * 24 * HOUR * US
    found = policy.priorities(FakeView(jobs), np.array([0]))
    assert found.tolist() == [1000 * 0.5 + 2000 * 0.75 + 1000 * 0.5 + 1000 * 0.5 + 3000 * 0.25]


def test_a_small_weight_makes_fair_shares_of_59534_and_50002_alike():
    """ "General": "If the fair-share weight is only set to 10, both jobs would have the same fair-share priority"."""
    jobs = workload([(0, 1, 60), (0, 1, 60)], user=np.array([0, 1]), users=("u", "v"))
    for weight, expected in ((10, [5, 5]), (1000, [595, 500])):
        options = MultifactorOptions(weight_fair_share=weight, weight_job_size=0, weight_partition=0)
        policy = Multifactor(options, jobs)
        policy.begin(Cluster.grid("1x8"), 0)
        policy.fair_share = np.array([0, 0.59534, 0.50002])
        assert policy.priorities(FakeView(jobs), np.array([0, 1])).tolist() == expected


@pytest.mark.parametrize(("favor_small", "expected"), [(False, [125, 500, 1000]), (True, [1000, 625, 125])])
def test_the_whole_machine_or_the_single_gpu_has_the_size_factor_of_1(favor_small, expected):
    jobs = workload([(0, 1, 60), (0, 4, 60), (0, 8, 60)])
    options = MultifactorOptions(weight_fair_share=0, weight_partition=0, favor_small=favor_small)
    policy = Multifactor(options, jobs)
    policy.begin(Cluster.grid("1x8"), 0)
    assert policy.priorities(FakeView(jobs), np.arange(3)).tolist() == expected


def test_age_grows_up_to_the_maximum_and_begins_again_at_a_stop():
    jobs = workload([(0, 8, 60)] * 3)
    policy = Multifactor(
        MultifactorOptions(weight_fair_share=0, weight_job_size=0, weight_partition=0, max_age_h=10), jobs
    )
    policy.begin(Cluster.grid("1x8"), 0)
    policy.looked_us = 20 * HOUR * US
    found = policy.priorities(FakeView(jobs, stopped_s=(-1, 19 * HOUR, 15 * HOUR)), np.arange(3))
    assert found.tolist() == [1000, 100, 500]


def test_who_used_less_goes_first():
    """By hand: u's first job runs for an hour. Then v, without usage, precedes u's second job, submitted earlier."""
    jobs = workload(
        [(0, 1, HOUR), (1, 1, 10), (2, 1, 10)],
        user=np.array([0, 0, 1]),
        users=("u", "v"),
        account=np.array([0, 0, 1]),
        accounts=("a", "b"),
    )
    assert ends(jobs)[0] == [HOUR, HOUR + 20, HOUR + 10]
    assert ends(jobs, weight_fair_share=0)[0] == [HOUR, HOUR + 10, HOUR + 20]


def test_usage_is_forgotten_with_the_half_life():
    """u used 100 s long ago and v 60 s just now: with a half-life of an hour v has used more when both wait, without one u has."""
    day = 24 * HOUR
    jobs = workload(
        [(0, 1, 1200), (day, 1, 900), (day + 1, 1, 10), (day + 2, 1, 10)],
        user=np.array([0, 1, 1, 0]),
        users=("u", "v"),
    )
    assert ends(jobs, half_life_h=1)[0][2:] == [day + 920, day + 910]
    assert ends(jobs, half_life_h=0)[0][2:] == [day + 910, day + 920]


def write(path, text):
    path.write_text(text)
    return path


ACCOUNTS = "Account|Par Name|User|Share\nroot|||1\nbig|root||9\nsmall|root||1\nbig||u|1\nsmall||v|1\nsmall||w|1\n"


def test_shares_of_a_file_weigh_usage(tmp_path):
    """u has used twice v's GPU-time, of nine times the shares: u goes first."""
    jobs = workload(
        [(0, 1, 2000), (0, 1, 1000), (1, 1, 10), (2, 1, 10)],
        user=np.array([0, 1, 1, 0]),
        users=("u", "v"),
    )
    shares = write(tmp_path / "shares.txt", ACCOUNTS)
    for fair_tree in (True, False):
        assert ends(jobs, associations=shares, fair_tree=fair_tree)[0][2:] == [3020, 3010]
        assert ends(jobs, fair_tree=fair_tree)[0][2:] == [3010, 3020]


QOS = "Name|Priority|Preempt|PreemptExemptTime|UsageFactor\nnormal|10|scavenger||1\nurgent|100|normal,scavenger|00:00:00|2\nscavenger|0|||0\n"


def test_jobs_that_may_preempt_go_first_and_stop_the_lowest_quality(tmp_path):
    """Four GPUs: a scavenger and a normal job of two run; an urgent job of two stops the scavenger alone, of four both."""
    qos = write(tmp_path / "qos.txt", QOS)
    names = {"qos_names": ("normal", "scavenger", "urgent")}
    jobs = workload([(0, 2, 100), (0, 2, 100), (10, 2, 20)], qos=np.array([0, 1, 2]), **names)
    found, run = ends(jobs, "1x4", qos=qos)
    assert found == [100, 120, 30]
    assert run.figures["preempted"] == 1
    jobs = workload([(0, 2, 100), (0, 2, 100), (10, 4, 20)], qos=np.array([0, 1, 2]), **names)
    found, run = ends(jobs, "1x4", qos=qos)
    assert (found, run.figures["preempted"]) == ([120, 120, 30], 2)
    jobs = workload([(0, 4, 100), (10, 2, 20)], qos=np.array([2, 0]), **names)
    assert ends(jobs, "1x4", qos=qos)[0] == [100, 120]  # normal may not preempt urgent


def test_a_job_is_exempt_from_preemption_for_a_while(tmp_path):
    qos = write(tmp_path / "qos.txt", QOS)
    jobs = workload([(0, 1, 100), (10, 1, 20)], qos=np.array([1, 0]), qos_names=("normal", "scavenger"))
    assert ends(jobs, qos=qos)[0] == [120, 30]
    found, run = ends(jobs, qos=qos, exempt_s=40)
    assert found == [120, 60]
    assert [time // US for time, kind, *_ in run.log.rows() if kind == Event.PREEMPT] == [40]


def test_a_scavengers_time_is_charged_by_its_factor(tmp_path):
    """u's hour at factor 0 doesn't count, v's second counts."""
    qos = write(tmp_path / "qos.txt", QOS.replace("normal|10|scavenger", "normal|10|"))
    jobs = workload(
        [(0, 1, HOUR), (0, 1, 1000), (5, 1, 10), (6, 1, 10)],
        user=np.array([0, 1, 1, 0]),
        users=("u", "v"),
        qos=np.array([1, 0, 0, 0]),
        qos_names=("normal", "scavenger"),
    )
    assert ends(jobs, qos=qos)[0][2:] == [HOUR + 1020, HOUR + 1010]


def test_what_a_slurm_conf_leaves_out_has_the_defaults_of_slurm(tmp_path):
    """Weights that the file omits are 0, and age limit and half-life are a week; defaults of the options aren't used."""
    conf = write(tmp_path / "slurm.conf", "PriorityWeightAge=500\n")
    jobs = workload([(0, 1, 1)])
    found = Multifactor(MultifactorOptions(conf=conf), jobs).settings
    weights = ("age", "fair_share", "job_size", "partition", "qos")
    assert [getattr(found, f"weight_{name}") for name in weights] == [500, 0, 0, 0, 0]
    assert (found.max_age_h, found.half_life_h, found.calc_period_min) == (168, 168, 5)
    assert (found.favor_small, found.fair_tree, found.damping, found.exempt_s) == (False, True, 1, 0)


def test_tiers_of_partitions_go_before_priorities_and_factors_into_them(tmp_path):
    conf = write(
        tmp_path / "slurm.conf",
        "PriorityWeightPartition=1000\nPriorityWeightFairshare=0\nPartitionName=a PriorityJobFactor=10 PriorityTier=1\n"
        "PartitionName=b Nodes=x PriorityTier=2\nPartitionName=c PriorityJobFactor=5\nSchedulerType=sched/backfill\n",
    )
    jobs = workload(
        [(0, 1, 100), (1, 1, 10), (2, 1, 10), (3, 1, 10)], group=np.array([0, 2, 0, 1]), groups=("a", "b", "c")
    )
    found, _ = ends(jobs, conf=conf)
    assert found == [100, 130, 120, 110]


@pytest.mark.parametrize(
    ("scheduler", "options", "said"),
    [
        (
            "sched/backfill",
            {},
            "runs strict, as sched/builtin; for backfill add --option multifactor.reservations=easy",
        ),
        (
            "sched/backfill",
            {"qos": "Name|Priority|Preempt\nnormal|1|low\nlow|0|\n"},
            "do not support preemption by QOS",
        ),
        ("Sched/Backfill", {"backfill": True}, "SchedulerType=sched/backfill is not applied: no start is reserved"),
        ("sched/backfill", {"reservations": "easy"}, None),
        ("sched/builtin", {}, None),
        ("sched/builtin", {"reservations": "easy"}, "jobs may overtake one that does not fit"),
        ("sched/hold", {}, None),
    ],
)
def test_a_scheduler_type_other_than_the_simulated_one_is_named(tmp_path, scheduler, options, said):
    conf = write(tmp_path / "slurm.conf", f"PriorityWeightAge=5\nSchedulerType={scheduler}\n")
    if "qos" in options:
        options = {"qos": write(tmp_path / "qos.txt", options["qos"])}
    jobs = workload([(0, 1, 1)], qos=np.array([0]), qos_names=("normal",))
    policy = Multifactor(MultifactorOptions(conf=conf, **options), jobs)
    assert len(policy.notes) == (said is not None)
    assert said is None or said in policy.notes[0]


def test_parameters_without_effect_and_a_weight_without_its_file_are_named(tmp_path):
    conf = write(tmp_path / "slurm.conf", "SchedulerType=sched/builtin\nSchedulerParameters=x\nPriorityWeightQOS=7\n")
    assert Multifactor(MultifactorOptions(conf=conf), workload([(0, 1, 1)])).notes == (
        f"{conf}: without effect: SchedulerParameters",
        f"{conf}: PriorityWeightQOS needs --option multifactor.qos=FILE",
    )


def test_strict_order_holds_narrow_jobs_up_and_backfill_does_not():
    jobs = workload([(0, 1, 100), (1, 2, 10), (2, 1, 10)])
    assert ends(jobs, "1x2")[0] == [100, 110, 120]
    assert ends(jobs, "1x2", backfill=True)[0] == [100, 110, 12]


def test_the_longest_wait_by_gang_shows_who_starves():
    """A gang of two behind single GPUs, each submitted before the one ahead ends: with backfill it waits for all of them."""
    stream = [(100 * number, 1, 150) for number in range(10)]
    jobs = workload(sorted([*stream, (50, 2, 10)]))
    wide = jobs.gpus.tolist().index(2)
    for backfill, longest in ((False, 100), (True, 1000)):
        _, run = ends(jobs, "1x2", backfill=backfill, weight_job_size=0)
        waited = waited_by_job(jobs, run.log)
        expected = run.end_us - jobs.submit_us - run.executed_us - run.overhead_us
        assert waited.tolist() == expected.tolist()
        assert waited[wide] == longest * US
        assert measure(jobs, Cluster.grid("1x2"), run).wait_max_2_4_h == pytest.approx(longest / HOUR)


@settings(max_examples=40)
@given(small_worlds(jobs=6))
def test_without_weights_it_is_first_come_first_served(world):
    rows, cluster = world
    jobs = workload(rows)
    options = {f"weight_{name}": 0 for name in ("age", "fair_share", "job_size", "partition", "qos")}
    mine = simulate(jobs, cluster, make_policy("multifactor", jobs, options), FREE)
    fifo = simulate(jobs, cluster, make_policy("fifo", jobs), FREE)
    assert mine.end_us.tolist() == fifo.end_us.tolist()


@pytest.mark.parametrize(
    ("files", "options", "cause"),
    [
        ({}, {"half_life_h": -1}, "half_life_h must be"),
        ({}, {"weight_age": 2**32}, "weight_age must be"),
        ({}, {"conf": "nowhere"}, "conf must be a file"),
        ({"conf": SAMPLE}, {"weight_age": 7}, "and weight_age exclude each other"),
        (
            {"conf": "PriorityWeightAge=many\n"},
            {},
            "line 1: PriorityWeightAge must be an integer below",
        ),
        ({"conf": "PriorityMaxAge=soon\n"}, {}, "PriorityMaxAge must be a time"),
        ({"conf": "PriorityCalcPeriod=0\n"}, {}, "must be minutes above 0"),
        ({"conf": "PriorityType=priority/basic\n"}, {}, "must be priority/multifactor"),
        ({"conf": "PreemptType=preempt/partition_prio\n"}, {}, "must be preempt/qos"),
        ({"conf": "PartitionName=a PriorityTier=x\n"}, {}, "prioritytier must be an integer"),
        ({"conf": "SlurmctldHost=a\n"}, {}, "no priority parameter"),
        ({"associations": "Account|User|Share\na|u|1\n"}, {}, "'parentname' is missing"),
        ({"associations": "Account|ParentName|User|Share\na|root||x\n"}, {}, "expected an integer number of shares"),
        ({"associations": "Account|ParentName|User|Share\na|b||1\nb|a||1\n"}, {}, "is an ancestor of itself"),
        ({"associations": "Account|ParentName|User|Share\na|b||1\n"}, {}, "is a parent but has no row"),
        ({"associations": "Account|ParentName|User|Share\na||u|1\n"}, {}, "has no row"),
        ({"associations": "Account|ParentName|User|Share\na|root||1\na||x|1\n"}, {}, "user 'u' has no association"),
        ({"associations": ACCOUNTS + "small||u|1\n"}, {}, "2 accounts"),
        ({"associations": ACCOUNTS.replace("big||u|1", "big||u|parent")}, {}, "'parent'"),
        ({"qos": "Name|Preempt\na|\n"}, {}, "'priority' is missing"),
        ({"qos": "Name|Priority|Preempt\nnormal|1|zzz\n"}, {}, "'zzz', which isn't in the file"),
        ({"qos": "Name|Priority\nnormal|many\n"}, {}, "has an unreadable priority"),
        ({"qos": "Name|Priority\nnormal|1\nnormal|2\n"}, {}, "appears twice"),
        ({"qos": "Name|Priority\nother|1\n"}, {}, "unknown quality of service 'high'"),
        ({"qos": "Name|Priority|Preempt\nhigh|1|low\nlow|2|high\n"}, {}, "Preempt forms a cycle"),
    ],
)
def test_what_contradicts_itself_is_refused_in_a_line(tmp_path, files, options, cause):
    given = {name: write(tmp_path / name, text) for name, text in files.items()}
    qos = "low" if "low" in files.get("qos", "") else "high" if files.get("qos") else ""
    jobs = workload([(0, 1, 1)] * 2, users=("u",), qos=np.array([0, 1]), qos_names=("high", qos or "other"))
    if "qos" not in files or "low" not in files["qos"]:
        jobs = workload([(0, 1, 1)], users=("u",), qos_names=("high",))
    with pytest.raises((InvalidOptionError, InvalidProblemError), match=cause) as caught:
        make_policy("multifactor", jobs, {**given, **options})
    assert len(str(caught.value)) - len(str(tmp_path)) < 230


def told(rows, **more):
    """Return jobs whose stated estimates are their run times, unless a fourth number gives another estimate."""
    jobs = workload([row[:3] for row in rows], **more)
    return replace(jobs, estimate_us=np.array([row[-1] for row in rows]) * US)


def test_the_first_by_priority_has_the_reservation_and_others_may_pass_it():
    """The gang of the user without usage is reserved first, and short jobs fill the time before it.

    One of two GPUs is busy up to 100. Gangs of two wait, u's from 10 on and v's, without usage, from 20: v's is reserved at
    100. At 30, a job of 60 s on one GPU ends before 100 and starts. A job of 90 s would delay the gang, and waits behind
    both gangs, which take 100 s each.
    """
    jobs = told(
        [(0, 1, 100), (10, 2, 10), (20, 2, 10), (30, 1, 60), (31, 1, 90)],
        user=np.array([0, 0, 1, 1, 0]),
        users=("u", "v"),
    )
    options = {"calc_period_min": 1 / 60, "reservations": "easy", "weight_age": 0, "weight_job_size": 0}
    found, run = ends(jobs, "1x2", **options)
    assert found == [100, 120, 110, 90, 210]
    assert run.figures["reserved_jobs"] >= 1
    assert ends(jobs, "1x2", **{**options, "reservations": "none"}, backfill=True)[0][3:] == [90, 180]
    assert ends(jobs, "1x2", **{**options, "weight_fair_share": 0})[0] == [100, 110, 120, 90, 210]


@pytest.mark.parametrize(("reservations", "depth"), [("easy", 0), ("easy", 2), ("conservative", 0)])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_no_reserved_start_moves_later_while_the_order_ahead_and_the_estimates_hold(reservations, depth, seed):
    """Checked after each pass, for each job that keeps its reservation while the jobs ahead of it are the same or started."""
    rng = np.random.default_rng(seed)
    count, sizes = int(rng.integers(4, 25)), rng.integers(1, 5, rng.integers(1, 4))
    submit, duration = np.sort(rng.integers(0, 120, count)), rng.integers(1, 60, count)
    rows = zip(
        submit - submit[0],
        rng.integers(1, sizes.sum() + 1, count),
        duration,
        duration + rng.integers(0, 40, count) * (rng.random(count) < 0.5),
        strict=True,
    )
    jobs = told([*rows], user=rng.integers(0, 3, count), users=("u", "v", "w"))
    own = {"reservations": reservations, "depth": depth, "half_life_h": 0.01, "weight_age": 3000, "max_age_h": 0.02}
    policy = Multifactor(MultifactorOptions(**own, calc_period_min=0.1), jobs)
    plan, before, moved = policy.plan, {}, []

    def watched(view):
        looked = policy.looked_us
        found = plan(view)
        order = policy.order(view, view.waiting).tolist()
        now = {job: slot[0] for job, slot in policy.book.planned.items() if slot is not None}
        held = list(policy.book.planned)
        for nth, job in enumerate(held):
            if job in before and job in now:
                ahead, start = before[job]
                is_same = (
                    order[: order.index(job)] == ahead if policy.looked_us > looked else set(held[:nth]) <= set(ahead)
                )
                if is_same and now[job] > start:
                    moved.append((job, start, now[job]))
        before.clear()
        before.update({job: (held[:nth], now[job]) for nth, job in enumerate(held) if job in now})
        return found

    policy.plan = watched
    cluster = Cluster(gpus=sizes)
    run = play_plans(jobs, cluster, policy, FREE, 0)
    assert run.is_done.all()
    assert moved == []


def test_reservations_are_refused_with_preemption_and_a_depth_without_them(tmp_path):
    jobs = workload([(0, 1, 1)] * 2, qos=np.array([0, 1]), qos_names=("normal", "scavenger"))
    with pytest.raises(UnsupportedProblemError, match="support preemption"):
        make_policy("multifactor", jobs, {"qos": write(tmp_path / "qos.txt", QOS), "reservations": "easy"})
    with pytest.raises(InvalidOptionError, match=r"depth needs multifactor\.reservations"):
        make_policy("multifactor", jobs, {"depth": 3})
    with pytest.raises(InvalidOptionError, match="must be one of none, easy, conservative"):
        make_policy("multifactor", jobs, {"reservations": "hard"})
