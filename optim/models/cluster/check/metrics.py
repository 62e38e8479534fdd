"""Recompute the metrics of a run from its events.

`optim.models.cluster.metrics` defines the metrics; this module shares no arithmetic with it.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from optim.compiled import compiled
from optim.models.cluster.check.replay import (
    ATTEMPT_FAILED,
    JOB_FAILED,
    KILLED_BY_OUTAGE,
    MACHINE_DOWN,
    PREEMPT,
    REJECT,
    REPAIR,
    START,
    AttemptTracker,
    Replayed,
    fates,
)
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import EventLog
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload


@compiled
def _why(gang, part, asks, can_run, size, is_down, left, host, may_spread):
    """Return 1 if enough GPUs are free but the gang can't be placed, 2 if too few are free, 3 if the gang can be placed."""
    free, beside, whole, best, largest = 0, 0, 0, 0, 0
    gpu = 0
    for machine in range(len(size)):
        here = 0
        if can_run[machine]:
            largest = max(largest, size[machine])
            if not is_down[machine]:
                for each in range(gpu, gpu + size[machine]):
                    here += left[each] >= part
                free += here
                for what in range(2):
                    if asks[what] > 0:
                        here = min(here, host[what, machine] // asks[what])
                beside += here
                best = max(best, here)
                whole += here if here == size[machine] else 0
        gpu += size[machine]
    if free < gang:
        return 2
    room = beside if may_spread else best if gang <= largest else whole
    return 3 if room >= gang else 1


@compiled
def sweep(time, what, more, group, needs, can_run, quota, size, host, may_spread):
    """Return the total waiting time of each cause in microseconds; shape (4,).

    The causes are, in this order: the virtual cluster's quota is used up, the free GPUs are fragmented, too few GPUs are free,
    or the policy's order prevents the start of a job that would fit.

    Parameters
    ----------
    time
        Times in order.
    what
        Index of the quantity that changes at each time. Quantities are, in this order: waiting jobs per class, GPUs used
        per virtual cluster, used part of each GPU, down state, used vCPU, and used memory of each machine.
    more
        Amount of each change.
    group
        Virtual cluster of each class.
    needs
        Request of each class: gang, part of a GPU, vCPU, memory.
    can_run
        Whether each class can run on each machine.
    quota
        Quota of each virtual cluster in GPUs.
    size
        Number of GPUs of each machine.
    host
        vCPU and memory of each machine.
    may_spread
        Whether a gang may take GPUs anywhere.
    """
    classes, groups, machines = len(group), len(quota), len(size)
    waits, holds, is_down = np.zeros(classes, np.int64), np.zeros(groups, np.int64), np.zeros(machines, np.int64)
    left, beside = np.full(size.sum(), 1000), host.copy()
    why = np.zeros(classes, np.int64)
    is_known = False
    total = np.zeros(4)
    for step in range(len(time)):
        if step and time[step] > time[step - 1]:
            if not is_known:
                why[:] = -1
                is_known = True
            for each in range(classes):
                if waits[each] > 0:
                    if holds[group[each]] >= quota[group[each]]:
                        total[0] += float(waits[each] * (time[step] - time[step - 1]))
                        continue
                    if why[each] < 0:
                        why[each] = _why(
                            needs[each, 0], needs[each, 1], needs[each, 2:], can_run[each], size, is_down, left, beside,
                            may_spread,
                        )  # fmt: skip
                    total[why[each]] += float(waits[each] * (time[step] - time[step - 1]))
        at = what[step]
        if at < classes:
            waits[at] += more[step]
            continue
        if at < classes + groups:
            holds[at - classes] += more[step]
            continue
        is_known = False
        at -= classes + groups
        if at < len(left):
            left[at] -= more[step]
        elif at < len(left) + machines:
            is_down[at - len(left)] += more[step]
        else:
            at -= len(left) + machines
            beside[at // machines, at % machines] -= more[step]
    return total


HOUR, MILLI = 3_600_000_000, 1_000

SCORE = (1.0, 0.5, 0.25)

STOPS = (PREEMPT, KILLED_BY_OUTAGE, ATTEMPT_FAILED)
"""Events after which a job waits again."""


def figures_of(jobs: Workload, cluster: Cluster, log: EventLog, rules: Rules, replayed: Replayed) -> dict[str, float]:
    """Return all metrics by name; at least one job must be done."""
    done = [job for job, is_done in enumerate(replayed.is_done) if is_done]
    submit, width, work = jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist()
    share = jobs.share_milli.tolist() if rules.is_shared else [MILLI] * len(jobs)
    flow = [replayed.end_us[job] - submit[job] for job in done]
    slowdown = [time / work[job] for time, job in zip(flow, done, strict=True)]
    held, running, score = _held(cluster, log)
    useful = [_useful(fate, duration) for fate, duration in zip(fates(jobs, rules), work, strict=True)]
    end = int(log.time_us[-1])
    kinds = Counter(log.kind.tolist())
    left, gave_up = kinds[REJECT], kinds[JOB_FAILED]
    over, fragmented, full, order = _waiting(jobs, cluster, log, rules, replayed, running)
    waits = max(1.0, over + fragmented + full + order)
    return {
        "jct_mean_h": _mean(flow) / HOUR,
        **{f"jct_p{rank}_h": _quantile(flow, rank) / HOUR for rank in (50, 95, 99)},
        "makespan_h": end / HOUR,
        "first_start_mean_h": _mean([replayed.first_start_us[job] - submit[job] for job in done]) / HOUR,
        "wait_mean_h": _mean([time - held[job] for time, job in zip(flow, done, strict=True)]) / HOUR,
        **_longest_waits(width, [replayed.end_us[job] - time - held[job] for job, time in enumerate(submit)]),
        "slowdown_mean": math.fsum(slowdown) / len(done),
        "slowdown_max": max(slowdown),
        "rho_static_max": max(
            time * min(1.0, cluster.num_gpus / len(jobs)) / work[job] for time, job in zip(flow, done, strict=True)
        ),
        **_fairness(jobs, cluster, log, replayed),
        "gpu_hours": replayed.allocated_gpu_us / HOUR,
        "overhead_gpu_hours": replayed.overhead_gpu_us / HOUR,
        "utilisation": replayed.allocated_gpu_us / (end * cluster.num_gpus),
        "goodput": sum(width[job] * share[job] * useful[job] for job in done) / MILLI / replayed.allocated_gpu_us,
        "placement_score": score,
        "wait_fair_share": (over + full) / waits,
        "wait_fragmented_share": fragmented / waits,
        "wait_order_share": order / waits,
        "preemptions": kinds[PREEMPT],
        "machine_failures": kinds[MACHINE_DOWN],
        "crashes": kinds[KILLED_BY_OUTAGE],
        "lost_gpu_hours": sum(w * s * lost for w, s, lost in zip(width, share, replayed.lost_us, strict=True))
        / (MILLI * HOUR),
        "down_gpu_hours": _down(cluster, log, end) / HOUR,
        "failed_attempts": kinds[ATTEMPT_FAILED] + gave_up,
        "failed": gave_up,
        "left": left,
        "unfinished": len(jobs) - len(done) - left - gave_up,
    }


def _longest_waits(width: Sequence[int], waits: Sequence[int]) -> dict[str, float]:
    """Return the longest wait of gangs of 1 GPU, 2 to 4, 5 to 8, and more."""
    names = {1: "1", 2: "2_4", 3: "2_4", 4: "2_4", 5: "5_8", 6: "5_8", 7: "5_8", 8: "5_8"}
    longest = dict.fromkeys(("1", "2_4", "5_8", "above_8"), 0)
    for gang, wait in zip(width, waits, strict=True):
        name = names.get(gang, "above_8")
        longest[name] = max(longest[name], wait)
    return {f"wait_max_{name}_h": wait / HOUR for name, wait in longest.items()}


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def _quantile(values: Sequence[int], percent: int) -> float:
    """Return a percentile by linear interpolation."""
    ordered = sorted(values)
    whole, rest = divmod(percent * (len(ordered) - 1), 100)
    after = ordered[min(whole + 1, len(ordered) - 1)]
    return float(ordered[whole] + Fraction(rest, 100) * (after - ordered[whole]))


def _useful(fate: AttemptTracker, duration: int) -> int:
    """Return the work of the successful attempt."""
    return duration - fate.good if fate.left else duration


def _median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _held(cluster: Cluster, log: EventLog) -> tuple[Counter[int], list[tuple[int, int, int]], float]:
    """Return each job's time with GPUs, changes (time, job, GPUs) of allocations, and the placement score."""
    rack, last = cluster.rack.tolist(), int(log.time_us[-1])
    held: Counter[int] = Counter()
    begun: dict[int, tuple[int, int, float]] = {}
    changes, weights, scores = [], [], []

    def stop(job: int, time: int) -> None:
        start, gpus, score = begun.pop(job)
        held[job] += time - start
        if gpus > 1:
            weights.append(gpus * (time - start))
            scores.append(gpus * (time - start) * score)

    for time, kind, job, places in log.rows():
        if kind == START:
            machines = {machine for machine, _ in places}
            racks = {rack[machine] for machine in machines}
            gpus = sum(count for _, count in places)
            begun[job] = (time, gpus, SCORE[(len(machines) > 1) + (len(racks) > 1)])
            changes.append((time, job, gpus))
        elif job in begun:
            changes.append((time, job, -begun[job][1]))
            stop(job, time)
    for job in list(begun):
        stop(job, last)
    return held, changes, math.fsum(scores) / sum(weights) if sum(weights) else 1.0


def _down(cluster: Cluster, log: EventLog, end: int) -> int:
    """Return the GPU-time of failed machines."""
    since: dict[int, int] = {}
    total, gpus = 0, list(map(int, cluster.gpus.tolist()))
    for time, kind, _, places in _of_machines(log):
        if kind == MACHINE_DOWN:
            since[places[0][0]] = time
        else:
            total += gpus[places[0][0]] * (time - since.pop(places[0][0]))
    return total + sum(gpus[machine] * (end - time) for machine, time in since.items())


def _of_machines(log: EventLog) -> list[tuple[int, int, int, tuple[tuple[int, int], ...]]]:
    return (
        [row for row in log.rows() if row[1] in (MACHINE_DOWN, REPAIR)]
        if np.isin(log.kind, (MACHINE_DOWN, REPAIR)).any()
        else []
    )


def _fairness(jobs: Workload, cluster: Cluster, log: EventLog, replayed: Replayed) -> dict[str, float]:
    """Return finish-time fairness in both readings; each app is active from its first submission to its last end."""
    trials: dict[int, list[int]] = {}
    for job, app in enumerate(jobs.app.tolist()):
        trials.setdefault(app, []).append(job)
    gone = {job for kind, job in zip(log.kind.tolist(), log.job.tolist(), strict=True) if kind in (REJECT, JOB_FAILED)}
    submit, width, work = jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist()
    is_single = len(trials) == len(jobs)
    spans = {}
    for app, group in trials.items():
        begin, end = min(submit[job] for job in group), max(replayed.end_us[job] for job in group)
        spans[app] = (begin, end if is_single else max(end, begin + 1))
    some = [app for app, group in trials.items() if any(replayed.is_done[job] for job in group)]
    counted = [app for app in some if all(replayed.is_done[job] or job in gone for job in trials[app])]
    active = _ActiveTime(spans.values())
    whole, space = [], []
    for app in (counted or some) if not is_single else some:
        begin, end = spans[app]
        crowd = max(1.0, (active.until(end) - active.until(begin)) / (end - begin))
        load = sum(width[job] * work[job] for job in trials[app])
        demand, longest = sum(width[job] for job in trials[app]), max(work[job] for job in trials[app])
        alone = max(load / min(cluster.num_gpus, demand), longest)
        whole.append((end - begin) / (crowd * alone))
        space.append((end - begin) / max(load / min(cluster.num_gpus / crowd, demand), longest))
    found: dict[str, float] = {}
    for name, values in (("rho", whole), ("rho_space", space)):
        found |= {f"{name}_max": max(values), f"{name}_p50": _median(values), f"{name}_min": min(values)}
        found[f"{name}_share_above_1"] = sum(value > 1 for value in values) / len(values)
    inverse = [1 / value for value in whole]
    found["jain"] = math.fsum(inverse) ** 2 / (len(whole) * math.fsum(value * value for value in inverse))
    return found


class _ActiveTime:
    """Total length of intervals before a given time, in exact integers."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        begins, ends = zip(*spans, strict=True)
        self._sides = [(sorted(times), _sums(sorted(times))) for times in (begins, ends)]

    def until(self, when: int) -> int:
        """Return the total length before `when`."""
        (begins, until_begin), (ends, until_end) = self._sides
        begun, over = bisect_left(begins, when), bisect_left(ends, when)
        return int((begun * when - until_begin[begun]) - (over * when - until_end[over]))


def _sums(values: Iterable[int]) -> list[int]:
    total = [0]
    for value in values:
        total.append(total[-1] + value)
    return total


def _waiting(
    jobs: Workload,
    cluster: Cluster,
    log: EventLog,
    rules: Rules,
    replayed: Replayed,
    changes: list[tuple[int, int, int]],
) -> tuple[float, ...]:
    """Return the total waiting time by cause: over quota, fragmentation, lack of GPUs, order."""
    share = jobs.share_milli.tolist() if rules.is_shared else [MILLI] * len(jobs)
    asks = list(zip(jobs.cpu_milli.tolist(), jobs.memory_mib.tolist(), strict=True))
    if not (rules.is_shared or _may_run_out(jobs, cluster, rules)):
        asks = [(0, 0)] * len(jobs)
    kinds = jobs.gpu_type_slowdown_ppm > 0
    of: dict[tuple[object, ...], int] = {}
    of_class, first = [], []
    for job, (group, gang) in enumerate(zip(jobs.group.tolist(), jobs.gpus.tolist(), strict=True)):
        same = (group, gang, share[job] if gang == 1 else MILLI, asks[job], kinds[job].tobytes())
        if same not in of:
            of[same] = len(of)
            first.append(job)
        of_class.append(of[same])
    needs = np.array([(gang, part, *host) for _, gang, part, host, _ in of], np.int64)  # type: ignore[misc]
    can_run = np.ones((len(of), cluster.num_machines), np.bool_)
    if kinds.shape[1]:
        can_run = kinds[first][:, cluster.kind]
    groups = len(of) + len(jobs.groups)
    steps = [(time, len(of) + group, more) for group, time, more in _by_group(jobs, changes)]
    steps += [(time, groups + at, more) for time, at, more in _taken(cluster, log, share, asks)]
    steps += [(time, of_class[job], 1) for job, time in enumerate(jobs.submit_us.tolist())]
    waits = [True] * len(jobs)
    for time, kind, job in zip(log.time_us.tolist(), log.kind.tolist(), log.job.tolist(), strict=True):
        if kind in STOPS or (job >= 0 and waits[job]):
            waits[job] = kind in STOPS
            steps.append((time, of_class[job], 1 if waits[job] else -1))
    steps += [(replayed.end_us[job], of_class[job], -1) for job, is_waiting in enumerate(waits) if is_waiting]
    steps.sort()
    time, what, more = (np.array(column, np.int64) for column in zip(*steps, strict=True))
    quota = np.full(len(jobs.groups), np.inf)
    if rules.knows_quotas:
        quota = np.array(rules.quotas or _quotas(jobs, cluster), float)
    host = np.array([_hosts(cluster, "cpus", 1000), _hosts(cluster, "memory_gb", 1024)], np.int64)
    found = sweep(
        time, what, more, jobs.group[first], needs, can_run, quota, cluster.gpus, host, rules.may_spread
    )  # fmt: skip
    return tuple(found.tolist())


def _by_group(jobs: Workload, changes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    group = jobs.group.tolist()
    return [(group[job], time, more) for time, job, more in changes]


def _hosts(cluster: Cluster, name: str, unit: int) -> list[int]:
    return [round(room * unit) for room in getattr(cluster, name).tolist()]


def _may_run_out(jobs: Workload, cluster: Cluster, rules: Rules) -> bool:
    """Return whether a machine full of the most demanding jobs could run out of vCPU or memory."""
    sides = ((jobs.cpu_milli, _hosts(cluster, "cpus", 1000)), (jobs.memory_mib, _hosts(cluster, "memory_gb", 1024)))
    most = [(max(asked.tolist()) * rules.jobs_a_gpu, rooms) for asked, rooms in sides]
    return any(
        gpus * each > room for each, rooms in most for gpus, room in zip(cluster.gpus.tolist(), rooms, strict=True)
    )


def _quotas(jobs: Workload, cluster: Cluster) -> list[int]:
    """Return quotas for logs of earlier versions, which lack them: proportional to GPU-time, by largest remainders."""
    work: Counter[int] = Counter()
    for group, gang, duration in zip(jobs.group.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist(), strict=True):
        work[group] += gang * duration
    exact = [Fraction(cluster.num_gpus * work[group], sum(work.values())) for group in range(len(jobs.groups))]
    given = [math.floor(each) for each in exact]
    spare = cluster.num_gpus - sum(given)
    for _, group in sorted((whole - each, group) for group, (each, whole) in enumerate(zip(exact, given, strict=True)))[
        :spare
    ]:
        given[group] += 1
    return given


def _taken(
    cluster: Cluster, log: EventLog, share: Sequence[int], asks: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Return changes (time, index, amount) of resources: parts of GPUs, down states, vCPU and memory of machines.

    If a log names no GPUs, jobs take the free GPUs with the lowest numbers of each machine.
    """
    gpus = cluster.gpus.tolist()
    begin = _sums(gpus)[:-1]
    spare = [list(range(start + size - 1, start - 1, -1)) for start, size in zip(begin, gpus, strict=True)]
    all_gpus, machines = sum(gpus), len(gpus)
    machine, slot, counts = log.machine.tolist(), log.slot.tolist(), log.gpus.tolist()
    has: dict[int, list[tuple[int, int]]] = {}
    found = []
    for event, (time, kind, job, _) in enumerate(log.rows()):
        places = range(int(log.first[event]), int(log.first[event + 1]))
        if kind in (MACHINE_DOWN, REPAIR):
            found.append((time, all_gpus + machine[places[0]], 1 if kind == MACHINE_DOWN else -1))
            continue
        if kind == START:
            taken = []
            for place in places:
                at = machine[place]
                ones = [begin[at] + slot[place]] if log.names_gpus else [spare[at].pop() for _ in range(counts[place])]
                taken += [(at, gpu) for gpu in ones]
            has[job] = taken
        elif job not in has:
            continue
        sign, had = (1, has[job]) if kind == START else (-1, has.pop(job))
        for at, gpu in had:
            found.append((time, gpu, sign * share[job]))
            if kind != START and not log.names_gpus:
                spare[at].append(gpu)
            for what, ask in enumerate(asks[job]):
                if ask:
                    found.append((time, all_gpus + machines * (1 + what) + at, sign * ask))
    return found
