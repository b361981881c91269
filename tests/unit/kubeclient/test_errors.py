# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_kubeclient import errors


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b'{"message":"pods not found","reason":"NotFound"}', errors.NotFound),
        (409, b'{"reason":"Conflict"}', errors.Conflict),
        (409, b'{"reason":"AlreadyExists"}', errors.AlreadyExists),
        (410, b"{}", errors.Expired),
        (422, b'{"reason":"Invalid"}', errors.Invalid),
        (403, b"", errors.Forbidden),
        (503, b"<html>bad gateway</html>", errors.Refused),
    ],
)
def test_an_answer_is_named_by_what_a_caller_does_about_it(status, body, kind):
    assert type(errors.from_response(status, body, call="GET /x")) is kind


def test_the_message_holds_call_status_and_the_servers_words():
    error = errors.from_response(404, b'{"message":"no pod a"}', call="GET /pods/a")
    assert str(error) == "GET /pods/a: 404 no pod a"
