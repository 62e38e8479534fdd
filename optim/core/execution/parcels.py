"""Pieces on their way to a worker: what many of them hold, such as an instance, travels once.

Objects marked as `SentOnce` are left out of a piece's bytes; in their place stands the digest of their own, by which a worker
finds them among what it was sent before.
"""

import hashlib
import io
import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optim.core.errors import InvalidProblemError

MOST_PARTS = 16
"""How many objects a worker keeps; those that it needed longest ago make room, and are sent again when they are needed."""


class SentOnce:
    """Mark objects that many pieces hold: a worker receives one once, however many of its pieces need it.

    They don't change while a run lasts.
    """


@dataclass(frozen=True, slots=True)
class Parcel:
    """A piece as bytes, and the digests of what it needs beside."""

    content: bytes
    needs: tuple[str, ...] = ()


class Packer:
    """The driver's side: pack pieces, and keep what they need, as bytes by digest."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        # Held with the object, whose identity is the key: so it can't be another's while the packer lives.
        self._digests: dict[int, tuple[SentOnce, str]] = {}

    def pack(self, thing: object, name: str) -> Parcel:
        """Return a piece as bytes.

        Raises
        ------
        InvalidProblemError
            If it can't be pickled; the message has its name.
        """
        buffer, needs = io.BytesIO(), dict[str, None]()
        try:
            _Pickler(buffer, self, needs).dump(thing)
        except Exception as error:  # foreign classes may raise anything here
            what = " ".join(f"{type(error).__name__}: {error}".split())
            raise InvalidProblemError(
                f"{name} can't be sent to another process ({what}); define its classes at the top of a module, and "
                "leave out open files and locks; or run in this process"
            ) from error
        return Parcel(buffer.getvalue(), tuple(needs))

    def digest(self, part: SentOnce) -> str:
        """Return the digest of an object's bytes, which are kept."""
        known = self._digests.get(id(part))
        if known is None:
            blob = pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)
            known = self._digests[id(part)] = part, hashlib.sha256(blob).hexdigest()
            self.parts[known[1]] = blob
        return known[1]


class _Pickler(pickle.Pickler):
    """Write what is marked as its digest."""

    def __init__(self, buffer: io.BytesIO, packer: Packer, needs: dict[str, None]) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._packer, self._needs = packer, needs

    def persistent_id(self, obj: Any) -> str | None:
        """Return the digest of what is marked, None for all else."""
        if not isinstance(obj, SentOnce):
            return None
        digest = self._packer.digest(obj)
        self._needs[digest] = None
        return digest


def make_room(held: dict[str, Any], needs: Sequence[str]) -> None:
    """Forget what was needed longest ago, where too much is held; driver and worker do so alike, and so stay in step."""
    for digest in needs:
        held[digest] = held.pop(digest)
    while len(held) > max(MOST_PARTS, len(needs)):
        del held[next(iter(held))]


class Unpacker:
    """The worker's side: hold what was sent once, and give pieces back."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._lock = threading.Lock()  # a worker may have several threads

    def unpack(self, parcel: Parcel, parts: Mapping[str, bytes]) -> tuple[Any, int]:
        """Return the piece, and how many bytes of `parts` were new.

        Parameters
        ----------
        parcel
            The piece.
        parts
            Of what it needs at least those that aren't held.
        """
        with self._lock:
            new = {digest: parts[digest] for digest in parcel.needs if digest not in self._parts}
            self._parts |= {digest: pickle.loads(blob) for digest, blob in new.items()}
            make_room(self._parts, parcel.needs)
            return _Unpickler(io.BytesIO(parcel.content), self._parts).load(), sum(map(len, new.values()))


class _Unpickler(pickle.Unpickler):
    """Read digests as what they stand for."""

    def __init__(self, buffer: io.BytesIO, parts: Mapping[str, Any]) -> None:
        super().__init__(buffer)
        self._parts = parts

    def persistent_load(self, pid: Any) -> Any:
        """Return what a digest stands for."""
        return self._parts[pid]
