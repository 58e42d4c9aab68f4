#!/usr/bin/env bash
# One GPU, one run: everything side by side, boxed by one end time.
#
#   gpu_run.sh encoders SECONDS DATA_SECONDS   data -> speech tokenizer and speaker encoder
#   gpu_run.sh networks SECONDS DATA_SECONDS   data -> ids -> LLM, flow and vocoder
#
# Environment (defaults in brackets): WORK folder for everything made here [work]; TEACHER folder with config.json,
# kokoro-w8.npz, voices.npz [teacher]; TEXT list [text.jsonl.gz]; INIT folder with flow.pt and hift.pt to go on from
# [none]; PY interpreter [python3]; DATA_PROCESSES [3]; COMMON, DATA_ARGS, VAL_ARGS, LLM_ARGS, FLOW_ARGS, HIFT_ARGS extra
# arguments; NO_MPS=1 leaves NVIDIA's multi-process service alone.
#
# Data and states that are already in WORK are used: `networks` after `encoders` in one folder needs nothing else.
# Logs are in WORK/log, checkpoints in WORK/run. A process that crashes is started again and goes on from its last state.
set -u
[ $# = 3 ] || { sed -n '2,14p' "$0"; exit 2; }
phase=$1 start=$(date +%s); end=$((start + $2)) data_end=$((start + $3))
WORK=${WORK:-work} TEACHER=${TEACHER:-teacher} TEXT=${TEXT:-text.jsonl.gz} INIT=${INIT:-} PY=${PY:-python3}
DATA_PROCESSES=${DATA_PROCESSES:-3} COMMON=${COMMON:-}
DATA_ARGS=${DATA_ARGS:-} VAL_ARGS=${VAL_ARGS:---speakers 48}
LLM_ARGS=${LLM_ARGS:-} FLOW_ARGS=${FLOW_ARGS:-} HIFT_ARGS=${HIFT_ARGS:-}
log=$WORK/log; mkdir -p "$log" "$WORK/data" "$WORK/ids" "$WORK/run"; rm -f "$WORK/go"
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} TOKENIZERS_PARALLELISM=false
case $WORK in /*) root=$WORK ;; *) root=$PWD/$WORK ;; esac
export TORCHINDUCTOR_CACHE_DIR=$root/inductor

now() { date +%s; }
say() { echo "[$(($(now) - start))s] $*" | tee -a "$log/progress"; }
finish() {
  [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || echo quit | timeout 10 nvidia-cuda-mps-control >>"$log/mps" 2>&1
  say "all done"
}
module() { echo "$PY -m cosyui.voice_training.$1"; }

# Without MPS the processes take turns on the GPU; with it their kernels run at the same time.
if [ "${NO_MPS:-0}" = 0 ] && command -v nvidia-cuda-mps-control >/dev/null; then
  export CUDA_MPS_PIPE_DIRECTORY=$root/mps CUDA_MPS_LOG_DIRECTORY=$root/mps
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
  nvidia-cuda-mps-control -d >"$log/mps" 2>&1 </dev/null
  if ! timeout 60 "$PY" -c 'import torch; torch.ones(9, device="cuda").sum().item()' >>"$log/mps" 2>&1; then
    echo quit | timeout 10 nvidia-cuda-mps-control >>"$log/mps" 2>&1
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  fi
fi
say "$phase: $2 s in all, $3 s of data; MPS ${CUDA_MPS_PIPE_DIRECTORY:-not used}"

# keep NAME END COMMAND: run it; after a crash start it again, without compilation and MPS, at most three times.
keep() {
  local name=$1 until=$2 tries=0 plain="" alone=""
  shift 2
  while :; do
    $alone "$@" $plain >>"$log/$name" 2>&1 && { say "$name finished"; return 0; }
    tries=$((tries + 1)) plain=--no-compile alone="env -u CUDA_MPS_PIPE_DIRECTORY"
    say "$name failed ($tries): $(tail -n 1 "$log/$name" | cut -c1-160)"
    [ $tries -ge 4 ] || [ "$(now)" -ge $((until - 20)) ] && return 1
    sleep 2
  done
}

seed=$((start % 100000 * 10))
[ -f "$WORK/data/val.pt" ] || keep val "$data_end" $(module make_data) "$WORK/data/val.pt" --teacher "$TEACHER" --text "$TEXT" --kind val --seed 7 \
  --max-rounds 1 --until "$data_end" $VAL_ARGS &
waiting=$!
for number in $(seq 1 "$DATA_PROCESSES"); do
  keep "data_$number" "$data_end" $(module make_data) "$WORK/data/d$number" --teacher "$TEACHER" --text "$TEXT" \
    --hours 1000 --until "$data_end" --shard-seconds 45 --seed $((seed + number)) $DATA_ARGS & waiting="$waiting $!"
done

shared="--data $WORK/data --ids $WORK/ids --out $WORK/run $COMMON"
if [ "$phase" = encoders ]; then
  wait $waiting; say "data: $(ls "$WORK/data" | wc -l) files"
  keep tokenizer "$end" $(module train_tokenizer) $shared --until "$end" & first=$!
  keep speaker "$end" $(module train_speaker) $shared --until $((end - 3)) & second=$!
  wait $first $second; finish; exit 0
fi

from() { [ -n "$INIT" ] && [ -f "$INIT/$1.pt" ] && echo "--init $INIT/$1.pt"; }
keep codec $((end - 60)) $(module codec) $shared --until $((end - 60)) &
codec=$!
# The trainers compile while the data is made, and wait for the file `go`.
keep llm "$end" $(module train_llm) $shared --until $((end - 8)) --go "$WORK/go" $LLM_ARGS & first=$!
keep flow "$end" $(module train_flow) $shared --until $((end - 5)) --go "$WORK/go" $(from flow) $FLOW_ARGS & second=$!
keep hift "$end" $(module train_vocoder) $shared --until $((end - 5)) --go "$WORK/go" $(from hift) $HIFT_ARGS & third=$!
wait $waiting; say "data: $(ls "$WORK/data"/*.pt | wc -l) files"
while [ "$(ls "$WORK/ids" | grep -c 'npz$')" -lt "$(ls "$WORK/data" | grep -c 'pt$')" ] && [ "$(now)" -lt "$end" ]; do
  sleep 1
done
touch "$WORK/go"; say "go: $(ls "$WORK/ids" | wc -l) id files"
# One data process goes on at half pace until 300 s before the end; the LLM takes its files up as they come.
if [ $((end - 300)) -gt "$(now)" ]; then
  keep data_more $((end - 300)) $(module make_data) "$WORK/data/e1" --teacher "$TEACHER" --text "$TEXT" --hours 1000 \
    --until $((end - 300)) --shard-seconds 90 --duty 0.5 --seed $((seed + 9)) $DATA_ARGS &
fi
# The LLM takes new data up while the codec encodes it; both end by the clock.
wait $first $second $third $codec; finish
