// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	magic   = "ONLKSMPL"
	version = 1
	// Longer ones no exporter writes: a damaged file shall not make this program ask for all memory.
	maxText   = 1 << 16
	maxLabels = 1 << 8
	maxSeries = 1 << 26
)

// samples are all of a file. Its records have no pointers, lest the garbage collector looks at them while something is measured.
type samples struct {
	series  []labels.Labels
	records []record
	values  []float64
}

// record has values at one time, of series that follow each other. One of no values ends a host's reading.
type record struct {
	timeMs    int64
	first, at int
	count     int
}

func (s *samples) of(r record) []float64 {
	return s.values[r.at : r.at+r.count]
}

// commits is the number of readings.
func (s *samples) commits() int {
	count := 0
	for _, r := range s.records {
		if r.count == 0 {
			count++
		}
	}
	return count
}

func readSamples(path string) (*samples, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	s := &samples{}
	if err := s.readSeries(in); err != nil {
		return nil, fmt.Errorf("its series: %w", err)
	}
	if err := s.readRecords(in); err != nil {
		return nil, fmt.Errorf("its records: %w", err)
	}
	return s, nil
}

func readNumber(in io.Reader, limit uint32) (int, error) {
	var bytes [4]byte
	if _, err := io.ReadFull(in, bytes[:]); err != nil {
		return 0, err
	}
	number := binary.LittleEndian.Uint32(bytes[:])
	if number > limit {
		return 0, fmt.Errorf("%d is more than %d", number, limit)
	}
	return int(number), nil
}

func readText(in io.Reader) (string, error) {
	length, err := readNumber(in, maxText)
	if err != nil {
		return "", err
	}
	text := make([]byte, length)
	_, err = io.ReadFull(in, text)
	return string(text), err
}

func (s *samples) readSeries(in io.Reader) error {
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(in, start); err != nil || string(start) != magic {
		return errors.Join(errors.New("no file of samples"), err)
	}
	if found, err := readNumber(in, math.MaxUint32); err != nil || found != version {
		return errors.Join(fmt.Errorf("version %d, not %d", found, version), err)
	}
	count, err := readNumber(in, maxSeries)
	if err != nil {
		return err
	}
	for range count {
		pairs, err := readNumber(in, maxLabels)
		if err != nil {
			return err
		}
		texts := make([]string, 0, 2*pairs)
		for range 2 * pairs {
			text, err := readText(in)
			if err != nil {
				return err
			}
			texts = append(texts, text)
		}
		s.series = append(s.series, labels.FromStrings(texts...))
	}
	return nil
}

func (s *samples) readRecords(in io.Reader) error {
	var head [16]byte
	var bytes []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		r := record{
			timeMs: int64(binary.LittleEndian.Uint64(head[0:])),
			first:  int(binary.LittleEndian.Uint32(head[8:])),
			at:     len(s.values),
			count:  int(binary.LittleEndian.Uint32(head[12:])),
		}
		if r.first+r.count > len(s.series) {
			return fmt.Errorf("series %d and %d more of %d", r.first, r.count, len(s.series))
		}
		if need := 8 * r.count; len(bytes) < need {
			bytes = make([]byte, need)
		}
		if _, err := io.ReadFull(in, bytes[:8*r.count]); err != nil {
			return err
		}
		for i := range r.count {
			s.values = append(s.values, math.Float64frombits(binary.LittleEndian.Uint64(bytes[8*i:])))
		}
		s.records = append(s.records, r)
	}
}
