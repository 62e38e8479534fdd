"""Tables of how much faster a job is with more workers, and which are refused."""

import pytest

from optim.core.errors import InvalidProblemError
from optim.models.admission.data import MAX_SPEEDUP, TWENTIETHS
from tests.support.admission.tiny import job_document, tiny_instance


def test_the_largest_speed_up_is_taken_and_no_larger_one():
    instance = tiny_instance(job_document(speedup=[1, MAX_SPEEDUP]))
    assert instance.jobs.speedup == ((TWENTIETHS, MAX_SPEEDUP * TWENTIETHS),)
    with pytest.raises(InvalidProblemError, match=rf"speedup must be at most {MAX_SPEEDUP}, got"):
        tiny_instance(job_document(speedup=[1, MAX_SPEEDUP + 1]))
