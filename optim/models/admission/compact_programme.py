"""The compact programme (1)-(13) of the admission problem in Pyomo: variables, rows, model.

Row (n) has the paper's number and is (A.n) in docs/mathematics/admission.md.

Notation: job i, segment s of its demands (0 if a job has one segment), which starts at progress d_is, worker
server h, PS host k, slot t. ``u_i(t) = 1`` if t is the completion slot of job i. Each rule is a function of the
model and the indices; it returns one constraint.

Rows of resources are divided by the greatest common divisor of their demands, and their right-hand sides are
rounded down. Coefficients are then small integers, so that a solver's tolerance cannot admit a plan that
violates a row in exact arithmetic.
"""

import math
from collections.abc import Iterable
from typing import Any

from optim.models.admission.compact_index import CompactIndex
from optim.models.admission.decision import AdmissionPlan, Counts, trimmed_plan
from optim.models.admission.instance import AdmissionInstance
from optim.models.programmes import Model, add_rows
from optim.models.pyomo import pyo


def total_utility_1(m: Model) -> Any:
    """(1) max sum_i sum_t f_i(t - a_i) u_i(t): maximise the total utility of the completions."""
    value = m.data.instance.value
    return pyo.quicksum(float(value[i, t]) * m.completes[i, t] for i, t in m.COMPLETIONS)


def work_2(m: Model, i: int) -> Any:
    """(2) sum_t sum_h y_ih(t) >= W_i x_i: an admitted job gets its work in worker-slots.

    With integral chunks: sum_t chunks done in t >= E_i N_i x_i.
    With speed-ups: sum_t p_i(sum_h y_ih(t)) >= ceil(20 E_i N_i M_i kappa_i) x_i.
    """
    target = int(m.data.instance.target[i])
    return pyo.quicksum(m.progress[i, t] for t in m.data.windows[i].slots) >= target * m.admitted[i]


def max_workers_3(m: Model, i: int, t: int) -> Any:
    """(3) sum_h y_ih(t) <= N_i sum_{t' >= t} u_i(t'): at most N_i workers, none after completion."""
    return m.workers_in_slot[i, t] <= int(m.data.instance.max_workers[i]) * m.runs_on[i, t]


def worker_capacity_4(m: Model, h: int, t: int, r: int) -> Any:
    """(4) sum_i w_i^r y_ih(t) <= c_h^r(t): the workers on a server fit its capacity."""
    return _capacity(m.data.instance.worker_servers, _worker_use(m, h, t, r), (h, t, r))


def ps_capacity_5(m: Model, k: int, t: int, r: int) -> Any:
    """(5) sum_i s_i^r z_ik(t) <= c_k^r(t): the PSs on a server fit its capacity."""
    return _capacity(m.data.instance.ps_servers, _ps_use(m, k, t, r), (k, t, r))


def server_capacity_4_5(m: Model, h: int, t: int, r: int) -> Any:
    """(4)+(5) sum_i (w_i^r y_ih(t) + s_i^r z_ih(t)) <= c_h^r(t): all units on a shared server fit its capacity."""
    use = _worker_use(m, h, t, r) + _ps_use(m, h, t, r)
    return _capacity(m.data.instance.worker_servers, use, (h, t, r))


def bandwidth_6(m: Model, i: int, t: int) -> Any:
    """(6) b_i sum_h y_ih(t) <= B_i sum_k z_ik(t): a job's PSs have at least the bandwidth of its workers."""
    jobs = m.data.instance.jobs
    worker, ps = int(jobs.worker_micro_mbps[i]), int(jobs.ps_micro_mbps[i])
    common = math.gcd(worker, ps)
    return worker // common * m.workers_in_slot[i, t] <= ps // common * m.ps_in_slot[i, t]


def fewer_ps_than_workers_7(m: Model, i: int, t: int) -> Any:
    """(7) sum_k z_ik(t) <= sum_h y_ih(t): a job has at most as many PSs as workers."""
    return m.ps_in_slot[i, t] <= m.workers_in_slot[i, t]


def completion_8(m: Model, i: int) -> Any:
    """(8) x_i = sum_t u_i(t): an admitted job has one completion slot."""
    return m.admitted[i] == pyo.quicksum(m.completes[i, t] for t in m.data.windows[i].completions)


