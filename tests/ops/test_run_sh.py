"""run.sh decides rightly on machines of every kind; Python, pip and apt-get are stubs that log what they are told."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

RUN_SH = Path(__file__).parents[2] / "run.sh"
TOOLS = (
    "awk",
    "bash",
    "cat",
    "cksum",
    "cp",
    "cut",
    "dirname",
    "env",
    "find",
    "flock",
    "grep",
    "head",
    "id",
    "mkdir",
    "rm",
    "sed",
    "sh",
    "sleep",
    "touch",
    "uname",
)
HAS_GPU = any(Path("/dev").glob("nvidia*")) or Path("/dev/dxg").exists()
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

PYTHON = """#!/bin/bash
minor=@MINOR@ here="$(dirname "$0")"
echo "${0##*/} $*" >>"$STUB/log"
has() { [[ " $STUB_HAS " == *" $1 "* ]]; }
make() { mkdir -p "$1/bin" && cp "$0" "$1/bin/python" && touch "$1/pyvenv.cfg"; }
case "$*" in
    *"version_info[:2] <= (3, 14)"*) [ $minor -ge 11 ] && [ $minor -le 14 ] ;;
    *"version_info[:2] <= (3, 99)"*) [ $minor -ge 11 ] ;;
    *torch.cuda*) has "torch-$minor" ;;
    "-c import torch") grep -qs site-packages "$here/../options" || has torch ;;
    "-c import ensurepip") ! has no-venv ;;
    *disk_usage*) echo "${STUB_FREE:-100000}" ;;
    *-venv*) echo "python3.$minor-venv" ;;
    --version) echo "Python 3.$minor.1" ;;
    "-m venv"*)
        make "${@: -1}" && echo "$*" >"${@: -1}/options"
        if has no-venv && [ ! -e "$STUB/apt" ]; then echo "ensurepip is not available"; exit 1; fi ;;
    "-m virtualenv"*) has virtualenv && make "${@: -1}" ;;
    "-m pip --version") [ "${here##*/}" = bin ] && echo "pip 25.0 from here" ;;
    *" config list") echo "$STUB_PIP_CONFIG" ;;
    *"--index-url"*) ! has no-cpu-index ;;
    *"-r requirements.txt"*)
        if has hold; then echo >"$STUB/began"; exec sleep 60; fi
        if has gate; then echo >"$STUB/began"; read -r _ <"$STUB/gate"; fi
        ! has no-network ;;
    *preload_model.py*--offline*) has model ;;
    *app.py*) echo "app $*" ;;
