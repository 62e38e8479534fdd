"""Pyomo, as `pyo`.

If SciPy is loaded, Pyomo imports its statistics, which takes a second, and no programme here uses them.
"""

from optim.core.optional import import_deferring

pyo = import_deferring("pyomo.environ", "scipy.stats", "scipy.integrate", "scipy.spatial")
