"""What a foreign page, a foreign name or a stranger sends to the real application is refused and changes nothing."""

import contextlib
import json

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import app as server
from cosyui.api.origin import SameOrigin
from cosyui.service.outputs import OutputStore
from cosyui.settings import Settings

OWN = "http://127.0.0.1:7860"
EVIL = "https://evil.example"


class Site:
    """The whole application, started, as a browser at the machine meets it."""

    def __init__(self, folder, **settings):
        own = {"outputs_dir": folder / "outputs", "clips_dir": folder / "clips", "journal": folder / "journal"}
        options = Settings.load(own | {"engine": "fake", "transcriber": "off"} | settings, {})
        app, _, farewell = server.build(options, OutputStore(options.outputs_dir))
        page = farewell.func.__self__
        self.service, self.blocks, self.takes = page._service, page.blocks, page._takes
        self.client = TestClient(app, OWN, client=("127.0.0.1", 50_000), follow_redirects=False)
        self.guest = TestClient(app, OWN, client=("192.0.2.7", 50_000), follow_redirects=False)

    def join(self, session="s" * 12):
        """The body that starts a soft restart."""
        number = next(number for number, fn in self.blocks.fns.items() if fn.name == "_soft_restart")
        return {"fn_index": number, "data": [], "session_hash": session, "event_data": None, "trigger_id": None}

    @property
    def untouched(self):
        """No event was ever queued and no restart begun."""
        queue = self.blocks._queue
        return not queue.pending_messages_per_session and self.service.soft_restarter._task is None


@contextlib.contextmanager
def site(folder, **settings):
    made = Site(folder, **settings)
    with made.client:
        yield made


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """On loopback, for everybody: as it comes."""
    with site(tmp_path_factory.mktemp("local")) as made:
        yield made


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """With a login."""
    with site(tmp_path_factory.mktemp("closed"), login="ann:secret", host="0.0.0.0") as made:
        yield made


EVENTS = ("/gradio_api/queue/join", *(f"/gradio_api/{way}/_soft_restart" for way in ("run", "api", "call")))


