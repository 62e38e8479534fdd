"""Verify the claims of a record of runs against its logs and proofs."""

from collections.abc import Sequence
from dataclasses import fields, replace
from hashlib import sha256

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidProblemError
from optim.core.solution import Verification, Violation, violation
from optim.models.cluster.check.bounds import max_by_prices, min_makespan, min_mean_completion, min_slowdown
from optim.models.cluster.check.metrics import figures_of
from optim.models.cluster.check.promises import check_promises
from optim.models.cluster.check.replay import MACHINE_DOWN, PPM, REPAIR, Replayed, replay
from optim.models.cluster.check.utility import check_worth
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.columns import LATER
from optim.models.cluster.log import EventLog, Run
from optim.models.cluster.metrics import NOT_TOLD
from optim.models.cluster.policy_names import agrees, name_in
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LATER_FIELDS, LoggedRun, RunRecord
from optim.models.cluster.workload import Workload

OF_FAILURES = ("checkpoint_us", "retries", "max_retries", "retry_wait_us", "preempt_checkpoint_us", "startup_us")
"""Rules on startup time and on work lost to failures and preemptions, which must be equal in all runs of a record."""


def environment_mismatches(run: LoggedRun, runs: Sequence[LoggedRun]) -> list[Violation]:
    """Return violations if a run's rules on failures, or its failures, differ from those of the longest run.

    Failures are compared over the time that both runs cover.
    """
    longest = max(runs, key=lambda each: _end_us(each.log))
    problems = []
    for name in OF_FAILURES:
        own, other = getattr(run.rules, name), getattr(longest.rules, name)
        if own != other:
            said = f"{name} is {own} here, but {other} for {longest.policy[:40]}"
            problems.append(violation("rules", said, where=run.policy))
    until = min(_end_us(run.log), _end_us(longest.log))
    if run is not longest and not np.array_equal(_outages(run.log, until), _outages(longest.log, until)):
        said = f"failures and repairs of machines differ from those of {longest.policy[:40]}"
        problems.append(violation("log", said, where=run.policy))
    return problems


def _end_us(log: EventLog) -> int:
    return int(log.time_us[-1]) if len(log) else 0


def _outages(log: EventLog, until_us: int) -> IntArray:
    """Return time, type and machine of outages and repairs before `until_us`; a run may end amid the events at `until_us`."""
    is_outage = np.isin(log.kind, (MACHINE_DOWN, REPAIR)) & (np.diff(log.first) == 1) & (log.time_us < until_us)
    at = np.flatnonzero(is_outage)
    return np.stack([log.time_us[at], log.kind[at].astype(np.int64), log.machine[log.first[at]]])


AGREEMENT_TOL = 1e-9

HOUR_S = 3600.0

WAITING_BY_CAUSE = ("wait_fair_share", "wait_fragmented_share", "wait_order_share")
"""Metrics that earlier versions defined differently; they aren't compared if a log lacks the last one."""

OF_PLACES = ("may_spread", "knows_quotas", "quotas")
"""Rules that affect the causes of waiting, but not the set of allowed events."""

OF_LIMITS = ("kills_at_limit", "reservation_depth")
"""Rules that runs of index policies may set individually."""


def check_runs(record: RunRecord) -> list[tuple[str, Verification]]:
    """Return the verification of the bounds, under the name `bounds`, and of each policy's run, under the policy's name."""
    bounds, problems = _bounds(record)
    limit, of_limit = _limit_of_prices(record)
    found = [("bounds", Verification(violations=(*problems, *of_limit), proven=(*_sentences(bounds), *limit)))]
    found.extend((run.policy, _check_run(record, run, bounds)) for run in record.runs)
    return found


def _check_run(record: RunRecord, run: LoggedRun, bounds: dict[str, float]) -> Verification:
    replayed, problems = _replay(record, run)
    problems = [*_misnamed(record, run), *environment_mismatches(run, record.runs), *problems]
    if replayed is None:
        return Verification(violations=tuple(problems))
    if not any(replayed.is_done):
        return Verification(violations=(violation("log", "no job is done", where=run.policy),))
    if run.worth is not None:
        problems += check_worth(record.jobs, record.cluster, replayed, run.worth, run.policy)
    begins = None if "state" in record.settings else 0
    problems += check_promises(record.jobs, record.cluster, run.log, run.rules, begins, run.policy)
    figures = figures_of(record.jobs, record.cluster, run.log, run.rules, replayed)
    for each in fields(run.metrics):
        stated, true = getattr(run.metrics, each.name), figures[each.name]
        is_optional = record.is_of_earlier_schema or each.name in LATER_FIELDS["metrics"]
        if is_optional and each.default == stated == NOT_TOLD:
            continue
        if run.metrics.wait_order_share == NOT_TOLD and each.name in WAITING_BY_CAUSE:
            continue
        if not abs(stated - true) <= AGREEMENT_TOL * max(abs(true), 1e-6):
            problems.append(
                violation("metrics", f"{each.name} is {true!r}, but {stated!r} is claimed", where=run.policy)
            )
    if not _are_bounded(record.jobs, replayed.is_done, run.rules):
        bounds = {}
    for name, bound in bounds.items():
        if figures[name] < bound * (1 - AGREEMENT_TOL):
            problems.append(violation("bounds", f"{name} is below its bound {bound!r}", where=run.policy))
    return Verification(violations=tuple(problems), objective=figures["jct_mean_h"], bound=bounds.get("jct_mean_h"))


