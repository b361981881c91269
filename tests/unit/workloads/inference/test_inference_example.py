# SPDX-License-Identifier: Apache-2.0
"""The Deployment of examples/ agrees with the server that it starts."""

import pathlib
import re

import yaml

from gpupack_workloads import commands

PATH = pathlib.Path(__file__).parents[4] / "examples" / "inference.yaml"
DEPLOYMENT, SERVICE = yaml.safe_load_all(PATH.read_text())
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def arguments():
    name, *given = CONTAINER["args"]
    return commands.load(name).make_context(name, list(given)).params


def test_the_server_takes_its_arguments_and_listens_where_probes_and_service_look():
    (port,) = CONTAINER["ports"]
    assert arguments()["port"] == port["containerPort"] == SERVICE["spec"]["ports"][0]["port"]
    assert SERVICE["spec"]["ports"][0]["targetPort"] == port["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] == port["name"]
    assert (
        SERVICE["spec"]["selector"].items()
        <= DEPLOYMENT["spec"]["template"]["metadata"]["labels"].items()
    )


def test_its_token_is_in_a_secret_whose_creation_is_in_a_comment():
    (volume,) = POD["volumes"]
    (mount,) = CONTAINER["volumeMounts"]
    made = re.search(r"create secret generic (\S+) --from-literal=(\w+)=", PATH.read_text())
    assert made is not None
    assert volume["secret"]["secretName"] == made[1]
    assert mount["name"] == volume["name"]
    assert arguments()["token_file"] == pathlib.Path(mount["mountPath"]) / made[2]


def test_its_grace_period_is_long_enough_to_drain():
    assert arguments()["drain_seconds"] + 2 <= POD["terminationGracePeriodSeconds"]
