#!/usr/bin/env bash
# Install what is needed into .venv, get the model ready, serve the page:   ./run.sh [options of app.py]
# Install what the tests need too, then lint, type-check and test:          ./run.sh test [options of pytest]
#
# Another place for the environment: VENV=/path ./run.sh                    Another Python: PYTHON=python3.12 ./run.sh
# Exact versions: PIP_CONSTRAINT=constraints/<file> ./run.sh                Mirrors: PIP_INDEX_URL, HF_ENDPOINT
# A torch that a Python here has and that reaches the GPU is used; without an NVIDIA device torch's CPU build is taken.
if [ -z "${BASH_VERSION:-}" ]; then # sh run.sh
    command -v bash >/dev/null 2>&1 || { echo 'run.sh: bash is needed; install it first.' >&2 && exit 1; }
    exec bash "$0" "$@"
fi
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

CPU_INDEX=https://download.pytorch.org/whl/cpu
VENV="${VENV:-.venv}" PY="${VENV:-.venv}/bin/python"
OURS="$VENV/.made-by-run.sh" UNFINISHED="$VENV/.installing"
CHILD='' CONSTRAINT='' CONSTRAIN=()

say() { printf 'run.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

stop() {
    trap '' INT TERM
    if [ -n "$CHILD" ]; then kill "$CHILD" 2>/dev/null || true; wait "$CHILD" 2>/dev/null || true; fi
    say "stopped; start it again to go on"
    exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM

# Run what takes minutes so that a signal ends it at once; bash alone would hear the signal only afterwards.
patiently() {
    local code=0
    "$@" &
    CHILD=$!
    wait "$CHILD" || code=$?
    CHILD=''
    return "$code"
}
pip() { patiently "$PY" -m pip --disable-pip-version-check "$@"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1; then sudo -n "$@"; else return 1; fi
}

# Debian packages, where that is possible; never a reason to stop.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$@" >/dev/null 2>&1 && return 0
    as_root apt-get update -q >/dev/null 2>&1 &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$@" >/dev/null 2>&1
}

has_nvidia() {
    compgen -G '/dev/nvidia*' >/dev/null || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1 ||
        grep -qsx 0x10de /sys/bus/pci/devices/*/vendor
}
fits() { "$1" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, ${2:-99}))" >/dev/null 2>&1; }
# Whether torch of the Python $1 is new enough for requirements.txt and reaches the GPU.
reaches_gpu() {
    "$1" -c 'import sys, torch
number = lambda text: [int(part) for part in text.split(".")[:2]]
sys.exit(not torch.cuda.is_available() or number(torch.__version__) < number(sys.argv[1]))' \
        "$(sed -n 's/^torch>=//p' requirements.txt)" >/dev/null 2>&1
}

# Paths of the Pythons to try, one a line: first one whose torch reaches the GPU, last those newer than was tested.
find_pythons() {
    local name newest names=(python3 python python3.14 python3.13 python3.12 python3.11)
    [ -z "${PYTHON:-}" ] || names=("$PYTHON")
    if has_nvidia; then
        for name in "${names[@]}"; do
            if fits "$name" && reaches_gpu "$name"; then command -v "$name" && break; fi
        done
    fi
    for newest in 14 99; do
        for name in "${names[@]}"; do if fits "$name" "$newest"; then command -v "$name"; fi; done
    done
}

# Make the environment with the Python $1, or say why that is impossible.
try_python() {
    local python="$1" package told options=()
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    if has_nvidia && reaches_gpu "$python"; then options=(--system-site-packages); fi
    say "making $VENV with $("$python" --version) ($python)${options[*]:+ and its torch}"
    if ! told="$("$python" -m venv ${options[@]+"${options[@]}"} "$VENV" 2>&1)" &&
        ! "$python" -m virtualenv -q ${options[@]+"${options[@]}"} "$VENV" >/dev/null 2>&1; then
        if "$python" -c 'import ensurepip' >/dev/null 2>&1; then say "$told" && return 1; fi
        say "this Python cannot make environments; trying apt-get install $package"
        if ! apt_install "$package" || ! "$python" -m venv ${options[@]+"${options[@]}"} "$VENV" >/dev/null 2>&1; then
            say "that did not work. As root: apt-get update && apt-get install -y $package" && return 1
        fi
    fi
    # Of a Python that is itself in an environment, --system-site-packages shows only what is outside of that.
    if [ ${#options[@]} -gt 0 ] && ! "$PY" -c 'import torch' >/dev/null 2>&1; then
        "$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' \
            >"$("$PY" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
    fi
}

empty_venv() {
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name .lock ! -name "${OURS##*/}" -exec rm -rf {} +
}

