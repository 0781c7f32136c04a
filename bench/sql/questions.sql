-- Questions to cold files, as an SRE has them. Each begins with its number and what is asked. What the two dialects write differently stands as $name(..) and
-- is put in by ask.py: acquired_ns ns since 1970, $label(x) a label, $idiv(a, b) a whole division, $double(x) a float, $last(x) and $first(x) by time,
-- $before(x) what the same series had before. Where PromQL can say the same, it stands between: crates/bench/src/sql/promql.rs says how, at 1764000600 s, the end.

-- 01 samples of each metric
SELECT metric, count(*) FROM samples WHERE type <> 'histogram' GROUP BY metric ORDER BY metric;

-- 02 series of each host
-- promql instance, $whole = count by (instance) (last_over_time({__name__!="",__name__!~"app_request_seconds.*"}[10m]))
SELECT instance, count(DISTINCT metric || labels) FROM samples WHERE type <> 'histogram' GROUP BY instance ORDER BY instance;

-- 03 free memory at the end
-- promql instance, $float = last_over_time(node_memory_MemFree_bytes[10m])
SELECT instance, $last(value) FROM samples WHERE metric = 'node_memory_MemFree_bytes' GROUP BY instance ORDER BY instance;

-- 04 least and largest load
-- promql instance, $float = min_over_time(node_load1[10m])
-- promql $float = max_over_time(node_load1[10m])
SELECT instance, min(value), max(value) FROM samples WHERE metric = 'node_load1' GROUP BY instance ORDER BY instance;

-- 05 least and largest free memory of a host in each minute
-- promql $minute, $float = min_over_time(node_memory_MemFree_bytes{instance="web-1"}[1m])
-- promql $float = max_over_time(node_memory_MemFree_bytes{instance="web-1"}[1m])
SELECT $idiv(acquired_ns, 60000000000) AS minute, min(value), max(value) FROM samples
WHERE metric = 'node_memory_MemFree_bytes' AND instance = 'web-1' GROUP BY minute ORDER BY minute;

-- 06 mean free memory
-- promql instance, $float = avg_over_time(node_memory_MemFree_bytes[10m])
SELECT instance, $double(sum(int_value)) / count(*) / max(divisor) * max(multiplier) FROM samples
WHERE metric = 'node_memory_MemFree_bytes' GROUP BY instance ORDER BY instance;

-- 07 CPU seconds of a host by CPU and mode
SELECT $label(cpu) AS cpu, $label(mode) AS mode, $double(max(int_value) - min(int_value)) / max(divisor) FROM samples
WHERE metric = 'node_cpu_seconds_total' AND instance = 'web-1' GROUP BY cpu, mode ORDER BY cpu, mode;

-- 08 bytes received, over the restart of a host
-- promql instance, device, $whole = increase(node_network_receive_bytes_total[10m] anchored)
WITH steps AS (
  SELECT instance, $label(device) AS device, int_value, int_value - $before(int_value) AS step FROM samples
  WHERE metric = 'node_network_receive_bytes_total')
SELECT instance, device, sum(CASE WHEN step < 0 THEN int_value ELSE step END) FROM steps
WHERE step IS NOT NULL GROUP BY instance, device ORDER BY instance, device;

-- 09 bytes received a second by a device in each minute
-- promql $minute, $float = rate(node_network_receive_bytes_total{instance="web-1",device="eth0"}[1m] anchored)
WITH steps AS (
  SELECT $idiv(acquired_ns, 60000000000) AS minute, int_value - $before(int_value) AS step FROM samples
  WHERE metric = 'node_network_receive_bytes_total' AND instance = 'web-1' AND $label(device) = 'eth0')
SELECT minute, $double(sum(step)) / 60 FROM steps WHERE step IS NOT NULL GROUP BY minute ORDER BY minute;

-- 10 CPU seconds of users over all CPUs
WITH used AS (
  SELECT instance, labels, max(int_value) - min(int_value) AS used, max(divisor) AS divisor FROM samples
  WHERE metric = 'node_cpu_seconds_total' AND $label(mode) = 'user' GROUP BY instance, labels)
SELECT instance, $double(sum(used)) / max(divisor) FROM used GROUP BY instance ORDER BY instance;

-- 11 how busy the hosts were
WITH used AS (
  SELECT instance, $label(mode) AS mode, labels, max(int_value) - min(int_value) AS used FROM samples
  WHERE metric = 'node_cpu_seconds_total' GROUP BY instance, mode, labels)
SELECT instance, 1 - $double(sum(CASE WHEN mode = 'idle' THEN used ELSE 0 END)) / $double(sum(used)) FROM used
GROUP BY instance ORDER BY instance;

