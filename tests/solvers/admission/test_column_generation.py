"""Options of column generation outside their ranges; the tests of the packing LP cover its results."""

import pytest

from optim.core.errors import InvalidOptionError
from optim.solvers.admission.column_generation import ColumnGenerationOptions


@pytest.mark.parametrize("fields", [{"engine": "nowhere"}, {"tol": 0.0}, {"first_steps": 0}])
def test_refuses_options_out_of_range(fields):
    with pytest.raises(InvalidOptionError, match=next(iter(fields))):
        ColumnGenerationOptions(**fields)
