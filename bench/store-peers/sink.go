// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/util/compression"
)

// sink takes remote write 1.0 and counts what it is sent.
type sink struct {
	// Samples of this time are counted series by series, the end excluded.
	fromMs, toMs int64

	mutex  sync.Mutex
	series map[string]*counted
	told   struct {
		// Samples in all, without markers of ends, and those that are not later than the one before of their series.
		Samples    int64 `json:"samples"`
		Disordered int64 `json:"disordered"`
		// Of the time.
		Counted int64      `json:"counted"`
		Series  []*counted `json:"series"`
	}
}

// counted is what came of one series.
type counted struct {
	Labels map[string]string `json:"metric"`
	Count  int64             `json:"count"`
	lastMs int64
}

// serveSink counts until standard input ends. POST to /write is what it takes, and /counts is what it has.
func serveSink(from, to string) error {
	s := &sink{series: map[string]*counted{}}
	var err error
	if s.fromMs, err = strconv.ParseInt(from, 10, 64); err != nil {
		return err
	}
	if s.toMs, err = strconv.ParseInt(to, 10, 64); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http.HandleFunc("POST /write", func(response http.ResponseWriter, request *http.Request) {
		if err := s.take(request.Body); err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		response.WriteHeader(http.StatusNoContent)
	})
	http.HandleFunc("GET /counts", func(response http.ResponseWriter, _ *http.Request) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		_ = json.NewEncoder(response).Encode(s.told)
	})
	go func() { _ = http.Serve(listener, nil) }()
	return untilAsked(listener.Addr().String())
}

func (s *sink) take(body io.Reader) error {
	packed, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	plain, err := compression.Decode(compression.Snappy, packed, nil)
	if err != nil {
		return err
	}
	var request prompb.WriteRequest
	if err := request.Unmarshal(plain); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, series := range request.Timeseries {
		own := s.of(series.Labels)
		for _, sample := range series.Samples {
			if sample.Timestamp <= own.lastMs {
				s.told.Disordered++
			}
			own.lastMs = sample.Timestamp
			if math.Float64bits(sample.Value) == value.StaleNaN {
				continue
			}
			s.told.Samples++
			if s.fromMs <= sample.Timestamp && sample.Timestamp < s.toMs {
				own.Count++
				s.told.Counted++
			}
		}
	}
	return nil
}

func (s *sink) of(labels []prompb.Label) *counted {
	// Labels are sorted.
	name := fmt.Sprintf("%q", labels)
	own, has := s.series[name]
	if !has {
		own = &counted{Labels: map[string]string{}}
		for _, label := range labels {
			own.Labels[label.Name] = label.Value
		}
		s.series[name] = own
		s.told.Series = append(s.told.Series, own)
	}
	return own
}