-- 12 the three devices that received most
-- promql instance, device, $whole = sort_desc(topk(3, increase(node_network_receive_bytes_total[10m] anchored)))
WITH steps AS (
  SELECT instance, $label(device) AS device, int_value, int_value - $before(int_value) AS step FROM samples
  WHERE metric = 'node_network_receive_bytes_total')
SELECT instance, device, sum(CASE WHEN step < 0 THEN int_value ELSE step END) AS bytes FROM steps
WHERE step IS NOT NULL GROUP BY instance, device ORDER BY bytes DESC, instance, device LIMIT 3;

-- 13 what free memory was below in 95 of 100 samples
WITH ranked AS (
  SELECT instance, value, row_number() OVER (PARTITION BY instance ORDER BY value) AS place,
    count(*) OVER (PARTITION BY instance) AS n
  FROM samples WHERE metric = 'node_memory_MemFree_bytes')
SELECT instance, value FROM ranked WHERE place = $idiv(95 * n + 99, 100) ORDER BY instance;

-- 14 median load of all hosts
WITH ranked AS (
  SELECT value, row_number() OVER (ORDER BY value) AS place, count(*) OVER () AS n FROM samples
  WHERE metric = 'node_load1')
SELECT value FROM ranked WHERE place = $idiv(n + 1, 2);

-- 15 times without samples, by reason
SELECT instance, reason, count(*), sum($ns(to_time) - $ns(from_time) + 1) FROM gaps
GROUP BY instance, reason ORDER BY instance, reason;

-- 16 which hosts were not read at a time
SELECT instance, reason FROM gaps
WHERE $ns(from_time) <= 1764000065000000000 AND $ns(to_time) >= 1764000065000000000 ORDER BY instance;

-- 17 share of the seconds of which there is a sample
-- promql instance, $float = count_over_time(node_load1[10m]) / 600
SELECT instance, $double(count(*)) / 600 FROM samples WHERE metric = 'node_load1' GROUP BY instance ORDER BY instance;

-- 18 minutes in which one host had less free memory than another
-- promql $minute, $float = min_over_time(node_memory_MemFree_bytes{instance="db-1"}[1m]) < on () min_over_time(node_memory_MemFree_bytes{instance="web-1"}[1m])
-- promql $float = min_over_time(node_memory_MemFree_bytes{instance="web-1"}[1m]) > on () min_over_time(node_memory_MemFree_bytes{instance="db-1"}[1m])
WITH least AS (
  SELECT instance, $idiv(acquired_ns, 60000000000) AS minute, min(value) AS least FROM samples
  WHERE metric = 'node_memory_MemFree_bytes' GROUP BY instance, minute)
SELECT a.minute, a.least, b.least FROM least AS a JOIN least AS b ON a.minute = b.minute
WHERE a.instance = 'db-1' AND b.instance = 'web-1' AND a.least < b.least ORDER BY a.minute;

-- 19 share of memory that was free at the end
-- promql instance, $float = last_over_time(node_memory_MemFree_bytes[10m]) / on (instance) last_over_time(node_memory_MemTotal_bytes[10m])
WITH
  free AS (SELECT instance, $last(value) AS bytes FROM samples WHERE metric = 'node_memory_MemFree_bytes' GROUP BY instance),
  total AS (SELECT instance, $last(value) AS bytes FROM samples WHERE metric = 'node_memory_MemTotal_bytes' GROUP BY instance)
SELECT free.instance, free.bytes / total.bytes FROM free JOIN total ON free.instance = total.instance ORDER BY free.instance;

-- 20 requests so far, by path
-- promql instance, path, $whole = last_over_time(app_request_seconds_count[10m])
WITH counts AS (
  SELECT instance, $label(path) AS path, low, $last(int_value) AS n FROM samples
  WHERE metric = 'app_request_seconds_bucket' GROUP BY instance, path, low)
SELECT instance, path, sum(n) FROM counts GROUP BY instance, path ORDER BY instance, path;

-- 21 how long 99 of 100 requests took at most, by host
WITH
  counts AS (
    SELECT instance, labels, low, high, $last(int_value) AS n FROM samples
    WHERE metric = 'app_request_seconds_bucket' GROUP BY instance, labels, low, high),
  buckets AS (SELECT instance, low, high, sum(n) AS n FROM counts GROUP BY instance, low, high),
  below AS (
    SELECT instance, high, sum(n) OVER (PARTITION BY instance ORDER BY low) AS below,
      sum(n) OVER (PARTITION BY instance) AS total
    FROM buckets)
