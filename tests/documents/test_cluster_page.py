"""The page on files of clusters agrees with the code that writes them."""

from optim.models.cluster.cluster import UNSTATED
from optim.models.cluster.log import NO_JOB
from tests.support.code_blocks import ROOT

PAGE = " ".join((ROOT / "docs" / "reference" / "cluster.md").read_text().split())


def test_the_page_draws_events_from_the_code_and_names_the_number_that_is_not_stated():
    assert "```{values} optim.models.cluster.log.Event" in PAGE
    assert '2^50 in `cluster.cpus` and `cluster.memory_gb` means "not stated"' in PAGE
    assert (UNSTATED, NO_JOB) == (2.0**50, -1)
