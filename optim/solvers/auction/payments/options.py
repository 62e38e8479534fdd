"""The options that every solver with payments has."""

from dataclasses import dataclass

from optim.core.ranges import check_choices
from optim.models.auction.plan import PaymentRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentOptions:
    """How payments are settled.

    Parameters
    ----------
    rule
        How shares become whole GPUs: floor, nearest, ceil, lottery or none.

    Raises
    ------
    InvalidOptionError
        If the rule is unknown.
    """

    rule: str = PaymentRule.FLOOR.value

    def __post_init__(self) -> None:
        check_choices(self, {"rule": [rule.value for rule in PaymentRule]})
