"""Pictures of the suite `cluster`: policies over seeds, mean completion over its bound, and the worst fairness."""

from collections.abc import Sequence

import numpy as np

from optim.benchmarks.pictures.plots import INK, Gallery, colours_of, name_rows, solvers_in
from optim.benchmarks.record import Record
from optim.benchmarks.spec import Figure

PANELS = (
    ("ratio_to_bound", "mean completion time over its bound"),
    ("rho_max", "worst rho, shared in time"),
    ("rho_space_max", "worst rho, shared in space"),
)


def draw(records: Sequence[Record]) -> list[Figure]:
    """Return the pictures: a panel a figure, a row a policy, a dot a seed."""
    gallery = Gallery()
    names, colours = solvers_in(records), colours_of(records)
    if not names:
        return gallery
    caption = "A dot a seed, the bar its median. Further left is better; fairness in both readings stands side by side."
    height = 1.0 + 0.3 * len(names)
    with gallery.picture("policies", "Policies over seeds", caption, 11, height, 1, len(PANELS)) as panels:
        for panel, (field, label) in zip(panels, PANELS, strict=True):
            for row, name in enumerate(reversed(names)):
                values = [r.findings[field] for r in records if r.solver == name and r.findings.get(field) is not None]
                if values:
                    panel.plot(values, np.full(len(values), row), "o", color=colours[name], alpha=0.75, markersize=5)
                    panel.plot(np.median(values), row, "|", color=INK, markersize=12, markeredgewidth=1.6)
            panel.axvline(1, color=INK, linewidth=0.6, linestyle=":")
            panel.set(xscale="log", xlabel=label)
            name_rows(panel, names)
    return gallery
