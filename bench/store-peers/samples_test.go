// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// file is one of two series and two readings, as `onlooker-bench export` writes it.
func file() []byte {
	out := []byte(magic)
	number := func(n uint32) { out = binary.LittleEndian.AppendUint32(out, n) }
	record := func(timeMs uint64, first uint32, values ...float64) {
		out = binary.LittleEndian.AppendUint64(out, timeMs)
		number(first)
		number(uint32(len(values)))
		for _, value := range values {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(value))
		}
	}
	number(version)
	number(2)
	for _, name := range []string{"first_total", "second"} {
		texts := []string{"__name__", name, "instance", "host-00000"}
		number(uint32(len(texts) / 2))
		for _, text := range texts {
			number(uint32(len(text)))
			out = append(out, text...)
		}
	}
	record(1000, 0, 1, 2.5)
	record(0, 0)
	record(2000, 1, -3)
	record(0, 0)
	return out
}

func read(t *testing.T, content []byte) (*samples, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "samples")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return readSamples(path)
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	s, err := read(t, file())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.series[1].Get("__name__"); len(s.series) != 2 || got != "second" {
		t.Errorf("series %v", s.series)
	}
	if s.commits() != 2 || len(s.records) != 4 || s.records[2].timeMs != 2000 {
		t.Errorf("records %v", s.records)
	}
	if first, second := s.of(s.records[0]), s.of(s.records[2]); !slices.Equal(first, []float64{1, 2.5}) || !slices.Equal(second, []float64{-3}) {
		t.Errorf("values %v, %v", first, second)
	}
}

func TestADamagedFileIsAnError(t *testing.T) {
	whole := file()
	// Cut between two records it is only shorter.
	ends := map[int]bool{len(whole): true, len(whole) - 16: true, len(whole) - 40: true, len(whole) - 56: true, len(whole) - 88: true}
	for length := range whole {
		if _, err := read(t, whole[:length]); (err == nil) != ends[length] {
			t.Errorf("cut at %d of %d: %v", length, len(whole), err)
		}
	}
	for at := range len(whole) - 88 {
		flipped := slices.Clone(whole)
		flipped[at] ^= 0x80
		// It may become another name, but no panic, and no memory that is not there.
		_, _ = read(t, flipped)
	}
}
