"""The cost-per-work programme in Pyomo: the parametric MILP of Dinkelbach's method and its Charnes-Cooper relaxation.

Both forms linearise a fractional programme. The first is ``min cost - q work`` for a given q. The second scales all
variables by ``tau = 1 / work``, so that the ratio is linear. The scalability curve is replaced by tangents,
which makes the work a little too large; a curve of points needs no tangents and is exact.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import BoolArray, FloatArray
from optim.core.errors import UnsupportedProblemError
from optim.models.bidding.data import CurveKind, EvictionTerm, HourOutlook, Scalability
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.prices import HOUR_S
from optim.models.programmes import Model
from optim.models.pyomo import pyo

PIECES = 48
"""Number of tangents of a smooth curve; they exceed Amdahl's law by less than a thousandth."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Data:
    """An instance by cells; a cell is a slot of a scenario, or the hour in the one-hour form.

    `weight` is the probability of each cell's scenario, `hours` the length of a cell, `rate` the rate of an instance of
    each bid in each cell, `pieces` the lines above the scalability curve, and `most` the largest useful rate.
    """

    weight: FloatArray
    hours: float
    rate: FloatArray
    eviction_mask: BoolArray
    is_first: BoolArray
    pieces: tuple[tuple[float, float], ...]
    most: float
    loss_h: float


def supports_programme(instance: BiddingInstance) -> str | None:
    """Return why an instance has no linear form, None if it has one."""
    outlook = instance.outlook
    if instance.survival is not None:
        return "the survival probability is not a linear function of the counts; use the solver dinkelbach"
    if isinstance(outlook, HourOutlook) and outlook.term is not EvictionTerm.PER_BID and instance.eviction_loss_h > 0:
        return (
            f"with eviction_term {outlook.term.value!r} the one-hour form has products of probabilities; use scenarios"
        )
    if isinstance(outlook, HourOutlook) and instance.change_loss_h > 0 and not instance.bids.is_new.all():
        return "in the one-hour form, a loss by changes of the footprint requires that all bids are new; use scenarios"
    return None


def parametric_model(instance: BiddingInstance, ratio: float, *, pieces: int = PIECES) -> Model:
    """Build the mixed-integer programme ``min cost - ratio * work``.

    Parameters
    ----------
    instance
        An instance for which `supports_programme` returns None.
    ratio
        q, in dollars per unit of work.
    pieces
        Number of tangents of a smooth curve.

    Returns
    -------
    pyomo.environ.ConcreteModel
        Variables by bid: `count` k, and `taken` z (whether k > 0). By cell: the useful rate `useful` y; `evicted` epsilon
        (whether a taken bid is evicted) and the rate lost by it, `lost` p; the rate delayed by a change, `delayed` r.
        One variable: `changed` u (whether a new instance is taken).

    Raises
    ------
    UnsupportedProblemError
        If the instance has no linear form.
    """
    data = _data(instance, pieces)
    model = pyo.ConcreteModel(name=f"parametric-{instance.name}")
    model.scale = 1.0
    _add_variables(model, instance, data, is_integer=True)
    _add_rows(model, instance, data)
    if instance.min_work > 0:
        model.least_work = pyo.Constraint(expr=model.work >= instance.min_work, doc="enough work is done")
    model.objective = pyo.Objective(expr=model.cost - ratio * model.work, sense=pyo.minimize)
    return model


