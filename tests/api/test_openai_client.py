"""The official client of OpenAI talks to this server as to its own."""

import contextlib

import openai
import pytest

from tests.api.conftest import until

pytestmark = pytest.mark.anyio
HELD = "[fake:hold][fake:seconds=2] A sentence."


@contextlib.asynccontextmanager
async def client_of(site, key="any"):
    async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key=key, max_retries=0, timeout=10) as client:
        yield client


def wish(text="[fake:seconds=2] Hello.", **changes):
    return {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": text, "response_format": "pcm"} | changes


async def test_speech_whole_as_it_comes_and_into_a_file(api, release, tmp_path):
    async with api() as site, client_of(site) as client:
        answer = await client.audio.speech.create(**wish(instructions="Happily.", speed=2.0))
        assert len(answer.content) == 2 * 2 * 24_000
        assert answer.response.headers["x-request-id"]
        async with client.audio.speech.with_streaming_response.create(**wish(HELD)) as answer:
            parts = answer.iter_bytes()
            first = await anext(parts)
            assert first
            assert not site.idle
            release.touch()
            assert len(first) + sum([len(part) async for part in parts]) == 2 * 2 * 24_000
        extra = await client.audio.speech.create(**wish(extra_body={"seed": 7, "sample_rate": 8000}))
        assert (extra.response.headers["x-seed"], len(extra.content)) == ("7", 2 * 2 * 8_000)
        async with client.audio.speech.with_streaming_response.create(**wish(response_format="mp3")) as answer:
            await answer.stream_to_file(tmp_path / "speech.mp3")
        assert (tmp_path / "speech.mp3").stat().st_size > 10_000


async def test_errors_are_of_the_classes_that_programs_catch(api):
    async with api(queue_size=0) as site, client_of(site) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.audio.speech.create(**wish(""))
        error = caught.value
        assert (error.code, error.param, error.type) == ("text_empty", "input", "invalid_request_error")
        assert error.request_id
        with pytest.raises(openai.NotFoundError) as caught:
            await client.audio.speech.create(**wish(voice="nobody"))
        assert caught.value.code == "voice_not_found"
        with pytest.raises(openai.InternalServerError) as caught:
            await client.audio.speech.create(**wish("[fake:oom] Hello."))
        assert caught.value.code == "out_of_memory"
        async with client.audio.speech.with_streaming_response.create(**wish(HELD)):
            with pytest.raises(openai.RateLimitError) as caught:
                await client.audio.speech.create(**wish())
            assert caught.value.code == "queue_full"
            assert int(caught.value.response.headers["retry-after"]) > 0
        await until(lambda: site.idle)
        # Half a take is no take.
        with pytest.raises(openai.APIConnectionError):
            await client.audio.speech.create(**wish("[fake:fail][fake:seconds=2] Hello."))


async def test_keys_and_models(api):
    async with api(api_keys="right") as site:
        async with client_of(site, "right") as client:
            assert (await client.audio.speech.create(**wish())).content
            assert "cosyui" in [model.id async for model in client.models.list()]
            assert (await client.models.retrieve("tts-1")).owned_by == "cosyui"
        async with client_of(site, "wrong") as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.audio.speech.create(**wish())
            assert caught.value.code == "invalid_api_key"
