#!/usr/bin/env bash
# Install what is needed into .venv, get the model ready, serve the page:   ./run.sh [options of app.py]
# Install what the tests need too, then lint, type-check and test:          ./run.sh test [options of pytest]
#
# COSYUI runs with any CPU; pip chooses the PyTorch build. Exact versions:  PIP_CONSTRAINT=constraints/<file> ./run.sh
# Another place for the environment: VENV=/path ./run.sh                    Another Python: PYTHON=python3.12 ./run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf 'run.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

VENV="${VENV:-.venv}"
if [ -n "${PIP_CONSTRAINT:-}" ] && [ -f "$PIP_CONSTRAINT" ]; then
    PIP_CONSTRAINT="$(realpath "$PIP_CONSTRAINT")"
    export PIP_CONSTRAINT
fi

# The newest Python of 3.11 or above; prints its path.
find_python() {
    local name
    for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1; then sudo -n "$@"; else return 1; fi
}

# Debian packages, where that is possible; never a reason to stop.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$@" >/dev/null 2>&1 && return 0
    as_root apt-get update -q >/dev/null 2>&1 &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$@" >/dev/null
}

make_venv() {
    [ -x "$VENV/bin/python" ] && return 0
    local python
    python="$(find_python)" || fail "Python 3.11 or newer is needed. Install it (Debian: apt-get install python3 python3-venv)."
    say "making $VENV with $("$python" --version)"
    if ! "$python" -m venv "$VENV" >/dev/null 2>&1; then
        rm -rf "$VENV"
        say "this Python cannot make environments; trying apt-get install python3-venv"
        apt_install python3-venv || true
        "$python" -m venv "$VENV" || fail "cannot make $VENV; install python3-venv and try again."
    fi
}

# Install requirement files ($2...) unless exactly these were installed before under the name $1.
install() {
    local name="$1" file stamp now list=()
    shift
    stamp="$VENV/.installed-$name"
    now="$(cat "$@" "${PIP_CONSTRAINT:-/dev/null}" | cksum) $("$VENV/bin/python" --version)"
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ] && return 0
    for file in "$@"; do list+=(-r "$file"); done
    say "installing $* (the first time this takes some minutes)"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check "${list[@]}" ||
        fail "pip could not install the requirements; see above."
    printf '%s' "$now" >"$stamp"
}

have_browser() {
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
        command -v google-chrome >/dev/null 2>&1
}

run_tests() {
    install dev requirements.txt requirements-dev.txt
    if ! have_browser && [[ "$*" != *"not browser"* ]]; then
        say "installing chromium for the browser tests"
        apt_install chromium || fail "install chromium for the browser tests, or leave them out: ./run.sh test -m 'not browser'"
    fi
    if ! command -v ffmpeg >/dev/null 2>&1; then
        apt_install ffmpeg || say "ffmpeg could not be installed; the tests go on without it"
    fi
    if ! command -v g++ >/dev/null 2>&1; then
        apt_install g++ || say "g++ could not be installed; the tests go on without running the decode kernel on the CPU"
    fi
    local python="$VENV/bin/python"
    "$python" -m ruff check .
    "$python" -m ruff format --check .
    "$python" -m mypy
    "$python" -m pytest -n 2 --dist loadfile "$@"
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

serve() {
    install run requirements.txt
    local python="$VENV/bin/python" argument engine="${COSYUI_ENGINE:-real}"
    for argument in "$@"; do
        case "$argument" in
            -h | --help | --version) exec "$python" app.py "$@" ;;
            --engine=fake | fake) engine=fake ;;
        esac
    done
    # A wrong option is told before anything is downloaded.
    "$python" app.py --check "$@"
    pick_model_options "$@"
    if [ "$engine" != fake ]; then
        "$python" preload_model.py --download-only ${MODEL_OPTIONS[@]+"${MODEL_OPTIONS[@]}"}
    fi
    exec "$python" app.py "$@"
}

make_venv
if [ "${1:-}" = test ]; then
    shift
    run_tests "$@"
else
    serve "$@"
fi
