"""What is shipped for operators names figures and settings that there are."""

import json
import re
from pathlib import Path

import yaml

from cosyui.ops.disk import DiskUse
from cosyui.ops.journal_file import Row
from cosyui.ops.metrics import Metrics
from cosyui.ops.monitor import MachineSample, ProcessSample
from cosyui.ops.nvml import GpuSample
from cosyui.ops.sampler import Sample, ServiceSample
from cosyui.settings import Settings

FOLDER = Path(__file__).parents[2] / "docs" / "deploy"


def everything():
    """Metrics of a service of which all is known."""
    gpu = GpuSample("GPU-1", "a card", 1, 2, 3, 4, memory_utilisation=5, power=6.0)
    process = ProcessSample(1, 2, 0.0, 1)
    machine = MachineSample(process, process, 3, 1, 5.0, 2, (gpu,))
    sample = Sample(0.0, ServiceSample(1, 2, 3.0, 0), machine, vram={"GPU-1": {"weights": 1}}, disk=DiskUse(1, 2, 3))
    metrics = Metrics(lambda: sample)
    metrics.count(Row("a", "b", 0.0, "failed", "code", "mode", rtf=1.0, waited=1.0, first_chunk=1.0, total=1.0))
    return metrics.text().decode()


def test_each_figure_of_the_board_is_told():
    board = json.loads((FOLDER / "grafana" / "cosyui.json").read_text("utf-8"))
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"cosyui_\w+", target["expr"])
    }
    told = set(re.findall(r"^(cosyui_\w+)", everything(), re.M))
    assert len(asked) > 12
    assert asked <= told
    labels = {label for panel in board["panels"] for target in panel["targets"] for label in
              re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])}  # fmt: skip
    assert labels <= set(re.findall(r"[{,](\w+)=", everything()))


def test_files_read_and_settings_exist():
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
    assert set(compose["services"]) == {"cosyui", "prometheus", "grafana"}
    for one in compose["services"].values():  # logs are kept in bounds
        assert {"max-size", "max-file"} <= set(one["logging"]["options"])
    for path in (FOLDER / "prometheus.yml", *FOLDER.glob("grafana/*.yml")):
        assert yaml.safe_load(path.read_text("utf-8"))
    text = "".join(path.read_text("utf-8") for path in FOLDER.rglob("*") if path.is_file())
    named = {name.lower() for name in re.findall(r"COSYUI_([A-Z_]+)\b", text)}
    assert named <= set(Settings.model_fields)
    mounted = {volume.split(":")[0] for one in compose["services"].values() for volume in one.get("volumes", [])}
    assert all((FOLDER / path).exists() for path in mounted if path.startswith("./"))
