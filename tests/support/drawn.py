"""What a picture holds, by its parts instead of its pixels: the same wherever and with whatever fonts it is drawn."""

from typing import Any

import numpy as np


def told(figure: Any) -> list[Any]:
    """Return the size and all panels of a Matplotlib figure: names, limits, curves, bars, areas, marks and texts."""
    return [[float(inches) for inches in figure.get_size_inches()], *(_panel(panel) for panel in figure.axes)]


def _panel(panel: Any) -> dict[str, Any]:
    legend = panel.get_legend()
    return {
        "names": [panel.get_title(), panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel()],
        "scales": [panel.get_xscale(), panel.get_yscale(), *map(float, (*panel.get_xlim(), *panel.get_ylim()))],
        "is_shown": [panel.get_visible(), panel.axison],
        "ticks": [_ticks(panel.xaxis), _ticks(panel.yaxis)],
        "legend": [text.get_text() for text in legend.get_texts()] if legend else None,
        "lines": [[_floats(line.get_xdata()), _floats(line.get_ydata()), *_style(line), line.get_marker(), line.get_linestyle()] for line in panel.lines],
        "bars": [_patch(patch) for patch in panel.patches],
        "areas": [_collection(one) for one in panel.collections],
        "images": [_floats(np.ma.filled(image.get_array(), -1.0)) for image in panel.images],
        "texts": [[text.get_text(), float(text.get_fontsize()), *map(float, getattr(text, "xy", text.get_position()))] for text in panel.texts],
    }  # fmt: skip


def _ticks(axis: Any) -> list[Any] | None:
    """Return where ticks are and how they are called, where somebody has said so."""
    marks, names = axis.get_major_locator(), axis.get_major_formatter()
    if not hasattr(marks, "locs"):
        return None
    return [_floats(marks.locs), list(getattr(names, "seq", ()))]


def _patch(patch: Any) -> list[Any]:
    corners = patch.get_path().vertices if not hasattr(patch, "get_xy") else None
    box = [patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()] if hasattr(patch, "get_width") else []
    return [
        [float(number) for number in box],
        None if corners is None or box else _floats(corners),
        list(patch.get_facecolor()),
        patch.get_hatch(),
    ]


def _collection(one: Any) -> list[Any]:
    offsets = _floats(one.get_offsets())
    paths = [_floats(path.vertices) for path in one.get_paths()]
    return [offsets, paths, [_floats(colour) for colour in one.get_facecolor()]]


def _style(line: Any) -> list[Any]:
    return [str(line.get_color()), float(line.get_linewidth()), float(line.get_markersize()), line.get_label()]


def _floats(values: Any) -> list[float]:
    return [float(number) for number in np.asarray(values, dtype=float).ravel()]