def _misnamed(record: RunRecord, run: LoggedRun) -> list[Violation]:
    """Return a violation if a run's name or digest differs from its key in the settings; files without keys aren't checked."""
    for other, key in zip(record.runs, record.settings.get("keys", ()), strict=False):
        if other is run and not agrees(run.policy, key):
            said = f"has the key of a run of {name_in(key)[:40]!r} in the settings"
            return [violation("policies", said, where=run.policy)]
        is_digested = other is run and not record.is_of_earlier_schema
        if is_digested and not key.rpartition(":")[2].startswith(_digest(record)):
            return [
                violation(
                    "jobs", "jobs or cluster differ from the digest in the run's key in the settings", where=run.policy
                )
            ]
    return []


def _digest(record: RunRecord) -> str:
    """Return the digest of the file's jobs and cluster with which keys begin."""
    digest = sha256()
    for owner in (record.jobs, record.cluster):
        for column in fields(owner):
            values, form = getattr(owner, column.name), column.metadata.get("column")
            is_left_out = form is not None and form.since == LATER and (values == form.fill).all()
            if isinstance(values, np.ndarray) and not is_left_out:
                name = (form.former if form is not None else "") or column.name
                digest.update(name.encode() + values.tobytes())
    return digest.hexdigest()[:16]


def is_bounded(jobs: Workload, run: Run) -> bool:
    """Return whether bounds hold for a run: all jobs are done, on unshared GPUs, with at most the gang's width."""
    return _are_bounded(jobs, run.is_done.tolist(), run.rules)


def _are_bounded(jobs: Workload, is_done: Sequence[bool], rules: Rules) -> bool:
    if not all(is_done) or (rules.retries and bool((jobs.fails_us >= 0).any())):
        return False
    is_wider = rules.is_elastic and bool((jobs.max_gpus > jobs.gpus).any())
    return rules.jobs_a_gpu == 1 and not rules.is_shared and not rules.may_refuse and not is_wider


def _replay(record: RunRecord, run: LoggedRun) -> tuple[Replayed | None, list[Violation]]:
    """Replay a log that names single GPUs, or that gives numbers of GPUs per machine, as logs of index policies do."""
    if run.log.names_gpus:
        return replay(record.jobs, record.cluster, run.log, run.rules)
    plain = Rules(restart_us=record.overhead_us, move_us=record.overhead_us)
    if replace(run.rules, **{name: getattr(plain, name) for name in (*OF_FAILURES, *OF_PLACES, *OF_LIMITS)}) != plain:
        return None, [violation("log", "names no single GPUs, but the run's rules require them", where=run.policy)]
    if why := _why_named(record.jobs, record.cluster):
        return None, [violation("log", f"names no single GPUs, but {why}", where=run.policy)]
    return replay(record.jobs, record.cluster, run.log, run.rules)


def _why_named(jobs: Workload, cluster: Cluster) -> str:
    """Return why numbers of GPUs per machine can't prove a schedule feasible, or "" if they can."""
    kinds = sorted(set(cluster.kind.tolist()))
    if any(ppm != PPM for row in jobs.gpu_type_slowdown_ppm.tolist() for ppm in (row[kind] for kind in kinds if row)):
        return "types of GPU matter to jobs"
    for name, most, rooms in (
        ("vCPU", max(jobs.cpu_milli.tolist()), [round(cpus * 1000) for cpus in cluster.cpus.tolist()]),
        ("memory", max(jobs.memory_mib.tolist()), [round(size * 1024) for size in cluster.memory_gb.tolist()]),
    ):
        if any(gpus * most > room for gpus, room in zip(cluster.gpus.tolist(), rooms, strict=True)):
            return f"a machine full of jobs could run out of {name}"
    return ""


def _bounds(record: RunRecord) -> tuple[dict[str, float], list[Violation]]:
    """Return the proven value of each claimed bound, and violations for claims beyond their proofs."""
    jobs, cluster, proven = record.jobs, record.cluster, {}
    if record.prices is not None:
        proven["jct_mean_h"] = min_mean_completion(jobs, cluster, record.prices) / HOUR_S
    if record.load is not None:
        proven["makespan_h"] = min_makespan(jobs, cluster, record.load) / HOUR_S
    if record.interval is not None:
        proven["slowdown_max"] = min_slowdown(jobs, cluster, record.interval)
    problems = []
    for name, stated in record.bounds.items():
        true = proven.get(name)
        if true is None:
            problems.append(violation("bounds", "has no proof", where=name[:40]))
        elif not stated <= true * (1 + AGREEMENT_TOL):
            problems.append(violation("bounds", f"{stated!r} is claimed, but {true!r} is proven", where=name))
    return {name: proven[name] for name in record.bounds if name in proven}, problems


def _limit_of_prices(record: RunRecord) -> tuple[list[str], list[Violation]]:
    """Return the upper bound of all price bounds as text, or violations."""
    stated, where = record.price_bound_limit_h, "price_bound_limit_h"
    if stated is None:
        return [], []
    if record.divisible is None:
        return [], [violation("bounds", "has no proof", where=where)]
    try:
        true = max_by_prices(record.jobs, record.cluster, record.divisible) / HOUR_S
    except InvalidProblemError as error:
        return [], [violation("bounds", str(error), where=where)]
    if not stated >= true * (1 - AGREEMENT_TOL):
        return [], [violation("bounds", f"{stated!r} is claimed, but {true!r} is proven", where=where)]
    return [f"no price bound on jct_mean_h exceeds {true:.6g}"], []


def _sentences(bounds: dict[str, float]) -> tuple[str, ...]:
    return tuple(f"no schedule of rigid jobs has {name} below {value:.6g}" for name, value in bounds.items())
