"""The Newton matrix of a packing master, assembled job by job, compiled."""

import numpy as np

from optim.core.compile_cache import compiled


@compiled
def newton_matrix(base, num_entries, job_start, start, row, entry, weight, row_ratio, job_ratio, ignored):
    """Return the Newton matrix (entry (i, j), i >= j, at ``base[i] + j``) and the eliminated convexity rows' diagonal.

    For each job with columns a_j, weights d_j = x_j / z_j, their sum w and e = u / mu the block is

        sum_j d_j a_j a_j' - (sum_j d_j a_j)(...)' / (w + e)
          = sum_j d_j (a_j - m)(a_j - m)' + (e w / (w + e)) m m',   m = sum_j d_j a_j / w.

    The second form has no cancellation where one column dominates, which is where the first one fails.
    """
    num_jobs = len(job_start) - 1
    num_rows = len(base)
    newton = np.zeros(num_entries)
    for r in range(num_rows):
        newton[base[r] + r] = row_ratio[r]
    diagonal = np.empty(num_jobs)
    place = np.full(num_rows, -1, dtype=np.int64)
    for i in range(num_jobs):
        first, last = job_start[i], job_start[i + 1]
        total = 0.0
        for j in range(first, last):
            total += weight[j]
        diagonal[i] = total + job_ratio[i]
        if total == 0.0:  # no columns, or none that weighs anything
            continue
        members, num_members = np.empty(last - first, dtype=np.int64), 0
        for j in range(first, last):
            if weight[j] > ignored * total:
                members[num_members] = j
                num_members += 1
        low, high, size = num_rows, -1, 0
        for k in range(num_members):
            j = members[k]
            for a in range(start[j], start[j + 1]):
                if place[row[a]] < 0:
                    place[row[a]] = 0
                    low, high, size = min(low, row[a]), max(high, row[a]), size + 1
        rows, size = np.empty(size, dtype=np.int64), 0
        for r in range(low, high + 1):  # those in between are few, and sorting takes seconds to compile
            if place[r] >= 0:
                rows[size], place[r] = r, size
                size += 1
        mean = np.zeros(size)
        for k in range(num_members):
            j = members[k]
            for a in range(start[j], start[j + 1]):
                mean[place[row[a]]] += weight[j] / total * entry[a]
        # One row more for the mean itself: the block is then a single product of a thin matrix with its transpose.
        thin = np.empty((num_members + 1, size))
        for k in range(num_members):
            j = members[k]
            root = np.sqrt(weight[j])
            for a in range(size):
                thin[k, a] = -root * mean[a]
            for a in range(start[j], start[j + 1]):
                thin[k, place[row[a]]] += root * entry[a]
        root = np.sqrt(job_ratio[i] * total / diagonal[i])
        for a in range(size):
            thin[num_members, a] = root * mean[a]
        block = np.dot(thin.T, thin)
        for a in range(size):
            target = base[rows[a]]
            for b in range(a + 1):
                newton[target + rows[b]] += block[a, b]
        for a in range(size):
            place[rows[a]] = -1
    return newton, diagonal
