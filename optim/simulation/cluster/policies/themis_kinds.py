"""Types of GPU among which apps lease: how slow each is for an app, and in which order they are offered."""

from collections.abc import Iterable

import numpy as np

from optim.models.cluster.workload import PPM
from optim.models.cluster.world import FloatArray, IntArray
from optim.simulation.cluster.planning.view import View
from optim.simulation.cluster.policies.themis_apps import NOTHING, Beside


class Kinds:
    """The types of a cluster's GPUs, for the jobs that live at one instant.

    Parameters
    ----------
    view, jobs, work_us
        What is seen, the live jobs, and the work that each has left on the type that is fastest for it.
    """

    def __init__(self, view: View, jobs: IntArray, work_us: IntArray) -> None:
        self.of_machine = view.cluster.kind
        self.there: list[int] = np.unique(self.of_machine).tolist()
        self._is_typed = bool(view.kind_ppm.shape[1])
        if self.is_one and not self._is_typed:
            self.slowness: FloatArray = np.ones((int(view.app.max(initial=0)) + 1, max(self.there) + 1))
            return
        self._ppm = view.kind_ppm if view.kind_ppm.shape[1] else np.full((len(view.app), max(self.there) + 1), PPM)
        count = int(view.app.max(initial=0)) + 1
        weight = np.maximum(1, work_us[jobs]).astype(float)
        self._demand = np.bincount(view.app[jobs], view.gpus[jobs], count)
        self.slowness = np.full((count, self._ppm.shape[1]), np.inf)
        for kind in self.there:
            can = self._ppm[jobs, kind] > 0
            whole = np.bincount(view.app[jobs][can], weight[can], count)
            slow = np.bincount(view.app[jobs][can], weight[can] * self._ppm[jobs[can], kind] / PPM, count)
            np.divide(slow, whole, out=self.slowness[:, kind], where=whole > 0)

    @property
    def is_one(self) -> bool:
        """Whether types make no difference."""
        return len(self.there) == 1

    def by_speed(self, apps: Iterable[int]) -> list[int]:
        """Return the types in the order of their mean speed for some apps, the fastest first, ties by number."""
        if self.is_one:
            return self.there
        speed = (1 / self.slowness[list(apps)]).mean(axis=0)
        return sorted(self.there, key=lambda kind: (-float(speed[kind]), kind))

    def usable(self, jobs: IntArray, kind: int) -> IntArray:
        """Return those of some jobs that can run on a type."""
        if self.is_one and not self._is_typed:
            return jobs
        return np.asarray(jobs[self._ppm[jobs, kind] > 0])

    def beside(self, app: int, places: Iterable[tuple[int, int]], kind: int, demand: int) -> Beside:
        """Return what (machine, GPUs) entries of other types are for an app, in GPUs of one type.

        Its jobs that can run on that type can use so many GPUs; others that it holds are first of all for those that can't.
        """
        gpus, speed = 0, 0.0
        for machine, count in places:
            slow = float(self.slowness[app, self.of_machine[machine]])
            if self.of_machine[machine] != kind and np.isfinite(slow):
                gpus += count
                speed += count * float(self.slowness[app, kind]) / slow
        kept = max(0, gpus - (int(self._demand[app]) - demand))
        return Beside(kept, speed * kept / gpus) if kept else NOTHING

    def own(self, places: Iterable[tuple[int, int]], kind: int) -> tuple[tuple[int, int], ...]:
        """Return the entries of one type."""
        return tuple(entry for entry in places if self.of_machine[entry[0]] == kind)