def worker_place_8(m: Model, i: int, s: int, h: int, t: int) -> Any:
    """(8) y_ih(t) <= n_ih(t) sum_{t' >= t} u_i(t'): no workers after completion.

    With demand segments g_is(t) replaces the sum.
    """
    return m.workers[i, s, h, t] <= m.data.workers[i, s, h, t] * _is_on(m, i, s, t)


def ps_place_8(m: Model, i: int, s: int, k: int, t: int) -> Any:
    """(8) z_ik(t) <= m_ik(t) sum_{t' >= t} u_i(t'): no PSs after completion.

    With demand segments g_is(t) replaces the sum.
    """
    return m.ps[i, s, k, t] <= m.data.ps[i, s, k, t] * _is_on(m, i, s, t)


def one_segment(m: Model, i: int, t: int) -> Any:
    """Select at most one segment in each slot, none after completion: sum_s g_is(t) <= sum_{t' >= t} u_i(t')."""
    numbers = m.data.segments_of.get((i, t))
    if numbers is None:
        return pyo.Constraint.Skip
    return pyo.quicksum(m.in_segment[i, s, t] for s in numbers) <= m.runs_on[i, t]


def segment_begun(m: Model, i: int, s: int, t: int) -> Any:
    """Allow a segment only once its start is reached: progress before slot t >= d_is g_is(t)."""
    start = m.data.segment_start(i, s)
    return m.progress_before[i, t] >= start * m.in_segment[i, s, t] if start else pyo.Constraint.Skip


def segment_not_passed(m: Model, i: int, s: int, t: int) -> Any:
    """Allow a segment only before the start of the next: progress before slot t <= d_i,s+1 - 1 where g_is(t) = 1."""
    window = m.data.windows[i]
    most = int(window.max_progress[t - window.slots.start])
    is_last = s + 1 == len(window.segments)
    end = most if is_last else m.data.segment_start(i, s + 1) - 1
    if end >= most:
        return pyo.Constraint.Skip
    return m.progress_before[i, t] <= most - (most - end) * m.in_segment[i, s, t]


def whole_step(m: Model, i: int, t: int) -> Any:
    """Let the number of workers be the selected step of the progress table: sum_h y_ih(t) = sum_Y Y c_iY(t)."""
    steps = m.data.steps[i, t]
    return m.workers_in_slot[i, t] == pyo.quicksum(count * m.step[i, t, count] for count in steps)


def one_step(m: Model, i: int, t: int) -> Any:
    """Select at most one step in each slot, none after completion: sum_Y c_iY(t) <= sum_{t' >= t} u_i(t')."""
    steps = m.data.steps[i, t]
    return pyo.quicksum(m.step[i, t, count] for count in steps) <= m.runs_on[i, t]


def share_of_server(m: Model, i: int, s: int, h: int, t: int, r: int) -> Any:
    """Cap a job's share of a shared server: w_i^r y_ih(t) + s_i^r z_ih(t) <= eps c_h^r(t)."""
    place = (i, s, h, t)
    if place not in m.data.ps or m.data.exceeds_share_alone(place):
        return pyo.Constraint.Skip
    worker, ps = m.data.demand(i, s, r)
    return _whole(((worker, m.workers[place]), (ps, m.ps[place])), m.data.share_of(h, t, r))


def alone_on_server(m: Model, i: int, s: int, h: int, t: int) -> Any:
    """Let a unit that exceeds the share run only without other units: y_ih(t) / n_ih(t) + z_ih(t) / m_ih(t) <= 1.

    If a single worker exceeds the share then n = 1, and the feasible pairs are (1, 0) and (0, z); likewise
    for PSs. The integer points of the row are exactly these pairs.
    """
    place = (i, s, h, t)
    if place not in m.data.ps or not m.data.exceeds_share_alone(place):
        return pyo.Constraint.Skip
    most, max_ps = m.data.workers[place], m.data.ps[place]
    return max_ps * m.workers[place] + most * m.ps[place] <= most * max_ps


def _is_on(m: Model, i: int, s: int, t: int) -> Any:
    """Return an expression that is 1 if the job may use demand segment s in slot t, else 0."""
    return m.in_segment[i, s, t] if len(m.data.windows[i].segments) > 1 else m.runs_on[i, t]


def _worker_use(m: Model, h: int, t: int, r: int) -> list[tuple[int, Any]]:
    places = m.data.workers_on.get((h, t), [])
    return [(m.data.demand(place[0], place[1], r)[0], m.workers[place]) for place in places]


