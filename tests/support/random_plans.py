"""A policy that plans at random within the rules, for runs that meet every rule of engine and checker."""

import numpy as np

from optim.models.cluster.rules import Rules
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy


class RandomPlans(PlanningPolicy):
    """Keep, stop, move, widen, pack and reject at random; at the end, the remaining jobs run one after the other."""

    name = "random-plans"

    def __init__(self, rules: Rules, calls: int = 25, keep: float = 0.6):
        self.given, self.calls, self.keep = rules, calls, keep

    def rules(self, options):
        return self.given

    def begin(self, cluster, seed):
        self.rng, self.called = np.random.default_rng(seed), 0

    def plan(self, view):
        self.called += 1
        is_calm = self.called > self.calls
        gpus = {j: g for j, g in view.running.items() if is_calm or self.rng.random() < self.keep}
        leave = []
        if self.given.may_refuse and not is_calm and self.rng.random() < 0.05 and len(view.jobs):
            leave = [int(self.rng.choice(view.jobs))]
            gpus.pop(leave[0], None)
        for job in view.jobs.tolist() if is_calm else self.rng.permutation(view.jobs).tolist():
            if job not in gpus and job not in leave:
                taken = self._places(view, job, gpus)
                if taken:
                    gpus[job] = taken
        again = None if is_calm else view.now_us + int(self.rng.integers(1, 4)) * int(self.rng.choice([1, 1000, 1001]))
        return Plan(gpus=gpus, again_us=again, leave=leave)

    def _places(self, view, job, gpus):
        width = int(view.gpus[job])
        if self.given.is_elastic:
            width = int(self.rng.integers(view.min_gpus[job], view.max_gpus[job] + 1))
        free = []
        for gpu in self.rng.permutation(view.cluster.num_gpus).tolist():
            on = [j for j, held in gpus.items() if gpu in held]
            if self.given.is_shared:
                fits = sum(int(view.share_milli[j]) for j in [*on, job]) <= 1000
            else:
                fits = len(on) < self.given.jobs_a_gpu
            if view.gpu_type_slowdown_ppm.shape[1]:
                machine = int(np.searchsorted(np.cumsum(view.cluster.gpus), gpu, side="right"))
                fits = fits and view.gpu_type_slowdown_ppm[job, view.cluster.kind[machine]] > 0
            if fits:
                free.append(gpu)
        return tuple(free[:width]) if len(free) >= width else None