esac
"""
APT = '#!/bin/bash\necho "apt-get $*" >>"$STUB/log"\n[[ " $STUB_HAS " == *" apt "* ]] && echo >"$STUB/apt"\n'


class Machine:
    """A copy of run.sh in a folder with an awkward name, and a PATH on which nothing real but the tools is."""

    def __init__(self, folder):
        self.repo, self.stub, self.bin = folder / "ein Ort 语音", folder / "stub", folder / "path"
        for each in (self.repo, self.stub, self.bin, folder / "home"):
            each.mkdir()
        shutil.copy(RUN_SH, self.repo)
        (self.repo / "requirements.txt").write_text("torch>=2.8\nnumpy\n")
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)
        self.program("sudo", '#!/bin/bash\nshift\nexec "$@"\n')
        self.variables = {"PATH": str(self.bin), "HOME": str(folder / "home"), "STUB": str(self.stub), "STUB_HAS": ""}

    def program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def python(self, name, minor):
        self.program(name, PYTHON.replace("@MINOR@", str(minor)))

    def begin(self, *arguments, has="", **variables):
        """Start run.sh; ``has`` names what the stubs have or lack."""
        (self.stub / "log").write_text("")
        command = [str(self.bin / "bash"), str(self.repo / "run.sh"), *arguments]
        environment = self.variables | {"STUB_HAS": has} | variables
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.stub
        )

    def run(self, *arguments, has="", **variables):
        """Exit code, and what was said."""
        process = self.begin(*arguments, has=has, **variables)
        out, told = process.communicate(timeout=30)
        return process.returncode, out + told

    def log(self, *words):
        """What the stubs were told, of that what has all of the words."""
        return [line for line in (self.stub / "log").read_text().splitlines() if all(word in line for word in words)]

    def pipe(self, name):
        os.mkfifo(self.stub / name)
        return self.stub / name


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_first_start_installs_and_second_touches_nothing(machine):
    machine.python("python3", 12)
    code, told = machine.run("--port", "7")
    assert code == 0
    assert "app app.py --port 7" in told
    assert len(machine.log("install", "-r requirements.txt")) == 1
    programs = [line.split()[1] for line in machine.log(".py") if "-m pip" not in line]
    assert programs == ["preload_model.py", "app.py", "preload_model.py", "app.py"]
    code, told = machine.run("--model", "hf:a/b", has="model")
    assert (code, told) == (0, "app app.py --model hf:a/b\n")
    assert machine.log() == [
        "python --version",
        "python preload_model.py --download-only --offline --model hf:a/b",
        "python app.py --model hf:a/b",
    ]
    (machine.repo / "requirements.txt").write_text("torch>=2.9\n")
    machine.run()
    assert len(machine.log("install", "-r requirements.txt")) == 1
    assert not machine.log("-m venv")


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": 10, "python3.11": 11}, "python3.11"),
        ({"python3": 16, "python3.12": 12}, "python3.12"),
        ({"python3": 16}, "python3"),
        ({"python3": 13, "python3.11": 11}, "python3"),
    ],
)
def test_python_is_chosen_among_several(machine, pythons, chosen):
    for name, minor in pythons.items():
        machine.python(name, minor)
    code, _ = machine.run()
    assert code == 0
    assert [line.split()[0] for line in machine.log("-m venv")] == [chosen]


def test_no_python_and_a_wrong_one_are_told(machine):
    machine.python("python3", 9)
    code, told = machine.run()
    assert code == 1
    assert "Python 3.11 or newer is needed" in told
    machine.python("python3.12", 12)
    code, told = machine.run(PYTHON="python3")
    assert code == 1
    assert "PYTHON=python3 does not fit" in told
    assert machine.run(PYTHON="python3.12")[0] == 0


def test_torch_that_reaches_the_gpu_is_used(machine):
    machine.program("nvidia-smi", "#!/bin/bash\n")
    machine.python("python3", 13)
    machine.python("python3.11", 11)
    code, told = machine.run(has="torch-11")
    assert code == 0
    assert machine.log("-m venv") == ["python3.11 -m venv --system-site-packages .venv"]
    assert "and its torch" in told
    assert not machine.log("--index-url")


@pytest.mark.skipif(HAS_GPU, reason="for a machine without GPU")
@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, True),
        ({"STUB_PIP_CONFIG": ":env:.index-url='https://mirror'"}, False),
        ({"STUB_PIP_CONFIG": "global.extra-index-url='https://mirror'"}, False),
        ({"PIP_CONSTRAINT": "cpu file.txt"}, False),
        ({"PIP_CONSTRAINT": "exact.txt"}, True),
    ],
)
def test_cpu_build_unless_an_index_is_named(machine, variables, asked):
    machine.python("python3", 12)
    (machine.repo / "cpu file.txt").write_text("torch==2.9+cpu\n")
    (machine.repo / "exact.txt").write_text("torch==2.9\n")
    code, told = machine.run(has="no-cpu-index", **variables)
    assert code == 0
    lines = machine.log("--index-url", CPU_INDEX)
    assert bool(lines) == asked == ("did not answer" in told)
    if "PIP_CONSTRAINT" in variables:
        assert machine.log("-c " + variables["PIP_CONSTRAINT"], "-r requirements.txt")
    assert "CUDA" not in told


def test_without_venv_module(machine):
    machine.python("python3", 12)
    code, told = machine.run(has="no-venv")
    assert code == 1
    assert "As root: apt-get update && apt-get install -y python3.12-venv" in told
    assert not machine.log("-r requirements.txt")
    machine.program("apt-get", APT)
    assert machine.run(has="no-venv virtualenv")[0] == 0
    assert machine.log("python3 -m virtualenv -q .venv")
    assert not machine.log("apt-get")
    shutil.rmtree(machine.repo / ".venv")
    assert machine.run(has="no-venv apt")[0] == 0
    assert machine.log("apt-get install -y -q python3.12-venv")


def test_interrupted_installation_is_begun_again(machine):
    machine.python("python3", 12)
    began = machine.pipe("began")
    process = machine.begin(has="hold")
    began.read_text()
    process.send_signal(signal.SIGTERM)  # not SIGINT, which a job in the background may have been told to ignore
    _, told = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "stopped; start it again to go on" in told
    code, told = machine.run()
    assert code == 0
    assert "interrupted" in told
    assert machine.log("-m venv")


def test_failed_installation_is_tried_again_in_the_same_environment(machine):
    machine.python("python3", 12)
    assert machine.run(has="no-network")[0] == 1
    assert machine.run()[0] == 0
    assert machine.log("-r requirements.txt")
    assert not machine.log("-m venv")


@pytest.mark.skipif(not shutil.which("flock"), reason="needs flock")
def test_two_starts_at_once_install_once(machine):
    machine.python("python3", 12)
    began, gate = machine.pipe("began"), machine.pipe("gate")
    first = machine.begin(has="gate")
    began.read_text()
    earlier = machine.log()
    second = machine.begin(has="gate model")
    assert "another start" in second.stderr.readline()
    gate.write_text("go\n")
    for process in (first, second):
        assert "app app.py" in process.communicate(timeout=30)[0]
    assert len([line for line in earlier + machine.log() if "-r requirements.txt" in line]) == 1


def test_full_disk_is_told_before_anything_is_fetched(machine):
    machine.python("python3", 12)
    code, told = machine.run(STUB_FREE="300")
    assert code == 1
    assert "has 300 MB free" in told
    assert not machine.log("install")


def test_somebody_elses_environment_stays(machine):
    machine.python("python3", 12)
    kept = machine.repo / ".venv" / "kept"
    kept.parent.mkdir()
    kept.touch()
    code, told = machine.run()
    assert code == 1
    assert "Remove it or choose another" in told
    assert kept.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_write_access(machine):
    machine.python("python3", 12)
    machine.repo.chmod(0o555)
    code, told = machine.run()
    machine.repo.chmod(0o755)
    assert code == 1
    assert "cannot write into" in told


def test_without_home(machine):
    machine.python("python3", 12)
    code, told = machine.run(HOME="/nonexistent")
    assert code == 0
    assert "caches and models go to" in told
    assert (machine.repo / ".cosyui" / "home").is_dir()


def test_tests_are_run_with_pips_own_torch(machine):
    machine.python("python3", 12)
    (machine.repo / "requirements-dev.txt").write_text("pytest\n")
    for name in ("g++", "ffmpeg"):
        machine.program(name, "#!/bin/bash\n")
    assert machine.run("test", "-m", "not browser")[0] == 0
    assert machine.log("install", "-r requirements.txt -r requirements-dev.txt")
    assert not machine.log("--index-url")
    assert machine.log()[-4:] == [
        "python -m ruff check .",
        "python -m ruff format --check .",
        "python -m mypy",
        "python -m pytest -n 2 --dist loadfile -m not browser",
    ]


def test_help_installs_nothing(machine):
    code, told = machine.run("--help")
    assert code == 0
    assert "./run.sh test" in told
    assert "after the first start" in told
    assert not (machine.repo / ".venv").exists()
