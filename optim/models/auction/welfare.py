"""Winner determination as a mixed-integer programme in Pyomo.

The objective is the log welfare relative to the empty allocation: ``max sum_b w_b z_b``, where z_b is 1 if row b, of
weight w_b, is awarded. Every bid is placed GPU by GPU.

References
----------
Mahajan et al., NSDI 2020, section 5 (winner determination).
"""

from typing import Any

from optim.models.auction.data import Locality
from optim.models.auction.instance import AuctionInstance
from optim.models.programmes import Model, add_rows
from optim.models.pyomo import pyo


def explicit_model(instance: AuctionInstance) -> Model:
    """Build the programme that places every bid on slots.

    Returns
    -------
    pyomo.environ.ConcreteModel
        Variables: binary ``award`` z_b, integer ``gpus`` x_bs of row b on slot s and, for a row b that must lie in
        one slot, machine or rack, binary ``place`` u_bp: whether it lies in p.
    """
    model: Model = pyo.ConcreteModel(name=f"auction-{instance.name}")
    cluster, bids = instance.cluster, instance.bids
    free = cluster.slot_free.tolist()
    groups = {
        int(Locality.SLOT): list(range(len(free))),
        int(Locality.MACHINE): cluster.slot_machine.tolist(),
        int(Locality.RACK): cluster.slot_rack.tolist(),
    }
    model.instance = instance
    model.group_of_slot = {b: groups[level] for b, level in enumerate(bids.locality.tolist()) if level in groups}
    model.named_gpus = {
        (int(b), int(m)): int(g) for b, m, g in zip(bids.named_row, bids.named_machine, bids.named_gpus, strict=True)
    }
    add_awards(model, instance, is_integer=True)
    model.SLOTS = pyo.Set(initialize=[s for s, f in enumerate(free) if f])
    model.gpus = pyo.Var(model.ROWS, model.SLOTS, domain=pyo.NonNegativeIntegers, doc="x_bs: GPUs of row b on slot s")
    placed = [(b, p) for b, group in model.group_of_slot.items() for p in sorted(set(group))]
    model.PLACES = pyo.Set(initialize=placed, dimen=2)
    model.place = pyo.Var(model.PLACES, domain=pyo.Binary, doc="u_bp: whether row b lies in place p")
    add_rows(model, one_bid, model.APPS)
    add_rows(model, bundle, model.ROWS)
    add_rows(model, capacity, model.SLOTS)
    add_rows(model, one_place, model.ROWS)
    add_rows(model, inside, model.ROWS, model.SLOTS)
    add_rows(model, named, sorted({b for b, _ in model.named_gpus}), range(cluster.num_machines))
    return model


def add_awards(model: Model, instance: AuctionInstance, *, is_integer: bool) -> None:
    """Add the award variables and the objective."""
    model.ROWS = pyo.Set(initialize=range(len(instance.bids)))
    model.APPS = pyo.Set(initialize=range(instance.num_apps))
    domain = pyo.Binary if is_integer else pyo.NonNegativeReals
    model.award = pyo.Var(model.ROWS, domain=domain, doc="z_b: whether row b is awarded")
    total_weight = pyo.quicksum(float(instance.weight[b]) * model.award[b] for b in model.ROWS)
    model.welfare = pyo.Objective(expr=total_weight, sense=pyo.maximize)


def one_bid(m: Model, i: int) -> Any:
    """Require sum_b z_b <= 1 over an app's rows: at most one is awarded, otherwise the app has its empty row."""
    rows = range(int(m.instance.row_offset[i]), int(m.instance.row_offset[i + 1]))
    return pyo.quicksum(m.award[b] for b in rows) <= 1 if rows else pyo.Constraint.Skip


def bundle(m: Model, b: int) -> Any:
    """Require sum_s x_bs = k_b z_b: an awarded row gets its number of GPUs."""
    return pyo.quicksum(m.gpus[b, s] for s in m.SLOTS) == int(m.instance.bids.gpus[b]) * m.award[b]


def capacity(m: Model, s: int) -> Any:
    """Require sum_b x_bs <= free GPUs of slot s: the awarded rows use only free GPUs."""
    return pyo.quicksum(m.gpus[b, s] for b in m.ROWS) <= int(m.instance.cluster.slot_free[s])


def one_place(m: Model, b: int) -> Any:
    """Require sum_p u_bp = z_b: an awarded row lies in exactly one slot, machine or rack p, by its locality."""
    if b not in m.group_of_slot:
        return pyo.Constraint.Skip
    return pyo.quicksum(m.place[b, p] for p in sorted(set(m.group_of_slot[b]))) == m.award[b]


def inside(m: Model, b: int, s: int) -> Any:
    """Require x_bs <= min(k_b, free_s) u_b,p(s): a row uses slot s only if it lies in the p that contains s.

    Here k_b is the row's number of GPUs. Rows that name machines are restricted by `named` instead.
    """
    if b not in m.group_of_slot:
        return pyo.Constraint.Skip
    most = min(int(m.instance.bids.gpus[b]), int(m.instance.cluster.slot_free[s]))
    return m.gpus[b, s] <= most * m.place[b, m.group_of_slot[b][s]]


def named(m: Model, b: int, machine: int) -> Any:
    """Require sum_{s in m} x_bs = g_bm z_b: an awarded row gets the GPUs that it names on machine m."""
    mine = [s for s in m.SLOTS if m.instance.cluster.slot_machine[s] == machine]
    need = m.named_gpus.get((b, machine), 0)
    if not mine:
        return m.award[b] == 0 if need else pyo.Constraint.Skip
    return pyo.quicksum(m.gpus[b, s] for s in mine) == need * m.award[b]
