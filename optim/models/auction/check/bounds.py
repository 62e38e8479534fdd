"""Recompute upper bounds on the welfare from prices and from counts of GPUs.

Every packable set of bundles is a union of sets that single racks, machines and slots supply. Tables of the
largest total price by number of used GPUs are combined from slots to machines to racks. Bundles that may spread
over racks are priced per GPU, at the largest price per GPU among them.

The bound is (C.8) in docs/mathematics/auction.md; over a tree of awards it is (C.9).
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.claims import Descent
from optim.core.limits import Effort
from optim.core.solution import Violation, violation
from optim.models.auction.check.allocation import is_unpackable
from optim.models.auction.check.exact_instance import ExactInstance
from optim.models.auction.data import Locality
from optim.models.auction.decision import PriceProof, TreeNode, TreeProof


class Supply:
    """The bundles that a cluster can supply; equal machines and equal racks are computed once per price vector."""

    def __init__(self, facts: ExactInstance) -> None:
        self.num_free = facts.num_free
        cluster = facts.instance.cluster
        named = sorted(set(facts.instance.bids.named_machine.tolist()))
        slots: dict[int, list[int]] = {m: [] for m in range(len(cluster.machine_rack))}
        for machine, free in zip(facts.slot_machine.tolist(), facts.slot_free.tolist(), strict=True):
            if free:
                slots[machine].append(free)
        # Machines that rows name are distinct; all others with equal free slots are equal.
        racks: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for machine, rack in enumerate(cluster.machine_rack.tolist()):
            if slots[machine]:
                key = (machine if machine in named else -1, tuple(sorted(slots[machine])))
                racks.setdefault(rack, []).append(key)
        self.racks: dict[tuple[tuple[int, tuple[int, ...]], ...], int] = {}
        for machines in racks.values():
            group = tuple(sorted(machines))
            self.racks[group] = self.racks.get(group, 0) + 1

    def most(self, prices: Mapping[tuple[int, int, int], float]) -> float:
        """Return an upper bound on the total price of any packable set of bundles.

        Parameters
        ----------
        prices
            By (locality, size, machine); negative prices count as 0.
        """
        by_level: dict[int, list[tuple[int, float]]] = {level: [] for level in range(4)}
        named: dict[int, float] = {}
        for (level, size, machine), price in prices.items():
            if price > 0 and level == Locality.NAMED:
                named[machine] = price
            elif price > 0:
                by_level[level].append((size, price))
        loose = max((price / size for size, price in by_level[Locality.CLUSTER]), default=0.0)
        machine_tables: dict[tuple[int, tuple[int, ...]], FloatArray] = {}
        total = 0.0
        for machines, count in self.racks.items():
            table = np.zeros(1)
            for key in machines:
                if key not in machine_tables:
                    machine_tables[key] = _machine_table(key[1], by_level, named.get(key[0], 0.0))
                table = _join(table, machine_tables[key])
            table = _join(table, _knapsack(len(table) - 1, by_level[Locality.RACK]), len(table))
            total += count * float((table + loose * np.arange(len(table))[::-1]).max())
        return total


def _machine_table(slots: Sequence[int], by_level: Mapping[int, list[tuple[int, float]]], named: float) -> FloatArray:
    """Return the largest total price that a machine supplies with at most u = 0, 1, ... GPUs."""
    table = np.zeros(1)
    for free in slots:
        table = _join(table, _knapsack(free, by_level[Locality.SLOT]))
    items = by_level[Locality.MACHINE] + ([(1, named)] if named > 0 else [])
    return _join(table, _knapsack(len(table) - 1, items), len(table))


def _knapsack(capacity: int, items: Sequence[tuple[int, float]]) -> FloatArray:
    """Return the largest value of an unbounded knapsack with capacity 0, ..., `capacity`."""
    table = [0.0] * (capacity + 1)
    for u in range(1, capacity + 1):
        table[u] = max([table[u - 1], *(table[u - size] + price for size, price in items if size <= u)])
    return np.array(table)


def _join(first: FloatArray, second: FloatArray, length: int | None = None) -> FloatArray:
    """Return for u = 0, 1, ... the largest total of two tables if at most u GPUs are split between them.

    The result has `length` entries, by default one for each u that both tables together cover.
    """
    length = len(first) + len(second) - 1 if length is None else length
    table = np.zeros(length)
    for v, value in enumerate(second.tolist()):
        stop = min(length, v + len(first))
        if v < stop:
            np.maximum(table[v:stop], first[: stop - v] + value, out=table[v:stop])
    return np.maximum.accumulate(table)


class CountBound:
    """Upper bound that counts GPUs and ignores placement: a multiple-choice knapsack over the free GPUs.

    For the bound without an app, the tables of the apps before it and after it are combined.
    """

    def __init__(self, facts: ExactInstance, weight: FloatArray | None = None, num_gpus: int | None = None) -> None:
        self._facts = facts
        self._num_gpus = facts.num_free if num_gpus is None else max(0, num_gpus)
        weight = facts.weight if weight is None else weight
        best: list[dict[int, float]] = [{} for _ in range(facts.num_apps)]
        bids = facts.instance.bids
        rows = zip(bids.app.tolist(), bids.gpus.tolist(), weight.tolist(), facts.useful.tolist(), strict=True)
        for app, gpus, gain, is_useful in rows:
            if is_useful and gpus <= self._num_gpus and gain > best[app].get(gpus, 0.0):
                best[app][gpus] = gain
        self._best = best

    @cached_property
    def _heads(self) -> list[FloatArray]:
        """Entry u of table i is the largest welfare of apps 0, ..., i-1 with u GPUs."""
        return self._tables(self._best)

    @cached_property
    def _tails(self) -> list[FloatArray]:
        """Entry u of table i is the largest welfare of the last i apps with u GPUs."""
        return self._tables(self._best[::-1])

    def _tables(self, best: list[dict[int, float]]) -> list[FloatArray]:
        tables = [np.zeros(self._num_gpus + 1)]
        for rows in best:
            table = tables[-1].copy()
            for gpus, weight in rows.items():
                np.maximum(table[gpus:], tables[-1][: len(table) - gpus] + weight, out=table[gpus:])
            tables.append(table)
        return tables

    def welfare(self, without: int | None = None) -> float:
        """Return the bound for all apps, or for all apps but `without`; for many apps, the method `without` is faster."""
        if without is not None:
            return float(self._tables(self._best[:without] + self._best[without + 1 :])[-1][-1])
        return float(self._heads[-1][-1])

    def without(self, app: int) -> float:
        """Return the bound for all apps but one, from tables shared by all calls."""
        tail = self._tails[self._facts.num_apps - 1 - app]
        return float((self._heads[app] + tail[::-1]).max())


TREE = "tree"

PRICES = "prices"

LARGEST = 1e100
"""Largest price in a proof, so that products with numbers of GPUs stay finite."""

Kind = tuple[int, int, int]

Bounds = Mapping[tuple[int, int], tuple[int, float]]
"""Bounds on the number of bundles by (locality, size); bounds on the award (0 or 1) of a row by (-1, row)."""

ROW = -1


class Prepared:
    """A price proof evaluated except for the apps' gains, which come from each app's best row or from a knapsack.

    Apps with a fixed row are part of the evaluated sum.
    """

    def __init__(self, facts: ExactInstance, terms: list[float], gains: CountBound | dict[int, float]) -> None:
        self._facts, self._terms, self._gains = facts, terms, gains

    def evaluate(self, without: int | None, *, is_repeated: bool = False) -> tuple[float, float]:
        """Return the bound, rounded up, and the sum of its absolute terms.

        Set `is_repeated` for calls with many apps: the knapsacks of all apps are then computed together.
        """
        gains = self._gains
        if isinstance(gains, CountBound):
            is_one = without is not None and is_repeated
            app_gains = [gains.without(without) if is_one and without is not None else gains.welfare(without)]
        else:
            app_gains = [gain for app, gain in gains.items() if app != without]
        terms = [*app_gains, *self._terms]
        try:
            spread = math.fsum(map(abs, terms))
        except OverflowError:
            spread = math.inf
        if not math.isfinite(spread):
            return math.inf, spread
        return math.fsum(terms) + self._facts.rounding(spread), spread


class PriceBound:
    """Evaluate price proofs on one instance."""

    def __init__(self, facts: ExactInstance) -> None:
        self._facts, self._supply = facts, Supply(facts)
        bids = facts.instance.bids
        self._starts = facts.first[:-1][np.diff(facts.first) > 0]
        self._apps = np.flatnonzero(np.diff(facts.first) > 0)
        self._rows: dict[Kind, np.ndarray] = {}
        is_named = bids.locality == Locality.NAMED
        for level, size in set(zip(bids.locality[~is_named].tolist(), bids.gpus[~is_named].tolist(), strict=True)):
            self._rows[level, size, -1] = np.flatnonzero((bids.locality == level) & (bids.gpus == size))

    def evaluate(self, proof: PriceProof, without: int | None, bounds: Bounds) -> tuple[float, float]:
        """Return the bound that prices prove, rounded up, and the sum of its absolute terms."""
        return self.prepare(proof, bounds).evaluate(without)

    def prepare(self, proof: PriceProof, bounds: Bounds) -> "Prepared":
        """Compute the terms that do not depend on the omitted app."""
        facts = self._facts
        kinds = [(int(level), int(size), int(machine)) for level, size, machine in proof.kinds.tolist()]
        gain = self._gain(kinds, proof.row_price)
        fixed_gain = self._restrict(gain, bounds)
        fixed_gpus = sum(int(facts.instance.bids.gpus[row]) for row in fixed_gain)
        supply_value = self._supply.most(dict(zip(kinds, proof.supply_price.tolist(), strict=True)))
        terms = [supply_value, *fixed_gain.values()]
        for kind, row_price, supply_price in zip(
            kinds, proof.row_price.tolist(), proof.supply_price.tolist(), strict=True
        ):
            difference = row_price - max(0.0, supply_price)
            if difference != 0:
                low, high = bounds.get(kind[:2], (0, math.inf)) if kind[0] != Locality.NAMED else (0, math.inf)
                terms.append(difference * (high if difference > 0 else low))
        if proof.is_counted:
            return Prepared(facts, terms, CountBound(facts, gain, facts.num_free - fixed_gpus))
        best = np.maximum.reduceat(gain, self._starts) if len(self._starts) else np.zeros(0)
        return Prepared(facts, terms, dict(zip(self._apps.tolist(), np.maximum(0.0, best).tolist(), strict=True)))

    def _restrict(self, gain: FloatArray, bounds: Bounds) -> dict[int, float]:
        """Remove rows that a tree forbids from the gains; return the gain of the rows that it fixes."""
        bids = self._facts.instance.bids
        fixed_gain: dict[int, float] = {}  # by row
        for (level, row), (low, high) in bounds.items():
            if level == ROW and high == 0:
                gain[row] = 0.0
            elif level == ROW and low == 1:
                fixed_gain[row] = float(gain[row])
        for app in bids.app[sorted(fixed_gain)].tolist():
            gain[self._facts.first[app] : self._facts.first[app + 1]] = 0.0
        return fixed_gain

    def _gain(self, kinds: list[Kind], row_price: FloatArray) -> FloatArray:
        """Return each row's weight minus its price."""
        facts, bids = self._facts, self._facts.instance.bids
        gain = np.where(facts.useful, facts.weight, 0.0)
        unit = np.zeros(len(facts.instance.cluster.machine_rack))
        for kind, price in zip(kinds, row_price.tolist(), strict=True):
            if kind[0] == Locality.NAMED:
                unit[kind[2]] = price
            elif kind in self._rows:
                gain[self._rows[kind]] -= price
        if len(bids.named_row):
            np.subtract.at(gain, bids.named_row, bids.named_gpus * unit[bids.named_machine])
        return gain


