"""Gandiva-fair: equal tickets for the time of every GPU type, and trades of GPU types between users."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_choices
from optim.core.policies import policy
from optim.models.cluster.time_shares import ShareProblem
from optim.simulation.cluster.planning.placing import users_of
from optim.simulation.cluster.planning.policy import View
from optim.simulation.cluster.policies.time_shares import RoundOptions, ShareRounds

MAX_TRADES = 200


def trade(entitled: FloatArray, speedup: FloatArray) -> FloatArray:
    """Trade two GPU types until no user gains.

    The user with the largest speedup buys fast GPUs from the user with the smallest speedup.

    Parameters
    ----------
    entitled
        Shape (users, 2): each user's GPUs of the slow and of the fast type.
    speedup
        Speed of each user's jobs on the fast type relative to the slow type; shape (users,).

    Returns
    -------
    FloatArray
        Shape (users, 2): each user's GPUs of the two types after the trades. The price of a fast GPU in slow GPUs is the
        geometric mean of the two speedups, so that both users gain.
    """
    held = entitled.astype(float).copy()
    order = np.argsort(speedup, kind="stable")
    low, high = 0, len(order) - 1
    for _ in range(MAX_TRADES):
        seller, buyer = order[low], order[high]
        if low >= high or speedup[buyer] <= speedup[seller] * (1 + 1e-9):
            break
        price = float(np.sqrt(speedup[buyer] * speedup[seller]))
        amount = min(held[seller, 1], held[buyer, 0] / price)
        held[seller] += (amount * price, -amount)
        held[buyer] += (-amount * price, amount)
        if held[seller, 1] <= 1e-9:
            low += 1
        else:
            high -= 1
    return held


def water_fill(wanted: FloatArray, total: float, weight: FloatArray | None = None) -> FloatArray:
    """Return each user's allocation of a GPU type: its demand, or a weighted share of the GPUs that remain; shape (users,)."""
    weight = np.ones(len(wanted)) if weight is None else weight
    got, left, others = np.zeros(len(wanted)), total, float(weight.sum())
    for user in np.argsort(wanted / weight, kind="stable"):
        got[user] = min(wanted[user], left * weight[user] / others)
        left -= got[user]
        others = max(others - float(weight[user]), 1e-12)
    return got


class Sharing(StrEnum):
    """Resource that is divided equally among users with equal tickets."""

    TIME = "time"
    GPU_TIME = "gpu-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaFairOptions(RoundOptions):
    """Options.

    Parameters
    ----------
    share
        Resource divided equally among users with equal tickets: run time of their jobs of any width (`time`, as in the
        source), or GPU-time (`gpu-time`).
    """

    share: str = Sharing.TIME.value

    def __post_init__(self) -> None:
        """Check the values."""
        RoundOptions.__post_init__(self)
        check_choices(self, {"share": tuple(each.value for each in Sharing)})


@policy(
    "gandiva-fair",
    world="cluster",
    options=GandivaFairOptions,
    summary="Give users equal tickets for time or GPU-time, and trade GPU types between them, in rounds.",
    source="Chaudhary et al., Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep Learning, EuroSys 2020",
)
class GandivaFair(ShareRounds):
    """Divide each GPU type by tickets among users, then among their jobs; users trade types of neighbouring speed."""

    assumptions = (
        "users are those of the table (else virtual clusters, else apps), with equal tickets for time, or by `share` for GPU-time; "
        "trades between neighbouring types at the geometric mean of the two speedups; unused shares go to the other users; "
        "rounds of 360 s, as in max-min, replace stride scheduling"
    )

    options: GandivaFairOptions

    def left_s(self, view: View) -> FloatArray:
        """Return ones, since the policy ignores the remaining work, and store the user of each job."""
        self.user: IntArray = users_of(view)[view.jobs]
        return np.ones(len(view.gpus))

    def shares(self, problem: ShareProblem) -> FloatArray:
        """Divide each type among the users, trade, and divide each user's share among its jobs."""
        users, owner = np.unique(self.user, return_inverse=True)
        demand = np.bincount(owner, weights=problem.width)
        kinds = problem.throughput.shape[1]
        is_time = self.options.share == Sharing.TIME.value
        weight = demand / np.bincount(owner) if is_time else np.ones(len(users))
        part = weight[:, None] / weight.sum() * problem.gpus
        speed = np.stack(
            [np.bincount(owner, weights=problem.throughput[:, k] * problem.width) for k in range(kinds)], axis=1
        )
        speed = np.maximum(speed / demand[:, None], 1e-9)
        by_speed = np.argsort(speed.mean(axis=0), kind="stable")
        for slow, fast in pairwise(by_speed):
            part[:, [slow, fast]] = trade(part[:, [slow, fast]], speed[:, fast] / speed[:, slow])
        x = np.zeros_like(problem.throughput)
        left = np.ones(len(problem.width))
        for kind in by_speed[::-1]:
            can = (problem.throughput[:, kind] > 0) * left * problem.width
            wanted = np.bincount(owner, weights=can, minlength=len(users))
            got = np.minimum(wanted, part[:, kind])
            got += water_fill(wanted - got, float(problem.gpus[kind] - got.sum()), weight)
            ratio = np.divide(got, wanted, out=np.zeros(len(users)), where=wanted > 0)
            x[:, kind] = ratio[owner] * can / problem.width
            left -= x[:, kind]
        return x
