"""The packing programmes over an explicit set of schedules in Pyomo: (14)-(18) and the dual (19)-(21).

Every constraint is a named component, `one_schedule_17` for row (17), whose `doc` states it. Quantities
are in whole units of their resource, so that the dual's prices are utils a unit.

Stated in docs/mathematics/admission.md, (A.14) to (A.21), under the paper's numbers.

Notation: schedule l of job i is worth v_il and uses y^l, z^l; places h and k are single servers or whole
classes, as the schedules were listed. On shared servers every row is a worker row.
"""

from typing import Any

import pyomo.environ as pyo

from optim.models.admission.instance import MICRO, AdmissionInstance
from optim.models.admission.proof import Side
from optim.models.admission.schedules import Row, Schedule, ScheduleSet
from optim.models.formal import Model, add_rows


def packing_model(instance: AdmissionInstance, schedules: ScheduleSet, *, is_integer: bool = False) -> Model:
    """Build the packing programme (14)-(18): which schedule, if any, each job follows.

    Parameters
    ----------
    instance
        The instance.
    schedules
        Its schedules; with all of them the ILP's optimum is the best plan's value (on single servers).
    is_integer
        Whether (18) asks for whole choices (the ILP), or the LP relaxation is built.

    Returns
    -------
    pyomo.environ.ConcreteModel
        With variables `chosen` x_il, numbered by the position of the schedule in its set, and a suffix
        `dual` that a solver may fill; its attribute `schedules` holds the set.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (14)-(18).
    """
    model: Model = pyo.ConcreteModel(name=f"packing-{instance.name}")
    _add_sets(model, schedules)
    domain = pyo.Binary if is_integer else pyo.NonNegativeReals
    model.chosen = pyo.Var(model.SCHEDULES, domain=domain, doc="(18) x_il in {0, 1}; x_il >= 0 in the LP")
    model.total_value_14 = pyo.Objective(rule=total_value_14, sense=pyo.maximize, doc=total_value_14.__doc__)
    add_rows(model, worker_capacity_15, model.WORKER_ROWS)
    add_rows(model, ps_capacity_16, model.PS_ROWS)
    add_rows(model, one_schedule_17, model.JOBS)
    model.dual = pyo.Suffix(direction=pyo.Suffix.IMPORT)
    return model


def packing_dual(instance: AdmissionInstance, schedules: ScheduleSet) -> Model:
    """Build the dual (19)-(21) of the packing LP: prices of resources and payoffs of jobs.

    Parameters
    ----------
    instance, schedules
        As for `packing_model`.

    Returns
    -------
    pyomo.environ.ConcreteModel
        With variables `worker_price` p and `ps_price` q by (place, slot, resource), in utils a unit, and
        `payoff` mu by job.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (19)-(21).
    """
    model: Model = pyo.ConcreteModel(name=f"packing-dual-{instance.name}")
    _add_sets(model, schedules)
    model.worker_price = pyo.Var(model.WORKER_ROWS, domain=pyo.NonNegativeReals, doc="(21) p_h^r(t) >= 0")
    model.ps_price = pyo.Var(model.PS_ROWS, domain=pyo.NonNegativeReals, doc="(21) q_k^r(t) >= 0")
    model.payoff = pyo.Var(model.JOBS, domain=pyo.NonNegativeReals, doc="(21) mu_i >= 0")
    model.total_price_19 = pyo.Objective(rule=total_price_19, sense=pyo.minimize, doc=total_price_19.__doc__)
    add_rows(model, payoff_20, model.SCHEDULES)
    return model


def total_value_14(m: Model) -> Any:
    """(14) max sum_i sum_l v_il x_il."""
    return pyo.quicksum(schedule.value * m.chosen[l] for l, schedule in enumerate(m.schedules.schedules))


def worker_capacity_15(m: Model, h: int, t: int, r: int) -> Any:
    """(15) sum_i sum_l w_i^r y^l_ih(t) x_il <= c_h^r(t); on shared servers with s_i^r z^l_ih(t) added."""
    return _capacity(m, Row(Side.WORKER, h, t, r))


def ps_capacity_16(m: Model, k: int, t: int, r: int) -> Any:
    """(16) sum_i sum_l s_i^r z^l_ik(t) x_il <= c_k^r(t)."""
    return _capacity(m, Row(Side.PS, k, t, r))


def one_schedule_17(m: Model, i: int) -> Any:
    """(17) sum_l x_il <= 1."""
    return pyo.quicksum(m.chosen[l] for l in m.schedules.by_job[i]) <= 1


def total_price_19(m: Model) -> Any:
    """(19) min sum_i mu_i + sum_{t,h,r} p_h^r(t) c_h^r(t) + sum_{t,k,r} q_k^r(t) c_k^r(t)."""
    rows = m.schedules.capacity.items()
    spent = pyo.quicksum(capacity / MICRO * _price(m, row) for row, capacity in rows if row in m.used_rows)
    return spent + pyo.quicksum(m.payoff[i] for i in m.JOBS)


def payoff_20(m: Model, l: int) -> Any:
    """(20) mu_i >= v_il - sum_{t,h,r} p_h^r(t) w_i^r y^l_ih(t) - sum_{t,k,r} q_k^r(t) s_i^r z^l_ik(t)."""
    schedule: Schedule = m.schedules.schedules[l]
    cost = pyo.quicksum(amount / MICRO * _price(m, row) for row, amount in schedule.use.items())
    return m.payoff[schedule.job] + cost >= schedule.value


def _price(m: Model, row: Row) -> Any:
    price = m.worker_price if row.side is Side.WORKER else m.ps_price
    return price[row.place, row.slot, row.resource]


def _capacity(m: Model, row: Row) -> Any:
    use = pyo.quicksum(amount / MICRO * m.chosen[l] for l, amount in m.used_rows[row])
    return use <= m.schedules.capacity[row] / MICRO


def _add_sets(model: Model, schedules: ScheduleSet) -> None:
    """Add index sets; rows that no schedule uses are left out, their price is 0."""
    model.schedules = schedules
    model.used_rows = {}
    for l, schedule in enumerate(schedules.schedules):
        for row, amount in schedule.use.items():
            model.used_rows.setdefault(row, []).append((l, amount))
    rows = [row for row in schedules.capacity if row in model.used_rows]
    model.JOBS = pyo.Set(initialize=list(schedules.by_job), doc="jobs that have a schedule")
    model.SCHEDULES = pyo.Set(initialize=range(len(schedules.schedules)), doc="positions in the set")
    model.WORKER_ROWS = pyo.Set(
        initialize=[row[1:] for row in rows if row.side is Side.WORKER],
        dimen=3,
        doc="(place, slot, resource)",
    )
    model.PS_ROWS = pyo.Set(
        initialize=[row[1:] for row in rows if row.side is Side.PS], dimen=3, doc="(place, slot, resource)"
    )
