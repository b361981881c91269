# SPDX-License-Identifier: Apache-2.0
"""Renders figures as SVG for the documents."""

import io

import matplotlib as mpl
from matplotlib.figure import Figure


def svg(figure: Figure, name: str) -> str:
    """Return a figure as SVG: text stays text, and the same figure gives the same bytes.

    Args:
        figure: the figure, without a style context.
        name: name of the picture; its identifiers derive from it.
    """
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()