# An environment with pip in $VENV. Only one that was made here is ever emptied.
make_venv() {
    local pythons python
    if fits "$PY" && ! { [ -e "$OURS" ] && [ -e "$UNFINISHED" ]; }; then
        "$PY" -m pip --version >/dev/null 2>&1 || "$PY" -m ensurepip >/dev/null 2>&1 || true
        "$PY" -m pip --version >/dev/null 2>&1 && return 0
    fi
    [ ! -e "$UNFINISHED" ] || say "the last installation was interrupted; beginning again"
    [ -e "$OURS" ] || [ -z "$(find "$VENV" -mindepth 1 ! -name .lock | head -n 1)" ] ||
        fail "$VENV is there but has no Python 3.11+ with pip. Remove it or choose another: VENV=/path ./run.sh"
    touch "$OURS"
    pythons="$(find_pythons | awk '!seen[$0]++')"
    if [ -z "$pythons" ] && [ -z "${PYTHON:-}" ]; then
        say "no Python of 3.11 or newer; trying apt-get"
        apt_install python3.12 python3.12-venv || apt_install python3.11 python3.11-venv || true
        pythons="$(find_pythons | awk '!seen[$0]++')"
    fi
    [ -n "$pythons" ] || fail "${PYTHON:+PYTHON=$PYTHON does not fit: }Python 3.11 or newer is needed." \
        "As root: apt-get install -y python3.12 python3.12-venv (or python3.11…);" \
        "with conda: conda create -y -n cosyui python=3.12 && conda activate cosyui"
    while IFS= read -r -u 3 python; do
        empty_venv
        try_python "$python" && return 0
    done 3<<<"$pythons"
    empty_venv
    fail "no environment could be made; see above."
}

# Told before the download rather than after it. MiB as measured, with the downloads beside them.
check_space() {
    local free needed=8000
    if "$PY" -c 'import torch' >/dev/null 2>&1; then needed=1500; elif ! has_nvidia; then needed=2500; fi
    free="$("$PY" -c 'import shutil, sys; print(shutil.disk_usage(sys.argv[1]).free >> 20)' "$VENV")"
    [ "$free" -ge "$needed" ] ||
        fail "$VENV needs about $needed MB, but its disk has $free MB free. Or elsewhere: VENV=/path ./run.sh"
}

# Where no NVIDIA device is, 4 GB of CUDA libraries are left out. Whoever named an index gets torch from there.
install_cpu_torch() {
    if [ "$(uname -s)" != Linux ] || has_nvidia || "$PY" -c 'import torch' >/dev/null 2>&1; then return 0; fi
    if "$PY" -m pip config list 2>/dev/null | grep -qE 'index-url|find-links|no-index'; then return 0; fi
    if grep -q '^torch.*+' "${CONSTRAINT:-/dev/null}"; then return 0; fi
    pip install -q --retries 1 --timeout 20 --no-deps --index-url "$CPU_INDEX" ${CONSTRAIN[@]+"${CONSTRAIN[@]}"} \
        "$(grep '^torch' requirements.txt)" 2>/dev/null ||
        say "$CPU_INDEX did not answer; taking torch from the usual index"
}

fingerprint() {
    echo "$(cat "$@" "${CONSTRAINT:-/dev/null}" | cksum) $("$PY" --version 2>&1)${PIP_CONSTRAINT:+ $PIP_CONSTRAINT}"
}
is_installed() { [ ! -e "$UNFINISHED" ] && [ "$(cat "$VENV/.installed-$1" 2>/dev/null)" = "$(fingerprint "${@:2}")" ]; }

