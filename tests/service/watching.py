"""Following a take from outside, in the words of the tests."""

import wave


async def follow(ticket):
    return [update async for update in ticket.updates()]


async def until(updates, wanted):
    """Read updates until one fits; fails if the stream ends before."""
    async for update in updates:
        if wanted(update):
            return update
    raise AssertionError("the update never came")


def samples(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return file.readframes(file.getnframes())


def http(service):
    """A client of the health routes."""
    # Here, so that tests that need no web server run without one.
    import httpx
    from fastapi import FastAPI

    from cosyui.api.health import health_router

    app = FastAPI()
    app.include_router(health_router(service))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")
