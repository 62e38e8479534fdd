"""Files of any kind: reads respect their limits; writes replace only files, and replace them completely."""

import ast
import fcntl
import gzip
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from optim.core import files
from optim.core.errors import InvalidProblemError
from optim.core.files import Source, check_folder, prepare_folder, read_bytes, write_bytes
from optim.core.limits import read_limits


@pytest.fixture
def pipe(tmp_path):
    """Give a named pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def in_background(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("size", [0, 1, 2, 5, 3 * 2**20])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_reads_back_what_was_written(tmp_path, size, suffix):
    content = bytes(index % 251 for index in range(size))
    write_bytes(tmp_path / f"file{suffix}", content)
    assert read_bytes(tmp_path / f"file{suffix}") == content
    assert [path.name for path in tmp_path.iterdir()] == [f"file{suffix}"]


def test_equal_data_gives_equal_packed_files(tmp_path):
    write_bytes(tmp_path / "a.gz", b"same")
    first = (tmp_path / "a.gz").read_bytes()
    time.sleep(1.1 - time.time() % 1)  # another second, which gzip would write down
    write_bytes(tmp_path / "a.gz", b"same")
    assert (tmp_path / "a.gz").read_bytes() == first


def test_several_packed_parts_are_one_file(tmp_path):
    (tmp_path / "parts").write_bytes(gzip.compress(b"one") + gzip.compress(b"two"))
    assert read_bytes(tmp_path / "parts") == b"onetwo"


def test_a_file_is_read_up_to_its_limit_and_no_further(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    with read_limits(document_bytes=100):
        assert len(read_bytes(tmp_path / "file")) == 100
    with (
        read_limits(document_bytes=99),
        pytest.raises(InvalidProblemError, match=r"more than 99 bytes.*document_bytes=N"),
    ):
        read_bytes(tmp_path / "file")


def test_the_limit_is_of_the_unpacked_bytes(tmp_path):
    (tmp_path / "file").write_bytes(gzip.compress(b"x" * 1000))
    with read_limits(document_bytes=999), pytest.raises(InvalidProblemError, match=r"more than 999 bytes"):
        read_bytes(tmp_path / "file")


def test_what_grows_too_much_is_given_up_early(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNSUSPECTED_BYTES", 2**20)
    (tmp_path / "small").write_bytes(gzip.compress(bytes(2**20)))
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(2**22)))
    assert len(read_bytes(tmp_path / "small")) == 2**20
    with pytest.raises(InvalidProblemError, match=r"bytes of gzip data expand to .* --limit expansion=N"):
        read_bytes(tmp_path / "bomb")
    with read_limits(expansion=2000):
        assert len(read_bytes(tmp_path / "bomb")) == 2**22


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b", gzip.compress(b"x" * 100)[:-9], gzip.compress(b"x")[:-4] + b"1234"],
    ids=["two bytes", "cut short", "a wrong length"],  # the bytes hold the time: workers would disagree on names
)
def test_damaged_packed_data_is_named(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InvalidProblemError, match="file: gzip data are damaged or truncated"):
        read_bytes(tmp_path / "file")


def test_a_pipe_is_read_to_its_end(pipe):
    thread = in_background(pipe.write_bytes, b"x" * 200_000)
    assert read_bytes(pipe) == b"x" * 200_000
    thread.join()


def test_a_pipe_without_end_is_read_up_to_its_limit(pipe):
    def write_for_ever():
        with suppress(BrokenPipeError), pipe.open("wb") as file:
            while True:
                file.write(b"x" * 2**16)

    thread = in_background(write_for_ever)
    with (
        read_limits(pipe_bytes=2**20),
        pytest.raises(InvalidProblemError, match=r"more than 1048576 bytes.*pipe_bytes"),
    ):
        read_bytes(pipe)
    thread.join()


def test_a_pipe_that_nobody_writes_to_is_empty_after_a_while(pipe, monkeypatch):
    monkeypatch.setattr(files, "PATIENCE_S", 0.1)
    assert read_bytes(pipe) == b""


def test_a_pipe_that_is_open_is_waited_for(pipe, monkeypatch):
    monkeypatch.setattr(files, "PATIENCE_S", 0.1)

    def write_late():
        with pipe.open("wb") as file:
            time.sleep(0.3)
            file.write(b"late")

    thread = in_background(write_late)
    begun = time.process_time()
    assert read_bytes(pipe) == b"late"
    thread.join()
    assert time.process_time() - begun < 0.2  # it sleeps, and doesn't ask again and again


def test_a_line_is_measured_across_reads(tmp_path):
    (tmp_path / "file").write_bytes(b"12345\n7890123456\n")
    with Source(tmp_path / "file", "table_bytes", 10) as source:
        assert [source.read(8) for _ in range(3)] == [b"12345\n78", b"90123456", b"\n"]
    with Source(tmp_path / "file", "table_bytes", 9) as source:
        assert source.read(8) == b"12345\n78"
        with pytest.raises(InvalidProblemError, match="line of more than 9 bytes"):
            source.read(8)


def test_a_folder_and_nothing_cant_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InvalidProblemError, match="can't be read"):
            read_bytes(path)


def test_a_pipe_is_written_through_and_stays_a_pipe(pipe):
    got = []
    thread = in_background(lambda: got.append(pipe.read_bytes()))
    time.sleep(0.1)
    check_folder(pipe)
    write_bytes(pipe, b"x" * 200_000)
    thread.join()
    assert got == [b"x" * 200_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_refused(pipe):
    with pytest.raises(InvalidProblemError, match="start the program that reads the pipe"):
        write_bytes(pipe, b"x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("kind", [stat.S_IFBLK, stat.S_IFSOCK])
def test_block_devices_and_sockets_are_refused(tmp_path, monkeypatch, kind):
    path = tmp_path / "device"
    path.write_bytes(b"precious")
    real = os.stat

    def mocked(asked, *arguments, **named):
        found = real(asked, *arguments, **named)
        return os.stat_result((kind | 0o666, *found[1:])) if asked == path else found

    monkeypatch.setattr(files.os, "stat", mocked)
    for act in (check_folder, prepare_folder, lambda path: write_bytes(path, b"x")):
        with pytest.raises(InvalidProblemError, match="a block device or a socket"):
            act(path)
    assert path.read_bytes() == b"precious"


def test_a_character_device_is_written_to_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "device"
    path.write_bytes(b"12345678")
    number = path.stat().st_ino
    monkeypatch.setattr(files, "_is_written_through", lambda asked: asked == path)
    write_bytes(path, b"xyz")
    assert path.read_bytes() == b"xyz45678"
    assert path.stat().st_ino == number


def test_a_link_keeps_pointing_to_what_is_written(tmp_path):
    (tmp_path / "link").symlink_to("target")
    for content in (b"new", b"newer"):
        write_bytes(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "target").read_bytes() == content


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "file", b"")
    finally:
        after = os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert after == 0o027, "files that others write from now on are open to all"


def test_a_read_only_file_is_refused_and_stays_as_it_is(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o444)
    (tmp_path / "link").symlink_to("file")
    for refuse in (write_bytes, lambda place, _: check_folder(place)):
        for name in ("file", "link"):
            with pytest.raises(InvalidProblemError, match="it is read-only"):
                refuse(tmp_path / name, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o200])
def test_a_file_that_is_written_over_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        write_bytes(tmp_path / name, name.encode())
        assert path.read_bytes() == name.encode()
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_that_is_written_over_runs_as_nobody_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o6755)
    write_bytes(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a_folder_is_not_written_over_and_named_as_it_was_given(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(InvalidProblemError, match=r"/taken: can't be written: it is a folder"):
        write_bytes(tmp_path / "taken", b"x")
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def test_places_that_cant_be_written_to_are_named_before_the_work(tmp_path, monkeypatch):
    with pytest.raises(InvalidProblemError, match="there is no folder"):
        check_folder(tmp_path / "nothing" / "file")
    with pytest.raises(InvalidProblemError, match="it is a folder"):
        check_folder(tmp_path)
    prepare_folder(tmp_path / "made" / "file")
    assert (tmp_path / "made").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidProblemError, match="check the folder"):
        prepare_folder(tmp_path / "file" / "below")
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(InvalidProblemError, match="is not writable"):
        check_folder(tmp_path / "other")


def test_folders_above_a_file_are_made(tmp_path):
    prepare_folder(tmp_path / "a" / "b" / "c" / "file")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_what_a_killed_process_left_is_gone_after_the_next_write_and_what_another_writes_stays(tmp_path):
    target = tmp_path / "a[1].json"
    left, foreign = tmp_path / ".a[1].json.abcdefgh.part", tmp_path / ".a1.json.abcdefgh.part"
    busy = tmp_path / ".a[1].json.ijklmnop.part"
    for path in (left, foreign, busy):
        path.write_bytes(b"half")
    with busy.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_bytes(target, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([target, foreign, busy])
    assert target.read_bytes() == b"whole"
    write_bytes(target, b"again")
    assert sorted(tmp_path.iterdir()) == sorted([target, foreign])


def test_a_process_killed_while_it_writes_leaves_the_old_file_and_nothing_after_the_next_write(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    code = (
        "import os, signal, sys; from optim.core import files; "
        "files.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
        "files.write_bytes(sys.argv[1], b'new')"
    )
    done = subprocess.run([sys.executable, "-c", code, target], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    write_bytes(target, b"newer")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_part_that_was_swept_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    real, swept = files.fcntl.flock, []

    def sweep_first(descriptor, how):
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        real(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", sweep_first)
    write_bytes(tmp_path / "file", b"whole")
    assert len(swept) == 1
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_the_folder_is_synced_after_the_file_has_its_name(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def sync(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), (tmp_path / "file").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    write_bytes(tmp_path / "file", b"whole")
    assert synced[-1] == (str(tmp_path), True)


def test_what_was_never_opened_is_closed_all_the_same(tmp_path):
    """The collector closes a file that a failed constructor leaves; from Python 3.13 on it reports exceptions of the close."""
    nothing = Source.__new__(Source)
    nothing.close()
    assert nothing.closed
    half = Source.__new__(Source)
    with pytest.raises(FileNotFoundError):
        half.__init__(tmp_path / "nothing", "table_bytes")
    half.close()
    assert half.closed


def test_nothing_else_in_the_library_has_a_destructor():
    """Reading an attribute that a failed constructor didn't set is a separate error: `Source` has the one of IOBase."""
    for path in Path(files.__file__).parents[1].rglob("*.py"):
        text = path.read_text()
        if "IOBase" not in text and "__del__" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                assert "__del__" not in names, f"{path}: {node.name}"
                assert node.name == "Source" or not any(base.endswith("IOBase") for base in bases), path
