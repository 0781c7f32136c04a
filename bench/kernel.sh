# shellcheck shell=bash
# Shared by the benches of a whole watched host with a kernel responder, after common.sh: a namespace with an agent and its [kernel] section, joined by
# veth to a reader's namespace, and a BPF file system of its own. Needs root. All of it goes when the script ends.

watched=onlk-$(basename "$0")-w-$$ reader=onlk-$(basename "$0")-r-$$
bpffs=$scratch/bpf
readonly WATCHED_ADDRESS=198.18.79.2 READER_ADDRESS=198.18.79.1
# Before commands; a background command's pid is then the program's own. (`ip netns exec` would hide the BPF file system.)
in_watched=(nsenter --net="/run/netns/$watched")
in_reader=(nsenter --net="/run/netns/$reader")
# Ahead of other work, so that lateness is not the reader's own.
onlooker=("${in_reader[@]}" chrt -f 50 build/onlooker)
agent_pid=
bpf_stats=/proc/sys/kernel/bpf_stats_enabled
bpf_stats_before=$(cat $bpf_stats)

if [ "$(id -u)" != 0 ]; then
  echo '##############################################################################'
  echo '## SKIPPED: this bench was NOT run: BPF and network namespaces need root.   ##'
  echo '##############################################################################'
  exit 77
fi

# ended PID: waits for a child that ends or was told to, and forgets it, so that its number is never killed when it is another's. Returns its status.
ended() {
  local status=0 pid left=()
  wait "$1" 2>/dev/null || status=$?
  for pid in "${pids[@]}"; do [ "$pid" = "$1" ] || left+=("$pid"); done
  pids=("${left[@]}")
  return $status
}

# Before the scratch directory goes, all that lives in it: processes first, so that no agent pins anything anew.
finish_kernel() {
  local pid
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
  [ ! -f "$scratch/agent.toml" ] || "${in_watched[@]}" build/onlooker-agent purge --config "$scratch/agent.toml" >/dev/null 2>&1 || true
  echo "$bpf_stats_before" >$bpf_stats
  ! mountpoint -q "$bpffs" || umount "$bpffs" || true
  ip netns del "$watched" 2>/dev/null || true
  ip netns del "$reader" 2>/dev/null || true
  finish
}
trap finish_kernel EXIT

make_host() {
  local namespace
  for namespace in "$watched" "$reader"; do
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
  done
  ip link add eth0 netns "$watched" type veth peer name eth0 netns "$reader"
  ip -n "$watched" addr add $WATCHED_ADDRESS/30 dev eth0
  ip -n "$reader" addr add $READER_ADDRESS/30 dev eth0
  ip -n "$watched" link set eth0 up
  ip -n "$reader" link set eth0 up
  mkdir "$bpffs"
  mount -t bpf bpf "$bpffs"
  cat >"$scratch/agent.toml" <<END
[agent]
socket = "$scratch/agent.sock"
state_dir = "$scratch/state"
[bootstrap]
listen = "$WATCHED_ADDRESS:7177"
[tcp]
listen = "$WATCHED_ADDRESS:7178"
allow = ["$READER_ADDRESS/32"]
[kernel]
devices = ["eth0"]
allow = ["$READER_ADDRESS/32"]
bpffs = "$bpffs"
sample = "${sample:-off}"
[sampled]
interval = "1h"
END
  export ONLOOKER_SOCKET=$scratch/agent.sock
}

# start_watched: the agent in its namespace, until it says that it is ready; sets agent_pid.
start_watched() {
  : >"$scratch/agent.log"
  "${in_watched[@]}" build/onlooker-agent run --config "$scratch/agent.toml" 2>"$scratch/agent.log" &
  agent_pid=$!
  pids+=("$agent_pid")
  local tries
  for ((tries = 0; tries < 2000; tries++)); do
    grep -q 'ready: ' "$scratch/agent.log" && return
    kill -0 "$agent_pid" 2>/dev/null || break
    sleep 0.005
  done
  cat "$scratch/agent.log" >&2
  echo "bench: the agent did not start" >&2
  exit 1
}

# until_read SECONDS JQ ARGUMENTS...: reads until the JSON is as the jq expression wants.
until_read() {
  local seconds=$1 wanted=$2 tries
  shift 2
  for ((tries = 0; tries < seconds * 10; tries++)); do
    if "${onlooker[@]}" read $WATCHED_ADDRESS --json "$@" >"$scratch/until.json" 2>"$scratch/until.err" && jq -e "$wanted" "$scratch/until.json" >/dev/null; then return; fi
    sleep 0.1
  done
  cat "$scratch/until.err" >&2
  jq -c '{host, regions: [.regions[] | {name, responders, problem}]}' "$scratch/until.json" >&2 || true
  echo "bench: the host was not read as wanted ($wanted)" >&2
  exit 1
}

# show_regions: what until_read has read.
show_regions() {
  echo "regions over the kernel responder: $(jq -r '[.regions[] | .name + "(" + (.acquisition | join(",")) + ")"] | join(" ")' "$scratch/until.json")"
}