def _ps_use(m: Model, k: int, t: int, r: int) -> list[tuple[int, Any]]:
    places = m.data.ps_on.get((k, t), [])
    return [(m.data.demand(place[0], place[1], r)[1], m.ps[place]) for place in places]


def _capacity(servers: Any, use: list[tuple[int, Any]], row: tuple[int, int, int]) -> Any:
    server, t, r = row
    return _whole(use, int(servers.capacity[servers.class_of_server[server], t, r]))


def _whole(terms: Iterable[tuple[int, Any]], limit: int) -> Any:
    """Return ``sum of quantity * variable <= limit`` divided by the quantities' common divisor."""
    used = [(quantity, variable) for quantity, variable in terms if quantity]
    if not used:
        return pyo.Constraint.Skip
    common = math.gcd(*(quantity for quantity, _ in used))
    return pyo.quicksum(quantity // common * variable for quantity, variable in used) <= limit // common


def compact_model(instance: AdmissionInstance) -> Model:
    """Build the compact mixed-integer programme of an instance.

    The programme's optimum is the value of the best plan. Binaries u linearise the completion slot of row (8). Jobs that
    could not complete in time even alone have no variables. The variable u_i(t) exists only if completion in
    slot t has a positive value and the empty cluster could do the work by then.

    Parameters
    ----------
    instance
        Any admission instance, also with demand segments, capacities by slot, integral chunks, shared servers
        and caps on a job's share of one server.

    Returns
    -------
    pyomo.environ.ConcreteModel
        Each constraint is a component named after its row (`work_2` for (2)) with the formula in its `doc`.
        Variables: `admitted` x, `completes` u, `workers` y, `ps` z, and if the instance needs them
        `in_segment` g and `step` c. The attribute `data` holds the index sets.

    Notes
    -----
    u may select a slot after the last slot with workers. This never raises the objective, since utilities do
    not increase with the delay. `plan_from_compact` recomputes the completion from y.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (1)-(13).
    """
    model: Model = pyo.ConcreteModel(name=f"compact-{instance.name}")
    model.data = CompactIndex.of(instance)
    _add_variables(model)
    _add_expressions(model)
    model.total_utility_1 = pyo.Objective(rule=total_utility_1, sense=pyo.maximize, doc=total_utility_1.__doc__)
    add_rows(model, work_2, model.JOBS)
    add_rows(model, max_workers_3, model.RUNS)
    _add_capacities(model)
    add_rows(model, bandwidth_6, model.RUNS)
    add_rows(model, fewer_ps_than_workers_7, model.RUNS)
    add_rows(model, completion_8, model.JOBS)
    add_rows(model, worker_place_8, model.WORKER_PLACES)
    add_rows(model, ps_place_8, model.PS_PLACES)
    if model.data.segments:
        add_rows(model, one_segment, model.RUNS)
        add_rows(model, segment_begun, model.SEGMENTS)
        add_rows(model, segment_not_passed, model.SEGMENTS)
    if instance.has_steps:
        add_rows(model, whole_step, model.RUNS)
        add_rows(model, one_step, model.RUNS)
    return model


def plan_from_compact(model: Model, instance: AdmissionInstance) -> AdmissionPlan:
    """Return the plan of the current values of a model's variables.

    Counts are rounded, and superfluous workers and PSs are dropped. Completion slots follow from the
    remaining workers. Every row is checked in integers, and a job that violates a row is dropped (see
    `trimmed_plan`).

    Parameters
    ----------
    model
        A model built by `compact_model`; variables without a value count as 0.
    instance
        The instance of the model.
    """
    return trimmed_plan(instance, workers=_rounded(model.workers), ps=_rounded(model.ps))


def _rounded(variables: Any) -> Counts:
    """Return the rounded values by (job, slot, server)."""
    counts: Counts = {}
    for (i, _, server, t), value in variables.extract_values().items():
        number = 0 if value is None else round(value)
        if number > 0:
            counts[i, t, server] = counts.get((i, t, server), 0) + number
    return counts


def _add_variables(model: Model) -> None:
    """Add index sets and variables.

    (9)-(13): x and u are binary, y and z are non-negative integers, and no variables exist before arrival.
    """
    data: CompactIndex = model.data
    model.JOBS = pyo.Set(initialize=list(data.windows), doc="jobs that can complete in time alone")
    model.RUNS = pyo.Set(initialize=data.runs, dimen=2, doc="(job, slot) from arrival on")
    model.COMPLETIONS = pyo.Set(initialize=data.completions, dimen=2, doc="(job, slot) in which completion has a value")
    model.WORKER_PLACES = pyo.Set(initialize=list(data.workers), dimen=4, doc="(job, segment, server, slot)")
    model.PS_PLACES = pyo.Set(initialize=list(data.ps), dimen=4, doc="(job, segment, server, slot)")
    model.admitted = pyo.Var(model.JOBS, domain=pyo.Binary, doc="x_i")
    model.completes = pyo.Var(model.COMPLETIONS, domain=pyo.Binary, doc="u_i(t)")
    model.workers = pyo.Var(
        model.WORKER_PLACES,
        domain=pyo.NonNegativeIntegers,
        bounds=lambda m, *place: (0, data.workers[place]),
        doc="y_ih(t), by demand segment",
    )
    model.ps = pyo.Var(
        model.PS_PLACES,
        domain=pyo.NonNegativeIntegers,
        bounds=lambda m, *place: (0, data.ps[place]),
        doc="z_ik(t), by demand segment",
    )
    if data.segments:
        model.SEGMENTS = pyo.Set(initialize=data.segments, dimen=3, doc="(job, segment, slot)")
        model.in_segment = pyo.Var(model.SEGMENTS, domain=pyo.Binary, doc="g_is(t): slot t starts in segment s")
    if data.instance.has_steps:
        steps = [(i, t, count) for (i, t), counts in data.steps.items() for count in counts]
        model.STEPS = pyo.Set(initialize=steps, dimen=3, doc="(job, slot, workers)")
        model.step = pyo.Var(model.STEPS, domain=pyo.Binary, doc="c_iY(t): Y workers run in slot t")


def _add_expressions(model: Model) -> None:
    """Add the sums that several rows share."""
    data: CompactIndex = model.data

    def workers_in_slot(m: Model, i: int, t: int) -> Any:
        return pyo.quicksum(m.workers[place] for place in data.workers_of.get((i, t), ()))

    def ps_in_slot(m: Model, i: int, t: int) -> Any:
        return pyo.quicksum(m.ps[place] for place in data.ps_of.get((i, t), ()))

    def runs_on(m: Model, i: int, t: int) -> Any:
        return pyo.quicksum(m.completes[i, later] for later in data.windows[i].completions if later >= t)

    def progress(m: Model, i: int, t: int) -> Any:
        if not data.instance.has_steps:
            return m.workers_in_slot[i, t]
        return pyo.quicksum(data.gain(i, count) * m.step[i, t, count] for count in data.steps[i, t])

    def progress_before(m: Model, i: int, t: int) -> Any:
        return pyo.quicksum(m.progress[i, earlier] for earlier in data.windows[i].slots if earlier < t)

    model.workers_in_slot = pyo.Expression(model.RUNS, rule=workers_in_slot, doc="sum_h y_ih(t)")
    model.ps_in_slot = pyo.Expression(model.RUNS, rule=ps_in_slot, doc="sum_k z_ik(t)")
    model.runs_on = pyo.Expression(model.RUNS, rule=runs_on, doc="sum_{t' >= t} u_i(t')")
    model.progress = pyo.Expression(model.RUNS, rule=progress, doc="progress made in slot t")
    if data.segments:
        model.progress_before = pyo.Expression(
            list(data.segments_of), rule=progress_before, doc="progress before slot t"
        )


def _add_capacities(model: Model) -> None:
    """Add rows (4) and (5); on shared servers their sum, with the cap on a job's share of one server."""
    instance: AdmissionInstance = model.data.instance
    resources = range(instance.num_resources)
    if not instance.has_shared_servers:
        add_rows(model, worker_capacity_4, list(model.data.workers_on), resources)
        add_rows(model, ps_capacity_5, list(model.data.ps_on), resources)
        return
    places = list(dict.fromkeys([*model.data.workers_on, *model.data.ps_on]))
    add_rows(model, server_capacity_4_5, places, resources)
    if instance.max_share_per_server is not None:
        add_rows(model, share_of_server, model.WORKER_PLACES, resources)
        add_rows(model, alone_on_server, model.WORKER_PLACES)
