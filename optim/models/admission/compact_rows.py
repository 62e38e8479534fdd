"""The rows of the compact programme (1)-(13), one function each: the mathematics, to be read top down.

Row (n) is docs/mathematics/admission.md, (A.1) to (A.13), under the paper's number.

Notation: job i, segment s of its demands (always 0 where a job has one), worker server h, PS host k,
slot t; ``u_i(t) = 1`` if t is the completion slot of job i. Each function is a Pyomo rule: it gets the
model and the indices and returns one constraint.

Rows of resources are divided by what their demands have in common and their right-hand sides rounded
down. Coefficients are then whole numbers, so that no solver's tolerance admits what exact arithmetic
refuses.
"""

import math
from collections.abc import Iterable
from typing import Any

import pyomo.environ as pyo

from optim.models.admission.compact_index import Place
from optim.models.formal import Model


def total_utility_1(m: Model) -> Any:
    """(1) max sum_i sum_t f_i(t - a_i) u_i(t)."""
    value = m.data.instance.value
    return pyo.quicksum(float(value[i, t]) * m.completes[i, t] for i, t in m.COMPLETIONS)


def work_2(m: Model, i: int) -> Any:
    """(2) sum_t sum_h y_ih(t) >= W_i x_i.

    With whole chunks: sum_t chunks done in t >= E_i N_i x_i; with speed-ups: sum_t p_i(sum_h y_ih(t)) >= 20 W_i x_i.
    """
    target = int(m.data.instance.target[i])
    return pyo.quicksum(m.progress[i, t] for t in m.data.windows[i].slots) >= target * m.admitted[i]


def max_workers_3(m: Model, i: int, t: int) -> Any:
    """(3) sum_h y_ih(t) <= N_i sum_{t' >= t} u_i(t'): at most N_i workers, none after completion."""
    return m.workers_in_slot[i, t] <= int(m.data.instance.max_workers[i]) * m.runs_on[i, t]


def worker_capacity_4(m: Model, h: int, t: int, r: int) -> Any:
    """(4) sum_i w_i^r y_ih(t) <= c_h^r(t)."""
    return _capacity(m.data.instance.worker_servers, _worker_use(m, h, t, r), (h, t, r))


def ps_capacity_5(m: Model, k: int, t: int, r: int) -> Any:
    """(5) sum_i s_i^r z_ik(t) <= c_k^r(t)."""
    return _capacity(m.data.instance.ps_servers, _ps_use(m, k, t, r), (k, t, r))


def server_capacity_4_5(m: Model, h: int, t: int, r: int) -> Any:
    """(4)+(5) on shared servers: sum_i (w_i^r y_ih(t) + s_i^r z_ih(t)) <= c_h^r(t)."""
    use = _worker_use(m, h, t, r) + _ps_use(m, h, t, r)
    return _capacity(m.data.instance.worker_servers, use, (h, t, r))


def bandwidth_6(m: Model, i: int, t: int) -> Any:
    """(6) b_i sum_h y_ih(t) <= B_i sum_k z_ik(t)."""
    jobs = m.data.instance.jobs
    worker, ps = int(jobs.worker_micro_mbps[i]), int(jobs.ps_micro_mbps[i])
    common = math.gcd(worker, ps)
    return worker // common * m.workers_in_slot[i, t] <= ps // common * m.ps_in_slot[i, t]


def fewer_ps_than_workers_7(m: Model, i: int, t: int) -> Any:
    """(7) sum_k z_ik(t) <= sum_h y_ih(t)."""
    return m.ps_in_slot[i, t] <= m.workers_in_slot[i, t]


def completion_8(m: Model, i: int) -> Any:
    """(8) x_i = sum_t u_i(t): an admitted job has one completion slot."""
    return m.admitted[i] == pyo.quicksum(m.completes[i, t] for t in m.data.windows[i].completions)


def worker_place_8(m: Model, i: int, s: int, h: int, t: int) -> Any:
    """(8) y_ih(t) <= n_ih(t) sum_{t' >= t} u_i(t'): none after completion.

    With demand segments g_is(t) stands for the sum.
    """
    return m.workers[i, s, h, t] <= m.data.workers[i, s, h, t] * _is_on(m, i, s, t)


def ps_place_8(m: Model, i: int, s: int, k: int, t: int) -> Any:
    """(8) z_ik(t) <= m_ik(t) sum_{t' >= t} u_i(t'): none after completion.

    With demand segments g_is(t) stands for the sum.
    """
    return m.ps[i, s, k, t] <= m.data.ps[i, s, k, t] * _is_on(m, i, s, t)


def one_segment(m: Model, i: int, t: int) -> Any:
    """Give a slot at most one segment, none after completion: sum_s g_is(t) <= sum_{t' >= t} u_i(t')."""
    numbers = m.data.segments_of.get((i, t))
    if numbers is None:
        return pyo.Constraint.Skip
    return pyo.quicksum(m.in_segment[i, s, t] for s in numbers) <= m.runs_on[i, t]


