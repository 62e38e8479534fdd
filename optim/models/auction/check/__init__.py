"""The independent checker of auctions.

It reads an instance's raw fields, not what was derived from them elsewhere, and shares no code with any
solver. `exact_instance` derives weights; `allocation` checks bundles GPU by GPU and places witnesses; `bounds`
recomputes what a bound's proof proves; `payments` checks shares and grants; `claims` compares all of it with
what a solution says.
"""

from optim.models.auction.check.claims import check as check
