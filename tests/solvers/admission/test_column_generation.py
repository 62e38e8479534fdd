"""Options of column generation that exclude each other; what it finds is tested with the packing LP."""

import pytest

from optim.core.errors import InvalidOptionError
from optim.solvers.admission.column_generation import ColumnGenerationOptions


@pytest.mark.parametrize("engine", ["threads", "dask", "tcp://127.0.0.1:8786"])
def test_only_the_central_method_prices_elsewhere(engine):
    assert ColumnGenerationOptions(engine=engine).method == "central"
    with pytest.raises(InvalidOptionError, match="method 'plain' prices in this process"):
        ColumnGenerationOptions(engine=engine, method="plain")


@pytest.mark.parametrize("engine", ["auto", "here"])
def test_the_plain_method_prices_here(engine):
    assert ColumnGenerationOptions(engine=engine, method="plain").engine == engine


@pytest.mark.parametrize("fields", [{"engine": "nowhere"}, {"method": "fancy"}, {"tol": 0.0}, {"first_steps": 0}])
def test_refuses_options_out_of_range(fields):
    with pytest.raises(InvalidOptionError, match=next(iter(fields))):
        ColumnGenerationOptions(**fields)