SELECT instance, min(high) FROM below WHERE below * 100 >= total * 99 GROUP BY instance ORDER BY instance;

-- 22 the same of all hosts in the second half of the time
WITH
  counts AS (
    SELECT instance, labels, low, high, max(int_value) - min(int_value) AS n FROM samples
    WHERE metric = 'app_request_seconds_bucket' AND acquired_ns >= 1764000300000000000 GROUP BY instance, labels, low, high),
  buckets AS (SELECT low, high, sum(n) AS n FROM counts GROUP BY low, high),
  below AS (SELECT high, sum(n) OVER (ORDER BY low) AS below, sum(n) OVER () AS total FROM buckets)
SELECT min(high), max(total) FROM below WHERE below * 100 >= total * 99;

-- 23 mean time of a request in the second half
WITH
  counts AS (
    SELECT instance, labels, low, max(int_value) - min(int_value) AS n FROM samples
    WHERE metric = 'app_request_seconds_bucket' AND acquired_ns >= 1764000300000000000 GROUP BY instance, labels, low),
  requests AS (SELECT instance, sum(n) AS n FROM counts GROUP BY instance),
  sums AS (
    SELECT instance, labels, max(int_value) - min(int_value) AS sum, max(divisor) AS divisor FROM samples
    WHERE metric = 'app_request_seconds_sum' AND acquired_ns >= 1764000300000000000 GROUP BY instance, labels),
  seconds AS (SELECT instance, $double(sum(sum)) / max(divisor) AS seconds FROM sums GROUP BY instance)
SELECT requests.instance, seconds / $double(n) FROM requests JOIN seconds ON requests.instance = seconds.instance
ORDER BY requests.instance;

-- 24 which release runs where
-- promql instance, value, $whole = count_over_time(node_uname_info[10m])
-- promql $float = sum_over_time(node_uname_info[10m])
SELECT instance, $label(value) AS release, count(*), sum(value) FROM samples WHERE metric = 'node_uname_info'
GROUP BY instance, release ORDER BY instance, release;

-- 25 limits that are none
SELECT instance, $label(cgroup) AS cgroup, count(*), max(value) FROM samples
WHERE metric = 'cgroup_memory_limit_bytes' AND word = 18446744073709551615 GROUP BY instance, cgroup ORDER BY instance;

-- 26 below zero
SELECT instance, count(*), min(value) FROM samples WHERE metric = 'app_temperature_celsius' AND value < 0
GROUP BY instance ORDER BY instance;

-- 27 hit ratio at the beginning and at the end
-- promql instance, program, $float = last_over_time(app_hit_ratio[1s] @ 1764000001)
-- promql $float = last_over_time(app_hit_ratio[10m])
SELECT instance, $label(program) AS program, $first(value), $last(value) FROM samples WHERE metric = 'app_hit_ratio'
GROUP BY instance, program ORDER BY instance;

-- 28 which metrics there are
SELECT DISTINCT metric, type, unit FROM samples ORDER BY metric;

-- 29 longest time between two samples
WITH steps AS (
  SELECT instance, acquired_ns - $before(acquired_ns) AS step FROM samples WHERE metric = 'node_load1')
SELECT instance, max(step) FROM steps WHERE step IS NOT NULL GROUP BY instance ORDER BY instance;

-- 30 when free memory was least
WITH least AS (
  SELECT instance, min(value) AS least FROM samples WHERE metric = 'node_memory_MemFree_bytes' GROUP BY instance)
SELECT samples.instance, min(samples.acquired_ns) FROM samples JOIN least ON samples.instance = least.instance
WHERE samples.metric = 'node_memory_MemFree_bytes' AND samples.value = least.least
GROUP BY samples.instance ORDER BY samples.instance;

-- 31 how often the load changed
-- promql instance, $whole = changes(node_load1[10m])
WITH steps AS (SELECT instance, value, $before(value) AS earlier FROM samples WHERE metric = 'node_load1')
SELECT instance, count(*) FROM steps WHERE earlier IS NOT NULL AND value <> earlier GROUP BY instance ORDER BY instance;

-- 32 bytes that all hosts have received, by device
-- promql device, $whole = sum by (device) (last_over_time(node_network_receive_bytes_total[10m]))
WITH lasts AS (
  SELECT instance, $label(device) AS device, $last(int_value) AS bytes FROM samples
  WHERE metric = 'node_network_receive_bytes_total' GROUP BY instance, device)
SELECT device, sum(bytes) FROM lasts GROUP BY device ORDER BY device;

