# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the laboratory's commands share. Sourced, never run.
# shellcheck disable=SC2034 # much of this is only used by the files that source it

readonly TEMPORARY=${TMPDIR:-/tmp}
LAB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Exit codes beside the payload's own. 124 is what timeout(1) uses, 77 what automake uses for a skipped test.
readonly EXIT_USAGE=2 EXIT_SKIPPED=77 EXIT_TIMEOUT=124 EXIT_GUEST_DIED=125

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    note "$@"
    exit 1
}

# Usage errors have a code of their own so that a caller can tell a typing mistake from a failed test.
refuse() {
    note "$@"
    usage >&2
    exit "$EXIT_USAGE"
}

need_command() { # COMMAND PACKAGE
    command -v "$1" >/dev/null || die "'$1' is not installed; run: apt-get install $2"
}

need_value() { # REMAINING_ARGUMENTS OPTION
    [[ $1 -ge 2 ]] || refuse "option $2 needs a value"
}

need_number() { # OPTION VALUE
    [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || refuse "option $1 needs a whole number above 0, not '$2'"
}

need_series() { # VALUE
    [[ $1 == 6.1 || $1 == 6.12 ]] || refuse "kernel must be 6.1 or 6.12, not '$1'"
}

# A private directory that goes away with the process, however it ends (SIGKILL excepted).
# Signals become exits so that the EXIT trap runs; 128+n is the shell's own convention.
make_scratch() { # PARENT_DIRECTORY
    SCRATCH=$(mktemp -d "$1/.onlooker-lab.XXXXXX")
    trap 'rm -rf "$SCRATCH"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 141' PIPE
    trap 'exit 143' TERM
}

# Builds lab/programs and says in PROGRAM where it is. Optimised: both ends look at or copy every word, some on an
# emulated processor.
build_programs() {
    cargo build --release --quiet --manifest-path "$LAB_DIR/../Cargo.toml" -p onlooker-lab
    PROGRAM=${CARGO_TARGET_DIR:-$LAB_DIR/../target}/release/onlooker-lab
}

# Options that `run` and `run-pair` have in common. Consumes one option from its arguments and leaves in CONSUMED how
# many words that took; 0 means that the option is not one of these.
BUILD_OPTIONS=() SERIES='' TIMEOUT_S=180 MEMORY_MIB=1024 CPUS=2 EXTRA_CMDLINE=''
guest_option() {
    case $1 in
        --kernel) need_value $# "$1" && need_series "$2" && SERIES=$2 ;;
        --timeout) need_value $# "$1" && need_number "$1" "$2" && TIMEOUT_S=$2 ;;
        --memory) need_value $# "$1" && need_number "$1" "$2" && MEMORY_MIB=$2 ;;
        --cpus) need_value $# "$1" && need_number "$1" "$2" && CPUS=$2 ;;
        --cmdline) need_value $# "$1" && EXTRA_CMDLINE=$2 ;;
        --file | --env) need_value $# "$1" && BUILD_OPTIONS+=("$1" "$2") ;;
        *)
            CONSUMED=0
            return
            ;;
    esac
    CONSUMED=2
}

guest_options_help() {
    cat <<'END'
  --kernel 6.1|6.12        Debian kernel series to boot (needed)
  --timeout SECONDS        bound on the guest's whole life (180)
  --memory MIB             memory of a guest (1024)
  --cpus COUNT             processors of a guest (2)
  --file HOSTPATH:GUESTPATH
                           copy a file, with the libraries it needs if it is a program; may be repeated
  --env NAME=VALUE         set a variable for the payload; may be repeated
  --cmdline WORDS          more words for the kernel's command line

PAYLOAD with a slash is a program of this machine: it is copied in with its libraries. Without a slash it is looked up
in the guest (busybox, ip, tc, rdma, ibv_devices, ibv_devinfo, ibv_rc_pingpong).
END
}
