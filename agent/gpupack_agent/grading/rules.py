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
from gpupack_agent.grading.grade import Finding, Grade, worst_grade
from gpupack_agent.inventory.facts import GpuFacts
from gpupack_crds.gpunode import Health


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the table.

    Attributes:
        name: name in CamelCase, as in GPUNode's causes.
        health: how far a GPU may be used to which the rule applies.
        source: NVIDIA's document with the rule.
        describe: returns the text if the rule applies; empty: it does not, or the fact is not
            known.
    """

    name: str
    health: Health
    source: str
    describe: Callable[[GpuFacts], str]


_NVML: Final = "https://docs.nvidia.com/deploy/nvml-api"
_MEMORY: Final = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt"

RECOVERY_ACTIONS: Final[dict[int, tuple[Health, str]]] = {
    1: ("Failed", "the driver requests a GPU reset"),
    2: ("Failed", "the driver requests a reboot of the node"),
    3: ("Cordoned", "the driver requests to drain peer-to-peer work"),
    4: ("Cordoned", "the driver requests to drain the GPU, then to reset it"),
    5: ("Cordoned", "the driver requests a recovery of the IMEX domain"),
    6: ("Failed", "the driver requests a bus reset"),
    7: ("Failed", "the driver requests a system reboot"),
}
"""The grades by NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; 0: no action.

Source: nvml.h, nvmlDeviceGpuRecoveryAction_t.
"""

SLOWDOWNS: Final = {
    "HwThermalSlowdown": "the GPU is too hot: check its cooling",
    "SwThermalSlowdown": "the GPU is close to its temperature limit: check its cooling",
    "HwPowerBrakeSlowdown": "the power supply requests a slowdown: check the host's power",
}
"""The reasons, by NVML's names, for clocks that the GPU's surroundings reduce."""


def _slowdown_rule(reason: str) -> Rule:
    def describe(facts: GpuFacts) -> str:
        held = reason in facts.load.throttled_by
        return f"clocks reduced: {SLOWDOWNS[reason]}" if held else ""

    source = f"{_NVML}/group__nvmlClocksEventReasons.html"
    return Rule(f"Throttled{reason}", "Degraded", source, describe)


def _uncorrected(facts: GpuFacts) -> str:
    count = facts.errors.ecc_uncorrected_volatile or 0
    return f"{count} uncorrected memory errors since the last reset: reset the GPU" if count else ""


def _remap_failed(facts: GpuFacts) -> str:
    return "a memory row could not be remapped: replace the GPU" if _has_remap_failed(facts) else ""


def _has_remap_failed(facts: GpuFacts) -> bool:
    return facts.errors.remap_failed is True


def _remap_pending(facts: GpuFacts) -> str:
    pending = facts.errors.remap_pending is True and not _has_remap_failed(facts)
    return "a memory row is remapped at the next reset: reset the GPU" if pending else ""


def _links_down(facts: GpuFacts) -> str:
    links, down = facts.links.nvlinks, facts.links.down
    # All links are down if nothing is connected to them.
    if not down or not any(links):
        return ""
    return f"NVLink {', '.join(map(str, down))} of {len(links)} is down: check the links"


def _pcie_link_narrow(facts: GpuFacts) -> str:
    width, maximum = facts.links.pcie_width, facts.board.max_pcie_width
    if not width or not maximum or width >= maximum:
        return ""
    return f"the PCIe link has {width} of {maximum} lanes: reseat the GPU"


RULES: Final[tuple[Rule, ...]] = (
    Rule("RowRemapFailed", "Failed", f"{_MEMORY}/row-remapping.html", _remap_failed),
    Rule("RowRemapPending", "Cordoned", f"{_MEMORY}/row-remapping.html", _remap_pending),
    Rule("EccUncorrected", "Cordoned", f"{_MEMORY}/error-containment.html", _uncorrected),
    Rule("NvlinkDown", "Degraded", f"{_NVML}/group__NvLink.html", _links_down),
    Rule("PcieLinkNarrow", "Degraded", f"{_NVML}/group__nvmlDeviceQueries.html", _pcie_link_narrow),
    *(_slowdown_rule(reason) for reason in SLOWDOWNS),
)


def grade_gpu(facts: GpuFacts | None, xids: Iterable[int]) -> Grade:
    """Return the grade of a GPU; if `facts` is None, only its XIDs are known."""
    of_xids = {number: found for number in sorted(xids) if (found := catalogue.finding(number))}
    of_facts = _fact_findings(facts) if facts else ()
    grade = worst_grade([*of_facts, *of_xids.values()])
    return dataclasses.replace(grade, xids=tuple(of_xids))


def _fact_findings(facts: GpuFacts) -> Iterator[Finding]:
    action = facts.errors.recovery_action
    if action:
        unknown: tuple[Health, str] = ("Cordoned", f"the driver requests unknown action {action}")
        health, text = RECOVERY_ACTIONS.get(action, unknown)
        yield Finding("RecoveryAction", health, text)
    for rule in RULES:
        if text := rule.describe(facts):
            yield Finding(rule.name, rule.health, text)
