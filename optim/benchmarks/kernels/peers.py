"""The same updates by PyTorch, and by a parameter server of Ray's with the same body; where they are installed."""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from optim.core.errors import MissingDependencyError


def dense_sgd(w: Any, pushes: list[Any], rate: float) -> dict[str, Callable[[], Any]]:
    """Return what aggregates and applies dense pushes, by name, as far as it is installed."""
    return _installed({"torch": _torch_dense, "ray": _ray_server}, w, pushes, rate)


def sparse_sgd(table: Any, rows: Any, values: Any, rate: float) -> dict[str, Callable[[], Any]]:
    """Return what applies pushed rows, by name, as far as it is installed."""
    return _installed({"torch": _torch_sparse}, table, rows, values, rate)


def optional(name: str) -> Any:
    """Import a package that isn't needed for anything else.

    Raises
    ------
    MissingDependencyError
        If it isn't installed.
    """
    try:
        module = import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} isn't installed, so nothing is compared with it; install it beside optim"
        ) from error
    if getattr(module, "__file__", None) is None:  # a mere folder on the path
        raise MissingDependencyError(f"{name} is a folder on the path and no package; remove it, or install {name}")
    return module


def _installed(makers: dict[str, Callable[..., Callable[[], Any]]], *data: Any) -> dict[str, Callable[[], Any]]:
    """Return the sides whose packages there are."""
    sides = {}
    for name, make in makers.items():
        with suppress(MissingDependencyError):
            sides[name] = make(optional(name), *data)
    return sides


def _torch_dense(torch: Any, w: Any, pushes: list[Any], rate: float) -> Callable[[], Any]:
    own = torch.from_numpy(w.copy())
    sent = [torch.from_numpy(push) for push in pushes]

    def by_torch() -> None:
        for push in sent:
            own.add_(push, alpha=-rate / len(sent))

    return by_torch


def _torch_sparse(torch: Any, table: Any, rows: Any, values: Any, rate: float) -> Callable[[], Any]:
    own, index, sent = torch.from_numpy(table.copy()), torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(values)
    return lambda: own.index_add_(0, index, sent, alpha=-rate)


def _ray_server(ray: Any, w: Any, pushes: list[Any], rate: float) -> Callable[[], Any]:
    """Return one round of a synchronous server in a process of its own: pushes in its store, one update, one reply.

    It pays for the transport, which the kernel in this process doesn't: it shows what a server costs, not a loop.
    """
    if not ray.is_initialized():
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)

    class Server:
        """Parameters and one update."""

        def __init__(self, start: Any) -> None:
            self.w = start.copy()

        def update(self, *sent: Any) -> int:
            """Aggregate and apply."""
            mean = sent[0].copy()
            for push in sent[1:]:
                np.add(mean, push, out=mean)
            np.multiply(mean, np.float32(rate / len(sent)), out=mean)
            np.subtract(self.w, mean, out=self.w)
            return len(sent)

    server = ray.remote(Server).remote(w)

    def by_ray() -> None:
        ray.get(server.update.remote(*[ray.put(push) for push in pushes]))

    return by_ray
