# SPDX-License-Identifier: Apache-2.0
"""The rights of each service account are exactly those of rbac_expected.py."""

import re

import pytest
from harness import SYSTEM_NAMESPACE
from rbac_expected import (
    ANY_USER,
    IN_ANY_NAMESPACE,
    IN_KUBE_SYSTEM,
    IN_THE_NAMESPACE_OF_BURN_INS,
    IN_THE_NAMESPACE_OF_KUBELETS,
    IN_THE_SYSTEM_NAMESPACE,
)

ROW = re.compile(r"^(?P<resource>\S*) +\[(?P<urls>.*?)\] +\[(?P<names>.*?)\] +\[(?P<verbs>.*?)\]$")


def granted(kube, account, namespace):
    """Rows of `kubectl auth can-i --list`, as rbac_expected.py writes them."""
    user = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}"
    done = kube.kubectl(
        "auth", "can-i", "--list", "--no-headers", f"--as={user}", f"--namespace={namespace}"
    )
    assert done.returncode == 0, done.stderr
    rows = [ROW.fullmatch(line.rstrip()) for line in done.stdout.splitlines()]
    return {
        (row["resource"] or row["urls"], row["names"], " ".join(sorted(row["verbs"].split())))
        for row in rows
    }


@pytest.mark.parametrize("account", sorted(IN_ANY_NAMESPACE))
def test_an_account_has_exactly_the_cluster_rights_of_the_table(system, account):
    assert granted(system, account, "default") == ANY_USER | IN_ANY_NAMESPACE[account]


@pytest.mark.parametrize("account", sorted(IN_THE_SYSTEM_NAMESPACE))
def test_an_account_may_do_a_little_more_in_the_system_namespace(system, account):
    more = ANY_USER | IN_ANY_NAMESPACE[account] | IN_THE_SYSTEM_NAMESPACE[account]
    assert granted(system, account, SYSTEM_NAMESPACE) == more


@pytest.mark.parametrize("account", sorted(IN_THE_NAMESPACE_OF_KUBELETS))
def test_an_account_reads_kubelets_leases_only_where_the_table_says(system, account):
    more = ANY_USER | IN_ANY_NAMESPACE[account] | IN_THE_NAMESPACE_OF_KUBELETS[account]
    assert granted(system, account, "kube-node-lease") == more


@pytest.mark.parametrize("account", sorted(IN_KUBE_SYSTEM))
def test_the_api_reads_the_client_ca_in_kube_system(system, account):
    more = ANY_USER | IN_ANY_NAMESPACE[account] | IN_KUBE_SYSTEM[account]
    assert granted(system, account, "kube-system") == more


@pytest.mark.parametrize("account", sorted(IN_THE_NAMESPACE_OF_BURN_INS))
def test_the_operator_creates_gpujobs_only_in_the_burn_in_namespace(system, account):
    here = IN_THE_NAMESPACE_OF_BURN_INS[account]
    replaced = {(resource, names) for resource, names, _ in here}
    anywhere = ANY_USER | IN_ANY_NAMESPACE[account]
    others = {row for row in anywhere if row[:2] not in replaced}
    assert granted(system, account, "gpupack-acceptance") == others | here


def test_only_the_service_accounts_of_the_table_hold_rights(system):
    accounts = system.kubectl("get", "serviceaccounts", "--output=name").stdout.split()
    assert {name.removeprefix("serviceaccount/") for name in accounts} == {
        *IN_ANY_NAMESPACE,
        "default",
    }