def charnes_cooper_model(instance: BiddingInstance, *, pieces: int = PIECES) -> Model:
    """Build the Charnes-Cooper form of the continuous relaxation: its optimum bounds the cost per work from below.

    Parameters
    ----------
    instance, pieces
        As in `parametric_model`.

    Returns
    -------
    pyomo.environ.ConcreteModel
        A linear programme; every variable is multiplied by `scale`, tau.

    References
    ----------
    Charnes, Cooper, "Programming with Linear Fractional Functionals", Naval Research Logistics Quarterly 9 (1962),
    DOI 10.1002/nav.3800090303.
    """
    data = _data(instance, pieces)
    model = pyo.ConcreteModel(name=f"charnes-cooper-{instance.name}")
    model.scale = pyo.Var(bounds=(0, 1.0 / instance.min_work if instance.min_work > 0 else None))
    _add_variables(model, instance, data, is_integer=False)
    _add_rows(model, instance, data)
    model.unit_work = pyo.Constraint(expr=model.work == 1.0, doc="work is scaled to 1")
    model.objective = pyo.Objective(expr=model.cost, sense=pyo.minimize)
    return model


def tangents(curve: Scalability, max_rate: float, pieces: int) -> tuple[tuple[float, float], ...]:
    """Return slopes and intercepts of lines above a curve: its linear pieces, or tangents at geometrically spaced rates."""
    if curve.kind is CurveKind.LINEAR:
        return ((1.0, 0.0),)
    if curve.kind is CurveKind.POINTS:
        rates = np.array([0.0, *(v for v, _ in curve.points)])
    else:
        rates = np.concatenate([[0.0], np.geomspace(max(max_rate, 1e-6) / 200, max(max_rate, 1e-6), pieces)])
        rates = np.minimum(rates, curve.peak)
    slopes = curve.slope(rates)
    heights = curve.value(rates)
    return tuple(dict.fromkeys(zip(slopes.tolist(), (heights - slopes * rates).tolist(), strict=True)))


def _data(instance: BiddingInstance, pieces: int) -> _Data:
    reason = supports_programme(instance)
    if reason is not None:
        raise UnsupportedProblemError(f"instance {instance.name!r} has no linear programme: {reason}")
    outlook, bids, size = instance.outlook, instance.bids, instance.num_bids
    if isinstance(outlook, HourOutlook):
        lost = instance.eviction_loss_h * outlook.evicted + instance.change_loss_h
        rate = (bids.rate * np.maximum(0.0, outlook.usable_h - lost))[:, None]
        cells: dict[str, Any] = {
            "weight": np.ones(1),
            "hours": 1.0,
            "rate": rate,
            "eviction_mask": np.zeros((size, 1), dtype=bool),
            "is_first": np.zeros(1, dtype=bool),
            "loss_h": 0.0,
        }
    else:
        rate = outlook.alive.reshape(size, -1) * bids.rate[:, None]
        cells = {
            "weight": np.repeat(outlook.weight, outlook.num_slots),
            "hours": outlook.slot_s / HOUR_S,
            "rate": rate,
            "eviction_mask": outlook.eviction_mask.reshape(size, -1),
            "is_first": np.tile(np.arange(outlook.num_slots) == 0, outlook.num_scenarios),
            "loss_h": instance.eviction_loss_h,
        }
    max_rate = instance.fixed_rate + float((bids.rate * bids.max_count).sum())
    lines = tangents(instance.scalability, max_rate, pieces)
    most = float(instance.scalability.value(np.array(max_rate)))
    return _Data(pieces=lines, most=most, **cells)


def _add_variables(model: Model, instance: BiddingInstance, data: _Data, *, is_integer: bool) -> None:
    bids = range(instance.num_bids)
    cells = range(len(data.weight))
    count_domain, binary = (pyo.NonNegativeIntegers, pyo.Binary) if is_integer else (pyo.NonNegativeReals,) * 2
    open_cells = [c for c in cells if data.loss_h > 0 and data.eviction_mask[:, c].any()]
    first = [c for c in cells if data.is_first[c] and instance.change_loss_h > 0]
    model.BIDS, model.CELLS = pyo.Set(initialize=bids), pyo.Set(initialize=cells)
    model.OPEN, model.FIRST = pyo.Set(initialize=open_cells), pyo.Set(initialize=first)
    upper = (lambda model, j: (0, int(instance.bids.max_count[j]))) if is_integer else (lambda model, j: (0, None))
    model.count = pyo.Var(model.BIDS, domain=count_domain, bounds=upper)
    model.taken = pyo.Var(model.BIDS, domain=binary)
    model.useful = pyo.Var(model.CELLS, domain=pyo.NonNegativeReals)
    model.evicted = pyo.Var(model.OPEN, domain=pyo.NonNegativeReals)
    model.lost = pyo.Var(model.OPEN, domain=pyo.NonNegativeReals)
    model.changed = pyo.Var(domain=pyo.NonNegativeReals)
    model.delayed = pyo.Var(model.FIRST, domain=pyo.NonNegativeReals)


