"""The linear programme over bundle types, and a bound that combines its prices with counted GPUs.

Racks with equal machines form one class. A pattern is a maximal set of bundles that fit on one machine together;
patterns cover the machines of a class, so equal machines are never distinguished. Machines with too many patterns are
only limited by their number of GPUs.

max  sum_b w_b z_b
    s.t. sum_b z_b <= 1                                     for each app
         sum_{b of type k} z_b <= n_k                       for each type
         n_k <= sum over rack classes of their supply       for each type
         machine patterns, capacity of racks                for each rack class

For given integers n, the choice of rows is a transportation problem with integral vertices. So branching on n suffices.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import add
from typing import Any

import highspy
import numpy as np
from scipy.sparse import csc_array, diags_array, find

from optim.core.arrays import FloatArray, IntArray
from optim.models.auction.data import Locality
from optim.models.auction.decision import PriceProof
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.tables import Tables
from optim.solvers.lp.highs import highs_lp, no_answer, run_in_place, silent_highs

Pattern = tuple[int, ...]
"""Number of bundles of each type on a machine, by position in the requested types."""

Counts = tuple[tuple[int, int], ...]
"""Positions and numbers of the types with at least one bundle."""

MOST_PATTERNS = 10_000
"""Maximum number of bundle sets to enumerate for one machine.

The number grows like the number of partitions: with bids for all sizes it is 8,349 for 32 GPUs, and over a million for 64.
Each set is a column of the programme.
"""

MAX_NUMBERS = 1_000_000
"""Maximal number of entries in a table of patterns by types: with thousands of types, even few patterns are large."""


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines of a rack class with equal free slots; `machine` is -1, or the only machine if rows name it."""

    machine: int
    slots: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class RackClass:
    """Equal racks: `count` is their number, `machines` the machines of a single rack."""

    machines: tuple[MachineClass, ...]
    count: int

    @property
    def free(self) -> int:
        """Free GPUs in one rack."""
        return sum(machine.count * sum(machine.slots) for machine in self.machines)


def rack_classes(tables: Tables) -> tuple[RackClass, ...]:
    """Return the classes of racks with free GPUs, sorted."""
    cluster = tables.instance.cluster
    named = set(tables.instance.bids.named_machine.tolist()) if tables.has_named else set()
    slots: dict[int, list[int]] = {}
    for machine, free in zip(cluster.slot_machine.tolist(), cluster.slot_free.tolist(), strict=True):
        if free:
            slots.setdefault(machine, []).append(free)
    racks: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for machine, free_slots in slots.items():
        key = (machine if machine in named else -1, tuple(sorted(free_slots, reverse=True)))
        racks.setdefault(int(cluster.machine_rack[machine]), []).append(key)
    groups: dict[tuple[MachineClass, ...], int] = {}
    for machines in racks.values():
        ordered = sorted(machines)
        classes = tuple(MachineClass(m, s, ordered.count((m, s))) for m, s in sorted(set(ordered)))
        groups[classes] = groups.get(classes, 0) + 1
    return tuple(RackClass(machines, count) for machines, count in sorted(groups.items(), key=str))


