"""Compiled: what jobs wait for, summed up from one change to the next. The checker's own."""

import numpy as np

from optim.core.compile_cache import compiled


@compiled
def sweep(time, what, more, group, gang, quota, gpus):
    """Return the time that jobs wait over their quota, while enough GPUs are free, and else; in microseconds.

    Parameters
    ----------
    time, what, more
        Changes in order: of how many jobs of a class wait, after the classes of how many GPUs a group holds, and last of how
        many are free.
    group, gang
        Of each class.
    quota, gpus
        GPUs of each group, and of all.
    """
    classes, groups = len(group), len(quota)
    waits, holds, free = np.zeros(classes, np.int64), np.zeros(groups, np.int64), gpus
    over, fragmented, full = 0.0, 0.0, 0.0
    for step in range(len(time)):
        if step and time[step] > time[step - 1]:
            length = float(time[step] - time[step - 1])
            for each in range(classes):
                if waits[each] > 0:
                    if holds[group[each]] >= quota[group[each]]:
                        over += waits[each] * length
                    elif free >= gang[each]:
                        fragmented += waits[each] * length
                    else:
                        full += waits[each] * length
        at = what[step]
        if at < classes:
            waits[at] += more[step]
        elif at < classes + groups:
            holds[at - classes] += more[step]
        else:
            free += more[step]
    return over, fragmented, full
