"""The page on files of clusters agrees with the code that writes them."""

from optim.models.cluster.cluster import UNSTATED
from optim.models.cluster.log import NO_JOB, Event
from tests.support.code_blocks import ROOT

PAGE = " ".join((ROOT / "docs" / "reference" / "cluster.md").read_text().split())


def test_the_page_names_each_kind_of_event_with_its_number():
    assert f"({', '.join(f'{event.value} {event.name}' for event in Event)});" in PAGE
    assert (UNSTATED, NO_JOB) == (2.0**50, -1)
