# shellcheck shell=bash disable=SC2034,SC2154
# Shared by the benches of fleets: watched hosts that are network namespaces of this machine (each with an agent, the kernel responder on its eth0 and a program that counts),
# and a namespace `reader` that reaches them all over a bridge. Source bench/common.sh first.

prefix=onlk-fleet-$$
reader=$prefix-reader
namespaces=()
mounts=()
agents=()
beacons=()
hot=$(mktemp -d -p /dev/shm)
# Of kernel memory a host takes: so little that dozens of them fit one machine.
sizes='control = "512KiB"
slab = "64KiB"'
# More of a host's agent.toml, by its number. All these hosts are one machine: its procfs is not sampled once for each of them.
of_host=()
declare -r OF_HOST='[sampled]
interval = "1h"'

finish_fleet() {
  local pid name number
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
  for ((number = 0; number < ${#mounts[@]}; number++)); do
    nsenter --net="/run/netns/$prefix-$number" build/onlooker-agent purge --config "$scratch/$number/agent.toml" >/dev/null 2>&1 || true
    umount "${mounts[number]}" || true
  done
  for name in "${namespaces[@]}"; do ip netns del "$name" 2>/dev/null || true; done
  rm -rf "$hot"
  [ -z "${KEEP_LOGS:-}" ] || cp "$scratch"/*.log "$KEEP_LOGS" || true
  finish
}
trap finish_fleet EXIT

# ready LOG PID WHAT: waits until the log says so.
ready() {
  local tries
  for ((tries = 0; tries < 3000; tries++)); do
    grep -qs "$3" "$1" && return
    kill -0 "$2" 2>/dev/null || break
    sleep 0.01
  done
  cat "$1" >&2
  echo "${0##*/}: it did not start" >&2
  exit 1
}

# start_reader: the namespace from which all hosts are read.
start_reader() {
  cc -O2 -pthread -Isdk/c bench/beacon.c -o "$scratch/beacon"
  ip netns add "$reader"
  namespaces+=("$reader")
  ip -n "$reader" link set lo up
  ip -n "$reader" link add bridge type bridge
  ip -n "$reader" addr add 198.18.77.1/24 dev bridge
  ip -n "$reader" link set bridge up
}

# in_group DIRECTORY PROGRAM... &: runs a program in a control group, where one is given.
in_group() {
  [ -z "$1" ] || echo "$BASHPID" >"$1/cgroup.procs"
  shift
  exec "$@"
}

# start_host NUMBER [CGROUP]: host NUMBER at 198.18.77.(NUMBER + 10), its token in $scratch/NUMBER/token; its agent in a control group.
start_host() {
  local number=$1 name=$prefix-$1 home=$scratch/$1 address=198.18.77.$(($1 + 10))
  mkdir -p "$home/bpf"
  ip netns add "$name"
  namespaces+=("$name")
  ip -n "$name" link set lo up
  ip link add eth0 netns "$name" type veth peer name "host$number" netns "$reader"
  ip -n "$name" addr add "$address/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$reader" link set "host$number" master bridge up
  mount -t bpf -o mode=0700 bpf "$home/bpf"
  mounts+=("$home/bpf")
  cat >"$home/agent.toml" <<END
[agent]
socket = "$home/agent.sock"
state_dir = "$home/state"
[bootstrap]
listen = "$address:7177"
[tcp]
listen = "$address:7178"
allow = ["198.18.77.1/32"]
[kernel]
devices = ["eth0"]
allow = ["198.18.77.1/32"]
bpffs = "$home/bpf"
$sizes
${of_host[number]:-$OF_HOST}
END
  in_group "${2:-}" nsenter --net="/run/netns/$name" build/onlooker-agent run --config "$home/agent.toml" 2>"$scratch/agent-$number.log" &
  agents+=($!)
  pids+=($!)
  ready "$scratch/agent-$number.log" $! 'ready: '
  build/onlooker-agent token --config "$home/agent.toml" >"$home/token"
  ONLOOKER_SOCKET=$home/agent.sock "$scratch/beacon" 10 40 &
  beacons+=($!)
  pids+=($!)
}
