"""Archives of arrays: written arrays are read back unchanged, other content is rejected."""

import io
import zipfile

import numpy as np
import pytest

from optim.core.archives import read_arrays, write_arrays
from optim.core.errors import InvalidProblemError
from optim.core.limits import read_limits
from tests.fuzz.mutations import ARRAY_HEADERS, archive_of, array_of, encrypted


def test_arrays_come_back_with_their_types(tmp_path):
    arrays = {"a": np.array([1, 2]), "b.c": np.array([[0.5]]), "empty": np.zeros(0, np.int8)}
    write_arrays(tmp_path / "x.npz", arrays)
    again = read_arrays(tmp_path / "x.npz", "a thing", "make one")
    assert {name: (values.dtype, values.tolist()) for name, values in again.items()} == {
        name: (values.dtype, values.tolist()) for name, values in arrays.items()
    }


def test_objects_are_never_unpacked(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, a=np.array([{}], dtype=object))
    (tmp_path / "x.npz").write_bytes(buffer.getvalue())
    with pytest.raises(InvalidProblemError, match=r"not a thing .*make one"):
        read_arrays(tmp_path / "x.npz", "a thing", "make one")


@pytest.mark.parametrize(("content", "cause"), [(b"", "the file is empty"), (b"abc", "no archive")])
def test_what_is_no_archive_is_named(tmp_path, content, cause):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InvalidProblemError, match=cause):
        read_arrays(tmp_path / "x.npz", "a thing", "make one")


def test_a_small_archive_of_much_is_refused_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.npy", b"\0" * 10_000)
    with read_limits(document_bytes=9_999), pytest.raises(InvalidProblemError, match="bytes unpacked"):
        read_arrays(tmp_path / "x.npz", "a thing", "make one")


def _packed(path, *entries):
    """Write files into an archive, with the same name twice on request."""
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in entries:
            packed.writestr(name, content)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_given_twice_is_refused(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    _packed(tmp_path / "x.npz", ("a.npy", buffer.getvalue()), ("a.npy", buffer.getvalue()))
    with pytest.raises(InvalidProblemError, match="its entry 'a' occurs twice"):
        read_arrays(tmp_path / "x.npz", "a thing", "make one")


@pytest.mark.parametrize("name", ["a", "a.npy"])
def test_a_file_in_an_archive_that_is_no_array_is_refused(tmp_path, name):
    _packed(tmp_path / "x.npz", (name, b"text"))
    with pytest.raises(InvalidProblemError, match="its entry 'a' occurs twice, or is not an array"):
        read_arrays(tmp_path / "x.npz", "a thing", "make one")


@pytest.mark.parametrize("header", ARRAY_HEADERS)
def test_an_array_that_says_nonsense_of_itself_is_refused(tmp_path, header):
    (tmp_path / "x.npz").write_bytes(archive_of({"a.npy": array_of(header)}))
    with pytest.raises(InvalidProblemError, match=r"x.npz: not a thing \(.+\); make one$") as raised:
        read_arrays(tmp_path / "x.npz", "a thing", "make one")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_any_packing_is_read_if_it_is_whole_and_plain(tmp_path, method):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(200))
    content = archive_of({"a.npy": buffer.getvalue()}, method)
    (tmp_path / "x.npz").write_bytes(content)
    assert read_arrays(tmp_path / "x.npz", "a thing", "make one")["a"].tolist() == list(range(200))
    damaged = content[:60] + bytes(byte ^ 255 for byte in content[60:90]) + content[90:]
    for spoilt in (damaged, encrypted(content)):
        (tmp_path / "x.npz").write_bytes(spoilt)
        with pytest.raises(InvalidProblemError, match=r"x.npz: not a thing \(.+\); make one$"):
            read_arrays(tmp_path / "x.npz", "a thing", "make one")
