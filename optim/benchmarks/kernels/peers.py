"""The same updates by PyTorch, and by a parameter server of Ray's with the same body; where they are installed."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np


def dense_sgd(w: Any, pushes: list[Any], rate: float) -> dict[str, Callable[[], Any]]:
    """Return what aggregates and applies dense pushes, by name."""
    sides: dict[str, Callable[[], Any]] = {}
    if _is_installed("torch"):
        import torch

        own = torch.from_numpy(w.copy())
        sent = [torch.from_numpy(push) for push in pushes]

        def by_torch() -> None:
            for push in sent:
                own.add_(push, alpha=-rate / len(sent))

        sides["torch"] = by_torch
    if _is_installed("ray"):
        sides["ray"] = _ray_server(w, pushes, rate)
    return sides


def sparse_sgd(table: Any, rows: Any, values: Any, rate: float) -> dict[str, Callable[[], Any]]:
    """Return what applies pushed rows, by name."""
    if not _is_installed("torch"):
        return {}
    import torch

    own, index, sent = torch.from_numpy(table.copy()), torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(values)
    return {"torch": lambda: own.index_add_(0, index, sent, alpha=-rate)}


def _ray_server(w: Any, pushes: list[Any], rate: float) -> Callable[[], Any]:
    """Return one round of a synchronous server in a process of its own: pushes in its store, one update, one reply.

    It pays for the transport, which the kernel in this process doesn't: it shows what a server costs, not a loop.
    """
    import ray

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


def _is_installed(name: str) -> bool:
    """Tell whether there is a package of that name; a mere folder on the path has no origin."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None
