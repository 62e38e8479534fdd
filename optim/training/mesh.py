"""Training on several devices of one host as one program: parameters are sharded over the devices.

The program is written for one device, and JAX's partitioner distributes it. Each array of the parameters and of the
optimiser's state is cut along its first axis. Each device multiplies with its piece, and the products are added up over
the devices, so that no device holds all parameters.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from optim.training.application import DeviceApplication, HasRows, Parameters
from optim.training.arrays import to_device, to_host

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

AXIS = "shard"


class MeshTrainer:
    """An application, an optimiser, and parameters on the devices of a mesh.

    Parameters
    ----------
    application, optimiser
        Application to train, and its optimiser.
    mesh
        Devices along one axis, `AXIS`. Arrays whose first axis isn't divisible by the number of devices are replicated.

    Attributes
    ----------
    parameters
        The parameters, a pytree of arrays that are sharded over the devices.
    losses
        Mean loss at the start of each clock.
    """

    def __init__(self, application: DeviceApplication, optimiser: "AbstractOptimiser", mesh: Mesh) -> None:
        self._application, self._rule, self._mesh = application, optimiser.transformation(), mesh
        parameters = application.init(jax.random.key(application.seed))
        self.parameters = jax.device_put(parameters, self._shardings(parameters))
        state = self._rule.init(parameters)
        self._state = jax.device_put(state, self._shardings(state))
        everywhere = NamedSharding(mesh, PartitionSpec())
        partitions = range(application.num_partitions)
        rows = [application.rows(index) if isinstance(application, HasRows) else None for index in partitions]
        batches = [application.partition(index) for index in partitions]
        self._data = jax.device_put((batches, rows), everywhere)
        kinds = self._shardings(parameters), self._shardings(state)
        self.step: Callable[..., Any] = jax.jit(
            self._clock, in_shardings=(*kinds, everywhere, everywhere), out_shardings=(*kinds, everywhere),
            donate_argnums=(0, 1),
        )  # fmt: skip
        self.losses: list[float] = []

    def run(self, clocks: int) -> None:
        """Train until the total number of clocks, including earlier calls, is `clocks`."""
        while len(self.losses) < clocks:
            self.parameters, self._state, loss = self.step(*self.arguments())
            self.losses.append(float(to_host(loss)))

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the next step."""
        return self.parameters, self._state, self._data, to_device(np.int32(len(self.losses)))

    def _shardings(self, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: NamedSharding(self._mesh, self._spec(leaf)), tree)

    def _spec(self, leaf: Any) -> PartitionSpec:
        is_cut = leaf.ndim > 0 and leaf.shape[0] % self._mesh.devices.size == 0
        return PartitionSpec(AXIS) if is_cut else PartitionSpec()

    def _clock(self, parameters: Parameters, state: Any, data: Any, clock: jax.Array) -> tuple[Any, Any, jax.Array]:
        """Return parameters and state after a clock, and the clock's loss; gradients are added in the partitions' order."""
        application = self._application
        total = sum(application.weight(index) for index in range(application.num_partitions))
        loss = jnp.float32(0)
        gradient: Any = None
        for index, (batch, rows) in enumerate(zip(*data, strict=True)):
            share = jnp.float32(application.weight(index) / total)

            def loss_of(parameters: Parameters, batch: Any = batch, rows: Any = rows) -> jax.Array:
                taken = parameters if rows is None else parameters[rows]
                return application.loss(taken, application.sample(batch, clock))

            own, found = jax.value_and_grad(loss_of)(parameters)
            scaled = jax.tree.map(lambda leaf, share=share: share * leaf, found)
            gradient = scaled if gradient is None else jax.tree.map(jnp.add, gradient, scaled)
            loss += share * own
        updates, state = self._rule.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss
