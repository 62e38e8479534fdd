"""The independent checker of admission solutions.

The checker reads only the raw integers of an instance and shares no code with any solver. `exact_instance`
derives all further quantities from them. `placement` checks a plan row by row. `prices`, `cuts` and `tree`
recompute the bound of a proof. `claims` compares the results with the claims of a solution.
"""

from optim.models.admission.check.claims import check as check
