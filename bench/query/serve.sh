# shellcheck shell=bash
# For bench/common.sh's users: a controller over made-up samples of bench/query/columns, or of made_series, a file like it; its targets are those of made_targets, where that is a file.

# address FILE PATTERN PID: what the line says that tells where the server with this pid listens.
address() {
  while kill -0 "$3" 2>/dev/null; do
    sed -n "s|$2|\1|p" "$1" | grep . && return
    sleep 0.1
  done
  cat "$1" >&2
  echo "bench: no server in $1" >&2
  return 1
}

# fill_made HOSTS FROM SECONDS [RULES]: fills a store with a sample every INTERVAL_MS (1000), and writes the configuration of a controller over it; sets made, what others are filled with. RULES: lines of [rules].
fill_made() {
  build_bench
  [ -n "${ONLOOKER_BUILT:-}" ] || scripts/build >&2
  local series=${made_series:-bench/query/columns}
  made=("$series" "$1" "$2" "$3" "${INTERVAL_MS:-1000}")
  echo "filling: $1 hosts, $3 s, $(wc -l <"$series") series each" >&2
  "$bench" query "${made[@]}" "$scratch/store" >&2
  # shellcheck disable=SC2154 # common.sh has it
  cat >"$scratch/controller.toml" <<END
[http]
listen = "127.0.0.1:0"
[store]
dir = "$scratch/store"
hot_file = "$scratch/hot"
hot_bytes = "64MiB"
max_bytes = "64GiB"
[rules]
${4:-shipped = false}
[joined]
file = "$scratch/joined.json"
END
  [ -z "${made_targets:-}" ] || cat "$made_targets" >>"$scratch/controller.toml"
}

# serve_made HOSTS FROM SECONDS [RULES]: the same, and starts that controller; sets server, its address.
serve_made() {
  fill_made "$@"
  build/onlooker controller --config "$scratch/controller.toml" 2>"$scratch/controller.log" &
  pids+=($!)
  # shellcheck disable=SC2034 # the caller's
  server=$(address "$scratch/controller.log" '.*http://\([0-9.:]*\)/.*' "${pids[-1]}")
}
