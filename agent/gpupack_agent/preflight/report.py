# SPDX-License-Identifier: Apache-2.0
"""The report of a check: findings as text or JSON."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpupack_agent.preflight.checks import Finding, Status
from gpupack_agent.preflight.host import Host

WIDTH: Final = 100
_MARKS: Final[dict[Status, str]] = {
    "ok": "ok",
    "warning": "warning",
    "failure": "FAILURE",
    "unknown": "unknown",
}
_INDENT: Final = " " * 29


def as_text(host: Host, findings: Sequence[Finding]) -> str:
    """Return the findings as text, each with the change to make below it."""
    about = (host.name, host.system, f"kernel {host.kernel.release}" if host.kernel.release else "")
    lines = [", ".join(filter(None, about)) or "an unknown host", ""]
    for finding in findings:
        lines += _lines(finding)
    return "\n".join([*lines, "", _conclusion(findings)])


def as_json(host: Host, findings: Sequence[Finding]) -> str:
    """Return a JSON object with the host, its findings, and whether it passed."""
    document = {
        "host": host.name,
        "system": host.system,
        "kernel": host.kernel.release,
        "passed": passed(findings),
        "findings": findings,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def passed(findings: Sequence[Finding]) -> bool:
    """Tell whether no finding is a failure."""
    return all(finding.status != "failure" for finding in findings)


def _lines(finding: Finding) -> Iterator[str]:
    head = f"{_MARKS[finding.status]:<9}{finding.check:<20}"
    yield from _wrapped(head, finding.found)
    if finding.change:
        yield from _wrapped(_INDENT, f"-> {finding.change}")
    if finding.change and finding.see:
        yield f"{_INDENT}   {finding.see}"


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _conclusion(findings: Sequence[Finding]) -> str:
    failures = sum(finding.status == "failure" for finding in findings)
    warnings = sum(finding.status == "warning" for finding in findings)
    recommended = f"{warnings} recommended {'change' if warnings == 1 else 'changes'}"
    if failures:
        return f"Not ready: {failures} required and {recommended}."
    if warnings:
        return f"Ready; {recommended}."
    return "Ready."
