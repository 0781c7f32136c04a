# shellcheck shell=bash disable=SC2154
# Shared by the benches of the dashboard: a host that is read every 10 ms, and a browser (ui/dev/fluid.mjs) at a controller. Source bench/common.sh and bench/fleet.sh first.

[ ! -x build/node/node_modules/node/bin/node ] || PATH=$PWD/build/node/node_modules/node/bin:$PATH
CHROMIUM=${CHROMIUM:-/usr/bin/chromium}
export CHROMIUM
[ -z "${SHOTS:-}" ] || { mkdir -p "$SHOTS"; SHOTS=$(realpath "$SHOTS"); export SHOTS; }

# start_live: host-00, read every 10 ms by a controller at http://127.0.0.1:7180/ of the namespace `reader`; sets controller.
start_live() {
  start_reader
  {
    printf '[http]\nlisten = "127.0.0.1:7180"\n[read]\ninterval = "10ms"\n[joined]\nfile = "%s"\n' "$scratch/joined.json"
    printf '[store]\ndir = "%s"\nhot_file = "%s"\nhot_bytes = "64MiB"\n' "$scratch/live" "$hot/rows"
    printf '[[targets]]\naddress = "198.18.77.10:7177"\nname = "host-00"\ntoken_file = "%s"\nvia = "kernel"\n' "$scratch/0/token"
  } >"$scratch/live.toml"
  start_host 0
  nsenter --net="/run/netns/$reader" build/onlooker controller --config "$scratch/live.toml" 2>"$scratch/controller.log" &
  controller=$!
  pids+=("$controller")
  ready "$scratch/controller.log" "$controller" 'dashboard http'
}

# stop PID: one of pids ends, and is none any more.
stop() {
  local at
  kill "$1"
  wait "$1" || true
  for at in "${!pids[@]}"; do
    if [ "${pids[at]}" = "$1" ]; then unset "pids[at]"; fi
  done
}

# look PART ADDRESS HOSTS SECONDS [PREFIX...]: the browser does that part, by a prefix like nsenter; its figures go into $scratch/figures.
look() {
  (cd ui && "${@:5}" node dev/fluid.mjs "http://$2/" "$1" "$3" "$4") | tee -a "$scratch/figures" >&2
}

figure() { awk -v name="$1" '$1 == "figure" && $2 == name { print $3 }' "$scratch/figures"; }
