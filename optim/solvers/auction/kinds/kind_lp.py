"""The linear programme over kinds of bundles: which rows are awarded, how many of each kind, who supplies them.

    max  sum_b w_b z_b
    s.t. sum_b z_b <= 1                                     for each app
         sum_{b of kind k} z_b <= n_k                       for each kind
         n_k <= sum over rack classes of what they supply   for each kind
         machine patterns, room of racks                    for each rack class

For given whole numbers n the rows' part is a transportation problem, whose vertices are whole: all that is
fractional about the programme is n, and branching on n is all that is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from scipy.sparse import csc_array, diags_array, find

from optim.models.auction.instance import FloatArray, Locality
from optim.models.auction.proof import PriceProof
from optim.solvers.auction.kinds.supply import RackClass, kind_sizes, patterns, rack_classes
from optim.solvers.auction.tables import Tables
from optim.solvers.lp.highs_run import no_answer, run_in_place, silent_highs

INFINITE = highspy.kHighsInf

Bounds = Mapping[int, tuple[int, int]]
"""By kind the least and the most bundles, only where restricted; by -1 - b whether kept row b is awarded, 0 or 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LpPoint:
    """An optimal point of the programme, or the infeasibility of its bounds.

    Parameters
    ----------
    value
        Optimum; -inf if the bounds leave nothing.
    chosen
        Shape (rows,): z.
    number
        Shape (kinds,): n.
    proof
        Prices that prove the value.
    gpu_price
        What a GPU costs anywhere: the least price of room in a rack.
    """

    value: float
    chosen: FloatArray
    number: FloatArray
    proof: PriceProof
    gpu_price: float = 0.0


