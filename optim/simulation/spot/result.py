"""What a policy did from one start."""

from dataclasses import dataclass

from optim.models.bidding.billing import LedgerLine, to_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a policy did from one start.

    Parameters
    ----------
    policy, start_s
        Who, and when.
    cost_micro
        The bill in micro-dollars; the ledger's lines add up to it.
    hours
        From start to the end of the job, or to where it was given up: at the horizon.
    work_done, is_done
        Work that counts, and whether it is all.
    evictions
        Leases that were evicted.
    on_demand_hours, paid_hours, free_hours
        Machine-hours on demand, of spot instances that are paid for, and of those that aren't.
    end_s
        When all was over.
    ledger
        The lines.
    """

    policy: str
    start_s: int
    cost_micro: int
    hours: float
    work_done: float
    is_done: bool
    evictions: int
    on_demand_hours: float
    paid_hours: float
    free_hours: float
    end_s: int
    ledger: tuple[LedgerLine, ...]

    @property
    def cost_usd(self) -> float:
        """The bill in dollars."""
        return to_usd(self.cost_micro)
