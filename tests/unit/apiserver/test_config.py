# SPDX-License-Identifier: Apache-2.0
import asyncio
import logging

import pytest

from gpupack_apiserver import config as configuration
from gpupack_apiserver.app import ReloadableParts
from gpupack_apiserver.config import Config, ConfigFile
from gpupack_apiserver.errors import CallInvalid, ConfigInvalid
from gpupack_apiserver.events.limits import StreamLimits
from gpupack_apiserver.rights import require_within_limit
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User

ADMINISTRATOR = ("admin", "update gpunodes/summary", "")


@pytest.fixture
def written(tmp_path):
    """Return a function that writes the file like the kubelet: it replaces it."""

    def write(text):
        (tmp_path / "next").write_text(text)
        return (tmp_path / "next").replace(tmp_path / "config.yaml")

    return write


@pytest.fixture
def applied():
    return []


@pytest.fixture
def config_file(written, applied):
    return ConfigFile(written("sample_seconds: 10\n"), applied.append)


async def test_changes_are_returned_and_applied(call, server, written, applied):
    server.rights.add(ADMINISTRATOR)
    written("sample_seconds: 2\ncall_burst: 500\n")
    found = await call("config/reload", method="POST")
    assert found.status == 200
    assert found.body["changed"] == [
        {"field": "sample_seconds", "before": 10.0, "after": 2.0},
        {"field": "call_burst", "before": 50, "after": 500},
    ]
    assert (applied[-1].sample_seconds, applied[-1].call_burst) == (2, 500)
    assert (await call("config/reload", method="POST")).body["changed"] == []


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("sample_seconds: 0.1", "sample_seconds", "0.1"),
        ("sample_seconds: soon", "sample_seconds", "soon"),
        ("log_level: LOUD", "log_level", "LOUD"),
        ("samples: 2", "samples", "2"),
        ("- a list", "", "['a list']"),
        ("a: b: c", "", "a: b: c"),
        ("[" * 5000, "", "[" * 64),
    ],
)
async def test_an_invalid_file_is_refused_and_the_old_configuration_stays(
    call, server, config_file, written, *, text, field, value
):
    server.rights.add(ADMINISTRATOR)
    written("sample_seconds: 5")
    await call("config/reload", method="POST")
    written(text)
    found = await call("config/reload", method="POST")
    assert (found.status, found.type) == (422, "application/problem+json")
    assert (found.body.get("field", ""), found.body["value"]) == (field, value)
    assert found.body["fix"]
    assert config_file.current.sample_seconds == 5


async def test_a_viewer_may_not_reload_the_configuration(call, written, applied):
    written("sample_seconds: 2")
    found = await call("config/reload", method="POST", user="tenant")
    assert (found.status, found.body["detail"]) == (
        403,
        (
            "tenant may not update gpunodes/summary; a ClusterRoleBinding to the ClusterRole "
            "gpupack-api-administrator grants it"
        ),
    )
    assert applied == [Config()]


async def test_a_changed_file_is_applied(config_file, written, applied, monkeypatch, caplog):
    monkeypatch.setattr(configuration, "CHECK_SECONDS", 0.01)
    task = asyncio.create_task(config_file.run())

    def complaints():
        return sum("the previous one stays in effect" in each for each in caplog.messages)

    async def noticed(*, seconds, complained):
        async with asyncio.timeout(30):
            while (config_file.current.sample_seconds, complaints()) != (seconds, complained):
                await asyncio.sleep(0.005)

    written("sample_seconds: 3")
    await noticed(seconds=3, complained=0)
    written("sample_seconds: x")
    await noticed(seconds=3, complained=1)
    path = written("{}")
    await noticed(seconds=10, complained=1)
    path.unlink()
    await noticed(seconds=10, complained=2)
    task.cancel()


def test_a_missing_or_too_long_file_is_reported(tmp_path):
    missing = ConfigFile(tmp_path / "config.yaml", lambda _: None)
    with pytest.raises(ConfigInvalid, match="make it a text file"):
        missing.reload()
    (tmp_path / "config.yaml").write_text("#" * (65 << 10))
    with pytest.raises(CallInvalid, match="no longer than"):
        missing.reload()


def test_a_reloaded_configuration_is_applied_at_once(history, quota_history, rights):
    level, streams = logging.getLogger().level, StreamLimits()
    tuned = ReloadableParts(history, quota_history, rights, streams, "INFO")
    try:
        tuned.apply(Config("DEBUG", 2.0, 1, 0.1, 1))
        assert logging.getLogger().level == logging.DEBUG
        assert (history.seconds, history.samples.maxlen, quota_history.seconds) == (2, 1800, 5)
        place = streams.take(user="u", address="p")
        with pytest.raises(Denied, match="has 1 streams"):
            streams.take(user="u", address="p")
        place.release()
    finally:
        logging.getLogger().setLevel(level)


async def test_the_rate_limit_comes_from_the_file(rights, server):
    rights.limit(at_once=2, per_second=0.1)
    for _ in range(2):
        require_within_limit(rights._calls, User("u"))
    with pytest.raises(Denied, match="sends too many requests"):
        require_within_limit(rights._calls, User("u"))
