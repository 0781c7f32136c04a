// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/histogram"
)

// number is a float by its bits.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatUint(math.Float64bits(float64(n)), 16))
}

func (n *number) UnmarshalJSON(text []byte) error {
	var bits string
	if err := json.Unmarshal(text, &bits); err != nil {
		return err
	}
	value, err := strconv.ParseUint(bits, 16, 64)
	*n = number(math.Float64frombits(value))
	return err
}

// bucket is its number and its count.
type bucket struct {
	index int32
	count number
}

func (b bucket) MarshalJSON() ([]byte, error) { return json.Marshal([2]any{b.index, b.count}) }
func (b *bucket) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[2]any{&b.index, &b.count})
}

// native is a native histogram as the bridge has it.
type native struct {
	Schema        int32    `json:"schema"`
	Custom        []number `json:"custom"`
	ZeroThreshold number   `json:"zero_threshold"`
	ZeroCount     number   `json:"zero_count"`
	Count         number   `json:"count"`
	Sum           number   `json:"sum"`
	Positive      []bucket `json:"positive"`
	Negative      []bucket `json:"negative"`
	Hint          uint8    `json:"hint"`
}

func nativeOf(of *histogram.FloatHistogram) *native {
	buckets := func(all histogram.BucketIterator[float64]) []bucket {
		own := []bucket{}
		for all.Next() {
			own = append(own, bucket{all.At().Index, number(all.At().Count)})
		}
		return own
	}
	custom := []number{}
	for _, bound := range of.CustomValues {
		custom = append(custom, number(bound))
	}
	return &native{
		of.Schema, custom, number(of.ZeroThreshold), number(of.ZeroCount), number(of.Count), number(of.Sum),
		buckets(of.PositiveBucketIterator()), buckets(of.NegativeBucketIterator()), uint8(of.CounterResetHint),
	}
}

func (n native) histogram() *histogram.FloatHistogram {
	side := func(all []bucket) ([]histogram.Span, []float64) {
		var spans []histogram.Span
		var counts []float64
		next := int32(0)
		for at, one := range all {
			if at == 0 || one.index != next {
				spans = append(spans, histogram.Span{Offset: one.index - next})
			}
			spans[len(spans)-1].Length++
			counts = append(counts, float64(one.count))
			next = one.index + 1
		}
		return spans, counts
	}
	var custom []float64
	for _, bound := range n.Custom {
		custom = append(custom, float64(bound))
	}
	made := &histogram.FloatHistogram{
		CounterResetHint: histogram.CounterResetHint(n.Hint), Schema: n.Schema, CustomValues: custom,
		ZeroThreshold: float64(n.ZeroThreshold), ZeroCount: float64(n.ZeroCount), Count: float64(n.Count), Sum: float64(n.Sum),
	}
	made.PositiveSpans, made.PositiveBuckets = side(n.Positive)
	made.NegativeSpans, made.NegativeBuckets = side(n.Negative)
	return made
}
