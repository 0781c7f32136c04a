// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// column is a series that each made-up host has: crates/bench/src/query.rs says what its samples are.
type column struct {
	name      string
	labels    map[string]string
	isCounter bool
	step      uint64
	scale     float64
}

// made are made-up hosts: some samples of each column.
type made struct {
	columns        []column
	hosts, samples int
	// UTC ms, and ms from one sample to the next.
	from, interval int64
}

func newMade(arguments []string) (*made, error) {
	columns, err := readColumns(arguments[0])
	if err != nil {
		return nil, err
	}
	numbers := [4]int64{}
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(arguments[i+1], 10, 64); err != nil {
			return nil, err
		}
	}
	return &made{columns: columns, hosts: int(numbers[0]), from: numbers[1] * 1000, samples: int(numbers[2] * 1000 / numbers[3]), interval: numbers[3]}, nil
}

func readColumns(path string) ([]column, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var columns []column
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			return nil, fmt.Errorf("%s: %q is no column", path, lines.Text())
		}
		one := column{name: fields[0], isCounter: fields[1] == "counter", labels: map[string]string{}}
		if one.step, err = strconv.ParseUint(fields[2], 10, 64); err != nil {
			return nil, err
		}
		if one.scale, err = strconv.ParseFloat(fields[3], 64); err != nil {
			return nil, err
		}
		for _, label := range fields[4:] {
			name, value, _ := strings.Cut(label, "=")
			one.labels[name] = value
		}
		columns = append(columns, one)
	}
	return columns, nil
}

// mix is a number that looks like chance.
func mix(a uint64) uint64 {
	a *= 0x9e3779b97f4a7c15
	return ((a ^ a>>29) * 0xbf58476d1ce4e5b9) >> 20
}

func (m *made) value(host, number, sample int) float64 {
	one := &m.columns[number]
	of := uint64(host)<<8 | uint64(number)
	if one.isCounter {
		return float64((uint64(sample)+1)*one.step+mix(of<<32|uint64(sample))%one.step) * one.scale
	}
	return float64(one.step+mix(of<<32|uint64(sample/5))%one.step) * one.scale
}

func (m *made) timeMs(sample int) int64 {
	return m.from + int64(sample)*m.interval
}

func (m *made) labelsOf(host, number int) labels.Labels {
	all := map[string]string{labels.MetricName: m.columns[number].name, "instance": fmt.Sprintf("host-%d", host)}
	for name, value := range m.columns[number].labels {
		all[name] = value
	}
	return labels.FromMap(all)
}
