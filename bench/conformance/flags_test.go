// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"
)

// withoutFlags are options of Prometheus' engine without the feature flags that change answers to ordinary text.
// delaysNames is promql-delayed-name-removal, which the scripts are written for.
func withoutFlags(parser parser.Parser, delaysNames bool) promql.EngineOpts {
	return promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 }, EnableDelayedNameRemoval: delaysNames, Parser: parser,
	}
}

// recorder is Prometheus' engine, and what it was asked.
type recorder struct {
	*promql.Engine
	asked []query
}

func (r *recorder) NewInstantQuery(
	ctx context.Context, from storage.Queryable, options promql.QueryOpts, text string, at time.Time,
) (promql.Query, error) {
	r.asked = append(r.asked, query{text, at.UnixMilli(), at.UnixMilli(), 0, true})
	return r.Engine.NewInstantQuery(ctx, from, options, text, at)
}

func (r *recorder) NewRangeQuery(
	ctx context.Context, from storage.Queryable, options promql.QueryOpts, text string, start, end time.Time, step time.Duration,
) (promql.Query, error) {
	r.asked = append(r.asked, query{text, start.UnixMilli(), end.UnixMilli(), max(step.Milliseconds(), 1), true})
	return r.Engine.NewRangeQuery(ctx, from, options, text, start, end, step)
}

// ofStartTimes is what an eval asks, if Prometheus has another answer to it without its feature flag
// use-start-timestamps; else nothing.
func ofStartTimes(t *testing.T, loaded, eval string) []query {
	if !strings.Contains(loaded, "@st ") {
		return nil
	}
	plainly := withoutFlags(flagged, true)
	withFlag := plainly
	withFlag.UseStartTimestamps = true
	with, without := &recorder{Engine: promql.NewEngine(withFlag)}, promql.NewEngine(plainly)
	keeping := func(options *tsdb.Options) {
		options.EnableSTStorage, options.FloatChunkEncoding, options.EnableHistogramSTEncoding = true, chunkenc.EncXOR2, true
	}
	open := func(t testing.TB) storage.Storage { return teststorage.New(t, keeping) }
	promqltest.RunTestWithStorage(t, loaded+eval+"\n", with, open)
	theirs := promqltest.LoadedStorage(t, loaded, keeping)
	defer theirs.Close()
	isOther := func(asked query) bool {
		one, told, err := askTheirs(with.Engine, theirs, asked)
		other, otherTold, otherErr := askTheirs(without, theirs, asked)
		return (err == nil) != (otherErr == nil) || difference(one, other) != nil || !slices.Equal(told, otherTold)
	}
	if slices.ContainsFunc(with.asked, func(asked query) bool { return isExperimental(asked.Text) }) ||
		!slices.ContainsFunc(with.asked, isOther) {
		return nil
	}
	return with.asked
}

// compareWithoutFlags asks Prometheus without feature flags, and the bridge: the answers are the same.
func compareWithoutFlags(t *testing.T, bridge *bridge, open func(testing.TB) storage.Storage, loaded string, all []query) {
	theirs, engine := promqltest.LoadedStorage(t, loaded), promql.NewEngine(withoutFlags(flagged, true))
	defer theirs.Close()
	promqltest.RunTestWithStorage(t, loaded, engine, open)
	for _, asked := range all {
		wanted, _, err := askTheirs(engine, theirs, asked)
		got, ownErr := askOurs(bridge, asked)
		if err != nil || ownErr != nil {
			t.Errorf("%s: Prometheus says %v, the bridge %v", asked.Text, err, ownErr)
		} else if err := difference(wanted, got); err != nil {
			t.Errorf("%s: %v", asked.Text, err)
		}
	}
}
