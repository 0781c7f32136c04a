// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"
)

// engine is Prometheus' engine: whoever is asked is the bridge.
type engine struct {
	bridge *bridge
	// Texts that Prometheus takes only with a feature flag.
	experimental []string
	// Of those the ones that the bridge has answered.
	answered []string
}

var (
	plain    = parser.NewParser(parser.Options{})
	flagged  = parser.NewParser(promqltest.TestParserOpts)
	_        = promql.QueryEngine(&engine{})
	noteKind = map[string]error{"PromQL warning: ": annotations.PromQLWarning, "PromQL info: ": annotations.PromQLInfo}
)

func isExperimental(text string) bool {
	if _, err := plain.ParseExpr(text); err == nil {
		return false
	}
	_, err := flagged.ParseExpr(text)
	return err == nil
}

func (e *engine) NewInstantQuery(
	_ context.Context, _ storage.Queryable, _ promql.QueryOpts, text string, at time.Time,
) (promql.Query, error) {
	return e.ask(query{text, at.UnixMilli(), at.UnixMilli(), 0, true})
}

func (e *engine) NewRangeQuery(
	_ context.Context, _ storage.Queryable, _ promql.QueryOpts, text string, start, end time.Time, step time.Duration,
) (promql.Query, error) {
	return e.ask(query{text, start.UnixMilli(), end.UnixMilli(), max(step.Milliseconds(), 1), true})
}

func (e *engine) ask(asked query) (promql.Query, error) {
	if isExperimental(asked.Text) {
		e.experimental = append(e.experimental, asked.Text)
		if _, err := e.bridge.query(asked); err == nil {
			e.answered = append(e.answered, asked.Text)
		}
	}
	return &asking{engine: e, asked: asked}, nil
}

// asking is one query.
type asking struct {
	engine *engine
	asked  query
}

func (*asking) Close()                      {}
func (*asking) Cancel()                     {}
func (*asking) Statement() parser.Statement { return nil }
func (*asking) Stats() *stats.Statistics    { return nil }
func (a *asking) String() string            { return a.asked.Text }

func (a *asking) Exec(context.Context) *promql.Result {
	told, err := a.engine.bridge.query(a.asked)
	if err != nil {
		return &promql.Result{Err: err}
	}
	value, err := told.value(a.asked.StartMs)
	return &promql.Result{Value: value, Warnings: told.annotations(), Err: err}
}

func (told answer) annotations() annotations.Annotations {
	all := annotations.New()
	for _, note := range told.Notes {
		for prefix, kind := range noteKind {
			if text, found := strings.CutPrefix(note, prefix); found {
				all.Add(fmt.Errorf("%w: %s", kind, text))
			}
		}
	}
	return *all
}

func (told answer) value(atMs int64) (parser.Value, error) {
	switch told.Kind {
	case "string":
		return promql.String{T: atMs, V: told.Text}, nil
	case "scalar":
		return promql.Scalar{T: atMs, V: told.Series[0].Points[0].value}, nil
	case "vector":
		vector := promql.Vector{}
		for _, one := range told.Series {
			made := promql.Sample{Metric: labelsOf(one.Labels), T: atMs}
			if len(one.Histograms) > 0 {
				made.H = one.Histograms[0].histogram.histogram()
			} else {
				made.F = one.Points[0].value
			}
			vector = append(vector, made)
		}
		return vector, nil
	case "matrix":
		matrix := promql.Matrix{}
		for _, one := range told.Series {
			floats := []promql.FPoint{}
			for _, point := range one.Points {
				floats = append(floats, promql.FPoint{T: point.timeMs, F: point.value})
			}
			histograms := []promql.HPoint{}
			for _, own := range one.Histograms {
				histograms = append(histograms, promql.HPoint{T: own.timeMs, H: own.histogram.histogram()})
			}
			matrix = append(matrix, promql.Series{Metric: labelsOf(one.Labels), Floats: floats, Histograms: histograms})
		}
		return matrix, nil
	}
	return nil, fmt.Errorf("an answer of the kind %q", told.Kind)
}
