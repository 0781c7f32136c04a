# shellcheck shell=bash
# Shared by the bench scripts: a scratch directory, an agent in it, RESULT lines, and an end that leaves nothing behind.

scratch=$(mktemp -d)
pids=()
session=
failed=0

finish() {
  local pid
  trap '' INT TERM # a second one would end this half-way
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  # What a program in a session of ours had started and stopped when it was ended itself.
  [ -z "$session" ] || for pid in $(ps -o pid= --sid "$session"); do kill -KILL "$pid" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap finish EXIT
trap 'trap "" INT TERM; exit 130' INT TERM

# result NAME VALUE UNIT OPERATOR BOUND: one line a figure; OPERATOR is <= or >= or =. What is no number is no figure, and fails.
result() {
  local verdict=fail
  awk -v v="$2" -v op="$4" -v b="$5" 'BEGIN { exit !(v ~ /^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$/ && ((op == "<=" && v <= b) || (op == ">=" && v >= b) || (op == "=" && v == b))) }' && verdict=pass
  echo "RESULT $1 $2 $3 (expected $4 $5) $verdict"
  [ $verdict = pass ] || failed=1
}

# need_root: where it is not root it says so and ends.
need_root() {
  [ "$(id -u)" != 0 ] || return 0
  echo '##############################################################################'
  echo '## SKIPPED: this bench was NOT run: it needs root.                          ##'
  echo '##############################################################################'
  exit 77
}

# build_bench: the program of measurements, whose commands crates/bench/src/main.rs lists; sets bench.
build_bench() {
  cargo build --release --quiet -p onlooker-bench
  bench=${CARGO_TARGET_DIR:-target}/release/onlooker-bench
}

# in_session PROGRAM...: runs it in a session of its own, to which the program may give more weight, with its temporary files in the scratch directory.
in_session() {
  TMPDIR=$scratch setsid "$@" &
  pids+=($!)
  session=$!
  wait $!
}

# start_agent: an agent of this build on loopback, ports of the system's choice; sets agent_pid and ONLOOKER_SOCKET.
start_agent() {
  cat >"$scratch/agent.toml" <<END
[agent]
socket = "$scratch/agent.sock"
state_dir = "$scratch/state"
[bootstrap]
listen = "127.0.0.1:0"
[tcp]
listen = "127.0.0.1:0"
END
  build/onlooker-agent run --config "$scratch/agent.toml" 2>"$scratch/agent.log" &
  agent_pid=$!
  pids+=("$agent_pid")
  export ONLOOKER_SOCKET=$scratch/agent.sock
  for _ in $(seq 100); do
    [ -S "$ONLOOKER_SOCKET" ] && return
    kill -0 "$agent_pid" 2>/dev/null || break
    sleep 0.1
  done
  cat "$scratch/agent.log" >&2
  echo "bench: the agent did not start" >&2
  exit 1
}
