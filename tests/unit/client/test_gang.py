# SPDX-License-Identifier: Apache-2.0
"""The index of a process among TensorFlow's workers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpupack.errors import ConfigInvalid
from gpupack.process_setup import Place, SetupInvalid, place_of

GANG = {
    "GPUPACK_RENDEZVOUS": "train-0-2-0.train-0.team.svc:29400",
    "GPUPACK_WORKERS": "3",
    "GPUPACK_WORKER_INDEX": "1",
}
WORKERS = tuple(f"train-0-2-{index}.train-0.team.svc:29400" for index in range(3))


def tf_config(*workers, index=0):
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    return {"TF_CONFIG": json.dumps(cluster)}


def test_the_pods_of_a_gang_derive_all_addresses_from_the_first():
    assert place_of(GANG) == Place(WORKERS, 1)


def test_the_documented_script_gives_the_same_addresses():
    page = (Path(__file__).parents[3] / "docs/your-own-image.md").read_text()
    section = page.partition("\n## TensorFlow\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    code += '\nprint(os.environ["TF_CONFIG"])'
    done = subprocess.run(
        [sys.executable, "-c", code], env=GANG, capture_output=True, text=True, check=True
    )
    assert place_of({"TF_CONFIG": done.stdout}) == place_of(GANG)


def test_tf_config_has_precedence_over_the_gangs_variables():
    assert place_of(GANG | tf_config("a:1", "b:1", index=1)) == Place(("a:1", "b:1"), 1)


def test_an_index_in_tf_config_may_be_text():
    assert place_of(tf_config("a:1", "b:1", index="1")) == Place(("a:1", "b:1"), 1)


@pytest.mark.parametrize(
    "environ",
    [{}, tf_config("a:1"), GANG | {"GPUPACK_WORKERS": "1"}, dict.fromkeys(GANG, "")],
    ids=["no gang", "one in TF_CONFIG", "one worker", "empty"],
)
def test_a_single_worker_needs_no_address(environ):
    assert place_of(environ) == Place()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cluster": {}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {}}',
        *[
            f'{{"cluster": {{"worker": {workers}}}, "task": {{"index": 0}}}}'
            for workers in ('"a:1"', "[1]", '["a"]')
        ],
    ],
)
def test_a_tf_config_without_workers_is_refused_with_the_form(text):
    with pytest.raises(ConfigInvalid, match=r'TF_CONFIG: .*write \{"cluster"'):
        place_of({"TF_CONFIG": text})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GPUPACK_WORKERS", "many", "GPUPACK_WORKERS is 'many': give a whole number"),
        ("GPUPACK_WORKERS", "9" * 5000, "GPUPACK_WORKERS is '9{128}': give a whole number"),
        ("GPUPACK_WORKERS", "1025", "give a whole number up to 1024"),
        ("GPUPACK_RENDEZVOUS", "", "GPUPACK_RENDEZVOUS is '': set the address of worker 0"),
        ("GPUPACK_RENDEZVOUS", "127.0.0.1:29400", "or set TF_CONFIG"),
        ("GPUPACK_MIN_WORKERS", "2", "does not support elastic jobs; remove minWorkers"),
    ],
)
def test_contradicting_variables_of_a_gang_are_refused(name, value, message):
    with pytest.raises(SetupInvalid, match=message):
        place_of(GANG | {name: value})