-- 33 load and free memory that were read together
SELECT a.instance, count(*), max(CASE WHEN a.value > 3 THEN b.value ELSE 0 END) FROM samples AS a
JOIN samples AS b ON a.instance = b.instance AND a.time = b.time
WHERE a.metric = 'node_load1' AND b.metric = 'node_memory_MemFree_bytes' GROUP BY a.instance ORDER BY a.instance;

-- 34 every sample that is a number
-- promql __name__, instance, $labels, $time, $float = {__name__!="",__name__!~"app_request_seconds.*"}[10m]
SELECT metric, instance, labels, acquired_ns, value FROM samples WHERE type <> 'histogram'
ORDER BY metric, instance, labels, acquired_ns;

-- 35 CPU seconds, as a difference of seconds
-- promql instance, cpu, mode, $float = increase(node_cpu_seconds_total[10m] anchored)
SELECT instance, $label(cpu) AS cpu, $label(mode) AS mode, max(value) - min(value) FROM samples
WHERE metric = 'node_cpu_seconds_total' GROUP BY instance, cpu, mode ORDER BY instance, cpu, mode;

-- 36 bytes received a second, by the last two samples
-- promql instance, device, $float = irate(node_network_receive_bytes_total[1m])
WITH
  steps AS (
    SELECT instance, $label(device) AS device, time, int_value - $before(int_value) AS step, acquired_ns - $before(acquired_ns) AS ns
    FROM samples WHERE metric = 'node_network_receive_bytes_total'),
  lasts AS (SELECT instance, device, $last(step) AS up, $last(ns) AS up_ns FROM steps WHERE step IS NOT NULL GROUP BY instance, device)
SELECT instance, device, $double(up) / ($double($idiv(up_ns, 1000000000)) + $double(up_ns % 1000000000) / 1e9) FROM lasts
ORDER BY instance, device;

-- 37 the same by the last minute, extended to its ends as Prometheus does it
-- promql instance, device, $float = rate(node_network_receive_bytes_total[1m])
WITH
  ends AS (
    SELECT instance, $label(device) AS device, count(*) AS n, $double(min(int_value)) AS begun, $double(max(int_value) - min(int_value)) AS up,
      min(acquired_ns) - 1764000540000000000 AS before_ns, max(acquired_ns) - min(acquired_ns) AS sampled_ns,
      1764000600000000000 - max(acquired_ns) AS after_ns
    FROM samples WHERE metric = 'node_network_receive_bytes_total' AND acquired_ns > 1764000540000000000 GROUP BY instance, device),
  seconds AS (
    SELECT instance, device, n, begun, up,
      $double($idiv(before_ns, 1000000000)) + $double(before_ns % 1000000000) / 1e9 AS to_start,
      $double($idiv(sampled_ns, 1000000000)) + $double(sampled_ns % 1000000000) / 1e9 AS sampled,
      $double($idiv(after_ns, 1000000000)) + $double(after_ns % 1000000000) / 1e9 AS to_end
    FROM ends),
  near AS (
    SELECT instance, device, up, sampled, begun, CASE WHEN to_start >= sampled / $double(n - 1) * 1.1 THEN sampled / $double(n - 1) / 2 ELSE to_start END AS to_start,
      CASE WHEN to_end >= sampled / $double(n - 1) * 1.1 THEN sampled / $double(n - 1) / 2 ELSE to_end END AS to_end
    FROM seconds)
SELECT instance, device, up * ((sampled + least(to_start, sampled * (begun / up)) + to_end) / sampled / 60) FROM near
ORDER BY instance, device;

-- 38 requests that took 65 ms at most
-- promql instance, path, $whole = last_over_time(app_request_seconds_bucket{le="0.065535"}[10m])
WITH counts AS (
  SELECT instance, $label(path) AS path, low, $last(int_value) AS n FROM samples
  WHERE metric = 'app_request_seconds_bucket' AND high <= 0.065535 GROUP BY instance, path, low)
SELECT instance, path, sum(n) FROM counts GROUP BY instance, path ORDER BY instance, path;

-- 39 which hosts were there at a time, one of them silent for less than 5 s
-- promql instance, $float = node_load1 @ 1764000063
SELECT instance, $last(value) FROM samples
WHERE metric = 'node_load1' AND acquired_ns > 1764000058000000000 AND acquired_ns <= 1764000063000000000
GROUP BY instance ORDER BY instance;

-- 40 and one of them for longer
-- promql instance, $float = node_load1 @ 1764000066
SELECT instance, $last(value) FROM samples
WHERE metric = 'node_load1' AND acquired_ns > 1764000061000000000 AND acquired_ns <= 1764000066000000000
GROUP BY instance ORDER BY instance;