def check_form(facts: ExactInstance, proof: PriceProof) -> Violation | None:
    """Return the violation of a malformed proof, None if it is well formed."""
    kinds, prices = proof.kinds, (proof.row_price, proof.supply_price)
    if kinds.ndim != 2 or kinds.shape[1] != 3 or any(price.shape != (len(kinds),) for price in prices):
        return violation(PRICES, "each bundle type needs one row price and one supply price")
    if not all((np.abs(price) <= LARGEST).all() for price in prices):
        return violation(PRICES, f"prices must be finite, {LARGEST:g} at most")
    if len(np.unique(kinds, axis=0)) < len(kinds):
        return violation(PRICES, "a bundle type is listed twice")
    machines = len(facts.instance.cluster.machine_rack)
    for level, size, machine in kinds.tolist():
        is_named = level == Locality.NAMED
        if (
            level not in range(5)
            or size < 1
            or (is_named and (size != 1 or not 0 <= machine < machines))
            or (not is_named and machine != -1)
        ):
            return violation(PRICES, f"({level}, {size}, {machine}) is not a bundle type")
    return None


def evaluate_tree(
    bound: PriceBound, facts: ExactInstance, tree: TreeProof, without: int | None
) -> tuple[float, float, list[Violation]]:
    """Return the largest bound of a tree's leaves, their largest sum of absolute terms, and the tree's violations."""
    nodes = tree.nodes
    largest, terms = -math.inf, 0.0
    seen: set[int] = set()
    walk = Descent[tuple[int, int], tuple[int, float]](Effort("the tree"))
    bounds = walk.conditions
    for number in walk:
        if not 0 <= number < len(nodes) or number in seen:
            return math.inf, 0.0, [violation(TREE, f"node {number} is missing or reached twice")]
        seen.add(number)
        node = nodes[number]
        wrong = _malformed(facts, number, node, bounds)
        if wrong is not None:
            return math.inf, 0.0, [wrong]
        if node.low >= 0 or node.high >= 0:
            kind = (node.level, node.size) if node.row < 0 else (ROW, node.row)
            walk.add(node.low, kind, partial(_narrowed, node.value, is_high=False))
            walk.add(node.high, kind, partial(_narrowed, node.value, is_high=True))
            continue
        walk.effort.spend(len(bounds))
        if node.proof is not None and not _exceeds_the_cluster(facts, bounds):
            value, spread = bound.evaluate(node.proof, without, bounds)
            largest, terms = max(largest, value), max(terms, spread)
    if len(seen) < len(nodes):
        return math.inf, 0.0, [violation(TREE, "there are nodes that are not reachable from node 0")]
    return largest, terms, []


