"""Slot cuts by hand and at random, and their left-hand sides by enumerating all numbers and all packings."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from optim.core.arrays import IntArray
from optim.models.admission.decision import Side, SlotCut
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.count_cuts import counts_of_job, gain_of, make_count_cut
from tests.support.admission.enumeration import Enumerator
from tests.support.admission.tiny import job_document, tiny_instance

GPU = 10**6
"""One unit of a resource in micro-units."""


def make_slot_cut(**fields: Any) -> SlotCut:
    """Return "of jobs 0 and 1 at most one has two workers or more" in slot 0, by pairs of the first resource."""
    known: dict[str, Any] = {
        "slot": 0,
        "jobs": np.array([0, 1]),
        "gain": np.array([[0, 1], [0, 1]]),
        "resource": np.array([0]),
        "divisor": np.array([2 * GPU]),
        "right_hand_side": 1,
        "multiplier": 16.0,
    }
    return SlotCut(**(known | fields))


def numbers_of_job(instance: AdmissionInstance, slot: int, job: int) -> list[int]:
    """Return the numbers of workers that fit the servers of a slot alone, and whose PSs fit alone."""
    most = []
    for side, servers in ((Side.WORKER, instance.worker_servers), (Side.PS, instance.ps_servers)):
        places = (make_count_cut(side=side, server_class=c, slot=slot) for c in range(servers.num_classes))
        most.append(sum(counts_of_job(instance, place, job, side) for place in places))
    needed, max_workers = instance.ps_needed[job], int(instance.max_workers[job])
    return [y for y in range(max_workers + 1) if y <= most[0] and int(needed[y]) <= most[1]]


def most_over_rows(instance: AdmissionInstance, cut: SlotCut) -> int:
    """Return the exact maximum of the left-hand side over all numbers of workers that meet the cut's rows."""
    rows = list(zip(cut.resource.tolist(), cut.divisor.tolist(), strict=True))
    own = [slice(int(instance.jobs.segment_offset[j]), int(instance.jobs.segment_offset[j + 1])) for j in cut.jobs]
    demands = [
        [demand[each].min(axis=0).tolist() for each in own]
        for demand in (instance.jobs.worker_demand, instance.jobs.ps_demand)
    ]
    best = 0
    for numbers in product(*(numbers_of_job(instance, cut.slot, int(job)) for job in cut.jobs)):
        ps = [int(instance.ps_needed[job][y]) for job, y in zip(cut.jobs.tolist(), numbers, strict=True)]
        if all(_meets_row(instance, cut.slot, row, demands, (numbers, ps)) for row in rows):
            gains = zip(cut.gain, numbers, strict=True)
            best = max(best, sum(gain_of(gain, number) for gain, number in gains))
    return best


def _meets_row(
    instance: AdmissionInstance, slot: int, row: tuple[int, int], demands: list[list[list[int]]], counts: Any
) -> bool:
    r, divisor = row
    used = [
        sum(number * (demand[r] // divisor) for number, demand in zip(numbers, of_side, strict=True))
        for numbers, of_side in zip(counts, demands, strict=True)
    ]
    room = [
        sum(int(servers.count[c]) * (int(servers.capacity[c, slot, r]) // divisor) for c in range(servers.num_classes))
        for servers in (instance.worker_servers, instance.ps_servers)
    ]
    if instance.has_shared_servers:
        return sum(used) <= room[0]
    return used[0] <= room[0] and used[1] <= room[1]


def packed_numbers(instance: AdmissionInstance, slot: int) -> IntArray:
    """Return all numbers of workers that jobs can have together in a slot on single servers, shape (packings, jobs).

    Each job may be at any of its demands.
    """
    enumerator = Enumerator(instance, is_by_class=False)
    sides = (instance.worker_servers, instance.ps_servers)[: 1 if instance.has_shared_servers else 2]
    room = np.concatenate([side.capacity[side.class_of_server].ravel() for side in sides])
    numbers, loads = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(room)))
    for job in range(instance.num_jobs):
        own = [(0, np.zeros(len(room)))]
        if instance.jobs.arrival[job] <= slot <= instance.deadline[job]:
            placements = enumerator.placements(job, slot)
            own += [(number, load) for number, load in placements if number <= instance.max_workers[job]]
        joint = (loads[:, None] + np.array([load for _, load in own])[None]).reshape(-1, len(room))
        numbers = np.column_stack(
            [
                np.repeat(numbers, len(own), axis=0),
                np.tile(np.array([number for number, _ in own]), len(numbers)),
            ]
        )
        fits = (joint <= room).all(axis=1)
        both = np.unique(np.column_stack([numbers[fits], joint[fits]]), axis=0)
        numbers, loads = both[:, : job + 1].astype(np.int64), both[:, job + 1 :]
    return np.unique(numbers, axis=0)


def left_side(cut: SlotCut, numbers: IntArray) -> int:
    """Return the left-hand side at the numbers of workers of all jobs."""
    pairs = zip(cut.jobs.tolist(), cut.gain, strict=True)
    return sum(gain_of(gain, int(numbers[job])) for job, gain in pairs)


def scarce_instance(seed: int) -> AdmissionInstance:
    """Return an instance of up to three jobs whose workers crowd each other out, with servers in two classes."""
    rng = np.random.default_rng(seed)

    def demand() -> dict[str, list[float]]:
        return {side: rng.choice([0.5, 1, 1, 1.5, 2], 2).tolist() for side in ("worker", "ps")}

    def servers() -> list[dict[str, Any]]:
        return [
            {"type": f"class{c}", "capacity": rng.choice([1, 1.5, 2, 3], 2).tolist(), "count": int(rng.integers(1, 3))}
            for c in range(2)
        ]

    jobs = [
        job_document(
            f"j{i}",
            chunks=int(rng.integers(2, 4)),
            ps_mbps=int(rng.integers(1, 4)),
            segments=[{"start": start, **demand()} for start in range(rng.integers(1, 3))],
        )
        for i in range(rng.integers(2, 4))
    ]
    hosts = {"shared_servers": servers()} if rng.integers(2) else {"worker_servers": servers(), "ps_servers": servers()}
    return tiny_instance(*jobs, horizon=2, **hosts)


def random_slot_cut(instance: AdmissionInstance, rng: np.random.Generator) -> SlotCut:
    """Draw a cut with the smallest right-hand side that its rows prove."""
    num_rows = int(rng.integers(6))
    cut = make_slot_cut(
        slot=int(rng.integers(instance.horizon)),
        jobs=np.arange(instance.num_jobs),
        gain=np.cumsum(rng.integers(0, 3, (instance.num_jobs, int(rng.integers(1, 4)))), axis=1),
        resource=rng.integers(0, instance.num_resources, num_rows),
        divisor=rng.choice([1, GPU // 2, GPU, GPU + 1, 2 * GPU, 2 * GPU, 3 * GPU, 5 * GPU // 2], num_rows),
        multiplier=float(rng.exponential(1.0)),
    )
    return replace(cut, right_hand_side=most_over_rows(instance, cut))
