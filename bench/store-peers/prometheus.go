// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/compression"
)

// How long series are scanned.
const scanFor = time.Second

// head is Prometheus' head as a scrape loop uses it: it knows the series that it has had by their references, and commits after each reading.
type head struct {
	samples *samples
	db      *tsdb.DB
	refs    []storage.SeriesRef
	refused int
}

// prometheus measures Prometheus' TSDB: samples per second into the head (a tenth of the readings goes before, it makes the series), bytes of the log and of the
// block that the head becomes, and scans of single series of the block.
func prometheus(s *samples, directory string) error {
	options := tsdb.DefaultOptions()
	// As Prometheus' server sets it.
	options.WALCompression = compression.Snappy
	options.RetentionDuration = math.MaxInt64 / int64(time.Millisecond)
	before := heapBytes()
	db, err := tsdb.Open(directory, slog.New(slog.NewTextHandler(io.Discard, nil)), nil, options, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	db.DisableCompactions()
	h := &head{samples: s, db: db, refs: make([]storage.SeriesRef, len(s.series))}
	rest, err := h.append(s.records, s.commits()/10+1)
	if err != nil {
		return err
	}
	figure("prometheus_head_memory", float64(heapBytes()-before)/float64(len(s.series)), "bytes_a_series")
	if err := h.measureAppend(rest); err != nil {
		return err
	}
	if err := h.measureBlock(directory); err != nil {
		return err
	}
	return h.measureScan()
}

// append appends records until so many readings are over; returns those that are left.
func (h *head) append(records []record, commits int) ([]record, error) {
	appender := h.db.Appender(context.Background())
	for at, r := range records {
		if r.count == 0 {
			if err := appender.Commit(); err != nil {
				return nil, err
			}
			if commits--; commits == 0 {
				return records[at+1:], nil
			}
			appender = h.db.Appender(context.Background())
			continue
		}
		for i, value := range h.samples.of(r) {
			series := r.first + i
			ref, err := appender.Append(h.refs[series], h.samples.series[series], r.timeMs, value)
			switch {
			case err == nil:
				h.refs[series] = ref
			case errors.Is(err, storage.ErrOutOfOrderSample), errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
				h.refused++
			default:
				return nil, err
			}
		}
	}
	return nil, appender.Commit()
}

func (h *head) measureAppend(records []record) error {
	count := 0
	for _, r := range records {
		count += r.count
	}
	if count == 0 {
		return errors.New("too few readings")
	}
	begin, err := ownCPU()
	if err != nil {
		return err
	}
	if _, err := h.append(records, math.MaxInt); err != nil {
		return err
	}
	end, err := ownCPU()
	if err != nil {
		return err
	}
	if all := len(h.samples.values); h.refused > all/100 {
		return fmt.Errorf("%d of %d samples were refused", h.refused, all)
	}
	figure("prometheus_append", millions(count, end-begin), "M_samples_a_core_second")
	return nil
}

func (h *head) measureBlock(directory string) error {
	log, err := bytesOf(filepath.Join(directory, "wal"))
	if err != nil {
		return err
	}
	count := float64(len(h.samples.values) - h.refused)
	begin, err := ownCPU()
	if err != nil {
		return err
	}
	mint, maxt := h.db.Head().MinTime(), h.db.Head().MaxTime()
	if err := h.db.CompactHead(tsdb.NewRangeHead(h.db.Head(), mint, maxt)); err != nil {
		return err
	}
	end, err := ownCPU()
	if err != nil {
		return err
	}
	var block, chunks int64
	for _, one := range h.db.Blocks() {
		whole, err := bytesOf(one.Dir())
		if err != nil {
			return err
		}
		part, err := bytesOf(filepath.Join(one.Dir(), "chunks"))
		if err != nil {
			return err
		}
		block, chunks = block+whole, chunks+part
	}
	if chunks == 0 {
		return errors.New("there is no block")
	}
	figure("prometheus_log", float64(log)/count, "bytes_a_sample")
	figure("prometheus_chunks", float64(chunks)/count, "bytes_a_sample")
	figure("prometheus_block", float64(block)/count, "bytes_a_sample")
	figure("prometheus_compaction", float64((end-begin).Nanoseconds())/count, "ns_a_sample")
	return nil
}

// measureScan reads single series of the block from the first sample to the last, each by all its labels.
func (h *head) measureScan() error {
	counts := make([]int, len(h.samples.series))
	for _, r := range h.samples.records {
		for i := range r.count {
			counts[r.first+i]++
		}
	}
	longest := 0
	for _, count := range counts {
		longest = max(longest, count)
	}
	querier, err := h.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		return err
	}
	defer querier.Close()
	begin, err := ownCPU()
	if err != nil {
		return err
	}
	scanned, series := 0, 0
	for until := time.Now().Add(scanFor); time.Now().Before(until); {
		for number, count := range counts {
			if count < longest/2 || time.Now().After(until) {
				continue
			}
			found, err := scan(querier, h.samples.series[number])
			if err != nil {
				return err
			}
			scanned, series = scanned+found, series+1
		}
	}
	end, err := ownCPU()
	if err != nil {
		return err
	}
	if scanned == 0 {
		return errors.New("no sample of a block was found")
	}
	figure("prometheus_scan", millions(scanned, end-begin), "M_samples_a_core_second")
	figure("prometheus_scan_length", float64(scanned)/float64(series), "samples_a_series")
	return nil
}

func scan(querier storage.Querier, of labels.Labels) (int, error) {
	var matchers []*labels.Matcher
	var err error
	of.Range(func(label labels.Label) {
		matcher, failed := labels.NewMatcher(labels.MatchEqual, label.Name, label.Value)
		err = errors.Join(err, failed)
		matchers = append(matchers, matcher)
	})
	if err != nil {
		return 0, err
	}
	found := 0
	set := querier.Select(context.Background(), false, nil, matchers...)
	var values chunkenc.Iterator
	for set.Next() {
		values = set.At().Iterator(values)
		for values.Next() != chunkenc.ValNone {
			values.At()
			found++
		}
		if err := values.Err(); err != nil {
			return 0, err
		}
	}
	return found, set.Err()
}

// heapBytes is what is on the heap that somebody still needs.
func heapBytes() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
