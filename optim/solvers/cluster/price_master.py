"""The best prices over given slots by column generation: what jobs would buy at prices looked at before, mixed by a linear programme."""

import numpy as np

from optim.models.cluster.world import FloatArray, IntArray
from optim.solvers.lp.highs_run import run_in_place, silent_highs

AS_ONE = 1e-9


class Master:
    """A linear programme that mixes purchases so that no slot is sold more than once.

    Parameters
    ----------
    supply
        GPU-seconds of each slot.
    count
        How many jobs there are of each kind.
    dearest
        What a GPU-second above the supply costs.
    """

    def __init__(self, supply: FloatArray, count: FloatArray, dearest: float) -> None:
        import highspy

        self.slots, self.kinds, self.count = len(supply), len(count), count
        self.seen: set[bytes] = set()
        self.who: list[int] = []
        self.flow: list[float] = []
        self.main: list[int] = []
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.slots, self.slots + self.kinds
        lp.col_cost_ = np.full(self.slots, dearest)
        lp.col_lower_, lp.col_upper_ = np.zeros(self.slots), np.full(self.slots, highspy.kHighsInf)
        lp.row_lower_ = np.concatenate([np.full(self.slots, -highspy.kHighsInf), count])
        lp.row_upper_ = np.concatenate([supply, count])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.arange(self.slots + 1, dtype=np.int32)
        lp.a_matrix_.index_ = np.arange(self.slots, dtype=np.int32)
        lp.a_matrix_.value_ = np.full(self.slots, -1.0)
        self.highs = silent_highs(lp, presolve="off")

    def add(self, kind: IntArray, slot: IntArray, seconds: FloatArray, flow: FloatArray) -> int:
        """Add what jobs buy, sorted by kind, unless it is known; return how many purchases are new."""
        first = np.searchsorted(kind, np.arange(self.kinds + 1))
        new = 0
        for each in range(self.kinds):
            at = slice(first[each], first[each + 1])
            name = np.concatenate([[each, flow[each]], slot[at], seconds[at]]).tobytes()
            if name not in self.seen:
                self.seen.add(name)
                new += 1
                self.who.append(each)
                self.flow.append(float(flow[each]))
                self.main.append(int(slot[at][np.argmax(seconds[at])]) if first[each] < first[each + 1] else -1)
                rows = np.append(slot[at], self.slots + each).astype(np.int32)
                self.highs.addCol(flow[each], 0.0, np.inf, len(rows), rows, np.append(seconds[at], 1.0))
        return new

    def solve(self) -> tuple[float, FloatArray] | None:
        """Return the least total flow time of a mixture, and prices; None if the programme isn't solved."""
        import highspy

        if run_in_place(self.highs) != highspy.HighsModelStatus.kOptimal:
            return None
        dual = np.asarray(self.highs.getSolution().row_dual)[: self.slots]
        return float(self.highs.getInfo().objective_function_value), np.maximum(0.0, -dual)

    def mixture(self) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
        """Return of the purchases of the last mixture whose they are, their flow times, their main slots, -1 without one, and how many jobs make them."""
        weight = np.asarray(self.highs.getSolution().col_value)[self.slots :]
        used = np.flatnonzero(weight > AS_ONE)
        who = np.array(self.who)[used]
        order = np.argsort(who, kind="stable")
        who, weight = who[order], weight[used][order]
        weight *= (self.count / np.bincount(who, weight, self.kinds))[who]
        return who, np.array(self.flow)[used][order], np.array(self.main)[used][order], weight
