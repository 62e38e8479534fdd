"""Elementwise optimisers: how a mean gradient changes parameters and their slots.

All are elementwise, so cutting a vector into shards or rows changes no bit of the result.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from optim.core.errors import InvalidOptionError, check_in

OptState = tuple[jax.Array, ...]
Updated = tuple[jax.Array, OptState]
"""Parameters and slots after an update."""


@dataclass(frozen=True, kw_only=True)
class AbstractOptimiser(ABC):
    """A rule of update; hashable, so that it can be a static argument of a compiled function.

    Attributes
    ----------
    num_slots
        Arrays of the parameters' shape that the rule keeps beside them.
    learning_rate
        Positive. It may be traced: a caller may compile, map or differentiate over it.
    zero_grad_is_noop
        Whether a gradient of 0 changes neither parameter nor slot: then pushing only the rows that aren't 0 is the same update.
    """

    num_slots: ClassVar[int]
    zero_grad_is_noop: ClassVar[bool] = False

    learning_rate: float

    def __post_init__(self) -> None:
        if has_traced_rate(self):
            return
        if isinstance(self.learning_rate, jax.Array):  # which has no hash
            if self.learning_rate.ndim:
                raise InvalidOptionError(
                    f"learning_rate must be one number, got shape {self.learning_rate.shape}; for several, map over it with jax.vmap"
                )
            object.__setattr__(self, "learning_rate", float(self.learning_rate))
        check_in("(0, inf)", self, "learning_rate")

    def initial_slots(self, parameters: jax.Array) -> OptState:
        """Return the slots before the first update: zeros."""
        return tuple(jnp.zeros_like(parameters) for _ in range(self.num_slots))

    @abstractmethod
    def update_state(self, slots: OptState, gradient: jax.Array) -> OptState:
        """Return the slots after one update, each made of its own old value and the gradient alone."""

    @abstractmethod
    def apply_updates(self, parameters: jax.Array, slots: OptState, gradient: jax.Array, step: jax.Array) -> jax.Array:
        """Return the parameters after one update, given the slots that `update_state` returned."""

    def update(self, parameters: jax.Array, slots: OptState, gradient: jax.Array, step: jax.Array) -> Updated:
        """Return parameters and slots after one update.

        Parameters
        ----------
        parameters, gradient
            Arrays of equal shape, float32.
        slots
            `num_slots` arrays of that shape.
        step
            Number of this update, 1 for the first; a scalar.
        """
        advanced = self.update_state(slots, gradient)
        return self.apply_updates(parameters, advanced, gradient, step), advanced


@dataclass(frozen=True, kw_only=True)
class Sgd(AbstractOptimiser):
    """Stochastic gradient descent: w -= rate g."""

    num_slots: ClassVar[int] = 0
    zero_grad_is_noop: ClassVar[bool] = True

    def update_state(self, slots: OptState, gradient: jax.Array) -> OptState:
        """Return no slots."""
        del gradient
        return slots

    def apply_updates(self, parameters: jax.Array, slots: OptState, gradient: jax.Array, step: jax.Array) -> jax.Array:
        """Return ``w - rate g``."""
        del slots, step
        return parameters - self.learning_rate * gradient


@dataclass(frozen=True, kw_only=True)
class Momentum(AbstractOptimiser):
    """Heavy ball: u = decay u + g; w -= rate u."""

    num_slots: ClassVar[int] = 1

    decay: float = 0.9

    def __post_init__(self) -> None:
        AbstractOptimiser.__post_init__(self)
        check_untraced("[0, 1)", self, "decay")

    def update_state(self, slots: OptState, gradient: jax.Array) -> OptState:
        """Return ``(decay u + g,)``."""
        return (self.decay * slots[0] + gradient,)

    def apply_updates(self, parameters: jax.Array, slots: OptState, gradient: jax.Array, step: jax.Array) -> jax.Array:
        """Return ``w - rate u``."""
        del gradient, step
        return parameters - self.learning_rate * slots[0]


@dataclass(frozen=True, kw_only=True)
class Adagrad(AbstractOptimiser):
    """Adagrad: h += g^2; w -= rate g / (sqrt(h) + epsilon).

    References
    ----------
    Duchi, Hazan, Singer (2011), Adaptive subgradient methods, JMLR 12.
    """

    num_slots: ClassVar[int] = 1
    zero_grad_is_noop: ClassVar[bool] = True

    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        AbstractOptimiser.__post_init__(self)
        check_untraced("(0, inf)", self, "epsilon")  # it keeps the quotient finite

    def update_state(self, slots: OptState, gradient: jax.Array) -> OptState:
        """Return ``(h + g^2,)``."""
        return (slots[0] + gradient * gradient,)

    def apply_updates(self, parameters: jax.Array, slots: OptState, gradient: jax.Array, step: jax.Array) -> jax.Array:
        """Return ``w - rate g / (sqrt(h) + epsilon)``."""
        del step
        return parameters - self.learning_rate * gradient / (jnp.sqrt(slots[0]) + self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Adam(AbstractOptimiser):
    """Adam with bias correction; on rows it is *lazy*: a row that isn't pushed keeps its moments.

    References
    ----------
    Kingma, Ba (2015), Adam: a method for stochastic optimization, arXiv 1412.6980, algorithm 1.
    """

    num_slots: ClassVar[int] = 2

    first_decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        AbstractOptimiser.__post_init__(self)
        check_untraced("[0, 1)", self, "first_decay", "second_decay")
        check_untraced("(0, inf)", self, "epsilon")

    def update_state(self, slots: OptState, gradient: jax.Array) -> OptState:
        """Return ``(b1 m + (1 - b1) g, b2 v + (1 - b2) g^2)``."""
        first = self.first_decay * slots[0] + (1.0 - self.first_decay) * gradient
        second = self.second_decay * slots[1] + (1.0 - self.second_decay) * (gradient * gradient)
        return first, second

    def apply_updates(self, parameters: jax.Array, slots: OptState, gradient: jax.Array, step: jax.Array) -> jax.Array:
        """Return ``w - rate mhat / (sqrt(vhat) + epsilon)``."""
        del gradient
        count = step.astype(jnp.float32)
        # The corrections are scalars: they are worked out once, not for every element.
        rate = self.learning_rate / (1.0 - self.first_decay**count)
        scale = 1.0 / (1.0 - self.second_decay**count)
        return parameters - rate * slots[0] / (jnp.sqrt(slots[1] * scale) + self.epsilon)


def has_traced_rate(rule: AbstractOptimiser) -> bool:
    """Tell whether the rate is part of what JAX is tracing, so that the rule has no hash."""
    return isinstance(rule.learning_rate, jax.core.Tracer)


def check_untraced(interval: str, options: object, *names: str) -> None:
    """Raise unless options are numbers, no traced ones, in an interval."""
    for name in names:
        if isinstance(getattr(options, name), jax.core.Tracer):
            raise InvalidOptionError(
                f"{name} must be a number, got a traced value; of these options only learning_rate may be traced"
            )
    check_in(interval, options, *names)


def compiled_for_rule(**settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as `jax.jit` does, with its ``optimiser`` or ``layout`` as a static argument.

    With a traced rate there is nothing to compile alone: the function becomes part of what the caller traces, and donates nothing.
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
