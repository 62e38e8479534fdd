"""What a plan may not do: each rule in one sentence, told with the job that breaks it."""

from collections.abc import Mapping

from optim.models.cluster.workload import WHOLE_MILLI
from optim.simulation.cluster.planning.books import Books
from optim.simulation.cluster.planning.policy import BrokenRuleError, Gpus, Plan


def check_plan(plan: object, now: int) -> None:
    """Check the form of a plan.

    Raises
    ------
    BrokenRuleError
        If it isn't one, or asks to be called again in the past.
    """
    if not isinstance(plan, Plan) or not isinstance(plan.gpus, Mapping):
        raise BrokenRuleError(f"it returns {type(plan).__name__}; return a Plan(gpus={{job: GPUs}})")
    if plan.again_us is not None and plan.again_us <= now:
        raise BrokenRuleError(f"it asks to be called again at {plan.again_us} us; ask for a time after now")


def check_leaving(books: Books, job: int, wanted: Mapping[int, Gpus]) -> None:
    """Check that a job may be sent away.

    Raises
    ------
    BrokenRuleError
        If it may not.
    """
    if not books.rules.may_refuse:
        _broken(books, job, "is sent away, which the policy's rules don't allow (may_refuse)")
    if not 0 <= job < len(books.is_active) or not books.is_active[job]:
        _broken(books, job, "is sent away, but isn't there")
    if job in wanted:
        _broken(books, job, "is sent away and planned to run")


def check_start(books: Books, job: int, gpus: Gpus, submitted: int) -> None:
    """Check that a job may take GPUs, those of the plan's earlier starts being taken.

    Raises
    ------
    BrokenRuleError
        If it may not; the text names job and rule.
    """
    site, rules, room = books.site, books.rules, books.free_room
    if not 0 <= job < submitted or not books.is_active[job]:
        _broken(books, job, "is planned to run, but isn't there (not submitted yet, or over)")
    least, most = int(books.jobs.gpus[job]), int(books.jobs.gpus[job])
    if rules.is_elastic:
        least, most = int(books.jobs.least_gpus[job]), int(books.jobs.most_gpus[job])
    if not least <= len(gpus) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        _broken(books, job, f"gets {len(gpus)} GPUs, but runs on {wanted}")
    if len(set(gpus)) < len(gpus):
        _broken(books, job, "gets a GPU twice")
    if gpus[0] < 0 or gpus[-1] >= len(books.holders):
        _broken(books, job, f"gets GPU {gpus[0] if gpus[0] < 0 else gpus[-1]}, which isn't there")
    for gpu in gpus:
        holders = books.holders[gpu]
        if rules.is_shared:
            if room.left_milli[gpu] < site.shares[job]:
                _broken(books, job, f"gets GPU {gpu}, of which only {room.left_milli[gpu] / WHOLE_MILLI:g} is left")
        elif len(holders) >= rules.jobs_a_gpu:
            _broken(books, job, f"gets GPU {gpu}, which job {books.jobs.ids[holders[0]][:40]} holds")
    machines = [site.machine_of[gpu] for gpu in gpus]
    if not books.is_up[machines].all():
        _broken(books, job, "gets a GPU of a machine that is down (view.is_up)")
    usable = site.usable(job)
    if usable is not None and not usable[machines].all():
        _broken(books, job, "gets a GPU of a type on which it can't run")
    if site.has_host:
        for machine in set(machines):
            if (room.host[:, machine] < site.asks[:, job] * machines.count(machine)).any():
                _broken(books, job, f"asks for more vCPU or memory than is left on machine {machine}")


def _broken(books: Books, job: int, rule: str) -> None:
    name = books.jobs.ids[job][:40] if 0 <= job < len(books.jobs) else job
    raise BrokenRuleError(f"job {name} {rule}")
