"""The memory's speed is measured on buffers that no cache holds."""

import numpy as np

from optim.benchmarks.kernels.roof import TIMES_THE_CACHE, Roof, third_level_cache


def test_the_roofs_buffers_are_larger_than_any_cache(monkeypatch):
    monkeypatch.setattr("optim.benchmarks.kernels.roof.third_level_cache", lambda: 1 << 16)
    roof = Roof()
    assert roof.moved == 8 * TIMES_THE_CACHE * (1 << 16) // 4
    roof.in_place()
    roof.copy()
    assert np.asarray(roof._target[:3]).tolist() == [1.5] * 3
    monkeypatch.undo()
    assert third_level_cache() >= 1 << 18


def test_the_largest_cache_of_the_first_core_counts(monkeypatch, tmp_path):
    for name, size in (("index0", "48K"), ("index2", "2M"), ("index3", "33M\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(size)
    monkeypatch.setattr("optim.benchmarks.kernels.roof.CACHE_FOLDER", tmp_path)
    assert third_level_cache() == 33 << 20
    monkeypatch.setattr("optim.benchmarks.kernels.roof.CACHE_FOLDER", tmp_path / "none")
    assert third_level_cache() == 32 << 20
