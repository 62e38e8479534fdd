"""The independent checker of auctions.

It reads an instance's raw fields, not what was derived from them elsewhere, and shares no code with any
solver. `facts` derives weights; `allocation` checks bundles GPU by GPU; `count_bound`, `price_bound` and
`supply` recompute what a bound's proof proves; `packing` places witnesses; `payments` checks shares and
grants; `claims` compares all of it with what a solution says.
"""

from optim.models.auction.check.claims import check as check
