"""What can be trained: a loss over fixed data partitions, and its gradients."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from optim.core.errors import InvalidProblemError
from optim.training.messages import RowGradient, Vector


class Application(Protocol):
    """A training job.

    Everything is a pure function of its arguments and of the application's own seed, so that whichever machine computes
    a gradient, and however often, the bits are the same. Data is made where it is needed: an application travels to
    another process as a few numbers.
    """

    @property
    def num_partitions(self) -> int:
        """P, the number of data partitions; fixed."""
        ...

    @property
    def num_parameters(self) -> int:
        """Length n of the flat vector of parameters."""
        ...

    def initial_parameters(self) -> Vector:
        """Return the parameters before the first clock, shape (n,), float32."""
        ...

    def weight(self, partition: int) -> float:
        """Return how much data stands behind a partition's gradient."""
        ...

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the mean gradient over the partition, shape (n,), and its summed loss at these parameters.

        `clock` is for applications that draw at random: they make their stream from seed, partition and clock.
        """
        ...


@runtime_checkable
class HasRows(Protocol):
    """What an application has besides whose gradients touch few rows of its parameters."""

    @property
    def row_width(self) -> int:
        """Parameters a row; the vector is a table of so many columns, row after row."""
        ...

    @property
    def weight_decay_center(self) -> float | None:
        """What all parameters are drawn to besides.

        If it is a number, ``parameters - weight_decay_center`` is a part of every gradient that `row_gradient` leaves out, and servers
        add it.
        """
        ...

    def row_gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[RowGradient, float]:
        """Return what `gradient` does, by rows."""
        ...


PARTS = ("num_partitions", "num_parameters", "initial_parameters", "weight", "gradient")


def check_application(application: Application) -> None:
    """Raise unless there is something to train, and data to train it on.

    Raises
    ------
    InvalidProblemError
        If it isn't an application, has no partitions, no data or no parameters, or defines a method by a former name.
    """
    name = type(application).__name__
    if hasattr(type(application), "drawn_to"):  # else its gradients would go whole, silently
        raise InvalidProblemError(f"{name}.drawn_to is called weight_decay_center now; rename it")
    attributes = getattr(application, "__dict__", {})  # asking the object itself would run its properties
    missing = [part for part in PARTS if part not in attributes and not hasattr(type(application), part)]
    if missing:
        raise InvalidProblemError(f"{name} has no {', '.join(missing)}; derive it from {__name__}.UserApplication")
    weights = np.array([float(application.weight(partition)) for partition in range(application.num_partitions)])
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise InvalidProblemError(
            f"{name} must have partitions of no or more examples, one at least of some, got {weights[:8].tolist()}; mend "
            "`sizes`"
        )
    if application.num_parameters < 1:
        raise InvalidProblemError(f"{name} has no parameters; `start` must return one at least")


def name_of(application: Application) -> str:
    """Return what tells an application from others in every process: a plain object's own text names an address."""
    cls = type(application)
    if cls.__repr__ is not object.__repr__:
        return repr(application)
    weights = np.array([application.weight(partition) for partition in range(application.num_partitions)], np.float64)
    data = f"{zlib.crc32(weights.tobytes()):08x}"
    return f"{cls.__module__}.{cls.__qualname__} of {application.num_parameters} parameters, data {data}"


class UserApplication(ABC):
    """A custom application: four methods, of which the last two are called in processes of their own.

    Objects travel to these processes by pickling, so the class must be importable there, and what is large should be read
    where it is needed.

    Examples
    --------
    >>> import numpy as np
    >>> class Mean(UserApplication):
    ...     def sizes(self):
    ...         return [2, 3]  # examples in each partition
    ...
    ...     def start(self):
    ...         return np.zeros(1)
    ...
    ...     def loss(self, parameters, partition, clock):
    ...         return float((parameters[0] - partition) ** 2 / 2)
    ...
    ...     def slope(self, parameters, partition, clock):
    ...         return parameters - partition
    >>> Mean().gradient(Mean().initial_parameters(), 1, 0)
    (array([-1.], dtype=float32), 1.5)
    """

    @abstractmethod
    def sizes(self) -> Sequence[float]:
        """Return how many examples each partition has; its length is the number of partitions."""

    @abstractmethod
    def start(self) -> ArrayLike:
        """Return the parameters before the first clock, any shape."""

    @abstractmethod
    def loss(self, parameters: Vector, partition: int, clock: int) -> float:
        """Return the mean loss over a partition."""

    @abstractmethod
    def slope(self, parameters: Vector, partition: int, clock: int) -> ArrayLike:
        """Return the mean gradient over a partition, in the shape of `start`."""

    @property
    def num_partitions(self) -> int:
        """Partitions."""
        return len(self.sizes())

    @property
    def num_parameters(self) -> int:
        """Length of the flat vector."""
        return int(np.size(self.start()))

    def initial_parameters(self) -> Vector:
        """Return the flat parameters."""
        return np.asarray(self.start(), dtype=np.float32).ravel().copy()

    def weight(self, partition: int) -> float:
        """Return a partition's size."""
        return float(self.sizes()[partition])

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the flat gradient and the summed loss."""
        shaped = np.asarray(parameters).reshape(np.shape(self.start()))
        slope = np.asarray(self.slope(shaped, partition, clock), dtype=np.float32).ravel()
        return slope, self.loss(shaped, partition, clock) * self.weight(partition)
