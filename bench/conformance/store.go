// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

var errReadElsewhere = errors.New("the bridge's engine reads, nobody else does")

// store is Prometheus' storage: what is appended goes to the bridge.
type store struct{ bridge *bridge }

func (store) Querier(int64, int64) (storage.Querier, error)           { return nil, errReadElsewhere }
func (store) ChunkQuerier(int64, int64) (storage.ChunkQuerier, error) { return nil, errReadElsewhere }
func (store) Appender(context.Context) storage.Appender               { return nil }
func (store) StartTime() (int64, error)                               { return math.MinInt64, nil }
func (store) Close() error                                            { return nil }

func (s store) AppenderV2(context.Context) storage.AppenderV2 {
	return &appender{s.bridge, []sample{}}
}

type appender struct {
	bridge  *bridge
	samples []sample
}

func (a *appender) Append(
	_ storage.SeriesRef, all labels.Labels, _, timeMs int64, value float64,
	h *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AppendV2Options,
) (storage.SeriesRef, error) {
	if h != nil {
		fh = h.ToFloat(nil)
	}
	one := sample{Labels: pairsOf(all), TimeMs: timeMs, Bits: strconv.FormatUint(math.Float64bits(value), 16)}
	if fh != nil {
		one.Histogram = nativeOf(fh)
	}
	a.samples = append(a.samples, one)
	return 0, nil
}

func (a *appender) Commit() error   { return a.bridge.append(a.samples) }
func (a *appender) Rollback() error { return nil }
