"""A transport that writes down every message as whole numbers,."""

import numpy as np

from optim.training import messages
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
