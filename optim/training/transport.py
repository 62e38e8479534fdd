"""The transport of messages between the controller and its machines, and machines as objects of this process."""

from collections import deque
from typing import NamedTuple, Protocol

from optim.core.errors import NotAllowedError
from optim.training.application import Application
from optim.training.machine import Machine
from optim.training.messages import Message, Ready
from optim.training.stages import STORAGE


class Lost(NamedTuple):
    """Notice that a machine was lost without sending a message, with the reason if it is known."""

    machine: str
    reason: str = "it is gone"


class Transport(Protocol):
    """Carrier of messages. Between the controller and one machine, messages arrive in the order sent, or not at all."""

    machines: dict[str, Machine]
    """The machines that are objects of this process: `STORAGE`, and all others if they aren't processes."""

    def start(self, machine: str) -> None:
        """Start a machine of that name; it sends `Ready` once it is ready."""
        ...

    def stop(self, machine: str) -> None:
        """Release a machine after it has processed its messages."""
        ...

    def kill(self, machine: str) -> None:
        """Remove a machine at once, with all its state; `receive` then returns `Lost`."""
        ...

    def send(self, machine: str, message: Message) -> None:
        """Send a message; messages to removed machines are lost."""
        ...

    def receive(self, wait_s: float | None = None) -> Message | Lost | None:
        """Return the next message to the controller, or `Lost` for a lost machine; None if no message can arrive.

        Parameters
        ----------
        wait_s
            For machines that are processes: also return None after this many seconds without a message.
        """
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class InProcess:
    """Machines as objects in this process, which process one message after the other in a fixed order.

    Parameters
    ----------
    application
        Application that the workers compute.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self.machines: dict[str, Machine] = {}
        self.inboxes: dict[str, deque[Message]] = {}
        self.outboxes: dict[str, deque[Message | Lost]] = {}
        self._place(STORAGE)

    def start(self, machine: str) -> None:
        """Create a machine of that name."""
        self._place(machine)
        self.outboxes[machine].append(Ready(machine=machine))

    def _place(self, machine: str) -> None:
        if machine in self.machines:
            raise NotAllowedError(f"a machine named {machine!r} exists already; give each machine a unique name")
        self.machines[machine] = Machine(machine, self._application)
        self.inboxes[machine] = deque()
        self.outboxes.setdefault(machine, deque())

    def stop(self, machine: str) -> None:
        """Release a machine after it has processed its messages."""
        while self.inboxes.get(machine):
            self.run_machine(machine)
        self.machines.pop(machine, None)
        self.inboxes.pop(machine, None)

    def kill(self, machine: str) -> None:
        """Remove a machine; messages that it has sent still arrive, followed by `Lost`."""
        if self.machines.pop(machine, None) is not None:
            self.inboxes.pop(machine)
            self.outboxes[machine].append(Lost(machine))

    def send(self, machine: str, message: Message) -> None:
        """Send a message; messages to removed machines are lost."""
        if machine in self.inboxes:
            self.inboxes[machine].append(message)

    def receive(self, wait_s: float | None = None) -> Message | Lost | None:
        """Return the next message to the controller; None if no message is left."""
        del wait_s  # all messages are available already
        while True:
            for outbox in self.outboxes.values():
                if outbox:
                    return outbox.popleft()
            name = next((name for name, inbox in self.inboxes.items() if inbox), None)
            if name is None:
                return None
            self.run_machine(name)

    def run_machine(self, machine: str) -> None:
        """Let a machine process one message."""
        self.outboxes[machine].extend(self.machines[machine].handle(self.inboxes[machine].popleft()))

    def close(self) -> None:
        """Remove all machines and messages."""
        self.machines.clear()
        self.inboxes.clear()
        self.outboxes.clear()
