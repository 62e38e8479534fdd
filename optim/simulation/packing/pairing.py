"""Pairs of jobs that share a server well: one is low where the other is high."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairing:
    """Jobs in pairs.

    Attributes
    ----------
    pairs
        Pairs of job numbers, the smaller first, rising; of an odd number one job is left alone and in none.
    joint
        Shape (pairs, R): what each pair needs together at any one time.
    apart
        Shape (pairs, R): the sum of what both need at their own worst times.
    """

    pairs: tuple[tuple[int, int], ...]
    joint: FloatArray
    apart: FloatArray

    @property
    def saving(self) -> FloatArray:
        """Share of capacity that pairing saves, shape (R,)."""
        return share_saved(self.joint.sum(axis=0), self.apart.sum(axis=0))


def share_saved(joint: FloatArray, apart: FloatArray) -> FloatArray:
    """Return which share of what is needed apart isn't needed together, by resource; 0 where nothing is needed apart."""
    return np.asarray(np.where(apart > 0, 1.0 - joint / np.where(apart > 0, apart, 1.0), 0.0))


def joint_demand(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return what two jobs that start together need, shape (the longer one's length, R), by slot or by sample."""
    total = np.zeros((max(len(first), len(second)), first.shape[1]))
    total[: len(first)] += first
    total[: len(second)] += second
    return total


def joint_peak(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the peak of two jobs that start together, shape (R,), from demands by slot, shape (slots, R)."""
    return np.asarray(joint_demand(first, second).max(axis=0))


def pair_jobs(demands: Sequence[FloatArray]) -> Pairing:
    """Pair jobs so that pairs save the most in total: a matching of maximum weight.

    A pair's weight is the sum over resources of peak + peak - joint peak, each over the mean peak of that resource.

    Parameters
    ----------
    demands
        Of each job the demand by slot, shape (slots, R); jobs of a pair start together.
    """
    import networkx as nx

    peaks = np.stack([demand.max(axis=0) for demand in demands])
    scale = np.where(peaks.mean(axis=0) > 0, peaks.mean(axis=0), 1.0)
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(demands)))
    for i in range(len(demands)):
        for j in range(i + 1, len(demands)):
            saved = peaks[i] + peaks[j] - joint_peak(demands[i], demands[j])
            graph.add_edge(i, j, weight=float((saved / scale).sum()))
    matching = nx.max_weight_matching(graph, maxcardinality=True)
    pairs = tuple(sorted((min(pair), max(pair)) for pair in matching))
    width = peaks.shape[1]
    joint = [joint_peak(demands[i], demands[j]) for i, j in pairs]
    return Pairing(
        pairs=pairs,
        joint=np.array(joint).reshape(-1, width),
        apart=np.array([peaks[i] + peaks[j] for i, j in pairs]).reshape(-1, width),
    )
