"""Which machines there are: those of each tier that are to stay, those that come, and those that leave."""

from collections.abc import Collection, Sequence

from optim.core.errors import NotAllowedError
from optim.training.roles import STORAGE


class Membership:
    """The machines of a run.

    Attributes
    ----------
    reliable, transient
        Machines of each tier, those about to leave left out.
    joining
        Machines that are not ready yet, and the tier that they will belong to.
    leaving
        Machines that were warned and work until the next boundary.
    """

    def __init__(self) -> None:
        self.reliable: list[str] = []
        self.transient: list[str] = []
        self.joining: dict[str, list[str]] = {}
        self.leaving: list[str] = []
        self._known = {STORAGE}

    @property
    def staying(self) -> tuple[str, ...]:
        """All machines that are to stay, reliable ones first."""
        return (*self.reliable, *self.transient)

    def is_alive(self, machine: str) -> bool:
        """Tell whether a machine, or the storage, can still do something."""
        return machine == STORAGE or machine in self.staying or machine in self.leaving

    def expect(self, reliable: Sequence[str], transient: Sequence[str]) -> None:
        """Note machines that are being started.

        Raises
        ------
        NotAllowedError
            If a name is or was taken.
        """
        for machine in (*reliable, *transient):
            if machine in self._known:
                raise NotAllowedError(f"there is or was a machine {machine!r}; give each machine a name of its own")
        self._known.update(reliable, transient)
        self.joining.update(dict.fromkeys(reliable, self.reliable))
        self.joining.update(dict.fromkeys(transient, self.transient))

    def arrive(self, machine: str) -> bool:
        """Take a machine into its tier; tell whether it was still expected."""
        tier = self.joining.pop(machine, None)
        if tier is not None:
            tier.append(machine)
        return tier is not None

    def warn(self, machines: Sequence[str]) -> list[str]:
        """Have machines leave at the next boundary; return those that had not come, which can go at once.

        Raises
        ------
        NotAllowedError
            If there is no such machine.
        """
        for machine in machines:
            if machine not in self.staying and machine not in self.joining:
                raise NotAllowedError(f"no machine {machine!r} to evict; there are {', '.join(self.staying) or 'none'}")
        waiting = [name for name in machines if self.joining.pop(name, None) is not None]
        self.leaving.extend(name for name in machines if name in self.staying)
        self._strike_out(machines)
        return waiting

    def bury(self, machine: str) -> bool:
        """Strike out a machine that is gone; tell whether it had a part in the work."""
        self.joining.pop(machine, None)
        was_in = machine in self.staying or machine in self.leaving
        self.leaving = [name for name in self.leaving if name != machine]
        self._strike_out([machine])
        return was_in

    def give_back(self, needed: Collection[str]) -> list[str]:
        """Return the machines that were waiting to leave and aren't needed any more; they are none of ours now."""
        free = [name for name in self.leaving if name not in needed]
        self.leaving = [name for name in self.leaving if name in needed]
        return free

    def _strike_out(self, machines: Sequence[str]) -> None:
        for tier in (self.reliable, self.transient):
            tier[:] = [name for name in tier if name not in machines]
