"""What a controller is doing."""

from enum import StrEnum


class Phase(StrEnum):
    """What the controller is doing."""

    RUNNING = "running"
    DRAINING = "draining"
    """Bringing all partitions to one clock, because a change is waiting."""
    SYNCING = "syncing"
    """Waiting until the copies hold that clock."""
    REBUILDING = "rebuilding"
    """Moving shards and copies to their places."""
    STOPPED = "stopped"
    """No machine is left; the storage's copies wait for one."""
