"""Gradients as workers push them: encoding, compression, and non-finite values."""

import jax
import jax.numpy as jnp
import numpy as np

from optim.core.errors import InvalidProblemError, TrainingError
from optim.kernels.parameter_server import decode_int8, encode_int8, encode_top_k
from optim.training.application import Application, HasRows
from optim.training.messages import Compression, Compute, NonFinite, Pushed, RowGradient, Vector


class NonFinitePushes:
    """Remembers which were refused already.

    Parameters
    ----------
    policy
        What becomes of them.
    """

    def __init__(self, policy: NonFinite) -> None:
        self._policy = policy
        self._refused: set[tuple[int, int]] = set()

    def refuses(self, message: Pushed) -> bool:
        """Return whether a gradient is to be computed again; else it is left out.

        Raises
        ------
        TrainingError
            If the policy is to stop, or what was computed again isn't finite either.
        """
        if self._policy == NonFinite.SKIP:
            return False
        gradient = message.partition, message.clock
        if self._policy == NonFinite.REFUSE and gradient not in self._refused:
            self._refused.add(gradient)
            return True
        again = " again" if gradient in self._refused else ""
        raise TrainingError(
            f"machine {message.machine} computed{again} a gradient or loss that isn't finite, of partition "
            f"{message.partition} at clock {message.clock}; lower the learning rate, look at the data, or set non_finite to "
            "'skip' (optim run --non-finite skip)"
        )


def quantise_int8(gradient: Vector, partition: int, clock: int) -> Vector:
    """Return what arrives of a gradient that is pushed in 255 levels; its mean over draws is the gradient.

    Parameters
    ----------
    gradient
        Shape (n,), finite.
    partition, clock
        What the draws follow from.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), partition), clock)
    message, _ = encode_int8(jnp.asarray(gradient), jnp.zeros(len(gradient), jnp.float32), key)
    return np.array(decode_int8(message))


def sparsify_top_k(gradient: Vector, share: float, residual: Vector | None = None) -> tuple[RowGradient, Vector]:
    """Return the share of a gradient's entries that is largest in magnitude, one at least, as rows of one number, and the rest.

    Of equal magnitudes the lower index goes. What is returned adds up to the gradient and what was left, exactly.

    Parameters
    ----------
    gradient
        Shape (n,), finite.
    share
        In (0, 1].
    residual
        Shape (n,): what earlier pushes left out, which is added first; zeros if not given.

    References
    ----------
    Stich, Cordonnier, Jaggi (2018), Sparsified SGD with memory; Karimireddy, Rebjock, Stich, Jaggi (2019), Error feedback
    fixes SignSGD and other gradient compression schemes.
    """
    k = max(1, round(share * len(gradient)))
    before = jnp.zeros(len(gradient), jnp.float32) if residual is None else jnp.array(residual, copy=True)
    message, rest = encode_top_k(jnp.asarray(gradient), before, k=k)
    rows, values = np.asarray(message.indices, dtype=np.int32), np.asarray(message.values)
    order = np.argsort(rows)
    return RowGradient(rows[order], values[order, None]), np.array(rest)


def compute(
    application: Application, order: Compute, residual: Vector | None = None, machine: str = ""
) -> tuple[Pushed, Vector | None]:
    """Return the gradient that an order asks for, as it is pushed, and the residual for the partition's next clock.

    Parameters
    ----------
    application, order
        The job, and the partition and clock to compute.
    residual
        Shape (n,): what the partition's push of the clock before has left out; None if nothing.
    machine
        Name of the worker.

    Raises
    ------
    InvalidProblemError
        If the application returns something else than a gradient of its parameters.
    """
    parameters, weight_decay_center = order.parameters, None
    for gradient_share in order.unapplied:
        parameters = parameters - np.float32(order.rate) * gradient_share
    where: RowGradient | None = None
    if order.densest > 0 and order.compression is not Compression.TOP_K and isinstance(application, HasRows):
        where, loss = application.row_gradient(parameters, order.partition, order.clock)
        check_rows(where, application.num_parameters, application.row_width)
        weight_decay_center = application.weight_decay_center
        if len(where.rows) * application.row_width > order.densest * application.num_parameters:
            gradient = where.dense(application.num_parameters)
            if weight_decay_center is not None:
                gradient = gradient + (parameters - np.float32(weight_decay_center))
            where, weight_decay_center = None, None
        else:
            gradient = where.values.ravel()
    else:
        gradient, loss = application.gradient(parameters, order.partition, order.clock)
        check_gradient(gradient, application.num_parameters)
    # In double precision no sum of finite floats overflows.
    is_finite = bool(np.isfinite(np.sum(gradient, dtype=np.float64)) and np.isfinite(loss))
    if is_finite and len(gradient) and order.compression is Compression.INT8:
        gradient = quantise_int8(gradient, order.partition, order.clock)
    if is_finite and order.compression is Compression.TOP_K:
        where, rest = sparsify_top_k(gradient, order.top_share, residual)
        residual = rest if order.feedback else None
        is_sparse = len(where.rows) <= order.densest * application.num_parameters
        gradient = where.values.ravel() if is_sparse else where.dense(application.num_parameters)
        where = where if is_sparse else None
    pushed = Pushed(
        generation=order.generation,
        machine=machine,
        is_finite=is_finite,
        partition=order.partition,
        clock=order.clock,
        read_clock=order.read_clock,
        gradient=gradient,
        rows=None if where is None else where.rows,
        width=1 if where is None else where.values.shape[1],
        weight_decay_center=weight_decay_center,
        weight=application.weight(order.partition),
        loss=loss,
    )
    return pushed, residual


def check_gradient(gradient: object, size: int) -> None:
    """Raise unless a gradient is a flat vector of floats as long as the parameters.

    Raises
    ------
    InvalidProblemError
        With what it is instead.
    """
    if not isinstance(gradient, np.ndarray) or gradient.shape != (size,) or gradient.dtype != np.float32:
        actual = f"{gradient.dtype} of shape {gradient.shape}" if isinstance(gradient, np.ndarray) else type(gradient)
        raise InvalidProblemError(
            f"gradient must be a NumPy array of float32 of shape ({size},), got {actual}; return it as "
            "`np.asarray(gradient, np.float32).ravel()`"
        )


def check_rows(gradient: RowGradient, size: int, width: int) -> None:
    """Raise unless a gradient by rows is of rising rows of the table, with as many floats each as it is wide.

    Raises
    ------
    InvalidProblemError
        With what it is instead.
    """
    rows, values = gradient
    if rows.dtype != np.int32 or rows.ndim != 1 or values.dtype != np.float32 or values.shape != (len(rows), width):
        raise InvalidProblemError(
            f"a gradient by rows must be int32 numbers, shape (k,), and float32 values, shape (k, {width}), got {rows.dtype} of "
            f"shape {rows.shape} and {values.dtype} of shape {values.shape}; convert them"
        )
    if len(rows) and not (rows[0] >= 0 and rows[-1] < size // width and (np.diff(rows) > 0).all()):
        raise InvalidProblemError(f"rows of a gradient must rise, from 0 to at most {size // width - 1}; sort them")
