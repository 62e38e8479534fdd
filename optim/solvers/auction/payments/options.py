"""The options that every solver with payments has."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
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
        known = [rule.value for rule in PaymentRule]
        if self.rule not in known:
            raise InvalidOptionError(f"rule must be one of {', '.join(known)}, got {self.rule!r}")

    @property
    def payment_rule(self) -> PaymentRule:
        """The rule."""
        return PaymentRule(self.rule)
