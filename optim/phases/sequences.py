"""Sequences of phases: runs, transitions, the prefix tree, and collapsed repeats."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in

if TYPE_CHECKING:
    import networkx as nx

PERIODS = (1, 2, 3)
"""Lengths of the blocks whose repetitions are collapsed, in the order of the search; length 1 joins equal neighbours."""


def pack(tokens: Sequence[str | int]) -> tuple[str, ...]:
    """Replace each block that is repeated at least twice by one token ``(x y)+``.

    Equal neighbours become one token. Then blocks of two tokens are replaced, then blocks of three, each from left to
    right with all its repetitions. The replacement continues until nothing changes, so that the function is idempotent,
    and blocks may be nested.

    Examples
    --------
    >>> pack([0, 1, 2, 3, 2, 3, 2, 3])
    ('0', '1', '(2 3)+')
    """
    packed = tuple(str(token) for token in tokens)
    while True:
        shorter = packed
        for period in PERIODS:
            shorter = _pack_once(shorter, period)
        if shorter == packed:
            return packed
        packed = shorter


def _pack_once(tokens: tuple[str, ...], period: int) -> tuple[str, ...]:
    """Collapse all repetitions of one period from left to right."""
    out: list[str] = []
    place = 0
    while place < len(tokens):
        block = tokens[place : place + period]
        end = place + period
        while len(block) == period and tokens[end : end + period] == block:
            end += period
        if end - place > period:
            out.append(block[0] if period == 1 else f"({' '.join(block)})+")
            place = end
        else:
            out.append(tokens[place])
            place += 1
    return tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseRuns:
    """Runs of equal phases in many segments, one segment after the other.

    Attributes
    ----------
    phase
        Shape (N,): phase of each run; it differs between neighbouring runs of a segment.
    dwell
        Shape (N,): number of samples of each run.
    offsets
        Shape (S + 1,): the runs of segment s have the indices from ``offsets[s]`` to ``offsets[s + 1] - 1``.
    """

    phase: IntArray
    dwell: IntArray
    offsets: IntArray

    def __eq__(self, other: object) -> bool:
        """Return whether all runs are equal."""
        if not isinstance(other, PhaseRuns):
            return NotImplemented
        mine, others = ((one.phase, one.dwell, one.offsets) for one in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, others, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_segments(self) -> int:
        """Number of segments, S."""
        return len(self.offsets) - 1

    def sequences(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield phases and dwell times of each non-empty segment."""
        for begin, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            if end > begin:
                yield self.phase[begin:end], self.dwell[begin:end]

    def joined(self, other: "PhaseRuns") -> "PhaseRuns":
        """Return the runs of these segments followed by the runs of the segments of `other`."""
        return PhaseRuns(
            phase=np.concatenate([self.phase, other.phase]),
            dwell=np.concatenate([self.dwell, other.dwell]),
            offsets=np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]]),
        )


