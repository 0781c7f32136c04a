// SPDX-License-Identifier: Apache-2.0
//! The words of PromQL that the controller knows (docs/promql.md), with what they take. test/query.test.ts holds the functions together with its own list.

export interface Word {
  name: string;
  /** Its arguments. */
  takes: string;
  help: string;
}

const words = (lines: string): Word[] =>
  lines.trim().split("\n").map((line) => {
    const [name = "", takes = "", help = ""] = line.split("|").map((part) => part.trim());
    return { name, takes, help };
  });

export const FUNCTIONS: readonly Word[] = words(`
abs | v | Absolute value
absent | v | 1 where the vector is empty
absent_over_time | range | 1 where the range has no samples
acos | v | Arc cosine
acosh | v | Inverse hyperbolic cosine
asin | v | Arc sine
asinh | v | Inverse hyperbolic sine
atan | v | Arc tangent
atanh | v | Inverse hyperbolic tangent
avg_over_time | range | Average of the samples
ceil | v | Rounded up
changes | range | How often the value changed
clamp | v, min, max | Limited to min and max
clamp_max | v, max | Limited to max
clamp_min | v, min | Limited to min
cos | v | Cosine
cosh | v | Hyperbolic cosine
count_over_time | range | Number of samples
day_of_month | v? | Day of the month, UTC
day_of_week | v? | Day of the week, 0 is Sunday, UTC
day_of_year | v? | Day of the year, UTC
days_in_month | v? | Days of the month, UTC
deg | v | Radians to degrees
delta | range | Difference between the ends; of gauges
deriv | range | Slope each second, by linear regression; of gauges
exp | v | e to the power
first_over_time | range | The first sample
floor | v | Rounded down
histogram_avg | v | Mean of native histograms
histogram_count | v | Observations of native histograms
histogram_fraction | lower, upper, v | Share of observations between two values
histogram_quantile | q, v | Quantile (0 to 1) of native histograms, or of buckets by le
histogram_stddev | v | Standard deviation of native histograms
histogram_stdvar | v | Variance of native histograms
histogram_sum | v | Sum of the observations of native histograms
hour | v? | Hour, UTC
idelta | range | Difference of the last two samples
increase | range | Growth of a counter over the range
irate | range | Growth each second between the last two samples of a counter
label_join | v, dst, separator, src... | Joins labels into one
label_replace | v, dst, replacement, src, regex | Sets a label by a regular expression on another
last_over_time | range | The last sample
ln | v | Natural logarithm
log10 | v | Decimal logarithm
log2 | v | Binary logarithm
max_over_time | range | Greatest sample
min_over_time | range | Least sample
minute | v? | Minute, UTC
month | v? | Month, UTC
pi | | π
predict_linear | range, seconds | Value in so many seconds, by linear regression; of gauges
present_over_time | range | 1 where the range has samples
quantile_over_time | q, range | Quantile (0 to 1) of the samples
rad | v | Degrees to radians
rate | range | Growth of a counter each second, averaged over the range
resets | range | How often a counter began again
round | v, to? | Rounded, to a multiple
scalar | v | The only sample as a number
sgn | v | Sign: −1, 0, 1
sin | v | Sine
sinh | v | Hyperbolic sine
sort | v | By value, least first
sort_desc | v | By value, greatest first
sqrt | v | Square root
stddev_over_time | range | Standard deviation of the samples
stdvar_over_time | range | Variance of the samples
sum_over_time | range | Sum of the samples
tan | v | Tangent
tanh | v | Hyperbolic tangent
time | | Seconds since 1970 of the step
timestamp | v | When the samples were taken
vector | s | A number as a vector without labels
year | v? | Year, UTC
`);

export const AGGREGATIONS: readonly Word[] = words(`
avg | v | Average of the group
bottomk | k, v | The k least of the group
count | v | Number of series of the group
count_values | label, v | Number of series of each value
group | v | 1 for each group
max | v | Greatest of the group
min | v | Least of the group
quantile | q, v | Quantile (0 to 1) over the group
stddev | v | Standard deviation over the group
stdvar | v | Variance over the group
sum | v | Sum of the group
topk | k, v | The k greatest of the group
`);

/** Before a list of labels in brackets. */
export const GROUPINGS: ReadonlySet<string> = new Set(["by", "without", "on", "ignoring", "group_left", "group_right"]);

export const KEYWORDS: readonly Word[] = words(`
and | | Left, where the right has the same labels
atan2 | | Arc tangent of a quotient
bool | | A comparison gives 0 or 1 and leaves nothing out
by | labels | An aggregation keeps these labels
group_left | labels | Many on the left match one on the right
group_right | labels | One on the left matches many on the right
ignoring | labels | Matches by all labels but these
offset | duration | As it was so long ago
on | labels | Matches by these labels only
or | | Left, and of the right what has other labels
unless | | Left, where the right has no such labels
without | labels | An aggregation drops these labels
`);

export const CALLED: ReadonlySet<string> = new Set([...FUNCTIONS, ...AGGREGATIONS].map(({ name }) => name));
