# SPDX-License-Identifier: Apache-2.0
import logging

import pytest

from gpupack import ConfigInvalid, GpuConfig, TrainingGPUConfig, load_config
from gpupack.config import apply_log_level, parse_config

OLDER = """
gpu_resource:
  gpu: "nvidia.com/gpu"
  amd: "amd.com/gpu"
default_gpu_resource_name: "nvidia.com/gpu"
gpu_memory_specs:
  V100: 32.0
monitor_update_interval: 30
resource_change_threshold: 0.05
log_level: "INFO"
"""


def test_a_file_of_older_clients_is_accepted(tmp_path):
    (tmp_path / "gpu_config.yaml").write_text(OLDER)
    config = load_config(tmp_path / "gpu_config.yaml", {})
    assert config.resource_name("amd") == "amd.com/gpu"
    assert config.gpu_memory_specs == {"V100": 32.0}
    assert config.monitor_update_interval == 30


def test_without_a_file_everything_has_a_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config(None, {}) == GpuConfig()


def test_the_environment_has_precedence_over_the_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("cluster: {server: https://a, namespace: x}\n")
    environ = {"GPUPACK_CONFIG": str(file), "GPUPACK_SERVER": "https://b"}
    config = load_config(None, environ)
    assert (config.cluster.server, config.cluster.namespace) == ("https://b", "x")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"monitor_update_interval": -1}, "monitor_update_interval: -1; write seconds"),
        (
            {"cluster": {"hold_seconds": 5}},
            "cluster.hold_seconds: 5; write seconds, a whole number",
        ),
        ({"clustr": {}}, "clustr: there is no such field; use one of: gpu_resource, "),
        ({"cluster": {"srv": 1}}, "cluster.srv: there is no such field; use one of: server, ca"),
        (
            {"gpu_memory_specs": {"H100": 80, "V100": "x"}},
            r"gpu_memory_specs\[V100\]: 'x'; write GB",
        ),
        (
            {"gpu_resource": {"amd": "AMD"}},
            r"gpu_resource\[amd\]: 'AMD'; write a resource name such",
        ),
        ({"log_level": "LOUD"}, "log_level: 'LOUD'; use one of: DEBUG, INFO"),
        ({"cluster": {"server": "host:1"}}, "cluster.server: 'host:1'; write an address such as"),
        ({"this_machine": {"policy": "nope"}}, "this_machine.policy: there is no policy 'nope'"),
        ({"gpu_memory_specs": {1: 3}}, "gpu_memory_specs: {1: 3}; write GB"),
    ],
)
def test_an_invalid_value_is_reported_with_path_value_and_fix(document, said):
    with pytest.raises(ConfigInvalid, match=said):
        parse_config(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "give fields with their values"),
        (None, "cannot be read"),
    ],
)
def test_an_invalid_file_is_named(text, said, tmp_path):
    file = tmp_path / "mine.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigInvalid, match=rf"mine\.yaml: .*{said}"):
        load_config(file, {})


def test_an_unknown_vendor_is_refused_with_the_known_ones():
    with pytest.raises(ConfigInvalid, match="'ibm'; use one of: amd, gpu, intel, npu, nvidia"):
        GpuConfig().resource_name("ibm")


def test_the_log_level_applies_only_to_gpupacks_logger():
    before = logging.getLogger().level
    apply_log_level(GpuConfig(log_level="ERROR"))
    assert logging.getLogger("gpupack").level == logging.ERROR
    assert logging.getLogger().level == before
    logging.getLogger("gpupack").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"gpu_count": 0}, "gpu_count: 0; give a whole number from 1 to 4096"),
        ({"gpu_count": 1.5}, "gpu_count: 1.5; give a whole number"),
        ({"gpu_type": "nvidia.com/gpu: 2"}, "gpu_type: .*resourceName: nvidia.com/gpu"),
        ({"gpu_type": 3}, "gpu_type: 3; name a model"),
        ({"memory_gb": -1}, "memory_gb: -1; give a number from 0"),
        ({"memory_gb": float("nan")}, "memory_gb: nan; give a number"),
        ({"gpu_memory_fraction": 0}, "gpu_memory_fraction: 0; give a number from 0.01 to 1"),
        ({"mixed_precision": "yes"}, "mixed_precision: 'yes'; give True or False"),
        ({"compute_ratio": 0.5}, "memory_gb: 0.0; a share needs a memory of more than 0"),
        ({"compute_ratio": 0.5, "memory_gb": 1, "gpu_count": 2}, "gpu_count: 2; a share .* of 1"),
    ],
)
def test_an_invalid_training_is_refused_with_field_and_value(asked, said):
    with pytest.raises(ConfigInvalid, match=f"TrainingGPUConfig.{said}"):
        TrainingGPUConfig(**asked)


def test_gigabytes_have_ten_to_the_nine_bytes():
    assert TrainingGPUConfig(memory_gb=80).memory_mib == 76294


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GPUPACK_BACKEND", "rubbish"),
        ("GPUPACK_SERVER", "no address"),
        ("GPUPACK_HOST_FOLDER", "of/each/folder/another"),
    ],
)
def test_an_invalid_variable_is_named_and_not_the_file(variable, value):
    with pytest.raises(ConfigInvalid, match=f"^{variable}: '{value}'; "):
        load_config(None, {variable: value})
