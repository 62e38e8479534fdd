"""Concave functions above measured points."""

import numpy as np

from optim.workloads.profiles.fitting import FloatArray


def concave_envelope(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the corners of the least concave function through the origin that lies on or above all points.

    Parameters
    ----------
    x, y
        Shape (points,): x positive and rising.
    """
    corners: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True):
        while len(corners) > 1 and _turns_up(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    hull = np.array(corners[1:])
    return hull[:, 0], np.maximum.accumulate(hull[:, 1])


def _turns_up(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    rise = (middle[1] - first[1]) * (last[0] - first[0])
    return rise <= (last[1] - first[1]) * (middle[0] - first[0])
