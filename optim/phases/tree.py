"""Prefix tree of packed sequences, and the few paths that most containers follow."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optim.core.ranges import check_in
from optim.phases.compression import pack
from optim.phases.runs import PhaseRuns

if TYPE_CHECKING:
    import networkx as nx

Path = tuple[str, ...]

COVERAGE = 0.9
"""Share of containers that prototypes stand for."""


def packed_sequences(runs: PhaseRuns) -> list[Path]:
    """Return the packed sequence of each segment that has a phase."""
    return [pack(phase.tolist()) for phase, _ in runs.sequences()]


def paths_by_count(sequences: Iterable[Sequence[str]]) -> list[tuple[Path, int]]:
    """Return distinct sequences with their numbers, the most frequent first, then by their tokens."""
    counts = Counter(tuple(sequence) for sequence in sequences)
    return sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))


def prefix_tree(sequences: Iterable[Sequence[str]]) -> "nx.DiGraph[Path]":
    """Return the prefix tree of sequences.

    Its nodes are prefixes, the root the empty one; `count` is how many sequences begin with a prefix, `ends` how many
    end with it, and `token` its last token.
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
    """The fewest paths that cover a share of containers.

    Attributes
    ----------
    paths
        The paths, most frequent first.
    counts
        Containers that follow each.
    coverage
        Share of containers covered by the first one, two, ... of all distinct paths.
    """

    paths: tuple[Path, ...]
    counts: tuple[int, ...]
    coverage: tuple[float, ...]

    def share_covered(self, sequences: Sequence[Sequence[str]]) -> float:
        """Return the share of sequences, of other containers say, that follow a prototype."""
        known = set(self.paths)
        return sum(tuple(sequence) in known for sequence in sequences) / max(len(sequences), 1)


def prototypes(sequences: Iterable[Sequence[str]], coverage: float = COVERAGE) -> Prototypes:
    """Return the fewest paths that cover a share of the sequences.

    Each sequence follows one path, so the most frequent paths are the fewest.

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
