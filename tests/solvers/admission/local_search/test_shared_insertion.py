"""Jobs on shared servers: as many workers as fit with their PSs, and no unit beyond the capacity."""

import numpy as np
import pytest

from tests.solvers.admission.local_search.test_ejection import priced, taken
from tests.support.admission.tiny import job_document, tiny_instance


@pytest.mark.parametrize(("gpus", "cpus", "value"), [(4, 2, 16), (3, 2, 8), (2, 1, 8), (4, 1, 8), (1, 1, 2), (1, 0, 0)])
def test_every_worker_that_has_room_with_its_ps_is_put(gpus, cpus, value):
    """Four worker-slots, all at once if possible; one PS per two workers. The value shows the slot of completion."""
    job = job_document(epochs=1, chunks=4)
    instance = tiny_instance(job, shared_servers=[{"type": "box", "capacity": [gpus, cpus], "count": 1}])
    search = priced(instance, 0.0)
    search.construct(np.arange(1), 1.0)
    assert search.value == value
    use, _ = taken(search)
    assert (use <= instance.worker_servers.capacity[0]).all()