# Install requirement files ($2...) unless exactly these were installed before under the name $1.
install() {
    local name="$1" file list=() code=0
    is_installed "$@" && return 0
    { mkdir -p "$VENV" && [ -w "$VENV" ]; } 2>/dev/null ||
        fail "$(id -un 2>/dev/null || id -u) cannot write into $PWD or $VENV. Own it (sudo chown -R $(id -u) '$PWD')," \
            "or put the environment elsewhere: VENV=/path ./run.sh"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$VENV/.lock"
        flock -n 9 || { say "another start is installing into $VENV; waiting for it" && flock 9 || true; }
        if is_installed "$@"; then exec 9>&- && return 0; fi
    fi
    make_venv
    compgen -G "$VENV/.installed-*" >/dev/null || check_space
    touch "$UNFINISHED"
    for file in "${@:2}"; do list+=(-r "$file"); done
    say "installing ${*:2} (the first time this takes some minutes)"
    pip install -q 'pip>=24' >/dev/null 2>&1 ||
        say "pip could not be renewed; going on with $("$PY" -m pip --version | cut -d' ' -f1,2)"
    [ "$name" != run ] || install_cpu_torch
    pip install -q ${CONSTRAIN[@]+"${CONSTRAIN[@]}"} "${list[@]}" || code=$?
    [ "$code" -gt 128 ] || rm -f "$UNFINISHED" # killed in the midst of writing files or not
    [ "$code" = 0 ] || fail "pip could not install the requirements; see above."
    fingerprint "${@:2}" >"$VENV/.installed-$name"
    exec 9>&-
}

have_browser() {
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
        command -v google-chrome >/dev/null 2>&1
}

run_tests() {
    install dev requirements.txt requirements-dev.txt
    trap - INT TERM
    if ! have_browser && [[ "$*" != *"not browser"* ]]; then
        say "installing chromium for the browser tests"
        apt_install chromium ||
            fail "install chromium for the browser tests, or leave them out: ./run.sh test -m 'not browser'"
    fi
    if ! command -v ffmpeg >/dev/null 2>&1; then
        apt_install ffmpeg || say "ffmpeg could not be installed; the tests go on without it"
    fi
    if ! command -v g++ >/dev/null 2>&1; then
        apt_install g++ || say "g++ could not be installed; the tests go on without running the decode kernel on the CPU"
    fi
    "$PY" -m ruff check .
    "$PY" -m ruff format --check .
    "$PY" -m mypy
    "$PY" -m pytest -n 2 --dist loadfile "$@"
}

# Of the options for app.py those that preload_model.py takes as well, in MODEL_OPTIONS.
pick_model_options() {
    MODEL_OPTIONS=()
    while [ $# -gt 0 ]; do
        case "$1" in
            --model=* | --llm-file=*) MODEL_OPTIONS+=("$1") ;;
            --model | --llm-file) [ $# -gt 1 ] && MODEL_OPTIONS+=("$1" "$2") && shift ;;
        esac
        shift
    done
}

get_model() { patiently "$PY" preload_model.py --download-only "$@" ${MODEL_OPTIONS[@]+"${MODEL_OPTIONS[@]}"}; }

show_help() {
    sed -n '2,/^if/s/^# \{0,1\}//p' run.sh
    echo
    if is_installed run requirements.txt; then exec "$PY" app.py --help; fi
    echo "The server's own options are listed here after the first start."
    exit 0
}

serve() {
    local argument engine="${COSYUI_ENGINE:-real}"
    for argument in "$@"; do
        case "$argument" in
            -h | --help) show_help ;;
            --engine=fake | fake) engine=fake ;;
        esac
    done
    install run requirements.txt
    if [[ " $* " == *" --version "* ]]; then exec "$PY" app.py --version; fi
    pick_model_options "$@"
    if [ "$engine" != fake ] && ! get_model --offline >/dev/null 2>&1; then
        "$PY" app.py --check "$@" # a wrong option is told before anything is downloaded
        get_model
    fi
    exec "$PY" app.py "$@"
}

# pip would split the variable at spaces of the path.
if [ -f "${PIP_CONSTRAINT:-}" ]; then
    CONSTRAINT="$PIP_CONSTRAINT" CONSTRAIN=(-c "$PIP_CONSTRAINT")
    unset PIP_CONSTRAINT
fi
if [ ! -d "${HOME:-}" ] || ! { [ -w "$HOME" ] || [ -d "$HOME/.cache" ]; }; then
    if mkdir -p .cosyui/home 2>/dev/null; then
        say "HOME (${HOME:-not set}) is no folder to write into; caches and models go to $PWD/.cosyui/home"
        export HOME="$PWD/.cosyui/home"
    else
        say "neither HOME (${HOME:-not set}) nor $PWD can be written into. For caches and models: HOME=/path ./run.sh"
    fi
fi
if [ "${1:-}" = test ]; then
    shift
    run_tests "$@"
else
    serve "$@"
fi
