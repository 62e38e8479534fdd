"""The memory's speed is measured on working sets larger than all caches, and no kernel is faster."""

import numpy as np
import pytest
from optim_studies.kernels import memory_speed as roofs
from optim_studies.kernels.memory_speed import COPY, IN_PLACE, MOST_BYTES, Roofline, roof_bytes

MIB = 2**20


@pytest.mark.parametrize(
    ("cache", "allowed", "size"), [(32, 24_000, 128), (480, 24_000, 1024), (480, 4_000, 1000), (8, 40, 10)]
)
def test_a_working_set_is_four_caches_or_a_quarter_of_the_memory_and_bounded(cache, allowed, size, monkeypatch):
    monkeypatch.setattr(roofs, "last_level_cache", lambda: cache * MIB)
    monkeypatch.setattr(roofs, "memory_allowed", lambda: allowed * MIB)
    assert roof_bytes() == min(size * MIB, MOST_BYTES)


@pytest.mark.parametrize("has_compiler", [True, False])
def test_passes_go_over_the_whole_set_by_the_best_loop_there_is(has_compiler, monkeypatch):
    monkeypatch.setattr(roofs, "roof_bytes", lambda: 1 << 12)
    if not has_compiler:
        monkeypatch.setattr(roofs, "c_loops", lambda pool, cores: None)
    roof = Roofline()
    assert roof.set_bytes == 1 << 12
    plain = f"{IN_PLACE}_{roof.by}"
    assert roof.moved == {plain: 1 << 13, COPY: 1 << 12, f"{IN_PLACE}_xla": 1 << 12}
    for call in roof.calls().values():
        call()
    halves = roof.calls()[plain].__closure__
    held = next(cell.cell_contents for cell in halves if isinstance(cell.cell_contents, np.ndarray))
    assert held.tolist() == [2.0] * 1024, "one added to each, then the first half copied over the second"
    roof.close()


def test_next_to_no_memory_still_leaves_two_numbers_to_pass_over(monkeypatch):
    monkeypatch.setattr(roofs, "roof_bytes", lambda: 0)
    roof = Roofline()
    roof.close()
    assert roof.moved == {f"{IN_PLACE}_{roof.by}": 32, COPY: 16, f"{IN_PLACE}_xla": 16}


def test_the_best_of_the_passes_is_the_roof(monkeypatch):
    monkeypatch.setattr(roofs, "roof_bytes", lambda: 1 << 12)
    roof = Roofline()
    roof.close()
    seconds = {f"{IN_PLACE}_{roof.by}": 2.0, COPY: 4.0, f"{IN_PLACE}_xla": 0.5}
    assert roof.speeds(seconds) == {IN_PLACE: 8192.0, COPY: 1024.0}