def patterns(
    slots: tuple[int, ...], slot_sizes: tuple[int, ...], machine_sizes: tuple[int, ...]
) -> tuple[Pattern, ...] | None:
    """Return the maximal sets of bundles that fit on a machine, as numbers by size: first of slot, then of machine bundles.

    A set contained in another one is omitted. Slot sizes are ascending. Returns None if more sets than `MOST_PATTERNS`
    or `MAX_NUMBERS` would be enumerated. The programme then lets a machine hold fractions of bundles, up to its number
    of GPUs, as the count relaxation does. Bounds proven this way are valid, but ignore that some GPUs may be unusable.
    Awards are placed as usual.

    Examples
    --------
    >>> len(patterns((8,), (1, 2, 3, 4, 5, 6, 7, 8), ()))
    22
    """
    most = min(MOST_PATTERNS, MAX_NUMBERS // max(1, len(slot_sizes) + len(machine_sizes)))
    in_slots = _in_slots(slots, slot_sizes, most)
    if in_slots is None:
        return None
    outer: dict[int, list[tuple[int, Pattern]] | None] = {}
    maximal: list[Pattern] = []
    looked = 0
    for inner, num_free in in_slots.items():
        if num_free not in outer:
            outer[num_free] = _full(num_free, machine_sizes, most)
        machine_patterns = outer[num_free]
        if machine_patterns is None or looked + len(machine_patterns) > most:
            return None
        looked += len(machine_patterns)
        least = _min_added(inner, slot_sizes, in_slots)
        maximal += [(*inner, *more) for unused, more in machine_patterns if unused < least]
    return tuple(sorted(maximal, reverse=True))


def _min_added(inner: Pattern, sizes: tuple[int, ...], in_slots: Mapping[Pattern, int]) -> float:
    """Return the size of the smallest one-slot bundle that still fits on the slots, infinity if none does."""
    for k, size in enumerate(sizes):
        if (*inner[:k], inner[k] + 1, *inner[k + 1 :]) in in_slots:
            return size
    return math.inf


def _in_slots(slots: tuple[int, ...], sizes: tuple[int, ...], most: int) -> dict[Pattern, int] | None:
    """Return every set of bundles that fits on the slots, as numbers by size, with the remaining GPUs.

    None if more than `most` sets would be enumerated, here and in the functions below.
    """
    sums: dict[Pattern, int] = {(0,) * len(sizes): sum(slots)}
    for slot_gpus in slots:
        options = _fillings(slot_gpus, sizes, most)
        if options is None or len(sums) * len(options) > most:
            return None
        dense = [(slot_gpus - num_free, _dense(counts, len(sizes))) for num_free, counts in options]
        sums = {
            tuple(map(add, one, two)): num_free - num_used for one, num_free in sums.items() for num_used, two in dense
        }
    return sums


def _full(num_gpus: int, sizes: tuple[int, ...], most: int) -> list[tuple[int, Pattern]] | None:
    """Return the maximal sets of bundles within a capacity, as numbers by size, with the remaining GPUs.

    The smallest size takes as many of the remaining GPUs as it can.
    """
    if not sizes:
        return [(num_gpus, ())]
    least, *others = sorted(range(len(sizes)), key=lambda k: sizes[k])
    options = _fillings(num_gpus, tuple(sizes[k] for k in others), most)
    if options is None:
        return None
    return [
        (
            num_free % sizes[least],
            _dense(((least, num_free // sizes[least]), *((others[k], n) for k, n in counts)), len(sizes)),
        )
        for num_free, counts in options
    ]


def _fillings(num_gpus: int, sizes: tuple[int, ...], most: int) -> list[tuple[int, Counts]] | None:
    """Return every set of bundles within a capacity as numbers by size, with the remaining GPUs; `sizes` ascend."""
    fillings: list[tuple[int, Counts]] = []
    stack: list[tuple[int, int, Counts]] = [(0, num_gpus, ())]
    while stack:
        first, num_free, counts = stack.pop()
        fillings.append((num_free, counts))
        for k in range(first, len(sizes)):
            if sizes[k] > num_free:
                break
            for n in range(1, num_free // sizes[k] + 1):
                stack.append((k + 1, num_free - n * sizes[k], (*counts, (k, n))))
                if len(fillings) + len(stack) > most:
                    return None
    return fillings


def _dense(counts: Counts, length: int) -> Pattern:
    """Return numbers at their positions, 0 elsewhere."""
    numbers = [0] * length
    for k, n in counts:
        numbers[k] = n
    return tuple(numbers)


def bundle_sizes(tables: Tables, level: Locality, most: int) -> tuple[int, ...]:
    """Return the sizes of a locality's bundle types up to a limit, ascending."""
    mine = tables.kinds[tables.kinds[:, 0] == level, 1]
    return tuple(int(size) for size in mine if size <= most)


INFINITE = highspy.kHighsInf

Bounds = Mapping[int, tuple[int, int]]
"""Minimum and maximum number of bundles by type, if restricted; key -1 - b restricts the award, 0 or 1, of table row b."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LpPoint:
    """An optimal point of the programme, or the infeasibility of its bounds.

    Parameters
    ----------
    value
        Optimum; -inf if the bounds are infeasible.
    chosen
        Shape (rows,): z, the share of each row that is awarded.
    number
        Shape (kinds,): n, the number of bundles of each type.
    proof
        Prices that prove the value.
    gpu_price
        Minimal price of a GPU in any rack.
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
        """Add a column with lower bound 0 and return its index."""
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def row(self, right: float) -> int:
        """Add a row with upper bound `right` and return its index."""
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
    """Return the number of bundles of each type, by pattern.

    If there are too many patterns, each row instead fills the machine with a fractional number of one type.
    """
    table = patterns(slots, slot_sizes, machine_sizes)
    if table is None:
        return diags_array(sum(slots) / np.array([*slot_sizes, *machine_sizes])).tocsr()
    return np.array(table, dtype=np.float64)


class BundleTypeLP:
    """The programme in HiGHS; the bounds and the absent app may change between solves, which are warm-started.

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
        """Add a supply row for each type; the types that may spread anywhere share one row."""
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
        """Add one supply row for the GPUs of each named machine."""
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
        """Add the supply of a class of racks: bundles by machine patterns, bundles within a rack, single GPUs."""
        tables, where = self.tables, {tuple(kind): k for k, kind in enumerate(self.tables.kinds.tolist())}
        capacity_row = builder.row(float(rack_class.count * rack_class.free))
        self._rooms.append(capacity_row)
        inside: dict[int, tuple[int, int]] = {}  # type -> column of supplied bundles, row covered by patterns
        for machine in rack_class.machines:
            slot_sizes = bundle_sizes(tables, Locality.SLOT, max(machine.slots))
            machine_sizes = bundle_sizes(tables, Locality.MACHINE, sum(machine.slots))
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
                    builder.add(capacity_row, column, float(size))
                    builder.add(self._covers[k], column, -1.0)
            number = builder.row(float(rack_class.count * machine.count))
            named_column = -1
            if unit:
                named_column = builder.column()
                builder.add(capacity_row, named_column, 1.0)
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
        for size in bundle_sizes(tables, Locality.RACK, rack_class.free):
            column = builder.column(upper=float(rack_class.count * (rack_class.free // size)))
            builder.add(capacity_row, column, float(size))
            builder.add(self._covers[where[Locality.RACK, size]], column, -1.0)
        if self._loose is not None:
            column = builder.column()
            builder.add(capacity_row, column, 1.0)
            builder.add(self._loose, column, -1.0)

    def supply_value(self, price: FloatArray, named_price: Mapping[int, float]) -> float:
        """Return an upper bound on the value of the cluster's supply at prices of types and of named machines' GPUs."""
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
        """Solve with bounds on numbers of bundles, and optionally without one app; warm-started from the last solve."""
        if not self._num_rows:  # HiGHS gives no value for an empty programme
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
                gpu_price=float(
                    max(0.0, dual[self._rooms].min())
                ),  # every table row fits somewhere, so there is a rack
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
            # Rows of an unrestricted type pay exactly the supply's price, whatever the rounding of the duals.
            # Rows of a type without an upper bound pay at most the supply's price.
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
        """Return prices, far along a dual ray, that prove the bounds infeasible: they demand more than the supply."""
        run_in_place(self._highs)
        _, has_ray, ray = self._highs.getDualRay()
        return self._prices(-np.array(ray) * FAR if has_ray else self._no_duals())

    def _no_duals(self) -> FloatArray:
        """Return prices that are all 0."""
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
"""Number of bundles that no auction reaches: an upper bound without effect."""

FAR = 1e6
"""Distance along a dual ray whose prices prove infeasibility; log welfare is at most some hundreds."""


def _highs(builder: _Builder) -> Any:
    rows, columns = len(builder.right), len(builder.cost)
    lp = highs_lp(
        cost=-np.array(builder.cost, dtype=np.float64),
        lower=np.zeros(columns),
        upper=np.array(builder.upper, dtype=np.float64),
        matrix=builder.matrix(),
        row_lower=np.full(rows, -INFINITE),
        row_upper=np.array(builder.right, dtype=np.float64),
        is_integer=np.zeros(columns, dtype=np.bool_),
        is_maximisation=False,
    )
    return silent_highs(
        lp,
        presolve="off",
        solver="simplex",
        primal_feasibility_tolerance=1e-9,
        dual_feasibility_tolerance=1e-9,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PricedCounts:
    """A knapsack over the free GPUs at the types' prices, plus constants.

    Parameters
    ----------
    proof
        The prices: with counted GPUs they prove `bound`, and `bound_without` any app.
    fixed
        Value of the supply, cost of restricted numbers, and gain of fixed rows.
    """

    proof: PriceProof
    fixed: float
    _relaxed: CountRelaxation
    _columns: IntArray

    @property
    def bound(self) -> float:
        """Upper bound on the welfare of every allocation."""
        return self._relaxed.bound + self.fixed

    @property
    def choice(self) -> IntArray:
        """Row of each app, -1 for none, that attains the bound; these rows need not fit the machines."""
        chosen: IntArray = np.append(self._columns, -1)[self._relaxed.choice()]
        return chosen

    def bound_without(self, app: int) -> float:
        """Upper bound on the welfare of the other apps; only valid for prices of a programme without bounds."""
        return self._relaxed.bound_without(app) + self.fixed


def count_with_prices(lp: BundleTypeLP, point: LpPoint, bounds: Bounds, absent: int) -> PricedCounts:
    """Return a knapsack over the free GPUs, at the point's prices minus the prices of GPUs.

    The programme prices each GPU separately, so it may sell a fraction of a bundle. Here the types' prices keep only
    their premium over the GPUs' price, and a dynamic programme sells integral bundles within the free GPUs.
    """
    tables = lp.tables
    count = len(tables.kinds)
    proof, row_price, supply, named_price = _premium_prices(tables, point)
    gain = tables.weight - np.append(row_price, 0.0)[tables.kind]
    if tables.has_named:
        gain = gain - _named_cost(tables, proof)
    fixed_gain, num_free = 0.0, tables.instance.cluster.num_free
    for k, (low, high) in bounds.items():
        if k < 0 and low == 1:
            fixed_gain += float(gain[-1 - k])
            num_free -= int(tables.size[-1 - k])
            gain[tables.app == tables.app[-1 - k]] = 0.0
        elif k < 0 and high == 0:
            gain[-1 - k] = 0.0
    columns = np.flatnonzero((gain > 0) & (tables.app != absent) & (tables.size <= num_free))
    columns = columns[_gain_by_size(tables.app[columns], tables.size[columns], gain[columns])]
    restricted = sum(
        (row_price[k] - supply[k]) * (high if row_price[k] > supply[k] else low)
        for k, (low, high) in bounds.items()
        if k >= 0 and row_price[k] != supply[k] and (high < MOST or row_price[k] < supply[k])
    )
    machines = point.proof.kinds[count:, 2].tolist()
    supply_value = lp.supply_value(supply, dict(zip(machines, named_price.tolist(), strict=True)))
    offset = np.searchsorted(tables.app[columns], np.arange(tables.num_apps + 1)).astype(np.int64)
    return PricedCounts(
        proof=proof,
        fixed=supply_value + float(restricted) + fixed_gain,
        _relaxed=CountRelaxation(offset, tables.size[columns], gain[columns], num_free),
        _columns=columns,
    )


def _premium_prices(tables: Tables, point: LpPoint) -> tuple[PriceProof, FloatArray, FloatArray, FloatArray]:
    """Return the prices in excess of the GPU price: as a proof, for rows, for supply, and for GPUs of named machines."""
    kinds, count = tables.kinds, len(tables.kinds)
    by_gpu = point.gpu_price * np.where(kinds[:, 0] >= 0, kinds[:, 1], 0)
    named_price = np.maximum(0.0, point.proof.row_price[count:] - point.gpu_price)
    supply = np.maximum(0.0, point.proof.supply_price[:count] - by_gpu)
    # Restricted types keep the difference between the price that rows pay and the price of the supply.
    row_price = supply + (point.proof.row_price - point.proof.supply_price)[:count]
    proof = PriceProof(
        kinds=point.proof.kinds,
        row_price=np.concatenate([row_price, named_price]),
        supply_price=np.concatenate([supply, named_price]),
        is_counted=True,
    )
    return proof, row_price, supply, named_price


def _gain_by_size(app: IntArray, size: IntArray, gain: FloatArray) -> IntArray:
    """Return the positions, ascending, of rows with a larger gain than every row of the same app with as many or fewer GPUs."""
    order = np.lexsort((-gain, size, app))
    _, rank = np.unique(gain, return_inverse=True)
    key = (app * (len(app) + 1) + rank.ravel())[order]  # integers: by app, then by gain
    before = np.maximum.accumulate(np.concatenate([[-1], key[:-1]])) if len(key) else key
    is_first = np.concatenate([[True], np.diff(app[order]) > 0]) if len(key) else key.astype(bool)
    return np.sort(order[(key > before) | is_first])


def _named_cost(tables: Tables, proof: PriceProof) -> np.ndarray:
    """Return the cost of each table row's named machines."""
    instance = tables.instance
    unit = np.zeros(instance.cluster.num_machines)
    is_named = proof.kinds[:, 0] == Locality.NAMED
    unit[proof.kinds[is_named, 2]] = proof.row_price[is_named]
    cost = np.zeros(len(instance.bids))
    np.add.at(cost, instance.bids.named_row, instance.bids.named_gpus * unit[instance.bids.named_machine])
    row_cost: np.ndarray = cost[tables.row]
    return row_cost
