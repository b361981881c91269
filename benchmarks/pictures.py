# SPDX-License-Identifier: Apache-2.0
"""Figures as the SVG that stands in the documents."""

import io

import matplotlib as mpl
from matplotlib.figure import Figure


def svg(figure: Figure, name: str) -> str:
    """A figure's picture: letters stay letters, and the same figure gives the same bytes.

    Args:
        figure: made outside of any style.
        name: of the picture, of which its identifiers are made.
    """
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()
