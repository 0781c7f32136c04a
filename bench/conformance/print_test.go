// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"log/slog"
	"math"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cortexproject/promqlsmith"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// theirs is Prometheus' own API. It has nothing but what format_query and parse_query need.
func theirs() http.Handler {
	api := v1.NewAPI(
		nil, nil, nil, nil, nil, nil, nil, nil, nil, v1.GlobalURLOptions{},
		func(next http.HandlerFunc) http.HandlerFunc { return next },
		nil, "", false, false, 0, slog.New(slog.DiscardHandler), nil, 0, 0, 0, false, nil, nil, nil, nil, nil, nil, nil,
		nil, false, nil, false, false, false, 0, false, false, nil, nil, v1.OpenAPIOptions{}, parser.NewParser(parser.Options{}), false, 0,
	)
	router := route.New().WithPrefix("/api/v1")
	api.Register(router)
	return router
}

// answered is what an endpoint gives for a query; false: it refuses it.
func answered(t *testing.T, api http.Handler, endpoint, text string) (any, bool) {
	form := strings.NewReader(url.Values{"query": {text}}.Encode())
	request := httptest.NewRequest(http.MethodPost, "/api/v1/"+endpoint, form)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	api.ServeHTTP(recorder, request)
	var told struct {
		Data any `json:"data"`
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), &told); err != nil {
		t.Fatal(text, err)
	}
	return told.Data, recorder.Code == http.StatusOK
}

// The expression of an eval.
var evaluated = regexp.MustCompile(`^eval\S*\s+(?:instant\s+at\s+\S+|range\s+from\s+\S+\s+to\s+\S+\s+step\s+\S+)\s+(.+)`)

// scripted are the expressions of Prometheus' scripts.
func scripted(t *testing.T, folder string) []string {
	var all []string
	for _, file := range matching(t, folder, "*.test") {
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks(string(script)) {
			if found := evaluated.FindStringSubmatch(strings.SplitN(block.text, "\n", 2)[0]); found != nil {
				all = append(all, found[1])
			} else if block.is("eval") {
				t.Errorf("%s:%d: no expression", file, block.line)
			}
		}
	}
	return all
}

// quoted are all strings of the tests of Prometheus' parser and printer: queries, and what else there is, which both must refuse.
func quoted(t *testing.T, folder string) []string {
	var all []string
	for _, file := range matching(t, folder, "*_test.go") {
		parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			if literal, is := node.(*ast.BasicLit); is && literal.Kind == token.STRING {
				// What is no UTF-8 does not pass through JSON.
				if text, err := strconv.Unquote(literal.Value); err == nil && utf8.ValidString(text) {
					all = append(all, text)
				}
			}
			return true
		})
	}
	return all
}

func matching(t *testing.T, folder, pattern string) []string {
	files, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %q", pattern, folder)
	}
	return files
}

// words of which texts are drawn: those of the grammar, and what they may be mistaken for.
var words = strings.Fields(`a b:c sum rate hour label_join quantile count_values topk by without on ignoring group_left group_right
	bool offset offset @ start() end() step() range() min_of max_of anchored smoothed and or unless atan2 + + - - * / % ^ == != > <= </ >/ ( ( ) ) { } [ [ ] ] [5m]
	[1h:] [2d:1m] : , , 5m 0s 1y2w 1500ms 90 0 0x1f 1_0 017 1e3 .5 1.001 Inf NaN "x" 'y"' {a="b"} {c=~"d.*",e!~"f"} {"g.h"} (a) (x,y) SUM #c` + "\n `z\\`")

// drawnWords are some, one after the other.
func drawnWords(drawn *rand.Rand) string {
	var text strings.Builder
	for count := 1 + drawn.Intn(14); count > 0; count-- {
		text.WriteString(words[drawn.Intn(len(words))])
		text.WriteString([]string{"", " ", " ", "\n"}[drawn.Intn(4)])
	}
	return text.String()
}

// durations are terms; finer are those that Prometheus prints as others.
var durations = []string{"5m", "90", "1h30m", "0.5", "step()", "range()", "1w", "0s", "7d12h", "1500ms", "2", "STEP( )", "1y1ms"}
var finer = []string{"1.0015", "0.0005", "1h", "-0.0015"}