def _add_rows(model: Model, instance: BiddingInstance, data: _Data) -> None:
    """Add cost, work and the rows; `model.scale` replaces the constant 1 of the parametric programme."""
    tau, most = model.scale, data.most
    cost, weight = instance.unit_cost, data.weight
    model.cost = pyo.Expression(
        expr=instance.fixed_usd * tau + sum(float(cost[j]) * model.count[j] for j in model.BIDS)
    )
    model.work = pyo.Expression(
        expr=sum(float(weight[c]) * data.hours * model.useful[c] for c in model.CELLS)
        - data.loss_h * sum(float(weight[c]) * model.lost[c] for c in model.OPEN)
        - instance.change_loss_h * sum(float(weight[c]) * model.delayed[c] for c in model.FIRST)
    )
    model.bounded = pyo.Constraint(
        model.BIDS, rule=lambda m, j: m.count[j] <= int(instance.bids.max_count[j]) * m.taken[j], doc="k <= K z"
    )
    model.once = pyo.Constraint(model.BIDS, rule=lambda m, j: m.taken[j] <= tau, doc="z <= 1")
    caps = instance.caps
    model.cap = pyo.Constraint(
        range(len(caps.names) if instance.num_bids else 0),
        rule=lambda m, r: (
            pyo.quicksum(float(caps.weight[r, j]) * m.count[j] for j in m.BIDS) <= float(caps.limit[r]) * tau
        ),
        doc="joint limits",
    )
    if instance.one_bid_per_market:
        market = instance.bids.market
        model.one_bid = pyo.Constraint(
            sorted({int(m) for m in market}),
            rule=lambda m, i: pyo.quicksum(m.taken[j] for j in m.BIDS if market[j] == i) <= tau,
            doc="one bid per market",
        )
    model.rate = pyo.Expression(
        model.CELLS,
        rule=lambda m, c: (
            instance.fixed_rate * tau + sum(float(data.rate[j, c]) * m.count[j] for j in m.BIDS if data.rate[j, c] > 0)
        ),
    )
    model.curve = pyo.Constraint(
        model.CELLS,
        range(len(data.pieces)),
        rule=lambda m, c, i: m.useful[c] <= data.pieces[i][0] * m.rate[c] + data.pieces[i][1] * tau,
        doc="hypograph of the scalability curve",
    )
    model.hit = pyo.Constraint(
        [(j, c) for c in model.OPEN for j in np.flatnonzero(data.eviction_mask[:, c]).tolist()],
        rule=lambda m, j, c: m.evicted[c] >= m.taken[j],
        doc="a chosen bid is evicted",
    )
    model.sure = pyo.Constraint(model.OPEN, rule=lambda m, c: m.evicted[c] <= tau)
    model.loss = pyo.Constraint(
        model.OPEN, rule=lambda m, c: m.lost[c] >= m.useful[c] - most * (tau - m.evicted[c]), doc="p = y if evicted"
    )
    model.change = pyo.Constraint(
        [j for j in model.BIDS if instance.bids.is_new[j]], rule=lambda m, j: m.changed >= m.taken[j]
    )
    model.once_changed = pyo.Constraint(expr=model.changed <= tau)
    model.delay = pyo.Constraint(
        model.FIRST, rule=lambda m, c: m.delayed[c] >= m.useful[c] - most * (tau - m.changed), doc="r = y if changed"
    )
