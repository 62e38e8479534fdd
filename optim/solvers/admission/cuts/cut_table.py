"""Cuts as arrays, with their charges and the left-hand sides of schedules."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.decision import CountCut, Cut, ServerCut, Side, SlotCut
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.classes import CountCharges, PricedSchedules, Prices


def charged(instance: AdmissionInstance, prices: Prices, cuts: Sequence[ServerCut]) -> Prices:
    """Return row prices plus the charges of server cuts at their multipliers."""
    if not cuts:
        return prices
    return CutTable(instance, cuts).charged(prices, np.array([cut.multiplier for cut in cuts]))


ALL_CLASSES = -1
"""Class in the place of a slot cut."""


def _place(cut: Cut) -> tuple[int, int]:
    return ALL_CLASSES if isinstance(cut, SlotCut) else cut.server_class, cut.slot


class CutTable:
    """Cuts as arrays, with their charges and the left-hand sides of schedules.

    Parameters
    ----------
    instance
        The instance of the cuts.
    cuts
        The cuts, in order.
    """

    def __init__(self, instance: AdmissionInstance, cuts: Iterable[Cut] = ()) -> None:
        self._instance = instance
        self.cuts: tuple[Cut, ...] = ()
        self._worker = np.zeros((0, instance.num_jobs), dtype=np.int64)
        self._ps = np.zeros((0, instance.num_jobs), dtype=np.int64)
        self._place = np.zeros((0, 2), dtype=np.int64)
        self._counts = CountTable(instance)
        self._is_count: IntArray = np.zeros(0, dtype=np.bool_)
        self.right_hand_side: FloatArray = np.zeros(0)
        """Shape (cuts,): right-hand side of each cut for all servers of its class together."""
        self.add(tuple(cuts))

    def __len__(self) -> int:
        return len(self.cuts)

    def add(self, cuts: Sequence[Cut]) -> None:
        """Append cuts."""
        instance = self._instance
        worker = np.zeros((len(cuts), instance.num_jobs), dtype=np.int64)
        ps, total = np.zeros_like(worker), np.zeros(len(cuts))
        for k, cut in enumerate(cuts):
            total[k] = cut.right_hand_side
            if isinstance(cut, ServerCut):
                servers = instance.worker_servers if cut.side is Side.WORKER else instance.ps_servers
                total[k] *= int(servers.count[cut.server_class])
                worker[k, cut.jobs], ps[k, cut.jobs] = cut.worker_coefficient, cut.ps_coefficient
        place = np.array([_place(cut) for cut in cuts], dtype=np.int64).reshape(-1, 2)
        self._counts.add([cut for cut in cuts if not isinstance(cut, ServerCut)])
        is_count = np.array([not isinstance(cut, ServerCut) for cut in cuts], dtype=np.bool_)
        self._is_count = np.concatenate([self._is_count, is_count])
        self.cuts = (*self.cuts, *cuts)
        self._worker, self._ps = np.concatenate([self._worker, worker]), np.concatenate([self._ps, ps])
        self._place = np.concatenate([self._place, place])
        self.right_hand_side = np.concatenate([self.right_hand_side, total])

    def keep(self, which: IntArray) -> None:
        """Remove all cuts except the given ones."""
        self.cuts = tuple(self.cuts[k] for k in which.tolist())
        self._counts = CountTable(self._instance)
        self._counts.add([cut for cut in self.cuts if not isinstance(cut, ServerCut)])
        self._is_count = self._is_count[which]
        self._worker, self._ps = self._worker[which], self._ps[which]
        self._place, self.right_hand_side = self._place[which], self.right_hand_side[which]

    def charged(self, prices: Prices, multiplier: FloatArray) -> Prices:
        """Return row prices plus the cuts' charges at multipliers of shape (cuts,), >= 0."""
        if not len(self):
            return prices
        worker_extra, ps_extra = self.extra(multiplier)
        worker_curves, ps_curves, slot_charges = self._counts.charges(multiplier[self._is_count])
        return replace(
            prices,
            worker_extra=worker_extra,
            ps_extra=ps_extra,
            worker_curves=worker_curves,
            ps_curves=ps_curves,
            slot_charges=slot_charges,
        )

    def extra(self, multiplier: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the server cuts' addition to the cost of one worker and one PS, shape (segments, classes, slots) each.

        Parameters
        ----------
        multiplier
            Shape (cuts,): multiplier of each cut, >= 0.
        """
        instance = self._instance
        sides = ((self._worker, instance.worker_servers), (self._ps, instance.ps_servers))
        result = []
        for coefficient, servers in sides:
            total = np.zeros((servers.num_classes, instance.horizon, instance.num_jobs))
            on = np.flatnonzero((multiplier > 0) & coefficient.any(axis=1))
            place = self._place[on]
            np.add.at(total, (place[:, 0], place[:, 1]), multiplier[on, None] * coefficient[on])
            result.append(np.ascontiguousarray(total.transpose(2, 0, 1)[instance.segment_job]))
        return result[0], result[1]

    def use(self, schedules: PricedSchedules, first: int = 0) -> FloatArray:
        """Return the left-hand sides of schedules in the cuts from number `first` on, shape (cuts, schedules)."""
        total = np.zeros((len(self) - first, len(schedules.jobs)))
        for coefficient, counts in ((self._worker, schedules.workers), (self._ps, schedules.ps)):
            on = first + np.flatnonzero(coefficient[first:].any(axis=1))
            if len(on):
                units = counts[:, self._place[on, 0], self._place[on, 1]].T
                total[on - first] += coefficient[on][:, schedules.jobs] * units
        count_cuts = first + np.flatnonzero(self._is_count[first:])
        if len(count_cuts):
            total[count_cuts - first] = self._counts.use(schedules, int(self._is_count[:first].sum()))
        return total


class CountTable:
    """Count cuts and slot cuts as arrays: a table of gains, and its row for each cut and job."""

    def __init__(self, instance: AdmissionInstance) -> None:
        self._instance = instance
        widest = max(int(instance.max_workers.max(initial=0)), *(int(needed[-1]) for needed in instance.ps_needed), 0)
        self._gain = np.zeros((1, widest + 1), dtype=np.int64)
        """Shape (1 + gains, counts): gain of 0, 1, ... units; the first row is for jobs without gain."""
        self._row = np.zeros((2, 0, instance.num_jobs), dtype=np.int64)
        """Shape (2, cuts, jobs): row in `_gain` of each job's workers, and of its PSs."""
        self._place = np.zeros((0, 2), dtype=np.int64)

    def add(self, cuts: Sequence[CountCut | SlotCut]) -> None:
        """Append cuts."""
        if not cuts:
            return
        rows = np.zeros((2, len(cuts), self._instance.num_jobs), dtype=np.int64)
        blocks, start = [self._gain], len(self._gain)
        numbers = np.arange(1, self._gain.shape[1])
        for k, cut in enumerate(cuts):
            is_of_ps, ps_gain = (cut.side is Side.PS, cut.ps_gain) if isinstance(cut, CountCut) else (False, None)
            for is_ps, gain in ((is_of_ps, cut.gain), (True, ps_gain)):
                if gain is None or not gain.size:
                    continue
                rows[int(is_ps), k, cut.jobs] = np.arange(start, start + len(cut.jobs))
                block = np.zeros((len(cut.jobs), self._gain.shape[1]), dtype=np.int64)
                block[:, 1:] = gain[:, np.minimum(numbers, gain.shape[1]) - 1]
                blocks.append(block)
                start += len(cut.jobs)
        self._gain, self._row = np.concatenate(blocks), np.concatenate([self._row, rows], axis=1)
        place = np.array([_place(cut) for cut in cuts], dtype=np.int64)
        self._place = np.concatenate([self._place, place])

    def charges(self, multiplier: FloatArray) -> tuple[CountCharges | None, CountCharges | None, CountCharges | None]:
        """Return the charges of count cuts for workers and for PSs, and those of slot cuts, None where all are 0."""
        instance, is_slot, is_priced = self._instance, self._place[:, 0] == ALL_CLASSES, multiplier > 0
        by_class, by_slot = np.flatnonzero(is_priced & ~is_slot), np.flatnonzero(is_priced & is_slot)
        # On shared servers, `ps_servers` are the workers' servers.
        return (
            self._charges(0, by_class, multiplier, instance.worker_servers.num_classes),
            self._charges(1, by_class, multiplier, instance.ps_servers.num_classes),
            self._charges(0, by_slot, multiplier, 1),
        )

    def _charges(self, side: int, on: IntArray, multiplier: FloatArray, classes: int) -> CountCharges | None:
        """Return the charges of the cuts `on` for one side's units."""
        row = self._row[side]
        cut, job = np.nonzero(row[on])
        if not len(cut):
            return None
        slots = self._place[on[cut], 1]
        places, line = np.unique(job * self._instance.horizon + slots, return_inverse=True)
        place = np.zeros((self._instance.num_jobs, self._instance.horizon), dtype=np.int64)
        place.reshape(-1)[places] = np.arange(1, len(places) + 1)
        extra = np.zeros((len(places) + 1, classes, self._gain.shape[1]))
        charge = multiplier[on[cut], None] * self._gain[row[on[cut], job]]
        np.add.at(extra, (line + 1, self._place[on[cut], 0]), charge)
        return CountCharges(place, extra)

    def use(self, schedules: PricedSchedules, first: int) -> FloatArray:
        """Return the left-hand sides of schedules in the cuts from number `first` on, shape (cuts, schedules)."""
        total = np.zeros((self._row.shape[1] - first, len(schedules.jobs)))
        for row, counts in zip(self._row[:, first:], (schedules.workers, schedules.ps), strict=True):
            on = np.flatnonzero(row.any(axis=1))
            # `ALL_CLASSES` is the index of the last class, the sum of the others.
            by_class = np.concatenate([counts, counts.sum(axis=1, keepdims=True)], axis=1)
            units = by_class[:, self._place[first + on, 0], self._place[first + on, 1]].T
            total[on] += self._gain[row[on][:, schedules.jobs], np.minimum(units, self._gain.shape[1] - 1)]
        return total
