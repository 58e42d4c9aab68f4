"""Settings: one way in, and a sentence for everything that is wrong."""

import pytest
from pydantic import Field, SecretStr

from cosyui.errors import SetupError
from cosyui.host.config import HostConfig
from cosyui.settings import Settings


def test_environment_then_overrides():
    settings = Settings.load(
        {"port": 9000, "device": None}, {"COSYUI_PORT": "8000", "COSYUI_DEVICE": "cpu", "PATH": "/bin"}
    )
    assert (settings.port, settings.device, settings.host) == (9000, "cpu", "127.0.0.1")


def test_process_environment_is_read(monkeypatch):
    monkeypatch.setenv("COSYUI_QUEUE_SIZE", "3")
    assert Settings.load().queue_size == 3


def test_engine_configuration_follows_the_settings(tmp_path):
    settings = Settings.load(
        {"engine": "fake", "model": "hf:a/b", "prompt_cache_mb": 2, "fake_release_file": tmp_path}, {}
    )
    config = HostConfig.from_settings(settings)
    assert (config.kind, config.engine.model, config.engine.prompt_cache_bytes) == ("fake", "hf:a/b", 2 << 20)
    assert config.fake.release_file == str(tmp_path)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"COSYUI_PRT": "1"}, ["COSYUI_PRT", "did you mean COSYUI_PORT"]),
        ({"COSYUI_OUTPUT_DIR": "x"}, ["did you mean COSYUI_OUTPUTS_DIR"]),
        ({"COSYUI_XYZZY": "1"}, ["COSYUI_XYZZY", "known are", "COSYUI_MODEL"]),
        ({"COSYUI_PRT": "1", "COSYUI_HOTS": "1"}, ["COSYUI_PORT", "COSYUI_HOST"]),
    ],
)
def test_unknown_setting_is_named_with_its_neighbours(environ, words):
    with pytest.raises(SetupError) as caught:
        Settings.load({}, environ)
    assert caught.value.code == "setting_unknown"
    assert all(word in caught.value.message for word in words)


def test_unknown_override_is_named_as_it_was_given():
    with pytest.raises(SetupError, match=r"^prt is not a setting; did you mean port"):
        Settings.load({"prt": 1}, {})


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"COSYUI_PORT": "99999"}, ["COSYUI_PORT", "'99999'", "65535"]),
        ({"COSYUI_PORT": "web"}, ["'web'", "integer"]),
        ({"COSYUI_PRECISION": "fp8"}, ["'fp8'", "'auto', 'float32', 'bfloat16', 'float16'"]),
        ({"COSYUI_DEVICE": "gpu"}, ["'gpu'", "cuda:<number>"]),
        ({"COSYUI_LLM_FILE": "../../x.pt"}, ["COSYUI_LLM_FILE"]),
        ({"COSYUI_CLIP_MIN_SECONDS": "20", "COSYUI_CLIP_MAX_SECONDS": "10"}, ["COSYUI_CLIP_MIN_SECONDS must not"]),
        ({"COSYUI_PORT": "0", "COSYUI_QUEUE_SIZE": "-1"}, ["COSYUI_PORT", "COSYUI_QUEUE_SIZE"]),
    ],
)
def test_invalid_value_is_named_with_what_is_allowed(environ, words):
    with pytest.raises(SetupError) as caught:
        Settings.load({}, environ)
    assert caught.value.code == "setting_invalid"
    assert all(word in caught.value.message for word in words)


def test_secrets_are_never_shown():
    class WithSecret(Settings):
        token: SecretStr | None = Field(None, min_length=100, description="a secret")

    with pytest.raises(SetupError) as caught:
        WithSecret.load({}, {"COSYUI_TOKEN": "hunter2"})
    assert "COSYUI_TOKEN" in caught.value.message
    assert "hunter2" not in caught.value.message
    kept = WithSecret.load({"token": "hunter2" * 20}, {})
    assert "hunter2" not in f"{kept.table()} {kept!r}"
