"""Applications that can be trained: a loss over fixed data partitions, and its gradients."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optim.core.errors import InvalidProblemError
from optim.training.arrays import to_device, to_host
from optim.training.messages import Vector

if TYPE_CHECKING:
    import jax

Parameters = Any
"""A pytree of float32 arrays."""

Batch = Any
"""A pytree of arrays: the data of which a loss is computed."""


class Application(Protocol):
    """A training job.

    Every method is a pure function of its arguments and of the application's seed. A gradient therefore has the same bits
    on every machine and in every repetition. Each process generates the data that it needs, so that only a few numbers
    are sent to other processes.
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
        """Return the weight of a partition's data in the mean gradient."""
        ...

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the mean gradient over the partition, shape (n,), and its summed loss at these parameters.

        Applications that draw random numbers derive their random stream from seed, partition and `clock`.
        """
        ...


@runtime_checkable
class HasRows(Protocol):
    """A `DeviceApplication` whose parameters are one table, and whose partitions depend on few rows each."""

    @property
    def row_width(self) -> int:
        """Number of columns of the table."""
        ...

    def rows(self, partition: int) -> NDArray[np.int32]:
        """Return the numbers of the rows on which a partition's loss depends, in rising order; `loss` gets only these rows."""
        ...


PARTS = ("num_partitions", "num_parameters", "initial_parameters", "weight", "gradient")


def is_on_device(application: object) -> "TypeGuard[DeviceApplication]":
    """Return whether JAX computes the gradients; False if a subclass overrides `gradient`."""
    return isinstance(application, DeviceApplication) and type(application).gradient is DeviceApplication.gradient


def check_application(application: Application) -> None:
    """Raise InvalidProblemError unless an application has parameters and data.

    Raises
    ------
    InvalidProblemError
        If the application lacks a method of `Application`, or has no partitions, no data or no parameters.
    """
    name = type(application).__name__
    attributes = getattr(application, "__dict__", {})  # hasattr(application, part) would run a property
    missing = [part for part in PARTS if part not in attributes and not hasattr(type(application), part)]
    if missing:
        raise InvalidProblemError(f"{name} has no {', '.join(missing)}; derive it from {__name__}.UserApplication")
    weights = np.array([float(application.weight(partition)) for partition in range(application.num_partitions)])
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise InvalidProblemError(
            f"{name} must have sizes of at least 0, and at least one above 0, got {weights[:8].tolist()}; correct "
            "`sizes`"
        )
    if application.num_parameters < 1:
        raise InvalidProblemError(f"{name} has no parameters; `start` must return at least one")


def name_of(application: Application) -> str:
    """Return a name of the application that is the same in every process; the default repr contains an address."""
    cls = type(application)
    if cls.__repr__ is not object.__repr__:
        return repr(application)
    weights = np.array([application.weight(partition) for partition in range(application.num_partitions)], np.float64)
    data = f"{zlib.crc32(weights.tobytes()):08x}"
    return f"{cls.__module__}.{cls.__qualname__} of {application.num_parameters} parameters, data {data}"


Parts = tuple[Any, ...]
"""A flat JAX vector cut into pieces, one per shard."""


def check_rows(rows: NDArray[np.int32], num_rows: int) -> None:
    """Raise InvalidProblemError unless row numbers are increasing and within the table.

    Raises
    ------
    InvalidProblemError
        If the row numbers aren't increasing, are outside the table, or aren't int32 numbers of shape (k,).
    """
    if rows.dtype != np.int32 or rows.ndim != 1:
        raise InvalidProblemError(
            f"rows must be int32 numbers, shape (k,), got {rows.dtype} of shape {rows.shape}; convert them"
        )
    if len(rows) and not (rows[0] >= 0 and rows[-1] < num_rows and (np.diff(rows) > 0).all()):
        raise InvalidProblemError(
            f"row numbers of a partition must increase, from 0 to at most {num_rows - 1}; sort them"
        )


