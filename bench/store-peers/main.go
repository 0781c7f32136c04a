// SPDX-License-Identifier: Apache-2.0

// Store-peers gives recorded samples to other databases and prints what that costs them, for bench/bench-store:
//
//	store-peers prometheus SAMPLES DIRECTORY                   Prometheus' TSDB, in this process: head with write-ahead log, then a block
//	store-peers victoriametrics SAMPLES DIRECTORY PROGRAM      VictoriaMetrics' single-node server, a process of its own on loopback
//
//	store-peers query-prometheus COLUMNS HOSTS FROM SECONDS INTERVAL_MS DIRECTORY            fills it with made-up hosts and answers queries, for bench/bench-query
//	store-peers query-victoriametrics COLUMNS HOSTS FROM SECONDS INTERVAL_MS DIRECTORY PROGRAM
//
//	store-peers sink FROM_MS TO_MS                             takes remote write and counts the samples of this time, for bench/bench-forward-live
//
// SAMPLES is a file of `onlooker-bench export`, crates/bench/src/store/export.rs. Everything is left in DIRECTORY. Each figure is a line "figure NAME VALUE UNIT". Times are
// CPU time, so that what else runs on the machine counts little; both databases have one processor (GOMAXPROCS=1, which the caller sets).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "store-peers:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 3 {
		return fmt.Errorf("usage: store-peers prometheus SAMPLES DIRECTORY | victoriametrics SAMPLES DIRECTORY PROGRAM")
	}
	if made, rest := strings.HasPrefix(arguments[0], "query-"), len(arguments)-6; made && rest > 0 {
		hosts, err := newMade(arguments[1:])
		switch {
		case err != nil:
			return err
		case arguments[0] == "query-prometheus" && rest == 1:
			return queryPrometheus(hosts, arguments[6])
		case arguments[0] == "query-victoriametrics" && rest == 2:
			return queryVictoriaMetrics(hosts, arguments[6], arguments[7])
		}
	}
	if arguments[0] == "sink" && len(arguments) == 3 {
		return serveSink(arguments[1], arguments[2])
	}
	samples, err := readSamples(arguments[1])
	if err != nil {
		return fmt.Errorf("%s: %w", arguments[1], err)
	}
	switch {
	case arguments[0] == "prometheus" && len(arguments) == 3:
		return prometheus(samples, arguments[2])
	case arguments[0] == "victoriametrics" && len(arguments) == 4:
		return victoriaMetrics(samples, arguments[2], arguments[3])
	}
	return fmt.Errorf("no database %q with %d arguments", arguments[0], len(arguments)-1)
}

// figure prints a figure for bench/bench-store.
func figure(name string, value float64, unit string) {
	fmt.Printf("figure %s %.6g %s\n", name, value, unit)
}

// ownCPU is the CPU time of this process so far.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// bytesOf is how much the files below a path hold.
func bytesOf(path string) (int64, error) {
	var bytes int64
	err := filepath.Walk(path, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// millions is how many millions there are in a second of CPU time.
func millions(count int, took time.Duration) float64 {
	return float64(count) / took.Seconds() / 1e6
}
