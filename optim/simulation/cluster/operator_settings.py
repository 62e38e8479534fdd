"""Translation of a policy into settings of the scheduler that it models, with a list of untranslated features."""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.quota_tree import QuotaTree, WithinQueue
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.engine import Policy
from optim.simulation.cluster.index.policy import ALL, IndexPolicy, Key
from optim.simulation.cluster.policies.hierarchical_quota import HierarchicalQuota
from optim.simulation.cluster.policies.multifactor import Multifactor, MultifactorOptions
from optim.workloads.cluster.queue_files import write_kueue
from optim.workloads.cluster.slurm_settings import PARAMETERS, format_span


class System(StrEnum):
    """Schedulers whose settings can be written."""

    KUEUE = "kueue"
    SLURM = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a scheduler.

    Parameters
    ----------
    text
        Content of the settings file.
    untranslated
        Features of the policy that the settings do not express, one line each.
    """

    text: str
    untranslated: tuple[str, ...] = ()


def settings_for(system: System, policy: Policy, jobs: Workload, cluster: Cluster) -> Settings:
    """Return the settings of a scheduler that express the policy's rules.

    Raises
    ------
    UnsupportedProblemError
        If no feature of the policy maps to settings of that scheduler.
    """
    if isinstance(policy, HierarchicalQuota):
        tree = policy.tree_for(cluster)
        if system is System.SLURM:
            text, untranslated = _quotas_in_slurm(tree)
        else:
            text, untranslated = write_kueue(tree)
        ignored = () if policy.file is None else _without_effect(policy.file.path, policy.file.ignored)
        return Settings(text=text, untranslated=(*untranslated, *ignored))
    if system is System.SLURM and isinstance(policy, Multifactor):
        return _priorities_in_slurm(policy, jobs)
    if (
        system is System.SLURM
        and isinstance(policy, IndexPolicy)
        and policy.key is Key.SUBMISSION
        and not policy.backfill
    ):
        return Settings(
            text="PriorityType=priority/basic\nSchedulerType=sched/builtin\n", untranslated=_of_partitions(jobs)
        )
    known = {System.KUEUE: "hierarchical-quota", System.SLURM: "multifactor, hierarchical-quota and fifo (strict)"}[
        system
    ]
    raise UnsupportedProblemError(
        f"policy {policy.name[:40]} has no {system.value} settings; supported policies: {known}"
    )


def _without_effect(path: object, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name} of {path}: without effect in the simulation" for name in names)


def _of_partitions(jobs: Workload) -> tuple[str, ...]:
    if len(jobs.groups) < 2:
        return ()
    return ("several partitions: under sched/builtin a job that does not fit blocks only its own partition",)


def _name(text: str) -> str:
    """Return a name quoted for a shell.

    Raises
    ------
    UnsupportedProblemError
        If it is not printable on one line.
    """
    if not text.isprintable():
        raise UnsupportedProblemError(f"name {text[:40]!r} cannot be written to slurm.conf; choose another")
    return shlex.quote(text)


def _priorities_in_slurm(policy: Multifactor, jobs: Workload) -> Settings:
    """Return slurm.conf, with sacctmgr commands as comments."""
    one = policy.settings
    lines = ["PriorityType=priority/multifactor"]
    written: Mapping[str, Callable[[float], str]] = {
        "max_age_h": lambda value: format_span(round(value * 3600)),
        "half_life_h": lambda value: format_span(round(value * 3600)) if value else "0",
        "calc_period_min": lambda value: (
            f"{value:g}" if value == int(value) else f"{math.floor(value)}:{round(value * 60) % 60:02}"
        ),
        "exempt_s": lambda value: format_span(round(value)),
        "favor_small": lambda value: "YES" if value else "NO",
    }
    names = {option: key for key, (option, _, _) in PARAMETERS.items()}
    for each in fields(MultifactorOptions):
        if each.name in names:
            value = getattr(one, each.name)
            lines.append(f"{SPELLED[names[each.name]]}={written[each.name](value) if each.name in written else value}")
    if not one.fair_tree:
        lines.append("PriorityFlags=NO_FAIR_TREE")
    untranslated = []
    if any(each.preempts for each in policy.qos):
        lines += ["PreemptType=preempt/qos", "PreemptMode=REQUEUE"]
    rule = policy.index_policy().reservations
    if rule is not None:
        lines.append("SchedulerType=sched/backfill")
        if rule.depth < ALL:
            lines.append(f"SchedulerParameters=bf_job_part_count_reserve={rule.depth}")
            if len(jobs.groups) > 1:
                untranslated.append("reservations: bf_job_part_count_reserve counts jobs per partition")
        else:
            lines.append("SchedulerParameters=bf_job_part_count_reserve=0")
        untranslated.append(
            "all waiting jobs: sched/backfill tries the first bf_max_job_test (500); set it above their number"
        )
        untranslated.append(
            "time of planning: sched/backfill plans reservations every bf_interval, up to bf_window ahead"
        )
    elif policy.options.backfill:
        untranslated.append(
            "backfill without reservations: sched/backfill never starts a job that delays one of higher priority"
        )
    else:
        lines.append("SchedulerType=sched/builtin")
        untranslated += _of_partitions(jobs)
    if policy.not_taken_over:
        untranslated.append(policy.not_taken_over)
    untranslated += _without_effect(policy.options.conf, policy.ignored)
    for name in jobs.groups:
        found = policy.partitions.get(name)
        if name and found is not None:
            lines.append(f"PartitionName={_name(name)} PriorityJobFactor={found.job_factor} PriorityTier={found.tier}")
    for given, what, name in (
        (one.associations, "accounts and users", "associations"),
        (one.qos, "qualities of service", "qos"),
    ):
        if given is None:
            untranslated.append(f"{what}: no file states them (--option multifactor.{name}=FILE)")
    commands = [*_accounts(policy)] if one.associations is not None else []
    commands += [*_qualities_of_service(policy)] if one.qos is not None else []
    if commands:
        lines.append("# Run these commands once; they are not part of slurm.conf:")
    return Settings(text="\n".join([*lines, *commands]) + "\n", untranslated=tuple(untranslated))


SPELLED = {
    key.casefold(): key
    for key in (
        "PriorityWeightAge",
        "PriorityWeightFairshare",
        "PriorityWeightJobSize",
        "PriorityWeightPartition",
        "PriorityWeightQOS",
        "PriorityFavorSmall",
        "PriorityMaxAge",
        "PriorityDecayHalfLife",
        "PriorityCalcPeriod",
        "FairShareDampeningFactor",
        "PreemptExemptTime",
    )
}
"""Parameters of slurm.conf in the spelling of its manual."""


def _accounts(policy: Multifactor) -> Iterator[str]:
    """Yield the commands that set up accounts and users."""
    tree = policy.tree
    for row in range(1, len(tree.names)):
        name, parent = tree.names[row], tree.names[int(tree.parent[row])]
        shares = "parent" if tree.takes_parent[row] else int(tree.shares[row])
        if tree.is_user[row]:
            if name:
                yield f"#   sacctmgr -i add user {_name(name)} account={_name(parent)} fairshare={shares}"
        else:
            yield f"#   sacctmgr -i add account {_name(name)} parent={_name(parent)} fairshare={shares}"


def _qualities_of_service(policy: Multifactor) -> Iterator[str]:
    """Yield the commands that set up qualities of service."""
    named = {each.name: each for each in policy.qos if each.name}
    for each in named.values():
        yield f"#   sacctmgr -i add qos {_name(each.name)}"
    for each in named.values():
        more = f" preempt={','.join(map(_name, each.preempts))}" if each.preempts else ""
        exempt = "" if each.exempt_s is None else f" preemptexempttime={format_span(each.exempt_s)}"
        yield f"#   sacctmgr -i modify qos {_name(each.name)} set priority={each.priority} usagefactor={each.usage_factor:g}{exempt}{more}"


def _quotas_in_slurm(tree: QuotaTree) -> tuple[str, tuple[str, ...]]:
    """Return the GPU limits of queues that cannot borrow, as qualities of service of partitions, and the untranslated settings."""
    lines, untranslated = [], []
    for name, row in tree.queues.items():
        is_alone = tree.parent[row] < 0 or not tree.borrowing[row].any()
        quota = int(tree.nominal[row].sum())
        if not is_alone:
            untranslated.append(f"queue {name[:40]!r} borrows: Slurm's limits (GrpTRES) are fixed and cannot be lent")
        elif quota % 1000 or len(np.flatnonzero(tree.covers[row])) > 1:
            untranslated.append(
                f"queue {name[:40]!r} has fractions of GPUs or several flavors: a limit counts complete GPUs of all "
                f"types"
            )
        else:
            lines.append(f"#   sacctmgr -i add qos {_name(name)} set grptres=gres/gpu={quota // 1000}")
            lines.append(f"PartitionName={_name(name)} QOS={_name(name)}")
    if not lines:
        raise UnsupportedProblemError(
            "no quota maps to Slurm's fixed limits because all queues borrow; write kueue settings instead"
        )
    if any(rules.within is not WithinQueue.NEVER for rules in tree.rules):
        untranslated.append(
            "preemption within a queue: Slurm preempts by quality of service or partition (PreemptType)"
        )
    return "\n".join(lines) + "\n", tuple(untranslated)
