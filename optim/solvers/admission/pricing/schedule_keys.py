"""What tells schedules apart, for lists that keep each schedule once."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from optim.models.admission.instance import IntArray
from optim.solvers.admission.pricing.class_pricing import PricedSchedules


class ScheduleKeys:
    """The keys (job and digest of counts) of a list's schedules, in the list's order."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._known: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, which: IntArray) -> "ScheduleKeys":
        """Return the given entries as a list of their own."""
        other = ScheduleKeys()
        other.keys = self.keys
        other.take(which)
        return other

    def append_new(self, priced: PricedSchedules) -> IntArray:
        """Append the keys of the schedules that aren't in the list, and return where those are in `priced`."""
        new = []
        for k in np.flatnonzero(priced.completion >= 0).tolist():
            key = _key(priced, k)
            if key not in self._known:
                self._known.add(key)
                self.keys.append(key)
                new.append(k)
        return np.array(new, dtype=np.int64)

    def unknown(self, keys: Sequence[bytes | None]) -> IntArray:
        """Return where in `keys` schedules are that aren't in the list."""
        return np.array([k for k, key in enumerate(keys) if key is not None and key not in self._known], dtype=np.int64)

    def take(self, which: IntArray) -> None:
        """Bring the given entries into the given order, and forget the others: they count as new again."""
        self.keys = [self.keys[k] for k in which.tolist()]
        self._known = set(self.keys)


def schedule_keys(priced: PricedSchedules) -> list[bytes | None]:
    """Return the key of each schedule, None for jobs without one."""
    return [_key(priced, k) if priced.completion[k] >= 0 else None for k in range(len(priced))]


def _key(priced: PricedSchedules, k: int) -> bytes:
    digest = blake2b(priced.workers[k].tobytes(), digest_size=16)
    digest.update(priced.ps[k].tobytes())
    return int(priced.jobs[k]).to_bytes(4, "big") + digest.digest()
