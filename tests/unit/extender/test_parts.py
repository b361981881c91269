# SPDX-License-Identifier: Apache-2.0
import asyncio

from self_signed import self_signed

from gpupack_extender.parts import parts_of
from gpupack_extender.settings import Settings
from gpupack_kube import objects


async def test_a_new_leader_lists_all_that_decisions_rest_on(server, api, tmp_path):
    certificate, key = map(str, self_signed(tmp_path))
    environ = {"GPUPACK_TLS_CERT": certificate, "GPUPACK_TLS_KEY": key, "POD_NAME": "s-1"}
    settled = {"GPUPACK_PLAN_HOLD_SECONDS": "0.001"}
    parts = parts_of(Settings.from_environ(environ | settled), api)
    leader = parts.reflectors["leader"]
    spec = objects.LeaseSpec(holder_identity="s-1_0c7a", lease_duration_seconds=15)
    leader._store.upsert(objects.Lease(spec=spec))
    await asyncio.sleep(0.01)
    told = {name for name, reflector in parts.reflectors.items() if reflector._wait_seconds() <= 0}
    assert told == {"nodes", "gpunodes", "gpujobs", "gpuquotas", "gpucohorts", "pods"}
