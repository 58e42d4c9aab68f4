"""The same page and API with engines on many machines, by Ray Serve: ``python -m cosyui.serve_ray``, or as an
``import_path`` of a RayService: ``cosyui.serve_ray:application``. Needs the extra ``ray``.

One front has the page, the API, the queue and the results, so that a page, a job and a websocket are always answered
by whoever knows them. Replicas have an engine each; a request goes to one of them and stays there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy, HTTPOptions
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.middleware import Middleware

import cosyui
from cosyui.api.one_id import OneRequestId
from cosyui.engine.request import Event, SynthesisRequest
from cosyui.errors import CosyuiError
from cosyui.host.config import HostConfig
from cosyui.host.layout import Layout
from cosyui.host.pool import EnginePool
from cosyui.host.remote import RemoteEngines
from cosyui.host.replica import NoReplicaError, Order, Replica, ReplicaLostError, Taken
from cosyui.host.scaling import SECONDS_PER_PLACE, wanted_replicas
from cosyui.host.stream import HandedOver
from cosyui.ops.logs import setup_logging
from cosyui.service.outputs import OutputStore
from cosyui.service.scratch import scratch_folder
from cosyui.settings import Settings

SUMMARY = "CosyUI with engines on many machines, by Ray Serve."
NAME, VOICE = "cosyui", "Voice"
CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
ANSWER_SECONDS = 10.0
"""For orders to all replicas; one that loads or restarts takes longer, and is looked at again."""
MANY = 100_000
"""Open connections and requests: the queue of the front bounds them, not Ray."""


class Voice:
    """A replica: one engine in its supervised process. Ray routes to it when the model is loaded."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Ray awaits it
        setup_logging(settings.log_level)
        pool = EnginePool([HostConfig.from_settings(settings)])
        self._replica = Replica(serve.get_replica_context().replica_id.unique_id, pool)
        await self._replica.start()

    async def speak(self, request: SynthesisRequest) -> AsyncGenerator[Taken | HandedOver | Event, None]:
        async with contextlib.aclosing(self._replica.speak(request)) as events:
            async for event in events:
                yield event

    async def obey(self, order: Order) -> Any:
        return await self._replica.obey(order)

    def check_health(self) -> None:
        self._replica.check()

    def record_autoscaling_stats(self) -> dict[str, float]:
        return self._replica.load_figures()

    async def __del__(self) -> None:
        await self._replica.close()


class SpeechPolicy:
    """Scales by seconds of speech; Ray applies bounds and delays. ``seconds_per_place``: see `wanted_replicas`."""

    def __init__(self, seconds_per_place: float = SECONDS_PER_PLACE) -> None:
        self._seconds_per_place = seconds_per_place

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        told = context.aggregated_metrics or {}
        speech, places = told.get("speech_seconds"), told.get("places")
        if not speech or not places:  # no replica has told anything yet
            return context.target_num_replicas, context.policy_state
        return wanted_replicas(speech.values(), places.values(), self._seconds_per_place), context.policy_state


