// SPDX-License-Identifier: Apache-2.0

// Package conformance runs Prometheus' own test of PromQL against Onlooker's store and evaluator.
package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
)

// bridge is the program that has the store and the evaluator: crates/query/examples/promql-bridge.rs.
type bridge struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

type pair [2]string

type sample struct {
	Labels []pair `json:"labels"`
	TimeMs int64  `json:"time_ms"`
	Bits   string `json:"bits"`
	// In place of the bits.
	Histogram *native `json:"histogram"`
}

type query struct {
	Text    string `json:"text"`
	StartMs int64  `json:"start_ms"`
	EndMs   int64  `json:"end_ms"`
	StepMs  int64  `json:"step_ms"`
	// As with Prometheus' feature promql-delayed-name-removal.
	DelaysNames bool `json:"delays_names"`
}

// A point is its time and the bits of its value.
type point struct {
	timeMs int64
	value  float64
}

func (p *point) UnmarshalJSON(text []byte) error {
	var bits string
	if err := json.Unmarshal(text, &[2]any{&p.timeMs, &bits}); err != nil {
		return err
	}
	value, err := strconv.ParseUint(bits, 16, 64)
	p.value = math.Float64frombits(value)
	return err
}

// A timed histogram is its time and the histogram.
type timed struct {
	timeMs    int64
	histogram native
}

func (t *timed) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[2]any{&t.timeMs, &t.histogram})
}

type series struct {
	Labels     []pair  `json:"labels"`
	Points     []point `json:"points"`
	Histograms []timed `json:"histograms"`
}

type answer struct {
	Error  *string  `json:"error"`
	Kind   string   `json:"kind"`
	Text   string   `json:"text"`
	Series []series `json:"series"`
	Notes  []string `json:"notes"`
	// Of what is printed.
	Tree any `json:"tree"`
}

func start(program string) (*bridge, error) {
	process := exec.Command(program)
	in, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &bridge{process, in, bufio.NewReader(out)}, process.Start()
}

func (b *bridge) stop() error {
	return errors.Join(b.in.Close(), b.process.Wait())
}

// ask sends a request and reads its answer. What the program refuses is an error.
func (b *bridge) ask(request any) (answer, error) {
	var told answer
	text, err := json.Marshal(request)
	if err != nil {
		return told, err
	}
	if _, err := b.in.Write(append(text, '\n')); err != nil {
		return told, fmt.Errorf("the bridge has gone: %w", err)
	}
	line, err := b.out.ReadBytes('\n')
	if err != nil {
		return told, fmt.Errorf("the bridge has gone: %w", err)
	}
	if err := json.Unmarshal(line, &told); err != nil {
		return told, err
	}
	if told.Error != nil {
		return told, errors.New(*told.Error)
	}
	return told, nil
}

func (b *bridge) open() error {
	_, err := b.ask("open")
	return err
}

func (b *bridge) append(samples []sample) error {
	_, err := b.ask(map[string]any{"append": map[string]any{"samples": samples}})
	return err
}

func (b *bridge) query(asked query) (answer, error) {
	return b.ask(map[string]query{"query": asked})
}

// print gives a query's text as it is formatted, and its tree.
func (b *bridge) print(text string) (answer, error) {
	return b.ask(map[string]any{"print": map[string]string{"text": text}})
}

func pairsOf(all labels.Labels) []pair {
	pairs := []pair{}
	all.Range(func(label labels.Label) { pairs = append(pairs, pair{label.Name, label.Value}) })
	return pairs
}

func labelsOf(pairs []pair) labels.Labels {
	builder := labels.NewScratchBuilder(len(pairs))
	for _, pair := range pairs {
		builder.Add(pair[0], pair[1])
	}
	builder.Sort()
	return builder.Labels()
}
