// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// A block of a script: the line it begins at, from 1, and its text.
type block struct {
	line int
	text string
}

func (b block) is(command string) bool {
	return strings.HasPrefix(strings.ToLower(b.text), command)
}

// blocks are what a script has between blank lines and comments; `clear` stands alone.
func blocks(script string) []block {
	var all []block
	isOpen := false
	for at, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			isOpen = false
		case isOpen:
			all[len(all)-1].text += "\n" + line
		default:
			all = append(all, block{at + 1, line})
			isOpen = line != "clear"
		}
	}
	return all
}

// Every eval of Prometheus' scripts by itself, after what was loaded before it. What takes a feature flag may fail in any
// way, as long as the text is refused. What takes the flag of start times is ordinary text: it is answered as by Prometheus
// without that flag.
func TestEvaluations(t *testing.T) {
	scripts, program := os.Getenv("PROMQLTEST"), os.Getenv("BRIDGE")
	files, err := filepath.Glob(filepath.Join(scripts, "*.test"))
	if err != nil || len(files) == 0 || program == "" {
		t.Fatalf("no scripts in PROMQLTEST=%q, or no BRIDGE=%q", scripts, program)
	}
	bridge, err := start(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bridge.stop(); err != nil {
			t.Error(err)
		}
	}()
	open := func(t testing.TB) storage.Storage {
		if err := bridge.open(); err != nil {
			t.Fatal(err)
		}
		return store{bridge}
	}
	var stable, passed, experimental, refused, startTimes, alike int
	for _, file := range files {
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var loaded strings.Builder
		for _, block := range blocks(string(script)) {
			switch {
			case block.is("clear"):
				loaded.Reset()
			case block.is("load"):
				loaded.WriteString(block.text + "\n\n")
			case block.is("eval"):
				if asked := ofStartTimes(t, loaded.String(), block.text); asked != nil {
					startTimes++
					if t.Run(fmt.Sprintf("%s:%d", filepath.Base(file), block.line), func(t *testing.T) {
						compareWithoutFlags(t, bridge, open, loaded.String(), asked)
					}) {
						alike++
					}
					continue
				}
				engine := &engine{bridge: bridge}
				ran := t.Run(fmt.Sprintf("%s:%d", filepath.Base(file), block.line), func(t *testing.T) {
					promqltest.RunTestWithStorage(t, loaded.String()+block.text+"\n", engine, open)
				})
				switch {
				case len(engine.answered) > 0:
					experimental++
					t.Errorf("%s:%d: answered without its flag: %s", file, block.line, engine.answered[0])
				case len(engine.experimental) > 0:
					experimental++
					refused++
				default:
					stable++
					if ran {
						passed++
					}
				}
			}
		}
	}
	t.Logf("FIGURES %d %d %d %d %d %d", passed, stable, refused, experimental, alike, startTimes)
}
