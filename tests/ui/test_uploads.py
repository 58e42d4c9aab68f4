"""The name of an upload is gone before the form is read; everything else arrives as it was sent."""

import pytest

from cosyui.ui.uploads import ROUTE, NamelessUploads

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="files"; filename={name}\r\nContent-Type: audio/wav\r\n\r\n'
    b'RIFF filename="inside the sound" \r\n\r\n more\r\n--b--\r\n'
)
NAMES = {
    "chinese": ('"我的 声音.wav"', '"clip.wav"'),
    "emoji": ('"🎤🎤.M4A"', '"clip.m4a"'),
    "quotes": (r'"it is \"mine\".mp3"', '"clip.mp3"'),
    "dots": ('"..hidden"', '"clip"'),
    "long": ('"' + "n" * 240 + '.webm"', '"clip.webm"'),
    "three dots at the end": ('"a_b_c..."', '"clip"'),
    "bare": ("plain.ogg", '"clip.ogg"'),
    "path": ('"../../etc/passwd"', '"clip"'),
    "script": ('"x.html"', '"clip"'),
}


async def sent_through(parts, path=ROUTE):
    """What an application behind the middleware reads of a body that arrives in ``parts``."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False
    waiting, read = iter(messages), []

    async def receive():
        return next(waiting)

    async def app(scope, receive, send):
        more = True
        while more:
            message = await receive()
            read.append(message["body"])
            more = message["more_body"]

    await NamelessUploads(app)({"type": "http", "path": path}, receive, None)
    return b"".join(read)


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(("name", "plain"), NAMES.values(), ids=NAMES.keys())
async def test_names_are_replaced_whatever_the_pieces(name, plain, size):
    body = FORM.replace(b"{name}", name.encode())
    got = await sent_through([body[start : start + size] for start in range(0, len(body), size)])
    assert got == FORM.replace(b"{name}", plain.encode())


@pytest.mark.anyio
async def test_coded_names_go_too():
    got = await sent_through([FORM.replace(b"{name}", b"\"x.wav\"; filename*=UTF-8''%E6%88%91.wav")])
    assert b"%E6" not in got


@pytest.mark.anyio
@pytest.mark.parametrize("body", [b"", b"no form at all", b"x" * 50_000])
async def test_anything_else_passes_untouched(body):
    assert await sent_through([body]) == body
    assert await sent_through([FORM], "/gradio_api/other") == FORM
