"""The compact programme (A.1)-(A.13) with the curve (A.2s), written out row by row for SciPy's HiGHS from an instance's raw columns.

It shares no code with `optim.models.admission.compact_programme`: neither rows, nor work, windows and tables of an
instance.
"""

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

SCALE = 1e4
"""Tolerance of the objective: HiGHS stops at an absolute gap of 1e-6, which SciPy cannot set."""


def sigmoid(utility, delay):
    """f(d) of the paper's evaluation."""
    return utility.theta1 / (1.0 + math.exp(utility.theta2 * (delay - utility.theta3)))


class ByHand:
    """The programme of one instance with separate servers for workers and parameter servers, without segments or integral chunks."""

    def __init__(self, instance):
        self.instance, self.jobs = instance, instance.jobs
        self.value, self.top = [], []
        self.entries, self.low, self.high = [], [], []
        self.ends, self.counts = defaultdict(dict), defaultdict(dict)
        used = defaultdict(list)
        for i in range(len(self.jobs.ids)):
            self._job(i, used)
        for (kind, server, t), terms in used.items():
            servers = instance.worker_servers if kind == "worker" else instance.ps_servers
            demand = self.jobs.worker_demand if kind == "worker" else self.jobs.ps_demand
            place = np.repeat(np.arange(len(servers.count)), servers.count)[server]
            capacity = servers.capacity[place, min(t, servers.capacity.shape[1] - 1)]
            for r in range(len(instance.resources)):
                self._row({x: demand[i, r] / 1e6 for i, x in terms}, -np.inf, capacity[r] / 1e6)

    def _variable(self, value=0.0, top=np.inf):
        self.value.append(value)
        self.top.append(top)
        return len(self.value) - 1

    def _row(self, entries, low, high):
        self.entries.append(entries)
        self.low.append(low)
        self.high.append(high)

    def _job(self, i, used):
        jobs, horizon = self.jobs, self.instance.horizon
        most, arrival = int(jobs.chunks[i]), int(jobs.arrival[i])
        listed = jobs.speedup[i] or tuple(20 * y for y in range(1, most + 1))
        speed = [0, *(listed[min(y, len(listed)) - 1] for y in range(1, most + 1))]
        seconds = Fraction(int(jobs.minibatch_micro_s[i]), 10**6)
        seconds += 16 * Fraction(int(jobs.gradient_micro_mb[i]), int(jobs.worker_micro_mbps[i]))
        number = int(jobs.epochs[i]) * most * int(jobs.minibatches[i])
        work = math.ceil(20 * number * seconds / Fraction(self.instance.slot_micro_s, 10**6))
        b, big_b = int(jobs.worker_micro_mbps[i]), int(jobs.ps_micro_mbps[i])
        for t in range(arrival, horizon):
            value = sigmoid(jobs.utilities[i], t - arrival)
            least = float(self.instance.min_utility_share) * sigmoid(jobs.utilities[i], 0)
            if value >= least and work <= max(speed) * (t - arrival + 1):
                self.ends[i][t] = self._variable(value, 1.0)
        if not self.ends[i]:
            return
        self._row(dict.fromkeys(self.ends[i].values(), 1.0), 0, 1)
        done = {x: -float(work) for x in self.ends[i].values()}
        for t in range(arrival, horizon):
            steps = {y: self._variable(top=1.0) for y in range(1, most + 1)}
            self.counts[i][t] = steps
            done |= {x: float(speed[y]) for y, x in steps.items()}
            later = {x: -1.0 for end, x in self.ends[i].items() if end >= t}
            self._row({**dict.fromkeys(steps.values(), 1.0), **later}, -np.inf, 0)
            workers, ps = self._placed("worker", i, t, used), self._placed("ps", i, t, used)
            self._row({**dict.fromkeys(workers, 1.0), **{x: -float(y) for y, x in steps.items()}}, 0, 0)
            self._row({**dict.fromkeys(workers, b / big_b), **dict.fromkeys(ps, -1.0)}, -np.inf, 0)
            self._row({**dict.fromkeys(ps, 1.0), **dict.fromkeys(workers, -1.0)}, -np.inf, 0)
        self._row(done, 0, np.inf)

    def _placed(self, kind, i, t, used):
        servers = self.instance.worker_servers if kind == "worker" else self.instance.ps_servers
        found = []
        for server in range(int(servers.count.sum())):
            found.append(self._variable())
            used[kind, server, t].append((i, found[-1]))
        return found

    def best(self, admitted=None):
        """Return the optimum, and which jobs it admits; with `admitted` of the plans that admit exactly these."""
        if not self.value:
            return 0.0, frozenset()
        low, high = np.zeros(len(self.value)), np.array(self.top)
        rows, sides = list(self.entries), [list(self.low), list(self.high)]
        for i, ends in self.ends.items():
            if admitted is not None and ends:
                rows.append(dict.fromkeys(ends.values(), 1.0))
                for side in sides:
                    side.append(float(i in admitted))
        number = [(r, x, a) for r, entries in enumerate(rows) for x, a in entries.items()]
        r, x, a = zip(*number, strict=True)
        matrix = csr_array((a, (r, x)), shape=(len(rows), len(self.value)))
        found = milp(
            -SCALE * np.array(self.value), integrality=np.ones(len(self.value)), bounds=Bounds(low, high),
            constraints=LinearConstraint(matrix, *sides), options={"mip_rel_gap": 0.0, "presolve": False},
        )  # fmt: skip  # SciPy's HiGHS (1.12) loses optima in presolve
        if found.x is None:
            return -math.inf, frozenset()
        chosen = {i for i, ends in self.ends.items() if sum(found.x[x] for x in ends.values()) > 0.5}
        value = sum(self.value[x] for i in self.ends for x in self.ends[i].values() if found.x[x] > 0.5)
        return value, frozenset(chosen)
