# SPDX-License-Identifier: Apache-2.0
"""The table of rules: the facts of the driver that count against a GPU.

States end when the driver says so. XIDs are events, and a GPU may seem to recover from one without
being healthy. So they count until the node boots, or until an administrator who repaired the GPU
deletes the node's GPUNode.

Some facts have no rule on purpose: utilisation, power below its limit and clocks that the power
limit reduces (normal for a GPU at work), corrected memory errors (ECC works), and the PCIe
generation (an idle link slows down).
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gpupack_agent.grading import catalogue
from gpupack_agent.grading.grade import Finding, Grade, graded
from gpupack_agent.inventory.facts import GpuFacts
from gpupack_crds.gpunode import Health


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the table.

    Attributes:
        name: name in CamelCase, as in GPUNode's causes.
        health: how far a GPU may be used to which the rule applies.
        source: NVIDIA's document with the rule.
        says: returns the text if the rule applies; empty: it does not, or the fact is not known.
    """

    name: str
    health: Health
    source: str
    says: Callable[[GpuFacts], str]


_NVML: Final = "https://docs.nvidia.com/deploy/nvml-api"
_MEMORY: Final = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt"

RECOVERY_ACTIONS: Final[dict[int, tuple[Health, str]]] = {
    1: ("Failed", "the driver asks for a reset of the GPU"),
    2: ("Failed", "the driver asks for a reboot of the node"),
    3: ("Draining", "the driver asks to drain peer-to-peer work"),
    4: ("Draining", "the driver asks to drain the GPU, then to reset it"),
    5: ("Draining", "the driver asks to recover the IMEX domain"),
    6: ("Failed", "the driver asks for a reset of the bus"),
    7: ("Failed", "the driver asks for a reboot of the system"),
}
"""The grades by NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; 0: no action.

Source: nvml.h, nvmlDeviceGpuRecoveryAction_t.
"""

SLOWDOWNS: Final = {
    "HwThermalSlowdown": "it is too hot: look at its cooling",
    "SwThermalSlowdown": "it is close to too hot: look at its cooling",
    "HwPowerBrakeSlowdown": "its power supply asked it to slow down: look at the host's power",
}
"""The reasons, by NVML's names, for clocks that the GPU's surroundings reduce."""


def _slowed(reason: str) -> Rule:
    def says(facts: GpuFacts) -> str:
        held = reason in facts.load.throttled_by
        return f"its clocks are held down, {SLOWDOWNS[reason]}" if held else ""

    source = f"{_NVML}/group__nvmlClocksEventReasons.html"
    return Rule(f"Throttled{reason}", "Degraded", source, says)


def _uncorrected(facts: GpuFacts) -> str:
    count = facts.errors.ecc_uncorrected_volatile or 0
    return f"{count} uncorrected memory errors since it was reset: reset the GPU" if count else ""


def _remap_failed(facts: GpuFacts) -> str:
    return "a row of its memory could not be remapped: replace it" if _failed(facts) else ""


def _failed(facts: GpuFacts) -> bool:
    return facts.errors.remap_failed is True


def _remap_pending(facts: GpuFacts) -> str:
    pending = facts.errors.remap_pending is True and not _failed(facts)
    return "a row of its memory is remapped at the next reset: reset the GPU" if pending else ""


def _links_down(facts: GpuFacts) -> str:
    links, down = facts.links.nvlinks, facts.links.down
    # All links are down if nothing is connected to them.
    if not down or not any(links):
        return ""
    return f"NVLink {', '.join(map(str, down))} of {len(links)} is down: look at its links"


def _narrow(facts: GpuFacts) -> str:
    width, most = facts.links.pcie_width, facts.board.pcie_width_most
    if not width or not most or width >= most:
        return ""
    return f"its PCIe link has {width} of {most} lanes: seat it anew"


RULES: Final[tuple[Rule, ...]] = (
    Rule("RowRemapFailed", "Failed", f"{_MEMORY}/row-remapping.html", _remap_failed),
    Rule("RowRemapPending", "Draining", f"{_MEMORY}/row-remapping.html", _remap_pending),
    Rule("EccUncorrected", "Draining", f"{_MEMORY}/error-containment.html", _uncorrected),
    Rule("NvlinkDown", "Degraded", f"{_NVML}/group__NvLink.html", _links_down),
    Rule("PcieLinkNarrow", "Degraded", f"{_NVML}/group__nvmlDeviceQueries.html", _narrow),
    *(_slowed(reason) for reason in SLOWDOWNS),
)


def judge(facts: GpuFacts | None, xids: Iterable[int]) -> Grade:
    """Return the grade of a GPU; if `facts` is None, only its XIDs are known."""
    return graded([*_of_facts(facts), *_of_xids(xids)] if facts else list(_of_xids(xids)))


def _of_facts(facts: GpuFacts) -> Iterator[Finding]:
    action = facts.errors.recovery_action
    if action:
        unknown: tuple[Health, str] = ("Draining", f"the driver asks for unknown action {action}")
        health, text = RECOVERY_ACTIONS.get(action, unknown)
        yield Finding("RecoveryAction", health, text)
    for rule in RULES:
        if text := rule.says(facts):
            yield Finding(rule.name, rule.health, text)


def _of_xids(xids: Iterable[int]) -> Iterator[Finding]:
    for number in sorted(xids):
        if found := catalogue.finding(number):
            yield found
