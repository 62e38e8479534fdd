"""Which phase follows which: counts by sample and by change, and a model of order m over changes with back-off."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from optim.models.containers.series import FloatArray
from optim.phases.runs import PhaseRuns

if TYPE_CHECKING:
    import networkx as nx

SMOOTHING = 0.5
"""Added to each count of a transition."""

LEAST_SEEN = 5
"""Times that a context must have been seen to count."""

LARGEST_ORDER = 4
START, END = -2, -3
"""Stand for the beginning and the end of a container."""

Context = tuple[int, ...]


def sample_transitions(runs: PhaseRuns, num_phases: int, smoothing: float = SMOOTHING) -> FloatArray:
    """Return transition probabilities from one sample to the next, staying included, shape (K, K)."""
    counts = np.zeros((num_phases, num_phases))
    for phase, dwell in runs.sequences():
        np.add.at(counts, (phase, phase), dwell - 1)
        np.add.at(counts, (phase[:-1], phase[1:]), 1)
    return _normalised(counts + smoothing)


def change_transitions(runs: PhaseRuns, num_phases: int, smoothing: float = SMOOTHING) -> FloatArray:
    """Return probabilities of the next, different phase, shape (K, K) with zeros on the diagonal.

    Ends of containers aren't counted: it is what comes next if something does. A single phase follows itself.
    """
    if num_phases == 1:
        return np.ones((1, 1))
    counts = np.full((num_phases, num_phases), float(smoothing))
    for phase, _ in runs.sequences():
        np.add.at(counts, (phase[:-1], phase[1:]), 1)
    np.fill_diagonal(counts, 0.0)
    return _normalised(counts)


def _normalised(counts: FloatArray) -> FloatArray:
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeModel:
    """Probability of the next phase, or the end, given the last m phases.

    Attributes
    ----------
    num_phases
        K.
    order
        m.
    counts
        Times that each symbol followed each context of at most m symbols, contexts seen often enough only.
    """

    num_phases: int
    order: int
    counts: Mapping[Context, Mapping[int, int]]

    def probabilities(self, history: Sequence[int]) -> FloatArray:
        """Return the probability of phases 0 to K - 1 and, last, of the end, given all phases so far; shape (K + 1,).

        Interpolated: with N the times and T the distinct followers of a context, it counts N / (N + T), and the next
        shorter context the rest (Witten and Bell 1991, doi:10.1109/18.87000, method C). The phase that is left has
        probability zero.
        """
        padded = (START, *history)
        symbols = [*range(self.num_phases), END]
        estimate = np.full(len(symbols), SMOOTHING)
        estimate += np.array([self.counts.get((), {}).get(symbol, 0) for symbol in symbols])
        estimate /= estimate.sum()
        for length in range(1, min(self.order, len(padded)) + 1):
            followers = self.counts.get(padded[-length:])
            if followers is None:
                break
            total, distinct = sum(followers.values()), len(followers)
            own = np.array([followers.get(symbol, 0) for symbol in symbols]) / total
            weight = total / (total + distinct)
            estimate = weight * own + (1 - weight) * estimate
        if history:
            estimate[history[-1]] = 0.0
        return np.asarray(estimate / estimate.sum())

    def log_likelihood(self, runs: PhaseRuns) -> float:
        """Return the mean logarithm of the probability of a transition, the end included; in nats."""
        total, number = 0.0, 0
        memory: dict[Context, FloatArray] = {}
        for phase, _ in runs.sequences():
            history = tuple(phase.tolist())
            for place in range(len(history) + 1):
                seen = history[:place]
                key = (START, *seen)[-max(self.order, 1) :]
                if key not in memory:
                    memory[key] = self.probabilities(seen)
                following = history[place] if place < len(history) else self.num_phases
                total += float(np.log(max(memory[key][following], 1e-300)))
                number += 1
        return total / max(number, 1)


def fit_changes(runs: PhaseRuns, num_phases: int, order: int) -> ChangeModel:
    """Count what follows each context of at most `order` symbols."""
    counts: defaultdict[Context, Counter[int]] = defaultdict(Counter)
    for phase, _ in runs.sequences():
        symbols = (START, *phase.tolist(), END)
        for place in range(1, len(symbols)):
            for length in range(min(order, place) + 1):
                counts[symbols[place - length : place]][symbols[place]] += 1
    kept = {key: dict(found) for key, found in counts.items() if len(key) <= 1 or sum(found.values()) >= LEAST_SEEN}
    return ChangeModel(num_phases=num_phases, order=order, counts=kept)


def choose_order(training: PhaseRuns, held_out: PhaseRuns, num_phases: int) -> tuple[int, tuple[float, ...]]:
    """Return the order with the highest held-out likelihood, the lowest of equals, and the likelihoods of 1, 2, ..."""
    found = tuple(
        fit_changes(training, num_phases, order).log_likelihood(held_out) for order in range(1, LARGEST_ORDER + 1)
    )
    return 1 + int(np.argmax(np.round(found, 12))), found


def transition_graph(runs: PhaseRuns, names: Sequence[str], order: int = 1) -> "nx.DiGraph[Context]":
    """Return the graph of changes: a node a context of `order` phases, with beginnings and ends.

    Edges have `count` and `probability`, the share of a node's departures. Nodes have `label`, and `count`, the times
    they were entered; contexts seen less than five times are left out for orders above one.
    """
    import networkx as nx

    graph: nx.DiGraph[Context] = nx.DiGraph(order=order)
    edges: Counter[tuple[Context, Context]] = Counter()
    visits: Counter[Context] = Counter()
    for phase, _ in runs.sequences():
        symbols: Context = (START, *phase.tolist(), END)
        nodes = [symbols[max(0, place - order + 1) : place + 1] for place in range(len(symbols) - 1)] + [(END,)]
        visits.update(nodes)
        edges.update(pairwise(nodes))
    kept = {node for node, number in visits.items() if order == 1 or number >= LEAST_SEEN}
    leaving: Counter[Context] = Counter()
    for (source, _), number in edges.items():
        leaving[source] += number
    for node in sorted(kept):
        graph.add_node(node, label=_label(node, names), count=visits[node])
    for (source, target), number in sorted(edges.items()):
        if source in kept and target in kept:
            graph.add_edge(source, target, count=number, probability=number / leaving[source])
    return graph


def _label(context: Context, names: Sequence[str]) -> str:
    own = {START: "start", END: "end"}
    return " > ".join(own[phase] if phase in own else names[phase] for phase in context)