class _Builder:
    """Collects columns and rows of a programme."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.right: list[float] = []
        self._entries: list[tuple[int, int, float]] = []

    def column(self, cost: float = 0.0, upper: float = INFINITE) -> int:
        """Add a column at least 0."""
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def row(self, right: float) -> int:
        """Add a row: something at most `right`."""
        self.right.append(right)
        return len(self.right) - 1

    def add(self, row: int, column: int, value: float) -> None:
        """Add an entry."""
        self._entries.append((row, column, value))

    def matrix(self) -> Any:
        """Return the matrix by columns."""
        table = np.array(self._entries, dtype=np.float64).reshape(-1, 3)
        shape = (len(self.right), len(self.cost))
        return csc_array((table[:, 2], (table[:, 0].astype(np.int32), table[:, 1].astype(np.int32))), shape=shape)


def _pattern_table(slots: tuple[int, ...], slot_sizes: tuple[int, ...], machine_sizes: tuple[int, ...]) -> Any:
    """Return how many bundles of each kind a machine holds, by pattern; of one kind alone, in parts, if these are too many."""
    table = patterns(slots, slot_sizes, machine_sizes)
    if table is None:
        return diags_array(sum(slots) / np.array([*slot_sizes, *machine_sizes])).tocsr()
    return np.array(table, dtype=np.float64)


class KindLP:
    """The programme in HiGHS; bounds on numbers of bundles and absent apps change between solves, warm-started.

    Parameters
    ----------
    tables
        The auction's rows.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.classes = rack_classes(tables)
        builder = _Builder()
        rows = len(tables.row)
        self._choice = [builder.row(1.0) for _ in range(tables.num_apps)]
        for b in range(rows):
            builder.add(self._choice[int(tables.app[b])], builder.column(float(tables.weight[b]), 1.0), 1.0)
        self._number_first = len(builder.cost)
        self._kind_first = len(builder.right)
        for _ in range(len(tables.kinds)):
            builder.add(builder.row(0.0), builder.column(), -1.0)
        for b, kind in enumerate(tables.kind.tolist()):
            if kind >= 0:
                builder.add(self._kind_first + kind, b, 1.0)
        self._cover_first = len(builder.right)
        self._loose: int | None = None
        self._rooms: list[int] = []
        self._patterns: list[tuple[Any, int, int, Any]] = []
        self._covers = self._add_covers(builder)
        self._named = self._add_named(builder)
        self.supply_first = len(builder.cost)
        for rack_class in self.classes:
            self._add_rack(builder, rack_class)
        self._num_rows = rows
        self._highs = _highs(builder)
        self._restricted: dict[int, tuple[int, int]] = {}
        self._absent = -1
        self.solves = 0

    def _add_covers(self, builder: _Builder) -> list[int]:
        """Add one supply row a kind, and one for all kinds that may spread anywhere."""
        covers = []
        for k, (level, size) in enumerate(self.tables.kinds.tolist()):
            if level == Locality.CLUSTER:
                if self._loose is None:
                    self._loose = builder.row(0.0)
                covers.append(self._loose)
                builder.add(self._loose, self._number_first + k, float(size))
            else:
                covers.append(builder.row(0.0))
                builder.add(covers[-1], self._number_first + k, 1.0)
        return covers

    def _add_named(self, builder: _Builder) -> dict[int, int]:
        """Add one supply row for each machine that rows name: its GPUs."""
        named: dict[int, int] = {}
        if not self.tables.has_named:
            return named
        instance = self.tables.instance
        position = {b: k for k, b in enumerate(self.tables.row.tolist())}
        entries = zip(
            instance.bids.named_row.tolist(),
            instance.bids.named_machine.tolist(),
            instance.bids.named_gpus.tolist(),
            strict=True,
        )
        for b, machine, count in entries:
            if b in position:
                if machine not in named:
                    named[machine] = builder.row(0.0)
                builder.add(named[machine], position[b], float(count))
        return named

    def _add_rack(self, builder: _Builder, rack_class: RackClass) -> None:
        """Add what the racks of a class supply: bundles by machine patterns, bundles within a rack, loose GPUs."""
        tables, where = self.tables, {tuple(kind): k for k, kind in enumerate(self.tables.kinds.tolist())}
        room = builder.row(float(rack_class.count * rack_class.free))
        self._rooms.append(room)
        inside: dict[int, tuple[int, int]] = {}  # kind -> column of bundles supplied, row that patterns cover
        for machine in rack_class.machines:
            slot_sizes = kind_sizes(tables, Locality.SLOT, max(machine.slots))
            machine_sizes = kind_sizes(tables, Locality.MACHINE, sum(machine.slots))
            kinds = [where[Locality.SLOT, s] for s in slot_sizes] + [where[Locality.MACHINE, s] for s in machine_sizes]
            sizes = (*slot_sizes, *machine_sizes)
            unit: tuple[int, ...] = ()
            if machine.machine in self._named:
                unit = (1,)
            for k, size in zip(kinds, sizes, strict=True):
                if k not in inside:
                    column, cover = builder.column(), builder.row(0.0)
                    inside[k] = (column, cover)
                    builder.add(cover, column, 1.0)
                    builder.add(room, column, float(size))
                    builder.add(self._covers[k], column, -1.0)
            number = builder.row(float(rack_class.count * machine.count))
            named_column = -1
            if unit:
                named_column = builder.column()
                builder.add(room, named_column, 1.0)
                builder.add(self._named[machine.machine], named_column, -1.0)
                named_cover = builder.row(0.0)
                builder.add(named_cover, named_column, 1.0)
            table = _pattern_table(machine.slots, slot_sizes, machine_sizes + unit)
            total = rack_class.count * machine.count
            self._patterns.append((np.array(kinds, dtype=np.int64), machine.machine, total, table))
            columns = [builder.column() for _ in range(table.shape[0])]
            for column in columns:
                builder.add(number, column, 1.0)
            for p, position, count in zip(*(part.tolist() for part in find(table)), strict=True):
                cover = inside[kinds[position]][1] if position < len(kinds) else named_cover
                builder.add(cover, columns[p], -float(count))
        for size in kind_sizes(tables, Locality.RACK, rack_class.free):
            column = builder.column(upper=float(rack_class.count * (rack_class.free // size)))
            builder.add(room, column, float(size))
            builder.add(self._covers[where[Locality.RACK, size]], column, -1.0)
        if self._loose is not None:
            column = builder.column()
            builder.add(room, column, 1.0)
            builder.add(self._loose, column, -1.0)

    def supply_worth(self, price: FloatArray, named_price: Mapping[int, float]) -> float:
        """Return at least the most that the cluster supplies at prices of kinds and of named machines' GPUs."""
        total = 0.0
        for pattern_kinds, machine, count, table in self._patterns:
            unit = [named_price.get(machine, 0.0)] if machine in self._named else []
            total += count * float((table @ np.concatenate([price[pattern_kinds], unit])).max(initial=0.0))
        level, size = self.tables.kinds.T
        for rack_class in self.classes:
            most = rack_class.count * (rack_class.free // np.maximum(1, size))
            total += float((price * most)[level == Locality.RACK].sum())
        loose = level == Locality.CLUSTER
        per_gpu = float((price[loose] / size[loose]).max(initial=0.0))
        return total + per_gpu * self.tables.instance.cluster.num_free

    def solve(self, bounds: Bounds, absent: int = -1) -> LpPoint:
        """Solve with bounds on numbers of bundles, and without one app; warm from the last solve."""
        if not self._num_rows:  # HiGHS gives an empty programme no value
            nothing = np.zeros(len(self.tables.kinds))
            return LpPoint(value=0.0, chosen=np.zeros(0), number=nothing, proof=self._prices(self._no_duals()))
        self._restrict(bounds)
        self._remove(absent)
        status = run_in_place(self._highs)
        self.solves += 1
        solution = self._highs.getSolution()
        if status == highspy.HighsModelStatus.kOptimal:
            value = self._highs.getInfo().objective_function_value
            x = np.array(solution.col_value)
            dual = -np.array(solution.row_dual)
            return LpPoint(
                value=-value,
                chosen=x[: self._num_rows],
                number=x[self._number_first : self._number_first + len(self.tables.kinds)],
                proof=self._prices(dual),
                gpu_price=float(max(0.0, dual[self._rooms].min())),  # kept rows fit somewhere: there is a rack
            )
        if status != highspy.HighsModelStatus.kInfeasible:
            raise no_answer(self._highs)
        return LpPoint(value=-np.inf, chosen=np.zeros(0), number=np.zeros(0), proof=self._infeasible_prices())

    def _prices(self, dual: FloatArray) -> PriceProof:
        """Return the prices of a dual point."""
        kinds = self.tables.kinds
        count = len(kinds)
        row_price = np.maximum(0.0, dual[self._kind_first : self._kind_first + count])
        supply = np.maximum(0.0, dual[np.array(self._covers, dtype=np.int64)])
        supply_price = supply * np.where(kinds[:, 0] == Locality.CLUSTER, kinds[:, 1], 1)
        for k in range(count):
            # Unrestricted kinds cost their rows what the supply earns: rounding must not tell them apart.
            # Without an upper bound rows can't pay more than the supply earns.
            if k not in self._restricted:
                row_price[k] = supply_price[k]
            elif self._restricted[k][1] >= MOST:
                row_price[k] = min(row_price[k], supply_price[k])
        machines = sorted(self._named)
        unit = np.maximum(0.0, dual[[self._named[m] for m in machines]]) if machines else np.zeros(0)
        table = [(int(lv), int(size), -1) for lv, size in kinds.tolist()] + [
            (int(Locality.NAMED), 1, m) for m in machines
        ]
        return PriceProof(
            kinds=np.array(table, dtype=np.int64).reshape(-1, 3),
            row_price=np.concatenate([row_price, unit]),
            supply_price=np.concatenate([supply_price, unit]),
        )

    def _infeasible_prices(self) -> PriceProof:
        """Return prices by which the bounds ask for more than there is: a ray, taken far."""
        run_in_place(self._highs)
        _, has_ray, ray = self._highs.getDualRay()
        return self._prices(-np.array(ray) * FAR if has_ray else self._no_duals())

    def _no_duals(self) -> FloatArray:
        """Return prices of nothing."""
        return np.zeros(self._highs.getNumRow())

    def _restrict(self, bounds: Bounds) -> None:
        changed = {k for k in {*bounds, *self._restricted} if bounds.get(k) != self._restricted.get(k)}
        for k in sorted(changed):
            low, high = bounds.get(k, (0, INFINITE) if k >= 0 else (0, 1))
            self._highs.changeColBounds(self._number_first + k if k >= 0 else -1 - k, float(low), float(high))
        self._restricted = dict(bounds)

    def _remove(self, absent: int) -> None:
        if absent == self._absent:
            return
        for app, right in ((self._absent, 1.0), (absent, 0.0)):
            if app >= 0:
                self._highs.changeRowBounds(self._choice[app], -INFINITE, right)
        self._absent = absent


MOST = 1 << 30
"""More bundles than there can be."""

FAR = 1e6
"""How far a ray is followed: log welfare is a matter of hundreds."""


def _highs(builder: _Builder) -> Any:
    matrix = builder.matrix()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = matrix.shape[1], matrix.shape[0]
    lp.col_cost_ = -np.array(builder.cost)
    lp.col_lower_, lp.col_upper_ = np.zeros(matrix.shape[1]), np.array(builder.upper)
    lp.row_lower_, lp.row_upper_ = np.full(matrix.shape[0], -INFINITE), np.array(builder.right)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = matrix.data
    return silent_highs(
        lp,
        presolve="off",
        solver="simplex",
        primal_feasibility_tolerance=1e-9,
        dual_feasibility_tolerance=1e-9,
    )
