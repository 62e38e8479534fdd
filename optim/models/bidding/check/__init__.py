"""The checker: recomputes every claim from the instance's raw numbers, and shares no code with any solver."""

from optim.models.bidding.check.claims import check as check
