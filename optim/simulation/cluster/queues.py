"""Compiled queues: waiting jobs in a heap for each width, and timed events in one heap a kind."""

from optim.core.compile_cache import inner
from optim.simulation.cluster.state import NEVER


@inner
def is_before(key_1, key_2, a, b):
    """Tell whether waiting job a comes before b: by its key, then by submission (rows are sorted by it)."""
    if key_1[a] != key_1[b]:
        return key_1[a] < key_1[b]
    if key_2[a] != key_2[b]:
        return key_2[a] < key_2[b]
    return a < b


@inner
def _raise(heap, key_1, key_2, at, job):
    """Put a job into the heap from the position `at` upwards."""
    while at > 0:
        above = (at - 1) // 2
        if not is_before(key_1, key_2, job, heap[above]):
            break
        heap[at] = heap[above]
        at = above
    heap[at] = job


@inner
def _lower(heap, key_1, key_2, size, job):
    """Put a job into the heap from the top downwards."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and is_before(key_1, key_2, heap[child + 1], heap[child]):
            child += 1
        if not is_before(key_1, key_2, heap[child], job):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = job


@inner
def push_waiting(s, width_class, job):
    """Let a job wait among those of its width."""
    size = s.heap_size[width_class]
    s.heap_size[width_class] += 1
    _raise(s.heap[s.heap_first[width_class] :], s.key_1, s.key_2, size, job)


@inner
def pop_waiting(s, width_class):
    """Take the first waiting job of a width away."""
    base = s.heap_first[width_class]
    s.heap_size[width_class] -= 1
    size = s.heap_size[width_class]
    if size:
        _lower(s.heap[base:], s.key_1, s.key_2, size, s.heap[base + size])


@inner
def _is_earlier(time, job, a, b):
    if time[a] != time[b]:
        return time[a] < time[b]
    return job[a] < job[b]


@inner
def _move(time, job, version, source, target):
    time[target] = time[source]
    job[target] = job[source]
    version[target] = version[source]


@inner
def _sift_up(time, job, version, at):
    when, who, which = time[at], job[at], version[at]
    while at > 0:
        above = (at - 1) // 2
        if time[above] < when or (time[above] == when and job[above] <= who):
            break
        _move(time, job, version, above, at)
        at = above
    time[at], job[at], version[at] = when, who, which


@inner
def _sift_down(time, job, version, at, size):
    when, who, which = time[at], job[at], version[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _is_earlier(time, job, below + 1, below):
            below += 1
        if when < time[below] or (when == time[below] and who <= job[below]):
            break
        _move(time, job, version, below, at)
        at = below
    time[at], job[at], version[at] = when, who, which


@inner
def push_event(scalar, runs, time, job, version, counter, when, who):
    """Add an event of a job's present run; void entries are cleared when the heap is full."""
    size = scalar[counter]
    if size == len(time):
        kept = 0
        for at in range(size):
            if version[at] == runs[job[at]]:
                _move(time, job, version, at, kept)
                kept += 1
        for at in range(kept // 2, -1, -1):
            if at < kept:
                _sift_down(time, job, version, at, kept)
        size = kept
    time[size], job[size], version[size] = when, who, runs[who]
    scalar[counter] = size + 1
    _sift_up(time, job, version, size)


@inner
def pop_event(scalar, time, job, version, counter):
    """Take the first event away."""
    size = scalar[counter] - 1
    scalar[counter] = size
    if size > 0:
        _move(time, job, version, size, 0)
        _sift_down(time, job, version, 0, size)


@inner
def next_event(scalar, runs, time, job, version, counter):
    """Return when the first event of a run that still goes on happens, `NEVER` if there is none."""
    while scalar[counter] > 0:
        if version[0] == runs[job[0]]:
            return time[0]
        pop_event(scalar, time, job, version, counter)
    return NEVER
