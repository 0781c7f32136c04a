// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"
)

// How much of the made-up time is appended before the database may compact it: Prometheus does so every two hours.
const compactMs = 2 * 60 * 60 * 1000

// queryPrometheus fills Prometheus' TSDB with made-up hosts and answers queries with its engine over HTTP until standard input ends.
func queryPrometheus(m *made, directory string) error {
	options := tsdb.DefaultOptions()
	options.WALCompression = compression.Snappy
	options.RetentionDuration = math.MaxInt64 / int64(time.Millisecond)
	db, err := tsdb.Open(directory, slog.New(slog.NewTextHandler(io.Discard, nil)), nil, options, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := m.fill(db); err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: math.MaxInt, Timeout: 10 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, LookbackDelta: 5 * time.Minute})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	asking := func(response http.ResponseWriter, request *http.Request) {
		if content, err := ask(engine, db, request); err != nil {
			http.Error(response, err.Error(), http.StatusUnprocessableEntity)
		} else {
			_, _ = response.Write(content)
		}
	}
	http.HandleFunc("/api/v1/query", asking)
	http.HandleFunc("/api/v1/query_range", asking)
	go func() { _ = http.Serve(listener, nil) }()
	return untilAsked(listener.Addr().String())
}

// untilAsked says where the database listens, and returns when standard input has ended.
func untilAsked(address string) error {
	fmt.Println("listening", address)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func (m *made) fill(db *tsdb.DB) error {
	db.DisableCompactions()
	refs := make([]storage.SeriesRef, m.hosts*len(m.columns))
	all := make([]labels.Labels, len(refs))
	for i := range all {
		all[i] = m.labelsOf(i/len(m.columns), i%len(m.columns))
	}
	for sample := range m.samples {
		appender := db.Appender(context.Background())
		for i := range refs {
			ref, err := appender.Append(refs[i], all[i], m.timeMs(sample), m.value(i/len(m.columns), i%len(m.columns), sample))
			if err != nil {
				return err
			}
			refs[i] = ref
		}
		if err := appender.Commit(); err != nil {
			return err
		}
		if since := (m.timeMs(sample+1) - m.from) % compactMs; since < m.interval {
			if err := db.Compact(context.Background()); err != nil {
				return err
			}
		}
	}
	return db.Compact(context.Background())
}

func seconds(text string) time.Time {
	value, _ := strconv.ParseFloat(text, 64)
	return time.UnixMilli(int64(math.Round(value * 1000)))
}

func ask(engine *promql.Engine, db *tsdb.DB, request *http.Request) ([]byte, error) {
	form := request.URL.Query()
	var query promql.Query
	var err error
	if request.URL.Path == "/api/v1/query" {
		query, err = engine.NewInstantQuery(request.Context(), db, nil, form.Get("query"), seconds(form.Get("time")))
	} else {
		step, _ := strconv.ParseFloat(form.Get("step"), 64)
		query, err = engine.NewRangeQuery(request.Context(), db, nil, form.Get("query"), seconds(form.Get("start")), seconds(form.Get("end")), time.Duration(step*float64(time.Second)))
	}
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(request.Context())
	if result.Err != nil {
		return nil, result.Err
	}
	return encode(result.Value)
}

// encode writes an answer as Prometheus' server does.
func encode(value parser.Value) ([]byte, error) {
	out := []byte(`{"status":"success","data":{"resultType":"` + string(value.Type()) + `","result":[`)
	switch all := value.(type) {
	case promql.Matrix:
		for i, series := range all {
			out = begin(out, i, series.Metric)
			out = append(out, `"values":[`...)
			for j, point := range series.Floats {
				out = sample(out, j, point.T, point.F)
			}
			out = append(out, "]}"...)
		}
	case promql.Vector:
		for i, series := range all {
			out = begin(out, i, series.Metric)
			out = append(sample(append(out, `"value":`...), 0, series.T, series.F), '}')
		}
	default:
		return nil, fmt.Errorf("no answer of type %s is expected", value.Type())
	}
	return append(out, "]}}"...), nil
}

func begin(out []byte, number int, metric labels.Labels) []byte {
	if number > 0 {
		out = append(out, ',')
	}
	text, _ := metric.MarshalJSON()
	return append(append(append(out, `{"metric":`...), text...), ',')
}

func sample(out []byte, number int, timeMs int64, value float64) []byte {
	if number > 0 {
		out = append(out, ',')
	}
	out = strconv.AppendFloat(append(out, '['), float64(timeMs)/1000, 'f', -1, 64)
	return append(strconv.AppendFloat(append(out, `,"`...), value, 'g', -1, 64), `"]`...)
}

// queryVictoriaMetrics fills VictoriaMetrics' server with made-up hosts and leaves it to others until standard input ends.
func queryVictoriaMetrics(m *made, directory, program string) error {
	server, err := start(program, directory, "-search.maxSamplesPerQuery=4000000000", "-search.maxQueryDuration=10m", "-search.disableCache")
	if err != nil {
		return err
	}
	defer server.stop()
	texts := make([][]byte, m.hosts*len(m.columns))
	for i := range texts {
		texts[i] = lineStart(m.labelsOf(i/len(m.columns), i%len(m.columns)))
	}
	var lines []byte
	for sample := range m.samples {
		for i, text := range texts {
			lines = append(lines, text...)
			lines = strconv.AppendFloat(lines, m.value(i/len(m.columns), i%len(m.columns), sample), 'g', -1, 64)
			lines = strconv.AppendInt(append(lines, ' '), m.timeMs(sample), 10)
			lines = append(lines, '\n')
		}
		if len(lines) >= batchBytes || sample == m.samples-1 {
			if _, err := server.ask(http.MethodPost, "/api/v1/import/prometheus", bytes.NewReader(lines)); err != nil {
				return err
			}
			lines = lines[:0]
		}
	}
	if _, err := server.get("/internal/force_flush"); err != nil {
		return err
	}
	if _, err := server.mergedBytes(); err != nil {
		return err
	}
	return untilAsked(server.address)
}
