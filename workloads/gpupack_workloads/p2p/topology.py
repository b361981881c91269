# SPDX-License-Identifier: Apache-2.0
"""Reads the links between GPUs from `nvidia-smi topo -m`.

NVLink behind a switch cannot be read from the links' remote ends, which are the switch; the
driver's own matrix counts them: NV18 is 18 links. CUDA numbers GPUs as CUDA_VISIBLE_DEVICES has
them, so rows are found by UUID.
"""

import logging
import re
import subprocess
from dataclasses import dataclass

logger = logging.getLogger(__name__)

SECONDS = 30
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Topology:
    """Links between the GPUs of the host.

    Attributes:
        links: by name of one GPU and of another, such as NV18, PIX, NODE, SYS.
        numa: by name of a GPU, its NUMA node.
        names: by UUID, the name that the matrix has for a GPU.
    """

    links: dict[tuple[str, str], str]
    numa: dict[str, str]
    names: dict[str, str]

    def link(self, one: str, other: str) -> str:
        """Return what links two GPUs, by UUID."""
        return self.links.get((self.names.get(one, ""), self.names.get(other, "")), UNKNOWN)

    def node(self, uuid: str) -> str:
        """Return a GPU's NUMA node, by UUID."""
        return self.numa.get(self.names.get(uuid, ""), UNKNOWN)


def read_topology() -> Topology:
    """Query the driver; links that it does not report are unknown."""
    links, numa = parse_matrix(_ask("topo", "-m"))
    return Topology(
        links, numa, parse_names(_ask("--query-gpu=index,uuid", "--format=csv,noheader"))
    )


def parse_matrix(text: str) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    """Return links by two names, and NUMA nodes by name."""
    lines = [
        [cell.strip() for cell in line.split("\t")] for line in ESCAPES.sub("", text).splitlines()
    ]
    header = next((line for line in lines if "GPU0" in line[1:]), [])
    links: dict[tuple[str, str], str] = {}
    numa: dict[str, str] = {}
    for line in lines:
        if not re.fullmatch(r"GPU\d+", line[0]):
            continue
        cells = dict(zip(header[1:], line[1:], strict=False))
        links |= {(line[0], name): cell for name, cell in cells.items() if name.startswith("GPU")}
        numa[line[0]] = cells.get("NUMA Affinity") or UNKNOWN
    return links, numa


def parse_names(text: str) -> dict[str, str]:
    """Return the matrix's names by UUID, from lines like `0, GPU-…`."""
    pairs = (line.split(",") for line in text.splitlines() if "," in line)
    return {uuid.strip(): f"GPU{index.strip()}" for index, uuid in pairs}


def _ask(*arguments: str) -> str:
    """Return what nvidia-smi prints, nothing if it is missing or fails."""
    try:
        answer = subprocess.run(  # noqa: S603  fixed arguments
            ["nvidia-smi", *arguments],  # noqa: S607  where the driver's container tools put it
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("the topology is unknown: %s", error)
        return ""
    return answer.stdout