@pytest.mark.parametrize("path", [*EVENTS, "/gradio_api/cancel", "/gradio_api/upload", "/gradio_api/component_server"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://localhost:7860"},
        {"origin": "https://127.0.0.1.evil.example:7860"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_no_event_by_a_page_of_another_site(local, path, headers):
    for body in (
        {"json": local.join()},
        {"content": json.dumps(local.join()), "headers": {"content-type": "text/plain"}},
        {"data": {"fn_index": "0", "session_hash": "x"}},
        {"files": {"files": ("x.wav", b"RIFF")}},
    ):
        answer = local.client.post(path, **{**body, "headers": body.get("headers", {}) | headers})
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_foreign")
        assert "access-control-allow-origin" not in answer.headers
    assert local.untouched


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
@pytest.mark.parametrize("path", EVENTS)
def test_no_event_but_by_post(local, method, path):
    body = local.join()
    answer = local.client.request(method, path, params={"fn_index": body["fn_index"], "session_hash": "s" * 12})
    assert answer.status_code in (404, 405)
    assert local.untouched


@pytest.mark.parametrize("host", ["evil.example:7860", "127.0.0.1.evil.example", "localhost.evil.example"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/", *EVENTS])
def test_no_answer_to_a_foreign_name(local, host, method, path):
    headers = {"host": host, "origin": f"http://{host}"}
    answer = local.client.request(method, path, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (421, "host_unknown")
    assert "COSYUI_HOSTS" in answer.json()["message"]
    assert local.untouched


@pytest.mark.parametrize("host", ["localhost:7860", "LOCALHOST", "127.0.0.1", "[::1]:7860", "192.168.7.7:7860"])
def test_own_names_are_answered(local, host):
    assert local.client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/gradio_api/app_id", "/gradio_api/queue/status", "/health/live"])
@pytest.mark.parametrize("site_of", ["local", "closed"])
@pytest.mark.parametrize("host", ["127.0.0.1:7860", "192.168.7.7:7860"])
def test_foreign_page_may_read_nothing(request, site_of, host, path, method):
    headers = {"origin": EVIL, "access-control-request-method": "POST", "host": host}
    answer = request.getfixturevalue(site_of).client.request(method, path, headers=headers)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_own_page_starts_events(tmp_path):
    with site(tmp_path) as own:
        answer = own.client.post(EVENTS[0], json=own.join(), headers={"origin": OWN})
        assert answer.status_code == 200
        assert not own.untouched


PAGE_ROUTES = [
    ("GET", "/gradio_api/queue/data?session_hash=x"),
    ("GET", "/gradio_api/queue/status"),
    ("GET", "/gradio_api/heartbeat/x"),
    ("GET", "/gradio_api/file=README.md"),
    ("GET", "/gradio_api/file/README.md"),
    ("GET", "/gradio_api/stream/x/1/1/playlist.m3u8"),
    ("GET", "/gradio_api/upload_progress?upload_id=x"),
    ("GET", "/gradio_api/login_check"),
    ("GET", "/gradio_api/app_id"),
    ("GET", "/gradio_api/token"),
    ("GET", "/gradio_api/user"),
    ("GET", "/gradio_api/startup-events"),
    ("GET", "/gradio_api/custom_component/x/client/component/index.js"),
    ("POST", "/gradio_api/reset"),
    ("POST", "/gradio_api/cancel"),
    ("POST", "/gradio_api/stream/x"),
    ("POST", "/gradio_api/stream/x/close"),
    ("POST", "/gradio_api/upload"),
    ("POST", "/gradio_api/component_server"),
    ("POST", "/gradio_api/process_recording"),
    ("POST", "/gradio_api/run/_soft_restart"),
    ("POST", "/gradio_api/queue/join"),
    ("POST", "//gradio_api/queue/join"),
]


@pytest.mark.parametrize(("method", "path"), PAGE_ROUTES)
def test_without_login_no_route_of_the_page_answers(closed, method, path):
    closed.client.cookies.clear()
    answer = closed.client.request(method, path, json=closed.join() if method == "POST" else None)
    assert answer.status_code == 401
    assert closed.untouched


def routes_of(router):
    """Also of the routers in it."""
    for route in router.routes:
        inner = getattr(route, "original_router", None)
        yield from [route] if inner is None else routes_of(inner)


def test_every_route_of_gradio_is_closed_without_login(closed):
    """Also those that a later Gradio brings."""
    closed.client.cookies.clear()
    gradio = next(route.app for route in closed.client.app.routes if hasattr(getattr(route, "app", None), "tokens"))
    form = {"/", "/login", "/static/{path:path}", "/assets/{path:path}", "/svelte/{path:path}", "/theme.css"}
    form |= {"/gradio_api/theme.css", "/favicon.ico", "/manifest.json"}
    asked = set()
    for route in routes_of(gradio):
        for method in (getattr(route, "methods", None) or set()) - {"HEAD"}:
            if route.path not in form:
                asked.add(route.path)
                status = closed.client.request(method, route.path).status_code
                assert status in (401, 404), (method, route.path)
    assert {"/gradio_api/queue/join", "/gradio_api/cancel", "/gradio_api/file={path_or_url:path}", "/login/"} <= asked


def test_form_and_health_are_open_and_the_page_is_not_in_the_form(closed):
    closed.client.cookies.clear()
    page = closed.client.get("/")
    assert page.status_code == 200
    assert '"auth_required":true' in page.text
    assert "soft-restart" not in page.text
    assert closed.client.get("/health/live").status_code == 200
    assert closed.client.get("/health/ready").status_code in (200, 503)


def test_login_opens_the_page_and_wrong_passwords_close_the_form(closed):
    closed.client.cookies.clear()

    def log_in(password, client=closed.client):
        return client.post("/login", data={"username": "ann", "password": password})

    assert log_in("secret").status_code == 200
    assert "soft-restart" in closed.client.get("/").text
    assert closed.client.get("/gradio_api/app_id").status_code == 200
    assert [log_in("wrong").status_code for _ in range(5)] == [400] * 5
    refused = log_in("secret")
    assert (refused.status_code, refused.json()["code"]) == (400, "too_many_passwords")
    assert "Try again in" in refused.json()["message"]
    assert log_in("secret", closed.guest).status_code == 200, "from another address"
    foreign = closed.guest.post("/login", data={"username": "ann"}, headers={"origin": EVIL})
    assert foreign.status_code == 403


def echo(**settings):
    """The middleware alone, before a route and a websocket that tell who came."""

    async def who(request):
        return JSONResponse({"address": request.client.host, "origin": request.headers.get("origin")})

    async def talk(socket):
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    routes = [Route("/", who, methods=["GET", "POST"]), WebSocketRoute("/ws", talk)]
    return SameOrigin(Starlette(routes=routes), Settings.load(settings, {}))


def test_the_api_is_beside_the_page_and_closed_where_the_page_has_a_login(local, closed):
    assert local.client.get("/v1/models").status_code == 200
    foreign = local.client.post("/v1/audio/speech", json={}, headers={"origin": EVIL})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "origin_foreign")
    refused = closed.client.get("/v1/models")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "api_key_missing")
    assert "COSYUI_API_KEYS" in refused.json()["error"]["message"]


def test_websocket_of_a_foreign_page_is_not_accepted(local):
    client = TestClient(echo(), OWN, headers={"host": "127.0.0.1:7860"})
    with client.websocket_connect("/ws", headers={"origin": OWN}) as socket:
        assert socket.receive_text() == "hello"
    for headers in ({"origin": EVIL}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws", headers=headers):
            pass
    with (
        pytest.raises(WebSocketDisconnect),
        local.client.websocket_connect("/gradio_api/queue/join", headers={"origin": EVIL, "host": "localhost"}),
    ):
        pass
    assert local.untouched


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({"hosts": "voice.example"}, {"host": "voice.example", "origin": "https://voice.example"}, 200),
        ({"hosts": "voice.example"}, {"host": "voice.example:443", "origin": "https://voice.example"}, 200),
        ({"hosts": "a.example, Voice.example"}, {"origin": "https://voice.example"}, 200),
        ({"hosts": "voice.example"}, {"origin": "https://voice.example:8443"}, 403),
        ({"hosts": "voice.example:8443"}, {"origin": "https://voice.example:8443"}, 200),
        ({"hosts": "voice.example"}, {"host": "other.example", "origin": "https://other.example"}, 421),
        ({"hosts": "voice.example", "host": "0.0.0.0"}, {"host": "other.example"}, 421),
        ({"host": "0.0.0.0"}, {"host": "any.example", "origin": "http://any.example"}, 200),
        ({"host": "0.0.0.0"}, {"host": "any.example", "origin": EVIL}, 403),
        ({"host": "gpu-box"}, {"host": "gpu-box:7860", "origin": "http://gpu-box:7860"}, 200),
        ({}, {}, 200),
        ({}, {"sec-fetch-site": "same-origin"}, 200),
        ({}, {"sec-fetch-site": "none"}, 200),
    ],
    ids=str,
)
def test_names_and_origins_behind_a_proxy(settings, headers, status):
    assert TestClient(echo(**settings), OWN).post("/", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("address", "headers", "seen"),
    [
        ("127.0.0.1", {}, "127.0.0.1"),
        ("127.0.0.1", {"host": "rebound.example"}, "unproven"),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, "unproven"),
        ("127.0.0.1", {"forwarded": "for=192.0.2.7"}, "unproven"),
        ("::1", {"via": "1.1 proxy"}, "unproven"),
        ("192.0.2.7", {"x-forwarded-for": "127.0.0.1"}, "192.0.2.7"),
        ("192.0.2.7", {"host": "any.example"}, "192.0.2.7"),
    ],
    ids=str,
)
def test_who_is_at_the_machine_cannot_be_made_up(address, headers, seen):
    client = TestClient(echo(host="0.0.0.0"), OWN, client=(address, 50_000))
    assert client.get("/", headers=headers).json()["address"] == seen


def test_proxy_on_the_machine_tells_who_comes_through_it(tmp_path):
    """As uvicorn sets it up by itself: only a proxy on this machine is believed."""
    import uvicorn

    def seen(address, forwarded):
        config = uvicorn.Config(echo(), log_config=None)
        config.load()
        client = TestClient(config.loaded_app, OWN, client=(address, 50_000))
        return client.get("/", headers={"x-forwarded-for": forwarded}).json()["address"]

    assert seen("127.0.0.1", "192.0.2.7") == "192.0.2.7"
    assert seen("127.0.0.1", "127.0.0.1, 192.0.2.7") == "192.0.2.7"
    assert seen("127.0.0.1", "127.0.0.1") == "unproven"
    assert seen("192.0.2.9", "127.0.0.1") == "192.0.2.9"
