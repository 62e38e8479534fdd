"""Options of column generation out of their ranges; what it finds is tested with the packing LP."""

import pytest

from optim.core.errors import InvalidOptionError
from optim.solvers.admission.column_generation import ColumnGenerationOptions


@pytest.mark.parametrize("fields", [{"engine": "nowhere"}, {"tol": 0.0}, {"first_steps": 0}])
def test_refuses_options_out_of_range(fields):
    with pytest.raises(InvalidOptionError, match=next(iter(fields))):
        ColumnGenerationOptions(**fields)