class RayFleet:
    """`Fleet` over a handle of the replicas."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._speak = handle.options(method_name="speak", stream=True)
        self._handle = handle

    async def speak(self, request: SynthesisRequest) -> AsyncGenerator[Taken | HandedOver | Event, None]:
        response = self._speak.remote(request)
        ended = False
        try:
            async for event in response:
                yield event
            ended = True
        except Exception as error:
            ended = True
            raise _translated(error) from error
        finally:
            if not ended:
                response.cancel()

    async def ask(self, order: Order) -> list[Any]:
        try:
            response = self._handle.broadcast("obey", order)
            answers = await response.results_async(timeout_s=ANSWER_SECONDS, return_exceptions=True)
        except DeploymentUnavailableError as error:
            raise NoReplicaError(str(error)) from error
        return [answer for answer in answers if answer is not None and not isinstance(answer, BaseException)]


def _translated(error: Exception) -> Exception:
    """What it means for the request."""
    if isinstance(error, DeploymentUnavailableError):
        return NoReplicaError(str(error))
    if isinstance(error, RayActorError):
        return ReplicaLostError(str(error).splitlines()[0])
    cause = error.cause if isinstance(error, RayTaskError) else error
    return cause if isinstance(cause, CosyuiError | ReplicaLostError) else error


def make_application(settings: Settings, layout: Layout) -> serve.Application:
    """The front and its replicas, to be run by Ray Serve."""
    scaling = AutoscalingConfig(
        min_replicas=layout.min_replicas,
        max_replicas=layout.max_replicas,
        upscale_delay_s=layout.upscale_delay,
        downscale_delay_s=layout.downscale_delay,
        look_back_period_s=layout.upscale_delay,
        metrics_interval_s=1.0,
        policy=AutoscalingPolicy(
            policy_function=SpeechPolicy, policy_kwargs={"seconds_per_place": layout.seconds_per_place}
        ),
    )
    voice = serve.deployment(
        Voice,
        name=VOICE,
        autoscaling_config=scaling,
        max_ongoing_requests=MANY,
        ray_actor_options={"num_cpus": layout.num_cpus, "num_gpus": layout.num_gpus},
        health_check_period_s=5.0,
        # A replica that is not needed any more ends its takes first.
        graceful_shutdown_timeout_s=settings.request_timeout,
    )
    front_needs: dict[str, Any] = {"num_cpus": layout.front_cpus}
    if layout.front_resource:
        front_needs["resources"] = {layout.front_resource: 0.01}

    def make_front() -> Any:
        return front_app(settings)

    front = serve.deployment(
        serve.ingress(make_front)(),
        name="Front",
        num_replicas=1,
        max_ongoing_requests=MANY,
        ray_actor_options=front_needs,
        graceful_shutdown_timeout_s=30.0,
    )
    application: serve.Application = front.bind(voice.bind(settings))
    return application


def front_app(settings: Settings) -> Any:
    """The ASGI application of the front; called in its process."""
    import app  # the composition root, beside the package

    setup_logging(settings.log_level)
    engines = RemoteEngines(RayFleet(serve.get_deployment_handle(VOICE, serve.get_replica_context().app_name)))
    kept = contextlib.ExitStack()
    scratch = kept.enter_context(scratch_folder())
    os.environ["GRADIO_TEMP_DIR"] = str(scratch / app.UPLOADS)
    service = app.make_service(settings, engines, OutputStore(settings.outputs_dir), scratch)
    engines.waiting_seconds = lambda: sum(entry.expected_seconds for entry in service.overview().waiting)
    made = app.assemble(service).app
    made.state.scratch = kept  # lives as long as the application
    return made


def middlewares() -> list[Middleware]:
    """Of Ray's proxies, which find them by an environment variable: ``CALLBACK=cosyui.serve_ray:middlewares``."""
    return [Middleware(OneRequestId)]


def application(given: dict[str, Any]) -> serve.Application:
    """For ``import_path``: ``given`` are fields of `Layout`; settings come from the environment (COSYUI_*)."""
    settings = _absolute(Settings.load())
    return make_application(settings, Layout.read(given, settings))


def _absolute(settings: Settings) -> Settings:
    """Ray's processes have another working folder."""
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    paths: dict[str, Any] = {name: Path.cwd() / value for name, value in values.items() if isinstance(value, Path)}
    if Path(settings.model).is_dir():
        paths["model"] = str(Path(settings.model).absolute())
    return settings.model_copy(update=paths)


def main(arguments: list[str] | None = None) -> int:
    """Run on a cluster, or on this machine alone; exit code 2 when it cannot start as configured."""
    parser = argparse.ArgumentParser("python -m cosyui.serve_ray", description=SUMMARY, allow_abbrev=False)
    parser.add_argument("--address", help="of a cluster, as in auto; without it Ray is started on this machine alone")
    for name, field in Layout.model_fields.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=f"{field.description}")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    address = given.pop("address", None)
    try:
        settings = _absolute(Settings.load())
        made = make_application(settings, Layout.read(given, settings))
    except CosyuiError as error:
        print(f"cosyui: {error}", file=sys.stderr)
        return 2
    if address is None:
        variables = {"PYTHONPATH": str(Path(cosyui.__file__).parents[1]), CALLBACK: "cosyui.serve_ray:middlewares"}
        ray.init(include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    else:
        ray.init(address=address)
    try:
        serve.start(http_options=HTTPOptions(host=settings.host, port=settings.port))
        serve.run(made, name=NAME, route_prefix="/")
        print(f"CosyUI is at http://{settings.host}:{settings.port}", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return 0
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    from cosyui.serve_ray import main as run  # under its own name: Ray's processes import what it pickles

    sys.exit(run())