// drawnDuration is a term, or calculated of some.
func drawnDuration(drawn *rand.Rand, terms []string, depth int) string {
	pick := func(all ...string) string { return all[drawn.Intn(len(all))] }
	if depth == 0 || drawn.Intn(2) == 0 {
		return pick(terms...)
	}
	one, other := drawnDuration(drawn, terms, depth-1), drawnDuration(drawn, terms, depth-1)
	return pick("-"+one, "+"+one, "("+one+")", "-("+one+")", "min_of("+one+","+other+")", "max_of("+one+", "+other+")", one+pick("+", " - ", "*", "/", "%", " ^ ")+other)
}

// drawnSelector has modifiers in all places, and a range or two.
func drawnSelector(drawn *rand.Rand, terms []string, depth int) string {
	pick := func(all ...string) string { return all[drawn.Intn(len(all))] }
	modifiers := []string{
		pick("", "", " offset "+drawnDuration(drawn, terms, depth/3), " offset "+drawnDuration(drawn, terms, depth)), pick("", "", " @ start()", " @ end()", " @ 17.5", " @ -5m", " @ +1e9"),
		pick("", "", "", " anchored", " smoothed"),
	}
	drawn.Shuffle(len(modifiers), func(one, other int) { modifiers[one], modifiers[other] = modifiers[other], modifiers[one] })
	text := pick("a", "a:b", "a{}", `{b="c"}`, `a{d!~"e|f", "g h"="\u00e9\n"}`, `{"i.j",b!="c"}`, "offset", `by{by=~'on'}`, `m{n="\x41"}`, "SUM")
	before := drawn.Intn(4)
	text += strings.Join(modifiers[:before], "")
	duration := drawnDuration(drawn, terms, depth)
	ranged := pick("["+duration+"]", "["+duration+":]", "["+duration+":"+drawnDuration(drawn, terms, depth)+"]")
	isRange := drawn.Intn(2) == 0
	if isRange {
		text += ranged
	}
	text += strings.Join(modifiers[before:], "")
	if isRange {
		text = pick("rate", "sum_over_time", "last_over_time") + "(" + text + ")"
	}
	return pick(text, text, "-"+text, "+"+text, "("+text+")", text+" ^ 2", text+" + "+text, "sum by (b) ("+text+") > bool 1", "("+text+")[5m:] offset -5m")
}

// larger are queries of queries, some longer than a line.
func larger(drawn *rand.Rand, texts []string) string {
	pick := func() string { return texts[drawn.Intn(len(texts))] }
	text := pick()
	for drawn.Intn(4) > 0 {
		switch drawn.Intn(8) {
		case 0:
			text = "(" + text + ")"
		case 1:
			text = "-(" + text + ")"
		case 2:
			text = "+" + text + " ^ " + pick()
		case 3:
			text = pick() + " * on (job, instance) group_left (version) (" + text + ")"
		case 4:
			text = "sum without (instance, sensor) (" + text + ")"
		case 5:
			text = "quantile by (job) (scalar(" + pick() + "), " + text + ")"
		case 6:
			text = "max_over_time((" + text + ")[1h:5m] @ end() offset -1w)"
		case 7:
			text = `label_replace(` + text + `, "some_longer_label_name", "$1-of-something-that-is-long", "instance", "(.*):[0-9]+")`
		}
	}
	return text
}

// isFiner: with a time that is no whole millisecond. Prometheus has none, and prints it as another one.
func isFiner(tree any) bool {
	switch tree := tree.(type) {
	case []any:
		return slices.ContainsFunc(tree, isFiner)
	case map[string]any:
		for name, value := range tree {
			number, isNumber := value.(float64)
			if isFiner(value) || isNumber && name != "variadic" && number != math.Trunc(number) {
				return true
			}
		}
	}
	return false
}

// meant is a tree without what printing leaves out, on both sides: the order of matchers, and a plus before a duration.
func meant(tree any) any {
	switch tree := tree.(type) {
	case []any:
		own := []any{}
		for _, one := range tree {
			own = append(own, meant(one))
		}
		return own
	case map[string]any:
		if tree["type"] == "durationExpr" && tree["op"] == "+" && tree["lhs"] == nil && tree["wrapped"] == false {
			return meant(tree["rhs"])
		}
		own := map[string]any{}
		for name, value := range tree {
			own[name] = meant(value)
		}
		if matchers, are := own["matchers"].([]any); are {
			slices.SortFunc(matchers, func(one, other any) int { return strings.Compare(fmt.Sprint(one), fmt.Sprint(other)) })
		}
		return own
	}
	return tree
}

// refusedByName is what we say of what we do not do.
var refusedByName = regexp.MustCompile(`experimental|the query's text has more than|no UTF-8|invalid label name|duration is NaN`)

