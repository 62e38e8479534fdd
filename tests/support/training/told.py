"""A transport that writes down every message as whole numbers, and random storms of machines that come and go."""

import numpy as np

from optim.training import messages
from optim.training.trainer import Action, Event
from optim.training.transport import InProcess, Lost

KINDS = [name for name in dir(messages) if isinstance(getattr(messages, name), type)]
NUMBERS = (
    "generation",
    "partition",
    "clock",
    "read_clock",
    "shard",
    "from_clock",
    "sync_every",
    "staleness",
    "start",
    "width",
)


class Writing(InProcess):
    """A transport in this process that writes down what it carries, either way."""

    def __init__(self, application):
        super().__init__(application)
        self.log, self.names = [], {}

    def send(self, machine, message):
        self._write(0, machine, message)
        super().send(machine, message)

    def start(self, machine):
        self._write(1, machine, None)
        super().start(machine)

    def stop(self, machine):
        self._write(2, machine, None)
        super().stop(machine)

    def kill(self, machine):
        self._write(3, machine, None)
        super().kill(machine)

    def receive(self, wait_s=None):
        message = super().receive(wait_s)
        self._write(4, getattr(message, "machine", ""), message)
        return message

    def _write(self, way, machine, message):
        kind = (
            KINDS.index(type(message).__name__) if type(message).__name__ in KINDS else -1 - isinstance(message, Lost)
        )
        self.log += [way, self.names.setdefault(machine, len(self.names)), kind]
        self.log += [int(getattr(message, name, -1)) for name in NUMBERS]
        values = getattr(message, "values", None)
        if isinstance(values, messages.ShardValues):
            self.log += [
                values.shard,
                values.clock,
                *_bits(values.parameters),
                *(bit for slot in values.slots for bit in _bits(slot)),
            ]
        for name in ("parameters", "gradient", "rows"):
            if isinstance(array := getattr(message, name, None), np.ndarray):
                self.log += _bits(array)


def _bits(array):
    """Return the bits of floats of 32 bits, so that nothing is rounded."""
    return np.asarray(array, np.float32).view(np.int32).tolist()


def random_events(seed, clocks):
    """Draw machines that come, are warned and die; one reliable machine at least is always there."""
    rng = np.random.default_rng(seed)
    there = {"reliable": ["r0"], "transient": []}
    events = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0",))]
    for clock in range(1, clocks):
        before = [*there["transient"], *there["reliable"][1:]]
        for number in range(int(rng.integers(0, 3))):
            tier = str(rng.choice(["reliable", "transient", "transient"]))
            after = int(rng.integers(0, 9))
            leaving = [name for name in before if name in there["transient"] or name in there["reliable"]]
            if rng.random() < 0.45 or not leaving:
                names = tuple(f"{tier[0]}{clock}-{number}-{k}" for k in range(int(rng.integers(1, 4))))
                action = Action.ADD_RELIABLE if tier == "reliable" else Action.ADD_TRANSIENT
                there[tier] += names
            else:
                names = tuple(rng.permutation(leaving)[: int(rng.integers(1, 3))].tolist())
                action = Action.EVICT if rng.random() < 0.25 else Action.KILL
                for own in there.values():
                    own[:] = [name for name in own if name not in names]
            is_added = action in (Action.ADD_RELIABLE, Action.ADD_TRANSIENT)
            events.append(Event(clock=clock, action=action, machines=names, after_messages=0 if is_added else after))
    return events
