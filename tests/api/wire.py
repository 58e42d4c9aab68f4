"""A websocket for tests, without a network."""

import asyncio
import json

PATIENCE = 10.0


class Wire:
    """A websocket to the application itself: what it sends comes once `reads` is set."""

    def __init__(self, app, headers=(), query=b""):
        self._incoming, self.sent, self.reads = asyncio.Queue(), asyncio.Queue(), asyncio.Event()
        self.reads.set()
        self.blocked = 0
        self._incoming.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": "/audio/stream", "headers": list(headers), "query_string": query}
        self.task = asyncio.create_task(app(scope, self._incoming.get, self._send))

    async def _send(self, message):
        self.blocked += 1
        await self.reads.wait()
        self.blocked -= 1
        self.sent.put_nowait(message)

    def say(self, kind, **fields):
        self.put(text=json.dumps({"type": kind, **fields}))

    def put(self, **message):
        self._incoming.put_nowait({"type": "websocket.receive", **message})

    def leave(self):
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def take(self):
        """The next: bytes, an event, or the code of the end."""
        async with asyncio.timeout(PATIENCE):
            message = await self.sent.get()
        if message["type"] == "websocket.close":
            return message["code"]
        return json.loads(message["text"]) if message.get("text") else message["bytes"]

    async def until(self, kind):
        """The sound that came by then, and the events, the last of which is of this kind."""
        sound, events = b"", []
        while not events or events[-1]["type"] != kind:
            one = await self.take()
            if isinstance(one, bytes):
                sound += one
            else:
                events.append(one)
        return sound, events

    async def refused(self):
        """Code of the error and of the end."""
        _, events = await self.until("error")
        return events[-1]["error"]["code"], await self.take()