def _narrowed(value: int, bounds: tuple[int, float] | None, *, is_high: bool) -> tuple[int, float]:
    """Return a child's bounds on the number of bundles of a type."""
    low, high = bounds or (0, math.inf)
    return (max(low, value + 1), high) if is_high else (low, min(high, value))


def _malformed(facts: ExactInstance, number: int, node: TreeNode, bounds: Bounds) -> Violation | None:
    """Return the violation of a node: an invalid split, or a leaf without a proof; None if valid."""
    if node.low >= 0 or node.high >= 0:
        if node.row < 0 and node.level not in range(4):
            return violation(TREE, f"node {number} splits by locality {node.level}, which must be 0 to 3")
        if node.row >= len(facts.weight) or (node.row >= 0 and node.value != 0):
            return violation(TREE, f"node {number} splits by row {node.row}, which does not exist")
        return None
    if node.is_full:
        if node.proof is None and is_unpackable(facts, _awarded_at_least(facts, bounds)):
            return None
        return violation(TREE, f"leaf {number} claims that its bundles do not fit, which could not be shown")
    return violation(TREE, f"leaf {number} has no prices") if node.proof is None else check_form(facts, node.proof)


def _exceeds_the_cluster(facts: ExactInstance, bounds: Bounds) -> bool:
    """Return whether the rows that a tree awards need more GPUs than are free: the leaf then has no allocation.

    Such a leaf needs no bound.
    """
    gpus = facts.instance.bids.gpus
    return (
        sum(int(gpus[row]) for (level, row), (low, _) in bounds.items() if level == ROW and low == 1) > facts.num_free
    )


def _awarded_at_least(facts: ExactInstance, bounds: Bounds) -> list[tuple[int, int, int]]:
    """Return (locality, size, machine) of the bundles that the bounds require, by number or by a row that names machines."""
    items: list[tuple[int, int, int]] = []
    for (level, size), (low, _) in bounds.items():
        if level != ROW:
            # One bundle more than there are free GPUs is equivalent to any larger number.
            items += [(level, size, -1)] * min(low, facts.num_free + 1)
        elif low == 1 and facts.instance.bids.locality[size] == Locality.NAMED:
            items += [(int(Locality.NAMED), count, machine) for machine, count in facts.named(size).items()]
    return items
