"""The independent checker of auctions.

The checker reads only the raw fields of an instance and shares no code with any solver. `exact_instance`
derives weights from these fields. `allocation` checks bundles GPU by GPU and places witnesses. `bounds`
recomputes the bound of a proof. `payments` checks shares and grants. `claims` compares the results with the
claims of a solution.
"""

from optim.models.auction.check.claims import check as check