@lru_cache(maxsize=16, typed=True)
def _compiled(application: "DeviceApplication") -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the compiled gradients of an application; equal applications of a class share them."""
    import jax

    return jax.jit(application._whole_gradient), jax.jit(application._row_gradient)


def _are_finite(arrays: Sequence[Any]) -> Any:
    import jax.numpy as jnp

    return reduce(and_, [jnp.isfinite(array).all() for array in arrays])


class DeviceApplication(ABC):
    """An application in JAX: a loss of parameters and data, whose gradient is its derivative.

    `init`, `loss` and `sample` are pure functions that JAX traces. Parameters and batches are pytrees. The arrays of a
    partition go to the device once and stay there.

    Attributes
    ----------
    seed
        Seed of `init`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> class Line(DeviceApplication):
    ...     num_partitions = 2
    ...
    ...     def init(self, key):
    ...         return {"slope": jnp.float32(0), "offset": jnp.float32(0)}
    ...
    ...     def partition(self, index):
    ...         x = jnp.arange(3, dtype=jnp.float32)
    ...         return x, 2 * x + index
    ...
    ...     def loss(self, parameters, batch):
    ...         x, y = batch
    ...         return ((parameters["slope"] * x + parameters["offset"] - y) ** 2).mean()
    ...
    ...     def weight(self, partition):
    ...         return 3.0
    >>> Line().gradient(Line().initial_parameters(), 0, 0)[0].round(2)  # offset first: names are sorted
    array([-4.  , -6.67], dtype=float32)
    """

    num_partitions: int
    seed: int = 0

    @abstractmethod
    def init(self, key: "jax.Array") -> Parameters:
        """Return the parameters before the first clock, a pytree of float32 arrays."""

    @abstractmethod
    def partition(self, index: int) -> Batch:
        """Return a partition's data as arrays on the device; return the same arrays at each call, to avoid further copies."""

    @abstractmethod
    def loss(self, parameters: Parameters, batch: Batch) -> "jax.Array":
        """Return the mean loss over a batch, a scalar of float32."""

    @abstractmethod
    def weight(self, partition: int) -> float:
        """Return the weight of a partition's data in the mean gradient."""

    def sample(self, batch: Batch, clock: "jax.Array") -> Batch:
        """Return the part of a partition's data that is used at a clock; by default all of it."""
        del clock
        return batch

    @cached_property
    def num_parameters(self) -> int:
        """Total length of all arrays of the parameters."""
        import jax

        shapes = jax.eval_shape(self.init, jax.random.key(0))
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))

    def initial_parameters(self) -> Vector:
        """Return the parameters before the first clock as a flat NumPy vector, shape (n,)."""
        import jax
        from jax.flatten_util import ravel_pytree

        flat: Vector = np.array(jax.device_get(ravel_pytree(self.init(jax.random.key(self.seed)))[0]), np.float32)
        return flat

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the flat mean gradient and the summed loss, for callers that use NumPy vectors."""
        vector = to_device(np.ascontiguousarray(parameters, np.float32))
        (gradient,), loss, _ = to_host(self.compiled_gradient((vector,), *self.on_device(partition, clock)))
        return np.asarray(gradient), float(loss) * self.weight(partition)

    def on_device(self, partition: int, clock: int) -> tuple[Batch, Any, Any]:
        """Return a partition's data, the clock, and the partition's rows or None, for `compiled_gradient`."""
        rows = None
        if isinstance(self, HasRows):
            rows = self.rows(partition)
            check_rows(rows, self.num_parameters // self.row_width)
        return self.partition(partition), *to_device((np.int32(clock), rows))

    @property
    def compiled_gradient(self) -> Callable[..., Any]:
        """Compiled gradient; its arguments are the parameters in parts, a batch, the clock, and the rows or None.

        The function returns the mean gradient in the same parts, the mean loss, and whether both are finite.
        """
        return _compiled(self)[0]

    @property
    def compiled_row_gradient(self) -> Callable[..., Any]:
        """As `compiled_gradient`, but with the gradients of the partition's rows only, shape (rows, row_width)."""
        return _compiled(self)[1]

    def _whole_gradient(self, parts: Parts, batch: Batch, clock: Any, rows: Any) -> tuple[Parts, Any, Any]:
        import jax
        import jax.numpy as jnp
        from jax.flatten_util import ravel_pytree

        if rows is not None:
            values, loss, is_finite = self._row_gradient(parts, batch, clock, rows)
            table = jnp.zeros((self.num_parameters // values.shape[1], values.shape[1]), jnp.float32)
            whole = table.at[rows].set(values, indices_are_sorted=True, unique_indices=True).ravel()
            return tuple(jnp.split(whole, np.cumsum([part.size for part in parts])[:-1])), loss, is_finite
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        _, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))

        def loss_of(parts: Parts) -> Any:
            return self._scalar_loss(unravel(jnp.concatenate(parts)), self.sample(batch, clock))

        loss, gradients = jax.value_and_grad(loss_of)(parts)
        return gradients, loss, _are_finite((loss, *gradients))

    def _scalar_loss(self, parameters: Parameters, batch: Batch) -> Any:
        loss = self.loss(parameters, batch)
        if np.shape(loss) != ():
            raise InvalidProblemError(
                f"{type(self).__name__}.loss must return one number, got shape {np.shape(loss)}; take the mean over the batch"
            )
        return loss

    def _row_gradient(self, parts: Parts, batch: Batch, clock: Any, rows: Any) -> tuple[Any, Any, Any]:
        import jax
        import jax.numpy as jnp

        assert isinstance(self, HasRows), "the application has rows"
        table = jnp.concatenate(parts).reshape(-1, self.row_width)
        loss, values = jax.value_and_grad(lambda taken: self._scalar_loss(taken, self.sample(batch, clock)))(
            table[rows]
        )
        return values, loss, _are_finite((loss, values))


class UserApplication(ABC):
    """Base class of custom applications, with four methods to define: `sizes`, `start`, `loss` and `slope`.

    Separate processes call `loss` and `slope`. The object is pickled for them, so its class must be importable there. Read
    large data inside the methods that need it.

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
        """Return the number of examples in each partition, one entry per partition."""

    @abstractmethod
    def start(self) -> ArrayLike:
        """Return the parameters before the first clock, an array of any shape."""

    @abstractmethod
    def loss(self, parameters: Vector, partition: int, clock: int) -> float:
        """Return the mean loss over a partition."""

    @abstractmethod
    def slope(self, parameters: Vector, partition: int, clock: int) -> ArrayLike:
        """Return the mean gradient over a partition, in the shape of `start`."""

    @property
    def num_partitions(self) -> int:
        """Number of partitions."""
        return len(self.sizes())

    @property
    def num_parameters(self) -> int:
        """Length of the flat vector."""
        return int(np.size(self.start()))

    def initial_parameters(self) -> Vector:
        """Return the parameters before the first clock as a flat vector."""
        return np.asarray(self.start(), dtype=np.float32).ravel().copy()

    def weight(self, partition: int) -> float:
        """Return the number of examples in a partition."""
        return float(self.sizes()[partition])

    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the flat mean gradient and the summed loss."""
        shaped = np.asarray(parameters).reshape(np.shape(self.start()))
        slope = np.asarray(self.slope(shaped, partition, clock), dtype=np.float32).ravel()
        return slope, self.loss(shaped, partition, clock) * self.weight(partition)
