"""Widths to GPUs: what policies that change the width of jobs share."""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from optim.simulation.cluster.planning.policy import Gpus
from optim.simulation.cluster.planning.view import View


def marginal_widths(most: Mapping[int, int], num_gpus: int, gain: Callable[[int, int], float]) -> dict[int, int]:
    """Give GPUs one at a time to the job to which one more is worth most; ties to the lower number.

    Parameters
    ----------
    most
        Largest width of each job.
    num_gpus
        GPUs that there are.
    gain
        What one more GPU is worth to a job that has so many; 0 or less for nothing.

    Returns
    -------
    dict
        Width of each job that gets GPUs.
    """
    heap = [(-gain(job, 0), job) for job in most]
    heapify(heap)
    widths: dict[int, int] = {}
    while heap and num_gpus:
        worth, job = heappop(heap)
        if worth >= 0:
            break
        widths[job] = widths.get(job, 0) + 1
        num_gpus -= 1
        if widths[job] < most[job]:
            heappush(heap, (-gain(job, widths[job]), job))
    return widths


def realise(view: View, widths: Mapping[int, int]) -> dict[int, Gpus]:
    """Return GPUs for jobs of given widths: those of an unchanged width keep theirs, the others take what one place has at most.

    Wider jobs are placed first; a job that no place can hold at its width takes the largest that one machine has, if any.
    """
    gpus = {job: held for job, held in view.running.items() if widths.get(job) == len(held)}
    room = view.room([job for job in view.running if job not in gpus])
    for job in sorted((job for job in widths if job not in gpus), key=lambda job: (-widths[job], job)):
        least = 1 if view.least_gpus[job] < 1 else int(view.least_gpus[job])
        limit = room.limit(job)
        largest = int(room.free.max() if limit is None else room.free.max(where=limit, initial=0))
        for width in (widths[job], min(widths[job], largest)):
            taken = room.place(job, width) if width >= least else None
            if taken is not None:
                gpus[job] = taken
                break
    return gpus
