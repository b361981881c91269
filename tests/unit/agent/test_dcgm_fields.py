# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pathlib

import pytest
from graded import graded
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.dcgm import fields
from gpupack_agent.dcgm.fields import FIELDS, NAMES, merge
from gpupack_agent.grading.grade import HEALTH_ORDER
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.facts import Errors, GpuFacts, Load
from gpupack_crds.gpunode import GpuDevice

XID = "DCGM_FI_DEV_XID_ERRORS"
DOCUMENT = pathlib.Path(__file__).parents[3] / "docs/dcgm.md"


def findings(load=None, errors=None, xids=(), **device):
    """One GPU as the driver's process reports it."""
    facts = GpuFacts(
        uuid="GPU-0", index=0, name="H200", load=load or Load(), errors=errors or Errors()
    )
    gpu = GpuDevice(index=0, model="H200", memory_mib=1000, **({"uuid": "GPU-0"} | device))
    return Findings(devices=(gpu,), facts=(facts,), xids={"GPU-0": xids})


def with_figures(found, *, ignored_xids=None, **figures):
    figures_of_gpu = {f"DCGM_FI_{name}": value for name, value in figures.items()}
    return merge(found, {"GPU-0": figures_of_gpu}, ignored_xids or {})


def test_the_document_has_the_table_as_the_code_has_it():
    assert fields.render_table() in DOCUMENT.read_text()


@pytest.mark.parametrize("field", FIELDS[1:], ids=lambda field: field.fact)
def test_a_fact_that_the_driver_reports_takes_precedence(field):
    part, name = field.fact.split(".")
    kind = {"load": Load, "errors": Errors}[part]
    own, others = field.convert(0.0), {field.dcgm: 1.0}
    found = findings(**{part: kind(**{name: own})})
    (gpu,) = merge(found, {"GPU-0": others}, {}).facts
    assert getattr(getattr(gpu, part), name) == own


@pytest.mark.parametrize("field", FIELDS[1:], ids=lambda field: field.fact)
def test_a_fact_that_the_driver_does_not_report_comes_from_dcgm(field):
    part, name = field.fact.split(".")
    (gpu,) = merge(findings(), {"GPU-0": {field.dcgm: 1.0}}, {}).facts
    assert getattr(getattr(gpu, part), name) == field.convert(1.0)
    (same,) = merge(findings(), {"GPU-0": {field.dcgm: field.maximum * 2}}, {}).facts
    assert getattr(getattr(same, part), name) is None


def test_each_field_and_each_fact_stands_in_one_row():
    assert len(NAMES) == len(FIELDS) == len({field.fact for field in FIELDS})


def test_units_become_ours():
    (gpu,) = with_figures(
        findings(), PROF_SM_ACTIVE=0.25, DEV_TOTAL_ENERGY_CONSUMPTION=2500.0, DEV_FB_USED=3.0
    ).facts
    assert (gpu.load.sm_active_percent, gpu.load.energy_joules) == (25.0, 2.5)
    assert gpu.load.memory_used_bytes == 3 << 20


def test_an_xid_that_only_dcgm_shows_counts():
    (gpu,) = graded(with_figures(findings(), DEV_XID_ERRORS=79.0))
    assert (gpu.health, gpu.xids, gpu.causes) == ("Failed", (79,), ("XidRestartHost",))


@pytest.mark.parametrize("number", [0, 13, 31, 109, 154, 999, 5000])
def test_an_xid_of_an_application_changes_nothing(number):
    assert graded(with_figures(findings(), DEV_XID_ERRORS=float(number))) == findings().devices


def test_an_xid_from_before_the_repair_does_not_count():
    found = with_figures(findings(), DEV_XID_ERRORS=79.0, ignored_xids={"GPU-0": 79})
    assert graded(found)[0].health == "Healthy"
    found = with_figures(findings(), DEV_XID_ERRORS=48.0, ignored_xids={"GPU-0": 79})
    assert graded(found)[0].xids == (48,)


def test_an_xid_counts_against_each_slice_of_its_gpu():
    found = findings(uuid="MIG-0", mig_parent="GPU-0")
    assert graded(with_figures(found, DEV_XID_ERRORS=79.0))[0].health == "Failed"


def test_a_gpu_that_the_driver_does_not_name_stays_unknown():
    found = findings()
    assert merge(found, {"GPU-other": {XID: 79.0}}, {}) == found


def test_without_an_answer_a_scan_stays_as_it_is():
    found = findings()
    assert merge(found, {}, {}) is found


@given(
    errors=st.builds(
        Errors,
        remap_failed=st.sampled_from([None, False, True]),
        remap_pending=st.sampled_from([None, False, True]),
        ecc_uncorrected_volatile=st.sampled_from([None, 0, 3]),
        recovery_action=st.sampled_from([None, 0, 1, 3]),
    ),
    xids=st.sets(st.sampled_from([54, 79, 94]), max_size=2),
    figures=st.dictionaries(
        st.sampled_from(sorted(NAMES)), st.floats(0, 1e20) | st.sampled_from([0.0, 1.0, 79.0])
    ),
)
def test_no_exporter_improves_a_gpus_health(errors, xids, figures):
    found = findings(errors=errors, xids=tuple(sorted(xids)))
    (before,), (after,) = graded(found), graded(merge(found, {"GPU-0": figures}, {}))
    assert HEALTH_ORDER.index(after.health) >= HEALTH_ORDER.index(before.health)
    assert set(before.causes) <= set(after.causes)
    assert set(before.xids) <= set(after.xids)
    unchanged = ("uuid", "index", "model", "memory_mib", "numa_node", "nvlink_clique", "mig_parent")
    assert all(getattr(before, name) == getattr(after, name) for name in unchanged)


def test_only_facts_of_the_table_come_from_an_exporter():
    figures_of_gpu = dict.fromkeys(NAMES, 1.0)
    (before,), (after,) = findings().facts, merge(findings(), {"GPU-0": figures_of_gpu}, {}).facts
    changed = {
        f"{part}.{field.name}"
        for part in ("board", "load", "errors", "links")
        for field in dataclasses.fields(getattr(before, part))
        if getattr(getattr(before, part), field.name) != getattr(getattr(after, part), field.name)
    }
    assert changed == {field.fact for field in FIELDS} - {"xids"}
    assert (after.processes, after.uuid) == (before.processes, before.uuid)
