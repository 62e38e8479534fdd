"""The compact programme (1)-(13) of the admission problem in Pyomo, on single real servers.

Stated in docs/mathematics/admission.md, (A.1) to (A.13), under the paper's numbers.
"""

from itertools import pairwise
from typing import Any

import pyomo.environ as pyo

from optim.models.admission import compact_rows as rows
from optim.models.admission.compact_index import CompactIndex
from optim.models.admission.instance import AdmissionInstance, IntArray, ServerClasses
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.trimming import Counts, trimmed_plan
from optim.models.formal import Model, add_rows


def compact_model(instance: AdmissionInstance, *, symmetry_breaking: bool = False) -> Model:
    """Build the compact mixed-integer programme of an instance.

    Its optimum is the best plan's value: the rows state what a plan is, with the completion slot (8)
    linearised by binaries u. Jobs that could not complete in time even alone have no variables, and u
    exists only in slots where completion earns something and the empty cluster could have done the work.

    Parameters
    ----------
    instance
        Any admission instance; demand segments, capacities by slot, whole chunks, shared servers and
        caps on a job's share of one server included.
    symmetry_breaking
        Order the servers of a class by the number of units that they hold in each slot. They are equal
        in each slot and moving between slots is free, so no plan's value is lost.

    Returns
    -------
    pyomo.environ.ConcreteModel
        Each constraint is a component named after its row, `work_2` for (2), and states it in its `doc`.
        Variables: `admitted` x, `completes` u, `workers` y, `ps` z, and where the instance asks for them
        `in_segment` g and `step` c. The index sets are in its attribute `data`.

    Notes
    -----
    u may point later than the last slot with workers, which is never profitable since utilities don't
    increase; `plan_from_compact` recomputes the completion from y.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (1)-(13).
    """
    model: Model = pyo.ConcreteModel(name=f"compact-{instance.name}")
    model.data = CompactIndex.of(instance)
    _add_variables(model)
    _add_expressions(model)
    model.total_utility_1 = pyo.Objective(
        rule=rows.total_utility_1, sense=pyo.maximize, doc=rows.total_utility_1.__doc__
    )
    add_rows(model, rows.work_2, model.JOBS)
    add_rows(model, rows.max_workers_3, model.RUNS)
    _add_capacities(model)
    add_rows(model, rows.bandwidth_6, model.RUNS)
    add_rows(model, rows.fewer_ps_than_workers_7, model.RUNS)
    add_rows(model, rows.completion_8, model.JOBS)
    add_rows(model, rows.worker_place_8, model.WORKER_PLACES)
    add_rows(model, rows.ps_place_8, model.PS_PLACES)
    if model.data.segments:
        add_rows(model, rows.one_segment, model.RUNS)
        add_rows(model, rows.segment_begun, model.SEGMENTS)
        add_rows(model, rows.segment_not_passed, model.SEGMENTS)
    if instance.has_steps:
        add_rows(model, rows.whole_step, model.RUNS)
        add_rows(model, rows.one_step, model.RUNS)
    if symmetry_breaking:
        _add_order(model)
    return model


def plan_from_compact(model: Model, instance: AdmissionInstance) -> AdmissionPlan:
    """Return the plan at the present values of a model's variables.

    Counts are rounded, superfluous workers and PSs dropped, and completion slots follow from what is
    left; every row is checked in integers, and a job that breaks one is dropped (see `trimmed_plan`).

    Parameters
    ----------
    model
        A model of `compact_model`; variables without a value count as 0.
    instance
        The instance that it was built from.
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

    (9)-(13): x and u are binary, y and z whole and not negative, and there are none before arrival.
    """
    data: CompactIndex = model.data
    model.JOBS = pyo.Set(initialize=list(data.windows), doc="jobs that can complete in time alone")
    model.RUNS = pyo.Set(initialize=data.runs, dimen=2, doc="(job, slot) from arrival on")
    model.COMPLETIONS = pyo.Set(initialize=data.completions, dimen=2, doc="(job, slot) worth completing in")
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
        add_rows(model, rows.worker_capacity_4, list(model.data.workers_on), resources)
        add_rows(model, rows.ps_capacity_5, list(model.data.ps_on), resources)
        return
    places = list(dict.fromkeys([*model.data.workers_on, *model.data.ps_on]))
    add_rows(model, rows.server_capacity_4_5, places, resources)
    if instance.max_share_per_server is not None:
        add_rows(model, rows.share_of_server, model.WORKER_PLACES, resources)
        add_rows(model, rows.alone_on_server, model.WORKER_PLACES)


def _add_order(model: Model) -> None:
    """Order equal servers by their workers in each slot; hosts of PSs alone by their PSs."""
    instance: AdmissionInstance = model.data.instance
    add_rows(model, rows.ordered_workers, _equal_neighbours(instance.worker_servers), range(instance.horizon))
    if not instance.has_shared_servers:
        add_rows(model, rows.ordered_ps, _equal_neighbours(instance.ps_servers), range(instance.horizon))


def _equal_neighbours(servers: ServerClasses) -> list[int]:
    """Return the servers whose next one is of the same class."""
    classes: IntArray = servers.class_of_server
    return [h for h, (c, following) in enumerate(pairwise(classes.tolist())) if c == following]
