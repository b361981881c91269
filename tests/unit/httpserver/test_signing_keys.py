# SPDX-License-Identifier: Apache-2.0
"""The subject of a token by its signature; forged tokens lock out no user."""

import pytest
from tokens import EcKey, RsaKey, encoded, forged, unsigned

from gpupack_crds import names
from gpupack_httpserver.access import Access, Caller
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.signing_keys import REFRESH_SECONDS, SigningKeys

OPERATOR = "system:serviceaccount:gpupack-system:gpupack-operator"
MASQUERADED = "10.0.0.1"


class Clock:
    """Seconds."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def keys(api, clock):
    return SigningKeys(api, clock=clock)


@pytest.fixture
def access(api, clock):
    return Access(api, clock=clock)


async def status_of(access, token):
    """Return the status of a call with this token."""
    caller = Caller(authorization=f"Bearer {token}", address=MASQUERADED)
    try:
        await access.known(caller, audience=names.PLAN_AUDIENCE)
    except Denied as error:
        return int(error.status)
    return 200


@pytest.mark.parametrize("kind", [EcKey, RsaKey])
async def test_a_token_that_the_api_server_signed_has_its_subject(keys, server, kind):
    server.keys = [key] = [kind("one")]
    assert await keys.subject(key.token(OPERATOR)) == OPERATOR
    assert await keys.subject(key.token("another")) == "another"
    assert server.key_reads == 1


@pytest.mark.parametrize("kind", [EcKey, RsaKey])
async def test_a_token_with_a_wrong_signature_has_no_subject(keys, server, kind):
    server.keys = [key] = [kind("one")]
    good = key.token(OPERATOR)
    head, claims, signature = good.split(".")
    others = unsigned(kid="one", alg=key.alg, sub="other").split(".")[1]
    bad = {
        "another key's": kind("one").token(OPERATOR),
        "forged": forged(1, kid="one", sub=OPERATOR, alg=key.alg),
        "other claims": f"{head}.{others}.{signature}",
        "no signature": f"{head}.{claims}.",
        "alg none": f"{unsigned(kid='one', alg='none', sub=OPERATOR)}.",
        "another kind of key": forged(1, kid="one", sub=OPERATOR, alg="HS256"),
        "an algorithm of the other kind": forged(
            1, kid="one", sub=OPERATOR, alg="ES256" if kind is RsaKey else "RS256"
        ),
        "no JSON": f"{encoded(b'x')}.{claims}.{signature}",
        "no base64": f"{head}.!.{signature}",
        "not ASCII": f"{head}.ü.{signature}",
        "two parts": f"{head}.{claims}",
        "deep": f"{encoded(b'[' * 9000)}.{claims}.{signature}",
        "long": f"{head}.{'A' * 20_000}.{signature}",
    }
    assert {name: await keys.subject(token) for name, token in bad.items()} == dict.fromkeys(bad)


async def test_unknown_keys_are_requested_once_per_refresh_interval(keys, server, clock):
    server.keys = [old] = [EcKey("old")]
    for number in range(50):
        assert await keys.subject(forged(number, kid=str(number), sub=OPERATOR)) is None
    assert server.key_reads == 1
    assert await keys.subject(old.token(OPERATOR)) == OPERATOR
    server.keys = [new] = [EcKey("new")]
    clock.now += REFRESH_SECONDS
    assert await keys.subject(new.token(OPERATOR)) == OPERATOR
    assert server.key_reads == 2


async def test_without_keys_a_token_has_no_subject_and_the_api_server_gets_one_request(
    keys, server
):
    for _ in range(5):
        assert await keys.subject(EcKey("one").token(OPERATOR)) is None
    assert server.key_reads == 1


async def test_keys_of_another_kind_are_passed_over(keys, server):
    class Odd:
        def jwk(self):
            return {"kty": "OKP", "crv": "Ed25519", "kid": "odd", "x": "AA"}

    server.keys = [_, good] = [Odd(), EcKey("good")]
    assert await keys.subject(good.token(OPERATOR)) == OPERATOR


async def test_a_rotated_token_is_taken_though_its_address_forges_without_end(
    access, server, clock
):
    """The forger claims to be the operator, by a key that there is, ten times a second."""
    server.keys = [key] = [EcKey("one")]
    for minute in range(10):
        for number in range(600):
            clock.now += 0.1
            token = forged(600 * minute + number, kid="one", sub=OPERATOR)
            assert await status_of(access, token) in {401, 429}
        rotated = key.token(OPERATOR, jti=str(minute))
        server.users[rotated] = (OPERATOR, [names.PLAN_AUDIENCE])
        assert await status_of(access, rotated) == 200
    assert server.reviews <= 5 + 60 + 10


async def test_real_tokens_that_are_refused_cost_their_own_account_its_questions(access, server):
    server.keys = [key] = [EcKey("one")]
    tenants = [key.token("system:serviceaccount:team:a", jti=str(number)) for number in range(50)]
    assert [await status_of(access, token) for token in tenants] == [401] * 5 + [429] * 45
    rotated = key.token(OPERATOR)
    server.users[rotated] = (OPERATOR, [names.PLAN_AUDIENCE])
    assert await status_of(access, rotated) == 200


async def test_a_valid_signature_alone_grants_no_access(access, server):
    server.keys = [key] = [EcKey("one")]
    assert await status_of(access, key.token(OPERATOR)) == 401
