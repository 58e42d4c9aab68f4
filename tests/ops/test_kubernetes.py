"""The manifests name settings, ports, routes, folders and images that there are."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from cosyui.host.layout import Layout
from cosyui.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "deploy"


@pytest.fixture(scope="module")
def parts():
    """By kind."""
    loaded = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text("utf-8")))
    return {part["kind"]: part for part in loaded}


@pytest.fixture(scope="module")
def pods(parts):
    cluster = parts["RayService"]["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    return {
        "one": parts["Deployment"]["spec"]["template"]["spec"],
        "head": cluster["headGroupSpec"]["template"]["spec"],
        "worker": workers["template"]["spec"],
    }


def variables(container):
    return {one["name"]: one["value"] for one in container.get("env", ())}


def test_settings_are_read_as_they_stand(parts, pods):
    text = (FOLDER / "kubernetes.yaml").read_text("utf-8")
    secret = dict.fromkeys(re.findall(r"--from-literal=(\w+)=", text), "secret")
    (name,) = re.findall(r"create secret generic (\w+)", text)
    assert len(secret) == 2
    assert "Secret" not in parts  # what stands in a file is none
    for pod in pods.values():
        (container,) = pod["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": name}}]
        given = {name: value for name, value in variables(container).items() if name.startswith("COSYUI_")}
        Settings.load({}, secret | given)
    assert variables(pods["head"]["containers"][0]) == variables(pods["worker"]["containers"][0])


def test_nobody_is_root_and_little_may_be_written(pods):
    for pod in pods.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert f"--uid {pod['securityContext']['runAsUser']} " in (FOLDER / "Dockerfile").read_text("utf-8")
        assert pod["enableServiceLinks"] is False  # else COSYUI_PORT is an address
        (container,) = pod["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pods["one"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {mount["mountPath"] for mount in pods["one"]["containers"][0]["volumeMounts"]}
    kept = re.search(r"VOLUME (\[.*\])", (FOLDER / "Dockerfile").read_text("utf-8"))
    assert set(ast.literal_eval(kept[1])) | {"/tmp", "/home/cosyui"} == mounts


def test_probes_and_ports_are_those_of_the_server(parts, pods):
    (container,) = pods["one"]["containers"]
    (port,) = container["ports"]
    assert port["containerPort"] == Settings.model_fields["port"].default
    assert parts["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    labels = parts["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert parts["Service"]["spec"]["selector"].items() <= labels.items()
    routes = (ROOT / "cosyui" / "api" / "health.py").read_text("utf-8")
    for probe, path in (("startupProbe", "live"), ("livenessProbe", "live"), ("readinessProbe", "ready")):
        assert container[probe]["httpGet"] == {"path": f"/health/{path}", "port": port["name"]}
        assert f'router.get("/{path}")' in routes


def test_images_and_volumes_are_those_of_the_other_files(parts, pods):
    built = set(re.findall(r"-t (\S+)", (FOLDER / "Dockerfile").read_text("utf-8")))
    assert {pod["containers"][0]["image"] for pod in pods.values()} <= built
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))["services"]["cosyui"]
    folders = {volume.split(":")[1] for volume in compose["volumes"]}
    assert folders < {mount["mountPath"] for mount in pods["one"]["containers"][0]["volumeMounts"]}
    assert f"{pods['one']['terminationGracePeriodSeconds']}s" == compose["stop_grace_period"]
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in pods.values()
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert claims == {parts["PersistentVolumeClaim"]["metadata"]["name"]}
    for pod in pods.values():
        known = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} <= known


def test_the_application_of_many_machines_can_be_read(parts, pods):
    serve = yaml.safe_load(parts["RayService"]["spec"]["serveConfigV2"])
    (application,) = serve["applications"]
    layout = Layout.read(application["args"], Settings.load({}, {}))
    module, _, name = application["import_path"].partition(":")
    callback = variables(pods["head"]["containers"][0])["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"]
    source = Path(importlib.util.find_spec(module).origin).read_text("utf-8")
    functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert {name, callback.partition(":")[2]} <= functions
    cluster = parts["RayService"]["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (layout.min_replicas, layout.max_replicas)
    assert f'"{layout.front_resource}\\": 1' in cluster["headGroupSpec"]["rayStartParams"]["resources"]
    ports = {port["name"]: port["containerPort"] for port in pods["head"]["containers"][0]["ports"]}
    assert ports["serve"] == serve["http_options"]["port"]