// Of those that were compared, finer are printed by us as they are, by Prometheus as another query (1001ms as 1s).
type counts struct {
	compared, refused, refusedByName, finer, format, parse int
}

func (c *counts) compare(t *testing.T, api http.Handler, bridge *bridge, text string) {
	printed, isPrinted := answered(t, api, "format_query", text)
	tree, _ := answered(t, api, "parse_query", text)
	own, err := bridge.print(text)
	switch {
	case !isPrinted && err != nil:
		c.refused++
		return
	case err != nil && refusedByName.MatchString(err.Error()):
		c.refusedByName++
		t.Logf("REFUSED %.120q: %v", text, err)
		return
	case !isPrinted || err != nil:
		c.compared++
		c.format++
		c.parse++
		t.Errorf("%q: Prometheus says %v, we %q, %v", text, printed, own.Text, err)
		return
	}
	c.compared++
	if printed != own.Text {
		again, isReadAgain := answered(t, api, "parse_query", printed.(string))
		isChanged := !isReadAgain || !reflect.DeepEqual(meant(again), meant(tree))
		read, err := bridge.print(own.Text)
		isSame := err == nil && reflect.DeepEqual(meant(read.Tree), meant(own.Tree))
		if isSame && (isChanged || isFiner(own.Tree)) {
			c.finer++
		} else {
			c.format++
			t.Errorf("%q is printed\n%s\nby Prometheus, by us\n%s", text, printed, own.Text)
		}
	}
	if !reflect.DeepEqual(tree, own.Tree) && !isFiner(own.Tree) {
		c.parse++
		one, _ := json.Marshal(tree)
		other, _ := json.Marshal(own.Tree)
		t.Errorf("%q is\n%s\nfor Prometheus, for us\n%s", text, one, other)
	}
}

// Texts and trees of queries are those of Prometheus' format_query and parse_query.
func TestPrintedQueries(t *testing.T) {
	count, seed := int(variable(t, "QUERIES")), variable(t, "SEED")
	bridge, err := start(os.Getenv("BRIDGE"))
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.stop()
	drawn := rand.New(rand.NewSource(seed))
	smith := promqlsmith.New(drawn, []labels.Labels{labels.FromStrings("__name__", "requests_total", "job", "api", "instance", "a")},
		promqlsmith.WithEnableOffset(true), promqlsmith.WithEnableAtModifier(true), promqlsmith.WithEnableVectorMatching(true),
		promqlsmith.WithEnabledFunctions(allFunctions()),
	)
	scripts, tests := scripted(t, os.Getenv("PROMQLTEST")), quoted(t, os.Getenv("PARSERTEST"))
	api := theirs()
	var sum counts
	for _, kind := range []struct {
		name string
		next func(at int) (string, bool)
	}{
		{"scripts", func(at int) (string, bool) { return nth(scripts, at) }},
		{"parser's tests", func(at int) (string, bool) { return nth(tests, at) }},
		{"grammar", func(at int) (string, bool) { return smith.WalkRangeQuery().String(), at < count }},
		{"selectors", func(at int) (string, bool) { return drawnSelector(drawn, durations, 3), at < count }},
		{"finer times", func(at int) (string, bool) { return drawnSelector(drawn, finer, 0), at < count/10 }},
		{"larger", func(at int) (string, bool) { return larger(drawn, scripts), at < count }},
		{"words", func(at int) (string, bool) { return drawnWords(drawn), at < count }},
	} {
		var all counts
		for at := 0; ; at++ {
			text, isOne := kind.next(at)
			if !isOne {
				break
			}
			all.compare(t, api, bridge, text)
		}
		t.Logf("PRINTED %-14s %6d compared, %6d refused by both, %5d by us and by name, %5d that Prometheus prints as others", kind.name, all.compared, all.refused, all.refusedByName, all.finer)
		sum.compared += all.compared
		sum.format += all.format
		sum.parse += all.parse
	}
	t.Logf("FIGURES %d %d %d", sum.compared, sum.format, sum.parse)
}

func nth(texts []string, at int) (string, bool) {
	if at < len(texts) {
		return texts[at], true
	}
	return "", false
}

// allFunctions are those that take no feature flag.
func allFunctions() []*parser.Function {
	var all []*parser.Function
	for _, function := range parser.Functions {
		// The drawing of queries brings an old name back.
		if !function.Experimental && function.Name != "holt_winters" {
			all = append(all, function)
		}
	}
	slices.SortFunc(all, func(one, other *parser.Function) int { return strings.Compare(one.Name, other.Name) })
	return all
}
