// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
)

// What is asked: a path below /api/v1, its parameters, and the status of the answer.
type request struct {
	path   string
	form   string
	status int
}

// A text is not among them: the document has no form for how Prometheus answers one. NOW is the last second that the server has samples of, HOUR one hour earlier.
var requests = []request{
	{"/query", "query=1%2B1&time=4", 200},
	{"/query", "query=1%2B1&time=4&stats=all", 200},
	{"/query", "query=node_load1&time=NOW", 200},
	{"/query", "query=node_load1&time=NOW&limit=1", 200},
	{"/query", "query=node_load1%5B1m%5D&time=NOW", 200},
	{"/query", "query=rate(node_load1%5B1m%5D)&time=NOW", 200},
	{"/query", "query=vector(NaN)&time=NOW", 200},
	{"/query", "query=nothing&time=NOW", 200},
	{"/query", "query=sum(", 400},
	{"/query", "", 400},
	{"/query", "query=1&timeout=x", 400},
	{"/query", "query=node_load1+%2B+on()+node_load1&time=NOW", 422},
	{"/query_range", "query=node_load1&start=HOUR&end=NOW&step=15", 200},
	{"/query_range", "query=1&start=HOUR&end=NOW&step=15.5", 200},
	{"/query_range", "query=sum+by+(mode)+(rate(node_cpu_seconds_total%5B1m%5D))&start=HOUR&end=NOW&step=60&limit=2", 200},
	{"/query_range", "query=node_load1&start=HOUR&end=NOW&step=0", 400},
	{"/query_range", "query=node_load1&start=NOW&end=HOUR&step=15", 400},
	{"/query_range", "query=node_load1&start=HOUR&end=NOW", 400},
	{"/format_query", "query=sum(node_load1)by(instance)", 200},
	{"/format_query", "query=sum(", 400},
	{"/parse_query", "query=rate(node_load1%5B1m%5D+offset+1m)+%2B+1", 200},
	{"/parse_query", "query=sum(", 400},
	{"/series", "match[]=node_load1&start=HOUR&end=NOW", 200},
	{"/series", "match[]=node_load1&start=HOUR&end=NOW&limit=1", 200},
	{"/series", "", 400},
	{"/labels", "start=HOUR&end=NOW", 200},
	{"/labels", "match[]=node_load1&start=HOUR&end=NOW", 200},
	{"/labels", "match[]=%7B", 400},
	{"/label/instance/values", "start=HOUR&end=NOW", 200},
	{"/label/instance/values", "limit=1&start=HOUR&end=NOW", 200},
	{"/label/__name__/values", "match[]=node_load1&start=HOUR&end=NOW", 200},
	{"/metadata", "", 200},
	{"/metadata", "metric=node_load1", 200},
	{"/metadata", "limit=1", 200},
	{"/rules", "", 200},
	{"/rules", "type=alert", 200},
	{"/rules", "type=wrong", 400},
	{"/alerts", "", 200},
	{"/alertmanagers", "", 200},
	{"/targets", "", 200},
	{"/targets", "state=active", 200},
	{"/targets", "state=dropped", 200},
	{"/status/buildinfo", "", 200},
	{"/features", "", 200},
}

// Paths that Prometheus takes forms at, too.
var posted = map[string]bool{
	"/query": true, "/query_range": true, "/format_query": true, "/parse_query": true, "/series": true, "/labels": true,
}

// What a real controller answers is as Prometheus' document of its interface (OPENAPI) has it.
func TestAnswersOverHTTP(t *testing.T) {
	address, now, hour := os.Getenv("ADDRESS"), os.Getenv("NOW"), os.Getenv("HOUR")
	if address == "" || now == "" || hour == "" {
		t.Fatalf("no ADDRESS=%q of a controller, or no NOW=%q and HOUR=%q: make conformance has them", address, now, hour)
	}
	validates := documented(t, os.Getenv("OPENAPI"))
	asked, invalid := 0, 0
	for _, one := range requests {
		form := strings.NewReplacer("NOW", now, "HOUR", hour).Replace(one.form)
		methods := []string{http.MethodGet}
		if posted[one.path] {
			methods = append(methods, http.MethodPost)
		}
		for _, method := range methods {
			asked++
			request, err := ask(method, address, one.path, form)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			isValid, faults := validates.ValidateHttpResponse(request, answer)
			if answer.StatusCode != one.status || !isValid {
				invalid++
				t.Errorf("%s %s?%s: status %d, wanted %d", method, one.path, form, answer.StatusCode, one.status)
			}
			for _, fault := range faults {
				t.Logf("  %s: %s", fault.Message, fault.Reason)
				for _, detail := range fault.SchemaValidationErrors {
					t.Logf("    at %s: %s", detail.KeywordLocation, detail.Reason)
				}
			}
			answer.Body.Close()
		}
	}
	t.Logf("FIGURES %d %d", asked, invalid)
}

func ask(method, address, path, form string) (*http.Request, error) {
	values, err := url.ParseQuery(form)
	if err != nil {
		return nil, err
	}
	to := "http://" + address + "/api/v1" + path
	if method == http.MethodGet {
		return http.NewRequest(method, to+"?"+values.Encode(), nil)
	}
	request, err := http.NewRequest(method, to, strings.NewReader(values.Encode()))
	if err == nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return request, err
}

// What the document asks of answers.
func documented(t *testing.T, file string) validator.Validator {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	all, faults := validator.NewValidator(document)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return all
}
