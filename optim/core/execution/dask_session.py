"""What runs on a Dask cluster have in common: workers that fit, parts that each receives once, and one line when it is lost."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from distributed import Client, Future

from optim.core.errors import EngineError
from optim.core.execution.dask_worker import Desk, ask_to_stop, hold, identity
from optim.core.execution.parcels import Packer

CENSUS_S = 1.0
"""How often the driver asks how many workers there are."""

MOST_TRIES, RETRY_S = 20, 0.2
"""How often workers are told of a run of which one was lost while they were told, and how long the scheduler has to notice."""


class DaskSession:
    """The time in which workers keep a desk for one run.

    Attributes
    ----------
    client
        Dask's own.
    token
        Name of the desk on the workers.
    packer
        Packs what is sent.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.token = f"optim-{uuid.uuid4().hex}"
        self.packer = Packer()
        self._parts: dict[str, Future] = {}
        self._threads: Mapping[str, int] = {}
        self._counted_at = float("-inf")

    def open(self) -> None:
        """Have all workers, those that come later too, expect work; refuse those with other versions."""
        for _ in range(MOST_TRIES):
            try:
                self.client.register_plugin(Desk(identity()), name=self.token)
            except EngineError:
                raise
            except OSError as error:
                # The scheduler was lost, or a worker was while all were told: others may not have heard.
                self.check()
                lost = error
                time.sleep(RETRY_S)
            except Exception as error:  # a worker may lack anything
                raise self._unfit(error) from error
            else:
                return
        raise self._unfit(lost) from lost

    def close(self, unfinished: Iterable[Future] = ()) -> None:
        """Take back what isn't done, and leave nothing on the workers."""
        with suppress(Exception):  # the scheduler may be gone, and nothing is left to be freed then
            self.client.cancel(list(unfinished), force=True)
            self.client.unregister_worker_plugin(self.token)

    def threads(self) -> Mapping[str, int]:
        """Return how many threads each worker has, by its address; asked anew about once a second."""
        if time.monotonic() - self._counted_at > CENSUS_S:
            self._threads = self.call(self.client.nthreads)
            self._counted_at = time.monotonic()
        return self._threads

    def submit(
        self, function: Callable[..., Any], content: bytes, needs: Iterable[str], worker: str, name: str
    ) -> Future:
        """Have a worker do something that needs packed parts; another one does it if that worker is lost.

        Dask would rather queue work where its parts are than send these on, so it is told who does it.
        """
        for digest in needs:
            if digest not in self._parts:
                blob, key = self.packer.parts[digest], f"{self.token}-{digest}"
                self._parts[digest] = self.call(self.client.submit, hold, blob, key=key, pure=False)
        parts = {digest: self._parts[digest] for digest in needs}
        return self.call(
            self.client.submit, function, self.token, content, parts, workers=[worker], allow_other_workers=True,
            key=f"{self.token}-{name}-{uuid.uuid4().hex[:8]}", pure=False,
        )  # fmt: skip

    def stop(self) -> None:
        """Ask what runs to stop; what runs on a worker that is lost meanwhile does."""
        self.call(self.client.run, ask_to_stop, self.token, on_error="ignore")

    def check(self, future: Future | None = None) -> None:
        """Raise if the scheduler is gone.

        Raises
        ------
        EngineError
            Then, or where work was cancelled, which nobody else does.
        """
        if self.client.status != "running" or (future is not None and future.cancelled()):
            raise self._lost()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call Dask; a scheduler that is gone is one line."""
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise self._lost() from error

    def _unfit(self, error: Exception) -> EngineError:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return EngineError(f"a worker can't take part ({what}); install this package and its extras there")

    def _lost(self) -> EngineError:
        address = self.client.scheduler.address if self.client.scheduler else ""
        return EngineError(
            f"the connection to the Dask scheduler {address} is lost; what is finished is kept: start the scheduler anew "
            "and give the same command again"
        )
