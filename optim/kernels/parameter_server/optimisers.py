"""Optimisers, built on optax: rules by which a mean gradient updates the parameters and the optimiser's state.

All optimisers are elementwise, so cutting a vector into shards or rows changes no bit of the result. *Slots* are the
arrays of optax's state, such as momentum. The counters of optax's state equal the number of the update, and aren't
stored.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax import lax

from optim.core.errors import InvalidOptionError, check_in

Arrays = tuple[jax.Array, ...]
OptState = Arrays
Updated = tuple[jax.Array, OptState]
"""Parameters and slots after an update."""


@dataclass(frozen=True, kw_only=True)
class WarmupCosine:
    """A learning rate that rises linearly from 0 to its peak, and then falls to 0 as half a cosine wave.

    Parameters
    ----------
    peak
        The largest rate.
    warmup_steps, num_steps
        Number of updates until the peak, and total number of updates, after which the rate is 0.

    References
    ----------
    `optax.warmup_cosine_decay_schedule`.
    """

    peak: float
    warmup_steps: int
    num_steps: int

    def __post_init__(self) -> None:
        check_in("(0, inf)", self, "peak")
        check_in("[0, inf)", self, "warmup_steps")
        if self.num_steps <= self.warmup_steps:
            raise InvalidOptionError(
                f"num_steps must be more than warmup_steps {self.warmup_steps}, got {self.num_steps}"
            )

    def __call__(self, count: jax.Array) -> jax.Array:
        """Return the rate after `count` updates."""
        rate: jax.Array = optax.warmup_cosine_decay_schedule(0.0, self.peak, self.warmup_steps, self.num_steps)(count)
        return rate


@dataclass(frozen=True, kw_only=True)
class AbstractOptimiser(ABC):
    """An update rule; hashable, so that it can be a static argument of a compiled function.

    Attributes
    ----------
    num_slots
        Number of state arrays (slots), which have the parameters' shape and are zeros before the first update.
    learning_rate
        A positive number, or a schedule: a hashable function of the number of earlier updates. It may be a traced value, so
        that a caller can compile, map or differentiate over it.
    zero_grad_is_noop
        Whether a gradient of 0 changes neither parameters nor slots. If so, pushing only the rows with nonzero gradients
        gives the same update.
    intervals
        Range of each option except the learning rate.
    """

    num_slots: ClassVar[int]
    zero_grad_is_noop: ClassVar[bool] = False
    intervals: ClassVar[Mapping[str, str]] = {}

    learning_rate: float | WarmupCosine

    def __post_init__(self) -> None:
        for name, interval in self.intervals.items():
            if isinstance(getattr(self, name), jax.core.Tracer):
                raise InvalidOptionError(
                    f"{name} must be a number, got a traced value; of these options only learning_rate may be traced"
                )
            check_in(interval, self, name)
        if has_traced_rate(self) or callable(self.learning_rate):
            return
        if isinstance(self.learning_rate, jax.Array):  # a JAX array has no hash
            if self.learning_rate.ndim:
                raise InvalidOptionError(
                    f"learning_rate must be one number, got shape {self.learning_rate.shape}; for several rates, map over the rate with jax.vmap"
                )
            object.__setattr__(self, "learning_rate", float(self.learning_rate))
        check_in("(0, inf)", self, "learning_rate")

    @abstractmethod
    def transformation(self) -> optax.GradientTransformation:
        """Return the equivalent optax transformation."""

    def initial_slots(self, parameters: jax.Array) -> OptState:
        """Return the slots before the first update: zeros."""
        return tuple(jnp.zeros_like(parameters) for _ in range(self.num_slots))

    def update(self, parameters: jax.Array, slots: OptState, gradient: jax.Array, step: jax.Array) -> Updated:
        """Return parameters and slots after one update.

        Parameters
        ----------
        parameters, gradient
            Arrays of equal shape, float32.
        slots
            `num_slots` arrays of that shape.
        step
            Number of this update, a scalar; 1 for the first update.
        """
        # Counters are in float32, exact up to 2^24: XLA would compute integer powers in double precision.
        rule = self.transformation()
        leaves, tree = jax.tree.flatten(jax.eval_shape(rule.init, parameters))
        arrays, count = iter(slots), step - 1
        is_counter = [jnp.issubdtype(leaf.dtype, jnp.integer) for leaf in leaves]
        state = tree.unflatten([count.astype(jnp.float32) if counts else next(arrays) for counts in is_counter])
        updates, state = rule.update(gradient, state, parameters)
        kept = zip(jax.tree.leaves(state), is_counter, strict=True)
        return parameters + updates, tuple(leaf for leaf, counts in kept if not counts)

    def update_arrays(self, arrays: Arrays, gradient: jax.Array, step: jax.Array) -> Arrays:
        """Update as `update` does, but with parameters and slots in one tuple."""
        parameters, slots = self.update(arrays[0], arrays[1:], gradient, step)
        return parameters, *slots


@dataclass(frozen=True, kw_only=True)
class Sgd(AbstractOptimiser):
    """Stochastic gradient descent: w -= rate g."""

    num_slots: ClassVar[int] = 0
    zero_grad_is_noop: ClassVar[bool] = True

    def transformation(self) -> optax.GradientTransformation:
        """Return `optax.sgd`."""
        return optax.sgd(self.learning_rate)


@dataclass(frozen=True, kw_only=True)
class Momentum(AbstractOptimiser):
    """Heavy ball: u = decay u + g; w -= rate u, or w -= rate (decay u + g) with Nesterov's method."""

    num_slots: ClassVar[int] = 1
    intervals: ClassVar[Mapping[str, str]] = {"decay": "[0, 1)"}

    decay: float = 0.9
    nesterov: bool = False

    def transformation(self) -> optax.GradientTransformation:
        """Return `optax.sgd` with momentum."""
        return optax.sgd(self.learning_rate, momentum=self.decay, nesterov=self.nesterov)


