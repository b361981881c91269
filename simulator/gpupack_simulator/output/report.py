# SPDX-License-Identifier: Apache-2.0
"""The report: one HTML file without external resources."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from gpupack_simulator.output import comparison
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.style import policies_of
from gpupack_simulator.output.results import common
from gpupack_simulator.output.verdict import verdict

LARGEST_SVG = 400_000
"""Maximum size of an SVG in bytes; a larger plot goes into the report as PNG."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn plot."""

    title: str
    explanation: str
    png: bytes
    svg: bytes

    @property
    def source(self) -> str:
        """Source of an image element; separate images keep the IDs of two SVGs apart."""
        if len(self.svg) <= LARGEST_SVG:
            return f"data:image/svg+xml;base64,{b64encode(self.svg).decode()}"
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


def report(digests: Sequence[Digest], pictures: Sequence[Picture], *, command: str = "") -> str:
    """Return the HTML report. `command`: the command that repeats the runs."""
    made = [comparison.overview(digests), comparison.waits(digests), comparison.waste(digests)]
    return render(
        title=f"GPU packing: {', '.join(policies_of(digests)) or 'no runs'}",
        heading="How well do these policies pack GPUs?",
        compared="",
        words={},
        verdict=verdict(digests),
        policies=policies_of(digests),
        seeds=sorted({one.seed for one in digests}),
        nodes=digests[0].nodes if digests else 0,
        gpus=digests[0].gpus if digests else 0,
        jobs=sorted({sum(one.figures.jobs.values()) for one in digests}),
        parameters=common(digests),
        tables=[table for table in made if table.metrics],
        pictures=pictures,
        command=command,
    )


def render(**content: Any) -> str:
    """Render the page with this content, by the names in the template."""
    template = files("gpupack_simulator.output").joinpath("report.html.j2").read_text()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(**content)
