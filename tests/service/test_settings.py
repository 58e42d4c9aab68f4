"""Settings: one way in, and a sentence for everything that is wrong."""

import os

import pytest
from pydantic import Field, SecretStr

from cosyui.errors import SetupError
from cosyui.host.config import HostConfig
from cosyui.host.devices import find_devices, gpu_count
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
    ("given", "size"),
    [
        ("", 0),
        ("0", 0),
        ("6144", 6 << 30),
        (6144, 6 << 30),
        ("6GB", 6 * 10**9),
        ("6 GiB", 6 << 30),
        ("5.5gib", 11 << 29),
        ("900MiB", 900 << 20),
        ("900mb", 900 * 10**6),
    ],
)
def test_memory_budget_has_units(given, size):
    settings = Settings.load({"vram_budget": given}, {})
    assert settings.vram_budget == HostConfig.from_settings(settings).engine.vram_budget == size


@pytest.mark.parametrize(("given", "size"), [("0", 0), ("1", 1 << 20), ("20 GB", 20 * 10**9), ("1.5GiB", 3 << 29)])
def test_disk_quota_has_units_and_may_be_small(given, size):
    assert Settings.load({}, {"COSYUI_OUTPUTS_QUOTA": given}).outputs_quota == size


@pytest.mark.parametrize(
    "given",
    [
        {"COSYUI_OUTPUTS_QUOTA": "much"},
        {"COSYUI_PURGE_HOURS": "-1"},
        {"COSYUI_SAMPLE_SECONDS": "0.1"},
        {"COSYUI_JOURNAL_ROWS": "0"},
        {"COSYUI_JOURNAL_DAYS": "0"},
    ],
)
def test_settings_of_the_operator_are_checked(given):
    with pytest.raises(SetupError, match=next(iter(given))):
        Settings.load({}, given)


@pytest.mark.parametrize("given", ["all", "0", "0,1", "3, 1"])
def test_devices(given):
    assert Settings.load({}, {"COSYUI_DEVICES": given}).devices == given


def test_no_devices_is_one_engine_on_the_device():
    settings = Settings.load({"device": "cuda:1", "threads": 3}, {})
    config = HostConfig.from_settings(settings)
    assert find_devices(settings) == ()
    assert config.on_devices(()) == (config,)
    assert (config.engine.device, config.engine.threads) == ("cuda:1", 3)


def test_one_engine_for_each_device(monkeypatch):
    monkeypatch.setattr("cosyui.host.devices.gpu_count", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 32)
    settings = Settings.load({"devices": "0,2"}, {})
    assert find_devices(settings) == ("cuda:0", "cuda:2")
    configs = HostConfig.from_settings(settings).on_devices(find_devices(settings))
    assert [(config.engine.device, config.engine.threads) for config in configs] == [("cuda:0", 16), ("cuda:2", 16)]
    assert find_devices(Settings.load({"devices": "all"}, {})) == tuple(f"cuda:{number}" for number in range(4))


@pytest.mark.parametrize(("given", "count"), [("0,4", 4), ("0", 0), ("all", 0)])
def test_gpus_that_are_not_there_are_told(monkeypatch, given, count):
    monkeypatch.setattr("cosyui.host.devices.gpu_count", lambda: count)
    with pytest.raises(SetupError, match=f"COSYUI_DEVICES={given}.*finds {count}") as caught:
        find_devices(Settings.load({"devices": given}, {}))
    assert caught.value.code == "setting_invalid"


def test_gpus_are_counted_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr("cosyui.host.devices.COUNT", "print(3)")
    assert gpu_count() == 3
    monkeypatch.setattr("cosyui.host.devices.COUNT", "raise SystemExit(1)")
    assert gpu_count() == 0


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
        ({"COSYUI_DEVICES": "cuda:0,1"}, ["COSYUI_DEVICES", "0,1"]),
        ({"COSYUI_DEVICES": "0,"}, ["COSYUI_DEVICES"]),
        ({"COSYUI_DEVICES": "1,01"}, ["names a GPU twice"]),
        ({"COSYUI_DEVICES": "0,1", "COSYUI_DEVICE": "cuda:0"}, ["COSYUI_DEVICE is for one", "set one"]),
        ({"COSYUI_VRAM_BUDGET": "lots"}, ["COSYUI_VRAM_BUDGET", "'lots'", "6GiB"]),
        ({"COSYUI_VRAM_BUDGET": "6TB"}, ["COSYUI_VRAM_BUDGET"]),
        ({"COSYUI_VRAM_BUDGET": "-1"}, ["COSYUI_VRAM_BUDGET"]),
        ({"COSYUI_VRAM_BUDGET": "GB"}, ["COSYUI_VRAM_BUDGET"]),
        ({"COSYUI_VRAM_BUDGET": "6"}, ["too little", "6GiB"]),
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
