"""What the branches above a leaf leave of one job's schedules."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from optim.models.admission.proof import Branch, BranchKind, Side

Place = tuple[Side, int, int]
"""Side, server class and slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """Conditions on one job's schedule.

    Parameters
    ----------
    is_refused, is_admitted
        The job has no schedule, or certainly has one.
    after, until
        A schedule completes after slot `after` and by slot `until` (None: no limit).
    at_least, at_most
        Limits on the number of workers or PSs in a class and slot.
    """

    is_refused: bool = False
    is_admitted: bool = False
    after: int = -1
    until: int | None = None
    at_least: Mapping[Place, int] = field(default_factory=dict)
    at_most: Mapping[Place, int] = field(default_factory=dict)

    @property
    def forced_slots(self) -> tuple[int, ...]:
        """Slots in which the job must have workers or PSs."""
        return tuple(slot for _, _, slot in self.at_least)

    @property
    def is_contradictory(self) -> bool:
        """Whether the conditions exclude each other at sight: no plan at all meets them."""
        return (self.is_refused and self.is_admitted) or any(limit < 0 for limit in self.at_most.values())

    def narrowed(self, branch: Branch, *, is_high: bool) -> "Restriction":
        """Return the restriction of a child of `branch`."""
        limit = branch.value
        match branch.kind:
            case BranchKind.ADMITTED:
                return replace(self, is_admitted=True) if is_high else replace(self, is_refused=True)
            case BranchKind.COMPLETION if is_high:
                return replace(self, after=max(self.after, limit))
            case BranchKind.COMPLETION:
                return replace(self, until=limit if self.until is None else min(self.until, limit))
        side = Side.WORKER if branch.kind is BranchKind.WORKERS else Side.PS
        place = (side, branch.server_class, branch.slot)
        if not is_high:
            return replace(self, at_most={**self.at_most, place: min(self.at_most.get(place, limit), limit)})
        if limit < 0:
            return self  # at least v + 1 <= 0 units: no condition
        at_least = {**self.at_least, place: max(self.at_least.get(place, 0), limit + 1)}
        return replace(self, is_admitted=True, at_least=at_least)


FREE = Restriction()
"""No condition."""
