"""The independent checker of admission solutions.

It reads the raw integers of an instance and nothing that was derived from them elsewhere, and shares
no code with any solver. `exact_instance` holds what it derives itself; `placement` checks a plan row by row;
`prices`, `cuts` and `tree` recompute what a bound's proof proves; `claims` compares all of it with
what a solution says.
"""

from optim.models.admission.check.claims import check as check
