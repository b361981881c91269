# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_kubeclient.events import NOTE_BYTES, About, Reporter, Said, event
from gpupack_kubeclient.objects import ObjectMeta

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


def note(text):
    about = About("v1", "Pod", ObjectMeta(name="p", namespace="team", uid="u"))
    reporter = Reporter("example.com/c", "c-1", "Act")
    return event(about, Said("Warning", "Failed", text), now=NOW, reporter=reporter)["note"]


@pytest.mark.parametrize("text", ["x" * 1024, "ошибка", "é" * 512, "🙂" * 256])
def test_an_event_note_within_the_limit_is_not_shortened(text):
    assert note(text) == text


@pytest.mark.parametrize("letter", ["x", "é", "…", "🙂"])
@pytest.mark.parametrize("shift", range(4))
def test_a_longer_note_is_clipped_by_its_bytes_and_at_whole_characters(letter, shift):
    text = "x" * shift + letter * 1100
    shortened = note(text)
    assert NOTE_BYTES - 4 < len(shortened.encode()) <= NOTE_BYTES
    assert shortened.endswith("…")
    assert text.startswith(shortened[:-1])
