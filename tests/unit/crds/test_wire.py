# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_crds.wire import Rule, wire_name


@pytest.mark.parametrize(
    ("field", "spelled"),
    [
        ("gpus", "gpus"),
        ("gpu_models", "gpuModels"),
        ("memory_mib", "memoryMiB"),
        ("ttl_seconds_after_finished", "ttlSecondsAfterFinished"),
    ],
)
def test_fields_are_spelled_as_kubernetes_spells_them(field, spelled):
    assert wire_name(field) == spelled


def test_a_rule_without_a_field_path_is_written_without_one():
    assert Rule("true", "never seen").as_schema() == {"rule": "true", "message": "never seen"}
