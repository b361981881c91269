# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_operator import liveness
from gpupack_operator.errors import HeartbeatStale


def test_an_empty_setting_selects_the_default_heartbeat_file():
    usual = liveness.heartbeat_path({})
    assert usual.is_absolute()
    assert liveness.heartbeat_path({"GPUPACK_HEARTBEAT_FILE": ""}) == usual


@pytest.mark.parametrize("text", [None, "soon"])
def test_a_missing_or_invalid_heartbeat_file_fails_the_probe(tmp_path, text):
    if text is not None:
        (tmp_path / "heartbeat").write_text(text)
    with pytest.raises(HeartbeatStale, match="heartbeat"):
        liveness.probe(tmp_path / "heartbeat")


async def test_the_heartbeat_is_written_again_after_write_errors(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(liveness, "BEAT_SECONDS", 0.01)
    heartbeat = tmp_path / "later" / "heartbeat"
    beating = asyncio.create_task(liveness.beat(heartbeat))
    async with asyncio.timeout(30):
        while "cannot write" not in caplog.text:
            await asyncio.sleep(0.01)
        heartbeat.parent.mkdir()
        while not heartbeat.exists():
            await asyncio.sleep(0.01)
    beating.cancel()
