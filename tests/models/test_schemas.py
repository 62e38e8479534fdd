"""JSON Schemas of file formats describe each field."""

import pytest

from optim.models.catalogue import problem_named


@pytest.mark.parametrize("name", ["admission", "auction", "bidding"])
def test_every_field_of_an_instance_has_a_description(name):
    kinds = problem_named(name).json_schema()["$defs"]
    bare = [
        f"{title}.{field}"
        for title, kind in kinds.items()
        for field, schema in kind["properties"].items()
        if "description" not in schema and field != "kind"
    ]
    assert bare == []
    assert not any("Parameters" in kind["description"] for kind in kinds.values())