def runs_of(labels: IntArray, lengths: IntArray, min_dwell: int = 1) -> PhaseRuns:
    """Return the runs of labelled segments.

    A run shorter than `min_dwell` is merged into the previous run; a segment's first run stays.

    Parameters
    ----------
    labels
        Shape (T,): phase of each sample; samples without a phase are negative and ignored.
    lengths
        Shape (S,): number of samples of each segment.
    min_dwell
        Minimum number of samples of a run.
    """
    segment = np.repeat(np.arange(len(lengths)), lengths)
    known = labels >= 0
    labels, segment = labels[known], segment[known]
    is_first = np.ones(len(labels), dtype=bool)
    is_first[1:] = (labels[1:] != labels[:-1]) | (segment[1:] != segment[:-1])
    begins = np.flatnonzero(is_first)
    phase = labels[begins]
    dwell = np.diff(np.concatenate([begins, [len(labels)]]))
    counts = np.bincount(segment[begins], minlength=len(lengths)) if len(begins) else np.zeros(len(lengths), np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    runs = PhaseRuns(phase=phase.astype(np.int64), dwell=dwell.astype(np.int64), offsets=offsets)
    return runs if min_dwell <= 1 else _without_short(runs, min_dwell)


def _without_short(runs: PhaseRuns, min_dwell: int) -> PhaseRuns:
    phases: list[int] = []
    dwells: list[int] = []
    offsets = [0]
    for begin, end in zip(runs.offsets[:-1].tolist(), runs.offsets[1:].tolist(), strict=True):
        first = len(phases)
        for phase, dwell in zip(runs.phase[begin:end].tolist(), runs.dwell[begin:end].tolist(), strict=True):
            if len(phases) > first and (phase == phases[-1] or dwell < min_dwell):
                dwells[-1] += dwell
            else:
                phases.append(phase)
                dwells.append(dwell)
        offsets.append(len(phases))
    return PhaseRuns(
        phase=np.array(phases, dtype=np.int64),
        dwell=np.array(dwells, dtype=np.int64),
        offsets=np.array(offsets, dtype=np.int64),
    )


def run_numbers(labels: IntArray, segment: IntArray) -> IntArray:
    """Return the index of each sample's run of equal labels, shape (T,).

    Parameters
    ----------
    labels
        Shape (T,): label of each sample; samples without a phase form separate runs.
    segment
        Shape (T,): segment of each sample; the samples of a segment are in order of time.
    """
    begins = np.ones(len(labels), dtype=bool)
    begins[1:] = (labels[1:] != labels[:-1]) | (segment[1:] != segment[:-1])
    return np.asarray(np.cumsum(begins) - 1, dtype=np.int64)


SMOOTHING = 0.5
"""Pseudo-count added to the count of each transition."""

MIN_SEEN = 5
"""Minimum number of occurrences at which a context is used."""

MAX_ORDER = 4

START, END = -2, -3
"""Symbols for the beginning and the end of a container."""

Context = tuple[int, ...]


def sample_transitions(runs: PhaseRuns, num_phases: int, smoothing: float = SMOOTHING) -> FloatArray:
    """Return transition probabilities from one sample to the next, including staying, shape (K, K)."""
    counts = np.zeros((num_phases, num_phases))
    for phase, dwell in runs.sequences():
        np.add.at(counts, (phase, phase), dwell - 1)
        np.add.at(counts, (phase[:-1], phase[1:]), 1)
    return _normalised(counts + smoothing)


def change_transitions(runs: PhaseRuns, num_phases: int, smoothing: float = SMOOTHING) -> FloatArray:
    """Return the probabilities of the next phase after each phase, shape (K, K), with zeros on the diagonal.

    The probabilities are conditional on a change, so that ends of containers don't count. If there is only one phase,
    it follows itself.
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
    """Probabilities of the next phase or the container's end, given the last m phases (the context).

    Attributes
    ----------
    num_phases
        Number of phases K.
    order
        Number m of last phases.
    counts
        Number of occurrences of each symbol (a phase or `END`) after each context of at most m symbols. Contexts of two
        or more symbols are included if they occur at least `MIN_SEEN` times.
    """

    num_phases: int
    order: int
    counts: Mapping[Context, Mapping[int, int]]

    def probabilities(self, history: Sequence[int]) -> FloatArray:
        """Return the probabilities of phases 0 to K - 1 and, last, of the end, given all phases so far; shape (K + 1,).

        Estimates from contexts of all lengths are interpolated. A context with N occurrences and T distinct followers
        has weight N / (N + T); the rest of the weight goes to the next shorter context (Witten and Bell 1991,
        doi:10.1109/18.87000, method C). The current phase has probability zero.
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
            observed = np.array([followers.get(symbol, 0) for symbol in symbols]) / total
            weight = total / (total + distinct)
            estimate = weight * observed + (1 - weight) * estimate
        if history:
            estimate[history[-1]] = 0.0
        return np.asarray(estimate / estimate.sum())

    def log_likelihood(self, runs: PhaseRuns) -> float:
        """Return the mean log-probability of a transition, including the end, in nats."""
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
    """Count the followers of each context of at most `order` symbols."""
    counts: defaultdict[Context, Counter[int]] = defaultdict(Counter)
    for phase, _ in runs.sequences():
        symbols = (START, *phase.tolist(), END)
        for place in range(1, len(symbols)):
            for length in range(min(order, place) + 1):
                counts[symbols[place - length : place]][symbols[place]] += 1
    frequent = {
        key: dict(followers)
        for key, followers in counts.items()
        if len(key) <= 1 or sum(followers.values()) >= MIN_SEEN
    }
    return ChangeModel(num_phases=num_phases, order=order, counts=frequent)


def choose_order(training: PhaseRuns, held_out: PhaseRuns, num_phases: int) -> tuple[int, tuple[float, ...]]:
    """Return the order with the highest held-out likelihood (the lowest in a tie), and the likelihood of each order."""
    likelihoods = tuple(
        fit_changes(training, num_phases, order).log_likelihood(held_out) for order in range(1, MAX_ORDER + 1)
    )
    return 1 + int(np.argmax(np.round(likelihoods, 12))), likelihoods


def transition_graph(runs: PhaseRuns, names: Sequence[str], order: int = 1) -> "nx.DiGraph[Context]":
    """Return the graph of changes of phase, with one node per context of `order` phases, and nodes for start and end.

    An edge has `count`, and `probability`: its share of the departures from its first node. A node has `label`, and
    `count`: its number of visits. For orders above one, contexts with fewer than five occurrences are left out.
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
    frequent = {node for node, number in visits.items() if order == 1 or number >= MIN_SEEN}
    leaving: Counter[Context] = Counter()
    for (source, _), number in edges.items():
        leaving[source] += number
    for node in sorted(frequent):
        graph.add_node(node, label=_label(node, names), count=visits[node])
    for (source, target), number in sorted(edges.items()):
        if source in frequent and target in frequent:
            graph.add_edge(source, target, count=number, probability=number / leaving[source])
    return graph


def _label(context: Context, names: Sequence[str]) -> str:
    ends = {START: "start", END: "end"}
    return " > ".join(ends[phase] if phase in ends else names[phase] for phase in context)


Path = tuple[str, ...]

COVERAGE = 0.9
"""Share of the containers that must follow one of the prototypes."""


def packed_sequences(runs: PhaseRuns) -> list[Path]:
    """Return the sequence of each segment with a phase, with collapsed repeats."""
    return [pack(phase.tolist()) for phase, _ in runs.sequences()]


def paths_by_count(sequences: Iterable[Sequence[str]]) -> list[tuple[Path, int]]:
    """Return distinct sequences with their counts, the most frequent first; ties by length, then by tokens."""
    counts = Counter(tuple(sequence) for sequence in sequences)
    return sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))


def prefix_tree(sequences: Iterable[Sequence[str]]) -> "nx.DiGraph[Path]":
    """Return the prefix tree of sequences.

    The tree's nodes are prefixes, and the root is the empty prefix; `count` is the number of sequences with this
    prefix, `ends` the number that end with it, and `token` its last token.
    """
    import networkx as nx

    tree: nx.DiGraph[Path] = nx.DiGraph()
    tree.add_node((), token="", count=0, ends=0)
    for path, number in paths_by_count(sequences):
        for length in range(len(path) + 1):
            prefix = path[:length]
            if prefix not in tree:
                tree.add_node(prefix, token=prefix[-1], count=0, ends=0)
                tree.add_edge(prefix[:-1], prefix)
            tree.nodes[prefix]["count"] += number
        tree.nodes[path]["ends"] += number
    return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototypes:
    """The smallest set of paths (sequences of phases) that a given share of the containers follows.

    Attributes
    ----------
    paths
        The paths, most frequent first.
    counts
        Number of containers that follow each path.
    coverage
        Share of the containers that follow one of the first k of all distinct paths, for k = 1, 2, ...
    """

    paths: tuple[Path, ...]
    counts: tuple[int, ...]
    coverage: tuple[float, ...]

    def share_covered(self, sequences: Sequence[Sequence[str]]) -> float:
        """Return the share of sequences, such as those of other containers, that follow a prototype."""
        known = set(self.paths)
        return sum(tuple(sequence) in known for sequence in sequences) / max(len(sequences), 1)


def prototypes(sequences: Iterable[Sequence[str]], coverage: float = COVERAGE) -> Prototypes:
    """Return the smallest set of paths that a share `coverage` of the sequences follows.

    Each sequence follows exactly one path, so the set consists of the most frequent paths.

    Raises
    ------
    InvalidOptionError
        If the share isn't in (0, 1].
    """
    check_in("(0, 1]", {"coverage": coverage})
    ranked = paths_by_count(sequences)
    total = sum(number for _, number in ranked)
    reached, curve = 0, []
    for _, number in ranked:
        reached += number
        curve.append(reached / total)
    size = next((place + 1 for place, share in enumerate(curve) if share >= coverage - 1e-12), len(curve))
    return Prototypes(
        paths=tuple(path for path, _ in ranked[:size]),
        counts=tuple(number for _, number in ranked[:size]),
        coverage=tuple(curve),
    )