@dataclass(frozen=True, kw_only=True)
class Adagrad(AbstractOptimiser):
    """Adagrad: h += g^2; w -= rate g / sqrt(h + epsilon).

    References
    ----------
    Duchi, Hazan, Singer (2011), Adaptive subgradient methods, JMLR 12.
    """

    num_slots: ClassVar[int] = 1
    zero_grad_is_noop: ClassVar[bool] = True
    intervals: ClassVar[Mapping[str, str]] = {"epsilon": "(0, inf)"}  # above 0, so that the quotient is finite

    epsilon: float = 1e-20

    def transformation(self) -> optax.GradientTransformation:
        """Return `optax.adagrad` with squares that begin at zero."""
        return optax.adagrad(self.learning_rate, initial_accumulator_value=0.0, eps=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Adam(AbstractOptimiser):
    """Adam with bias correction. On tables of rows it is *lazy*: a row that isn't pushed keeps its moments.

    References
    ----------
    Kingma, Ba (2015), Adam: a method for stochastic optimization, arXiv 1412.6980, algorithm 1.
    """

    num_slots: ClassVar[int] = 2
    intervals: ClassVar[Mapping[str, str]] = {"first_decay": "[0, 1)", "second_decay": "[0, 1)", "epsilon": "(0, inf)"}

    first_decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8

    def transformation(self) -> optax.GradientTransformation:
        """Return `optax.adam`."""
        return optax.adam(self.learning_rate, self.first_decay, self.second_decay, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: w -= rate (step of Adam + weight_decay w).

    References
    ----------
    Loshchilov, Hutter (2019), Decoupled weight decay regularization, ICLR, arXiv 1711.05101, algorithm 2.
    """

    intervals: ClassVar[Mapping[str, str]] = {**Adam.intervals, "weight_decay": "[0, inf)"}

    weight_decay: float = 1e-4

    def transformation(self) -> optax.GradientTransformation:
        """Return `optax.adamw`."""
        decays = self.first_decay, self.second_decay, self.epsilon
        return optax.adamw(self.learning_rate, *decays, weight_decay=self.weight_decay)


def after(value: jax.Array, array: jax.Array, place: jax.Array) -> jax.Array:
    """Return `value`, an integer, such that XLA computes it only after a float32 array has been written.

    Parameters and slots change in place, one after the other; each new array is computed from all old arrays. Without this
    dependence XLA may write a slot before the parameters' update reads it, and would copy the entire slot for that.

    Parameters
    ----------
    value
        Scalar integer.
    array, place
        The array that must be written before, shape (n,) or (rows, width), and the index of an element or row in it.
    """
    read = lax.dynamic_slice(array, (place, *[jnp.zeros_like(place)] * (array.ndim - 1)), (1,) * array.ndim)
    bit = lax.bitcast_convert_type(read.ravel()[0], jnp.int32) & 1
    return value + (bit >> 1).astype(value.dtype)


def has_traced_rate(rule: AbstractOptimiser) -> bool:
    """Return whether the learning rate is a traced value, so that the rule has no hash."""
    return isinstance(rule.learning_rate, jax.core.Tracer)


def compiled_for_rule(**settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as `jax.jit` does, with its ``optimiser`` or ``layout`` as a static argument.

    With a traced rate the function becomes part of the caller's trace, and donates no argument.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        kernel = jax.jit(function, **settings)

        @wraps(function)
        def call(*arrays: Any, **named: Any) -> Any:
            rule = named["layout"].optimiser if "layout" in named else named["optimiser"]
            return (function if has_traced_rate(rule) else kernel)(*arrays, **named)

        call.lower = kernel.lower  # type: ignore[attr-defined]  # of a compiled function
        return call

    return compiled
