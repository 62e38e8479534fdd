"""The true series on the servers that a plan chose: what really happens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optim.models.admission.plan import JOB, SERVER, SLOT, AdmissionPlan
from optim.models.containers.series import FloatArray
from optim.simulation.containers.metrics import UNDER_SHARE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """Figures of a replay, shape (R,) all.

    Attributes
    ----------
    overload
        Share of a busy server's samples in which its containers ask for more than it has.
    excess
        What is lacking then, over all that is asked for.
    under_time
        Share of all containers' samples with less than 95 % of demand given.
    used
        Demand over what all servers have in the slots that any of them is busy in.
    """

    overload: FloatArray
    excess: FloatArray
    under_time: FloatArray
    used: FloatArray


def replay(
    plan: AdmissionPlan,
    series: Sequence[FloatArray],
    demands: Sequence[FloatArray],
    capacity: FloatArray,
    num_servers: int,
    slot_samples: int,
) -> Replay:
    """Let each admitted job's true series go on in the slots that it runs in.

    Parameters
    ----------
    plan
        Of an instance made by `admission_instance`.
    series
        True demand of each job, shape (samples, R).
    demands
        What each job was given, see `admission_instance`.
    capacity, num_servers, slot_samples
        As there.
    """
    width = len(capacity)
    load: dict[tuple[int, int], FloatArray] = {}
    under, samples = np.zeros(width), 0
    done = dict.fromkeys(range(len(series)), 0)
    for row in plan.workers[np.lexsort((plan.workers[:, SLOT], plan.workers[:, JOB]))].tolist():
        job = row[JOB]
        begin = done[job] * slot_samples
        part = series[job][begin : begin + slot_samples]
        given = demands[job][done[job]]
        under += (given < UNDER_SHARE * part).sum(axis=0)
        samples += len(part)
        done[job] += 1
        place = load.setdefault((row[SLOT], row[SERVER]), np.zeros((slot_samples, width)))
        place[: len(part)] += part
    total = np.stack(list(load.values())) if load else np.zeros((0, slot_samples, width))
    over = np.maximum(total - capacity, 0.0)
    # Sums of many floats that just fill a server are no overload.
    is_over = over > 1e-9 * capacity
    slots = len({slot for slot, _ in load})
    asked = total.sum(axis=(0, 1))
    return Replay(
        overload=_share(is_over.sum(axis=(0, 1)), total.shape[0] * slot_samples),
        excess=np.asarray(over.sum(axis=(0, 1)) / np.where(asked > 0, asked, 1.0)),
        under_time=_share(under, samples),
        used=asked / np.maximum(capacity * num_servers * slots * slot_samples, 1e-300),
    )


def _share(part: FloatArray, whole: int) -> FloatArray:
    return np.asarray(part / max(whole, 1))
