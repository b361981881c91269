# SPDX-License-Identifier: Apache-2.0
"""Reading of a trace: SWF if the file's name ends in `.swf`, else CSV with a column mapping."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.mapping import read_mapping
from gpupack_simulator.inputs.swf import SUFFIX, SwfRules, SwfTrace, TenantColumn, read_swf
from gpupack_simulator.inputs.trace import Trace, described_left_out, read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """The options of a trace. `mapping` is for CSV, the last three are for SWF. None: not given."""

    path: Path | None
    mapping: Path | None = None
    processors_per_gpu: int | None = None
    gpus_per_worker: int | None = None
    tenants: str | None = None

    @property
    def is_swf(self) -> bool:
        """Whether the file is SWF, by its name."""
        if self.path is None:
            return False
        return self.path.name.lower().removesuffix(".gz").endswith(SUFFIX)

    @property
    def swf_options(self) -> dict[str, Any]:
        """Options for SWF that were given, by the option's name."""
        options = {
            "--processors-per-gpu": self.processors_per_gpu,
            "--gpus-per-worker": self.gpus_per_worker,
            "--tenants": self.tenants,
        }
        return {name: value for name, value in options.items() if value is not None}


def read_source(source: TraceSource) -> Trace | None:
    """Read the trace; None: no trace was given.

    Raises:
        InvalidInput: every fault of the file.
        InvalidParameter: an option has no effect, or a required one is missing.
    """
    if source.path is None:
        if source.mapping is not None:
            raise InvalidParameter("--mapping is of a --trace; there is none")
        _refuse(source, "there is none")
        return None
    if source.is_swf:
        if source.mapping is not None:
            raise InvalidParameter(f"{source.path.name} is SWF, whose columns need no --mapping")
        return read_swf(source.path, _rules(source))
    _refuse(source, f"{source.path.name} is none")
    if source.mapping is None:
        raise InvalidParameter(
            f"--trace needs --mapping: a YAML that names its columns; or a file in the Standard "
            f"Workload Format, whose name ends in {SUFFIX} or {SUFFIX}.gz"
        )
    return read_trace(source.path, read_mapping(source.mapping))


def described(source: TraceSource, trace: Trace) -> str:
    """Describe what was read, for users."""
    parts = [f"{len(trace.jobs)} read"]
    if trace.left_out:
        parts.insert(0, described_left_out(trace.left_out))
    if isinstance(trace, SwfTrace) and trace.max_procs is not None:
        per_gpu = _rules(source).processors_per_gpu
        gpus = -(-trace.max_procs // per_gpu)
        parts.append(f"the log is of {trace.max_procs} processors, which count as {gpus} GPUs")
    name = "" if source.path is None else source.path.name
    return f"{name}: {', '.join(parts)}"


def parameters(source: TraceSource, trace: Trace) -> dict[str, str | int]:
    """Return the parameters of the trace for the record of a run."""
    known: dict[str, str | int] = {"trace": "" if source.path is None else source.path.name}
    if trace.left_out:
        known["left_out"] = sum(trace.left_out.values())
    if isinstance(trace, SwfTrace):
        rules = _rules(source)
        known |= {
            "processors_per_gpu": rules.processors_per_gpu,
            "gpus_per_worker": rules.max_gpus_per_worker,
            "tenants": str(rules.tenants),
        }
        if trace.max_procs is not None:
            known["max_procs"] = trace.max_procs
        if trace.unix_start_time is not None:
            known["unix_start_time_seconds"] = trace.unix_start_time
    return known


def _rules(source: TraceSource) -> SwfRules:
    default = SwfRules()
    return SwfRules(
        processors_per_gpu=source.processors_per_gpu or default.processors_per_gpu,
        max_gpus_per_worker=source.gpus_per_worker or default.max_gpus_per_worker,
        tenants=default.tenants if source.tenants is None else TenantColumn(source.tenants),
    )


def _refuse(source: TraceSource, why: str) -> None:
    if source.swf_options:
        raise InvalidParameter(f"{next(iter(source.swf_options))} is of an SWF --trace; {why}")
