"""The report on container policies: which of them are plotted."""

from dataclasses import replace

from optim.report.containers import MAX_CURVES, drawn_policies
from optim.rightsizing.comparison import Row

ROW = Row(
    **dict.fromkeys(Row.__dataclass_fields__, 0.0)
    | {"policy": "a", "resource": "all", "unit": "of demand", "multiplier": None, "is_reached": True}
)


def test_the_cheapest_and_the_reference_are_drawn_in_the_order_of_the_rows():
    costs = [5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 2.5, 3.5, 4.5, 5.5]
    rows = [replace(ROW, policy=f"p{cost}", total_allocation=cost) for cost in costs]
    rows.insert(3, replace(ROW, policy="prev-step-rules", total_allocation=99.0))
    rows.insert(0, replace(ROW, policy="p0", resource="cpu", total_allocation=0.0))
    names = drawn_policies(rows)
    assert len(names) == MAX_CURVES
    assert "prev-step-rules" in names
    assert not {"p9.0", "p8.0", "p0"} & set(names)
    assert names == [row.policy for row in rows if row.policy in names]
