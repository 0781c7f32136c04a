// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// withoutFlags is Prometheus' engine as it is without the feature flags that change answers to ordinary text; delaysNames
// is promql-delayed-name-removal, which the scripts are written for.
func withoutFlags(parser parser.Parser, delaysNames bool) *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 }, EnableDelayedNameRemoval: delaysNames, Parser: parser,
	})
}

// recorder is such an engine, and what it was asked.
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

// probe is a test that may fail.
type probe struct {
	testing.TB
	failed bool
}

func (p *probe) Errorf(string, ...any) { p.failed = true }

func (p *probe) FailNow() {
	p.failed = true
	runtime.Goexit()
}

// askedForStartTimes is what an eval asks, where Prometheus itself passes it only with its feature flag
// use-start-timestamps; else nothing.
func askedForStartTimes(t *testing.T, loaded, eval string) []query {
	if !strings.Contains(loaded, "@st ") {
		return nil
	}
	engine, attempt, done := &recorder{Engine: withoutFlags(flagged, true)}, &probe{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		promqltest.RunTest(attempt, loaded+eval+"\n", engine)
	}()
	<-done
	if !attempt.failed {
		return nil
	}
	for _, asked := range engine.asked {
		if isExperimental(asked.Text) {
			return nil
		}
	}
	return engine.asked
}

// compareWithoutFlags asks Prometheus without feature flags, and the bridge: the answers are the same.
func compareWithoutFlags(t *testing.T, bridge *bridge, open func(testing.TB) storage.Storage, loaded string, all []query) {
	theirs, engine := promqltest.LoadedStorage(t, loaded), withoutFlags(flagged, true)
	defer theirs.Close()
	promqltest.RunTestWithStorage(t, loaded, engine, open)
	for _, asked := range all {
		wanted, err := askTheirs(engine, theirs, asked)
		got, ownErr := askOurs(bridge, asked)
		if err != nil || ownErr != nil {
			t.Errorf("%s: Prometheus says %v, the bridge %v", asked.Text, err, ownErr)
		} else if err := difference(wanted, got); err != nil {
			t.Errorf("%s: %v", asked.Text, err)
		}
	}
}
