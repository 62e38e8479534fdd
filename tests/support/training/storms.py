"""Random sequences of machines that join, are warned and die, by a seed."""

import numpy as np

from optim.training.trainer import Action, Event


def random_events(seed, clocks):
    """Draw machines that join, are warned and die; at least one reliable machine is always present."""
    rng = np.random.default_rng(seed)
    there = {"reliable": ["r0"], "transient": []}
    events = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0",))]
    for clock in range(1, clocks):
        before = [*there["transient"], *there["reliable"][1:]]
        for number in range(int(rng.integers(0, 3))):
            tier = str(rng.choice(["reliable", "transient", "transient"]))
            after = int(rng.integers(0, 9))
            leaving = [name for name in before if name in there["transient"] or name in there["reliable"]]
            if rng.random() < 0.45 or not leaving:
                names = tuple(f"{tier[0]}{clock}-{number}-{k}" for k in range(int(rng.integers(1, 4))))
                action = Action.ADD_RELIABLE if tier == "reliable" else Action.ADD_TRANSIENT
                there[tier] += names
            else:
                names = tuple(rng.permutation(leaving)[: int(rng.integers(1, 3))].tolist())
                action = Action.EVICT if rng.random() < 0.25 else Action.KILL
                for own in there.values():
                    own[:] = [name for name in own if name not in names]
            is_added = action in (Action.ADD_RELIABLE, Action.ADD_TRANSIENT)
            events.append(Event(clock=clock, action=action, machines=names, after_messages=0 if is_added else after))
    return events