def segment_begun(m: Model, i: int, s: int, t: int) -> Any:
    """Let a segment hold only once its start is reached: progress before slot t >= d_is g_is(t)."""
    start = m.data.segment_start(i, s)
    return m.progress_before[i, t] >= start * m.in_segment[i, s, t] if start else pyo.Constraint.Skip


def segment_not_passed(m: Model, i: int, s: int, t: int) -> Any:
    """Let a segment hold only before the next: progress before slot t <= d_i,s+1 - 1 where g_is(t) = 1."""
    window = m.data.windows[i]
    most = int(window.reach[t - window.slots.start])
    is_last = s + 1 == len(window.segments)
    end = most if is_last else m.data.segment_start(i, s + 1) - 1
    if end >= most:
        return pyo.Constraint.Skip
    return m.progress_before[i, t] <= most - (most - end) * m.in_segment[i, s, t]


def whole_step(m: Model, i: int, t: int) -> Any:
    """Run a step of the progress table: sum_h y_ih(t) = sum_Y Y c_iY(t)."""
    steps = m.data.steps[i, t]
    return m.workers_in_slot[i, t] == pyo.quicksum(count * m.step[i, t, count] for count in steps)


def one_step(m: Model, i: int, t: int) -> Any:
    """Run at most one step, none after completion: sum_Y c_iY(t) <= sum_{t' >= t} u_i(t')."""
    steps = m.data.steps[i, t]
    return pyo.quicksum(m.step[i, t, count] for count in steps) <= m.runs_on[i, t]


def share_of_server(m: Model, i: int, s: int, h: int, t: int, r: int) -> Any:
    """Cap a job's share of a shared server: w_i^r y_ih(t) + s_i^r z_ih(t) <= eps c_h^r(t)."""
    place = (i, s, h, t)
    if place not in m.data.ps or m.data.exceeds_share_alone(place):
        return pyo.Constraint.Skip
    worker, ps = m.data.demand(i, s, r)
    return _whole(((worker, m.workers[place]), (ps, m.ps[place])), m.data.share_of(h, t, r))


def alone_on_server(m: Model, i: int, s: int, h: int, t: int) -> Any:
    """Keep a unit that exceeds the share by itself alone: y_ih(t) / n_ih(t) + z_ih(t) / m_ih(t) <= 1.

    If a single worker exceeds the share then n = 1, and the pairs left are (1, 0) and (0, z); likewise
    for PSs. The row's integer points are just these.
    """
    place = (i, s, h, t)
    if place not in m.data.ps or not m.data.exceeds_share_alone(place):
        return pyo.Constraint.Skip
    most, most_ps = m.data.workers[place], m.data.ps[place]
    return most_ps * m.workers[place] + most * m.ps[place] <= most * most_ps


def ordered_workers(m: Model, h: int, t: int) -> Any:
    """Order equal servers: server h holds at least as many workers in slot t as server h + 1."""
    return _ordered(m.workers, m.data.workers_on, h, t)


def ordered_ps(m: Model, k: int, t: int) -> Any:
    """Order equal servers: server k holds at least as many PSs in slot t as server k + 1."""
    return _ordered(m.ps, m.data.ps_on, k, t)


def _is_on(m: Model, i: int, s: int, t: int) -> Any:
    """Return 1 where the job may use demand segment s in slot t."""
    return m.in_segment[i, s, t] if len(m.data.windows[i].segments) > 1 else m.runs_on[i, t]


def _worker_use(m: Model, h: int, t: int, r: int) -> list[tuple[int, Any]]:
    places = m.data.workers_on.get((h, t), [])
    return [(m.data.demand(place[0], place[1], r)[0], m.workers[place]) for place in places]


def _ps_use(m: Model, k: int, t: int, r: int) -> list[tuple[int, Any]]:
    places = m.data.ps_on.get((k, t), [])
    return [(m.data.demand(place[0], place[1], r)[1], m.ps[place]) for place in places]


def _capacity(servers: Any, use: list[tuple[int, Any]], row: tuple[int, int, int]) -> Any:
    server, t, r = row
    return _whole(use, int(servers.capacity[servers.class_of_server[server], t, r]))


def _whole(terms: Iterable[tuple[int, Any]], limit: int) -> Any:
    """Return ``sum of quantity * variable <= limit`` divided by the quantities' common divisor."""
    used = [(quantity, variable) for quantity, variable in terms if quantity]
    if not used:
        return pyo.Constraint.Skip
    common = math.gcd(*(quantity for quantity, _ in used))
    return pyo.quicksum(quantity // common * variable for quantity, variable in used) <= limit // common


def _ordered(units: Any, places_on: dict[tuple[int, int], list[Place]], server: int, t: int) -> Any:
    first, second = (places_on.get((number, t), []) for number in (server, server + 1))
    if not first:
        return pyo.Constraint.Skip
    return pyo.quicksum(units[place] for place in first) >= pyo.quicksum(units[place] for place in second)
