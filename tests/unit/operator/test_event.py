# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_operator.decision.notices import Notice
from gpupack_operator.manifests.event import NOTE_BYTES, event

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


def note(build, text):
    return event(build.gpujob(), Notice("Warning", "Failed", text), now=NOW, reporter="x")["note"]


@pytest.mark.parametrize("text", ["x" * 1024, "ошибка", "é" * 512, "🙂" * 256])
def test_a_note_that_the_api_takes_is_told_whole(build, text):
    assert note(build, text) == text


@pytest.mark.parametrize("letter", ["x", "é", "…", "🙂"])
@pytest.mark.parametrize("shift", range(4))
def test_a_longer_note_is_clipped_by_its_bytes_and_at_whole_characters(build, letter, shift):
    text = "x" * shift + letter * 1100
    told = note(build, text)
    assert NOTE_BYTES - 4 < len(told.encode()) <= NOTE_BYTES
    assert told.endswith("…")
    assert text.startswith(told[:-1])
