// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// Bytes of lines in one request: what agents of such servers send.
	batchBytes = 4 << 20
	// For whatever the server is asked.
	patience = 2 * time.Minute
	// A tick of /proc/PID/stat.
	tick = 10 * time.Millisecond
)

// server is a running victoria-metrics.
type server struct {
	process *exec.Cmd
	address string
	data    string
}

// victoriaMetrics measures VictoriaMetrics' server: CPU time of its process for the import of lines as Prometheus writes them and of its own binary format,
// flushed, and bytes of what it keeps, merged.
func victoriaMetrics(s *samples, directory, program string) error {
	// What asks for the servers' end is the end of the thread that started them.
	runtime.LockOSThread()
	first, err := start(program, filepath.Join(directory, "lines"))
	if err != nil {
		return err
	}
	defer first.stop()
	count := len(s.values)
	used, err := first.cpuOf(func() error { return first.importLines(s) })
	if err != nil {
		return err
	}
	figure("victoriametrics_import", millions(count, used), "M_samples_a_core_second")
	kept, err := first.metric(`vm_rows{type="storage/`)
	if err != nil {
		return err
	}
	if kept < 0.99*float64(count) {
		return fmt.Errorf("it has %.0f of %d samples", kept, count)
	}
	size, err := first.mergedBytes()
	if err != nil {
		return err
	}
	figure("victoriametrics_disk", float64(size)/kept, "bytes_a_sample")

	native := filepath.Join(directory, "native")
	if err := first.exportNative(native); err != nil {
		return err
	}
	second, err := start(program, filepath.Join(directory, "from-native"))
	if err != nil {
		return err
	}
	defer second.stop()
	used, err = second.cpuOf(func() error { return second.importNative(native) })
	if err != nil {
		return err
	}
	figure("victoriametrics_import_native", millions(count, used), "M_samples_a_core_second")
	return nil
}

func start(program, data string, more ...string) (*server, error) {
	// A port that is free now.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	flags := []string{"-storageDataPath=" + data, "-httpListenAddr=" + address, "-retentionPeriod=100y", "-loggerLevel=ERROR"}
	process := exec.Command(program, append(flags, more...)...)
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	// It goes with this program.
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		return nil, err
	}
	started := &server{process: process, address: address, data: data}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := started.get("/health"); err == nil {
			return started, nil
		}
	}
	started.stop()
	return nil, errors.New("it does not answer")
}

func (v *server) stop() {
	_ = v.process.Process.Signal(syscall.SIGTERM)
	_ = v.process.Wait()
}

// ask gives the body of an answer, which must be one of success.
func (v *server) ask(method, path string, body io.Reader) ([]byte, error) {
	request, err := http.NewRequest(method, "http://"+v.address+path, body)
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, content)
	}
	return content, err
}

func (v *server) get(path string) ([]byte, error) {
	return v.ask(http.MethodGet, path, nil)
}

// metric is the sum of the server's own metrics whose lines begin so.
func (v *server) metric(prefix string) (float64, error) {
	content, err := v.get("/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// cpu is the CPU time of the server so far.
func (v *server) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	// Behind the name, which may have spaces: the 12th and 13th are user's and system's time.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("no times in its stat")
	}
	var ticks uint64
	for _, field := range fields[11:13] {
		number, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += number
	}
	return time.Duration(ticks) * tick, nil
}

// cpuOf is the server's CPU time for something that it does, until the disk has it.
func (v *server) cpuOf(work func() error) (time.Duration, error) {
	before, err := v.cpu()
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	if _, err := v.get("/internal/force_flush"); err != nil {
		return 0, err
	}
	after, err := v.cpu()
	if err == nil && after == before {
		err = errors.New("too little for its clock: more samples are needed")
	}
	return after - before, err
}

func (v *server) importLines(s *samples) error {
	texts := make([][]byte, len(s.series))
	for number, series := range s.series {
		texts[number] = lineStart(series)
	}
	var lines []byte
	send := func() error {
		_, err := v.ask(http.MethodPost, "/api/v1/import/prometheus", bytes.NewReader(lines))
		lines = lines[:0]
		return err
	}
	for _, r := range s.records {
		for i, value := range s.of(r) {
			lines = append(lines, texts[r.first+i]...)
			lines = strconv.AppendFloat(lines, value, 'g', -1, 64)
			lines = append(lines, ' ')
			lines = strconv.AppendInt(lines, r.timeMs, 10)
			lines = append(lines, '\n')
		}
		if len(lines) >= batchBytes {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

// lineStart is a series in Prometheus' text format, with the space behind it.
func lineStart(series labels.Labels) []byte {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	text := append([]byte(series.Get(labels.MetricName)), '{')
	series.Range(func(label labels.Label) {
		if label.Name != labels.MetricName {
			text = append(text, label.Name+`="`+escape.Replace(label.Value)+`",`...)
		}
	})
	return append(bytes.TrimSuffix(text, []byte(",")), "} "...)
}

func (v *server) exportNative(path string) error {
	content, err := v.get("/api/v1/export/native?match[]=%7B__name__!%3D%22%22%7D&start=0")
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

func (v *server) importNative(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = v.ask(http.MethodPost, "/api/v1/import/native", file)
	return err
}

// mergedBytes is the size of its samples (not of its index of names) when it has nothing left to merge.
func (v *server) mergedBytes() (int64, error) {
	if _, err := v.get("/internal/force_merge"); err != nil {
		return 0, err
	}
	idle := 0
	for end := time.Now().Add(patience); idle < 5 && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		merges, err := v.metric("vm_active_merges{")
		if err != nil {
			return 0, err
		}
		if idle++; merges > 0 {
			idle = 0
		}
	}
	return bytesOf(filepath.Join(v.data, "data"))
}
