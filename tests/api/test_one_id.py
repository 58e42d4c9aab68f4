"""An answer that something in between has named, too."""

import asyncio

from cosyui.api.one_id import OneRequestId


def answered(*ids):
    """Names of the request in an answer that came with ``ids``."""
    sent = []

    async def app(scope, receive, send):
        headers = [(b"x-request-id", name) for name in ids] + [(b"x-seed", b"7")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message):
        sent.append(message)

    asyncio.run(OneRequestId(app)({"type": "http"}, None, send))
    assert (b"x-seed", b"7") in sent[0]["headers"]
    return [value for name, value in sent[0]["headers"] if name.lower() == b"x-request-id"]


def test_the_first_name_stays():
    assert answered(b"ours", b"theirs") == [b"ours"]
    assert answered(b"ours") == [b"ours"]
    assert answered() == []
