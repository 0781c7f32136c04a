// SPDX-License-Identifier: Apache-2.0
import { afterEach, describe, expect, it, vi } from "vitest";
import { type Series, getRange } from "../src/api";
import { ContractError } from "../src/check";
import { standard } from "../src/charts/standard";
import { disks, disksQuery, interfaces, interfacesQuery, mounts, mountsQuery, tcp, tcpQuery } from "../src/host/devices";
import { CONTAINERS, type Kind, PORTS, PROCESSES, detailsQuery, entities, entityCharts, goneAfter, keysOf, mainOf, matching, rankQuery, ranked, trendQuery } from "../src/host/entities";
import { outline, rates } from "../src/host/spark";
import { Subject, rateWindowMs, span } from "../src/host/subject";
import { counted, trends, trendsQuery, vitals, vitalsQuery } from "../src/host/vitals";
import { type Sample, anyOf, instant, literal, quote, range, together } from "../src/promql";
import { ApiError } from "../src/request";

function series(name: string, labels: Record<string, string> = {}, rest: Partial<Series> = {}): Series {
  const inner = Object.entries(labels).map(([key, value]) => `${key}="${value}"`).join(",");
  return { series: inner === "" ? name : `${name}{${inner}}`, name, labels, type: "gauge", unit: "", help: "", resolution_ms: 0.001, acquisition: "computed", region: "r", value: 1, ...rest };
}
const sample = (name: string, labels: Record<string, string>, value: number): Sample => ({ labels: { __part: name, ...labels }, value });
const NOW = { timeMs: 1_000_000, windowMs: null };

function subject(...all: Series[]): Subject {
  const made = new Subject("web-1");
  made.intervalMs = 10;
  made.learn(all);
  return made;
}

/** Of all metrics that are asked for. */
function everything(): Subject {
  const names = [
    "node_cpu_seconds_total", "node_load1", "node_boot_time_seconds",
    ...["MemTotal", "MemAvailable", "SwapTotal", "SwapFree"].map((part) => `node_memory_${part}_bytes`),
    ...["cpu", "memory", "io"].map((part) => `node_pressure_${part}_waiting_seconds_total`),
    ...["size_bytes", "free_bytes", "avail_bytes", "files", "files_free", "readonly"].map((part) => `node_filesystem_${part}`),
    ...["io_time_seconds_total", "read_bytes_total", "written_bytes_total", "reads_completed_total", "writes_completed_total", "read_time_seconds_total", "write_time_seconds_total", "io_now"].map((part) => `node_disk_${part}`),
    ...["receive", "transmit"].flatMap((way) => ["bytes", "packets", "errs", "drop"].map((part) => `node_network_${way}_${part}_total`)), "node_network_speed_bytes", "node_network_up",
    ...["Tcp_OutSegs", "Tcp_RetransSegs", "TcpExt_TCPTimeouts", "TcpExt_ListenDrops", "TcpExt_ListenOverflows", "Tcp_OutRsts", "Tcp_ActiveOpens", "Tcp_PassiveOpens", "Tcp_CurrEstab"].map((part) => `node_netstat_${part}`),
    "node_tcp_connection_states", "onlooker_responder_packets_total",
    ...[PROCESSES, CONTAINERS, PORTS].flatMap(({ measures }) => measures.map(({ metric }) => metric)),
  ];
  return subject(...names.map((name) => series(name, { device: "sda", cpu: "0", pid: "1", name: "a", cgroup: "1", port: "80" })));
}

/** What the controller's parser counts: it refuses more than 200 (docs/promql.md). */
function signs(query: string): number {
  const bare = query.replace(/"(?:[^"\\]|\\.)*"/g, "");
  return [...bare.replace(/\{[^}]*/g, "{").matchAll(/[(){}[\]]|\bor\b/g)].length;
}

describe("PromQL texts", () => {
  it("quote what labels and filters hold", () => {
    expect(quote('a"b\\c\nd')).toBe('"a\\"b\\\\c\\nd"');
    expect(literal("kworker/0:1 (x)+")).toBe("kworker/0:1 \\(x\\)\\+");
    expect(anyOf("pid", ["1"])).toBe('pid="1"');
    expect(anyOf("name", ["a.b", "c"])).toBe('name=~"a\\\\.b|c"');
    expect(together({ a: "x", b: "y" })).toBe('label_replace(x, "__part", "a", "", "") or label_replace(y, "__part", "b", "", "")');
  });

  it("are within the controller's limits, whatever a host has", () => {
    const all = everything();
    const many = Array.from({ length: 200 }, (_, i) => `a-name-of-16-${i}`.slice(0, 16));
    const queries = [vitalsQuery(all, NOW), trendsQuery(all), mountsQuery(all, NOW), disksQuery(all, NOW), interfacesQuery(all, NOW), tcpQuery(all, NOW)];
    for (const kind of [PROCESSES, CONTAINERS, PORTS]) queries.push(rankQuery(kind, all, NOW, { id: "cpu", descending: true }, 200, []), detailsQuery(kind, all, NOW, [anyOf("name", many)]), trendQuery(kind, all, NOW, "name", many));
    for (const query of queries) {
      expect(signs(query), query).toBeLessThanOrEqual(200);
      expect(encodeURIComponent(query).length).toBeLessThan(64 << 10);
      // Every label_replace has its columns, and every bracket its other half.
      expect(query.split("(").length).toBe(query.split(")").length);
    }
  });
});

describe("PromQL answers", () => {
  const answers = (status: number, body: unknown) => {
    const fetched = vi.fn(() => Promise.resolve(new Response(JSON.stringify(body), { status })));
    vi.stubGlobal("fetch", fetched);
    return fetched;
  };
  const signal = new AbortController().signal;
  afterEach(() => vi.unstubAllGlobals());

  it("are vectors and matrices", async () => {
    const fetched = answers(200, { status: "success", data: { resultType: "vector", result: [{ metric: { a: "1" }, value: [5, "0.5"] }, { metric: {}, value: [5, "+Inf"] }, { metric: {}, value: [5, "NaN"] }] } });
    expect((await instant("up", 1500, signal)).map(({ value }) => value)).toEqual([0.5, Infinity, NaN]);
    const [path, sent] = fetched.mock.calls[0] as unknown as [string, RequestInit];
    expect([path, sent.method, String(sent.body as URLSearchParams)]).toEqual(["api/v1/query", "POST", "query=up&time=1.5"]);
    answers(200, { status: "success", data: { resultType: "matrix", result: [{ metric: { a: "1" }, values: [[1, "2"], [2, "-Inf"]] }] } });
    expect(await range("up", { fromMs: 1000, toMs: 2000, stepMs: 1000 }, signal)).toEqual([{ labels: { a: "1" }, t_ms: [1000, 2000], values: [2, -Infinity] }]);
  });

  it("leave out series of which the store has nothing", async () => {
    answers(200, { bucket_ms: 0, series: [{ series: "a", type: null, t_ms: [] }, { series: "b", type: "gauge", t_ms: [1], last: [2] }], gaps: [] });
    const { series } = await getRange("h", ["a", "b"], { from_ms: 0, to_ms: 1, points: 10 });
    expect(series.map((item) => item.series)).toEqual(["b"]);
  });

  it("say why there are none, in Prometheus' words", async () => {
    answers(422, { status: "error", errorType: "execution", error: "too many series" });
    await expect(instant("up", 0, signal)).rejects.toEqual(new ApiError(422, "too many series"));
    answers(200, { status: "success", data: { resultType: "vector", result: [{ metric: {}, value: "5" }] } });
    await expect(instant("up", 0, signal)).rejects.toThrow(ContractError);
  });
});

describe("rates", () => {
  it("are over a time in which values have moved, and which costs little to read", () => {
    expect([rateWindowMs(null, 10, 0.001), rateWindowMs(null, 10, 5000), rateWindowMs(null, 10_000, 0), rateWindowMs(60_000, 10, 4)]).toEqual([5000, 15_000, 30_000, 60_000]);
    // An hour of a host that is read every 10 ms has 360,000 rows; one of a table 720.
    expect([rateWindowMs(3_600_000, 10, 0.001), rateWindowMs(3_600_000, 10, 5000)]).toEqual([300_000, 3_600_000]);
    expect([span(5000), span(1500)]).toEqual(["5s", "1500ms"]);
    const made = subject(series("x", { a: "1" }, { resolution_ms: 100 }), series("x", { a: "2" }, { resolution_ms: 5000 }));
    expect(made.rate("x", NOW, 'b="3"')).toBe('rate(x{instance="web-1",b="3"}[15s])');
  });

  it("of what was looked at now and then have no value where a counter began again", () => {
    expect(rates({ t_ms: [0, 1000, 2000, 4000], values: [10, 15, 3, 7] })).toEqual({ t_ms: [1000, 2000, 4000], values: [5, NaN, 2] });
    expect(outline({ t_ms: [0, 50, 100], values: [0, NaN, 2] }, 0, 100, 2)).toBe("M0.0 17.0M80.0 1.0");
  });
});

describe("vitals", () => {
  it("count what several devices count once", () => {
    expect(counted(["lo", "eth0", "eth0.7", "docker0", "veth1", "bond0"], /^(lo$|veth|docker|bond)|\./)).toEqual(["eth0"]);
    expect(counted(["lo", "veth1"], /^(lo$|veth)/)).toEqual(["veth1"]);
  });

  it("follow from one answer, and are not known where the host says nothing", () => {
    const all = [
      sample("cores", {}, 8), sample("cpu", {}, 2), sample("load", {}, 4), sample("memory", {}, 100), sample("available", {}, 25), sample("psiCpu", {}, 0.1), sample("boot", {}, 7),
      sample("size", { mountpoint: "/", device: "/dev/a", fstype: "ext4" }, 100), sample("free", { mountpoint: "/", device: "/dev/a" }, 20), sample("avail", { mountpoint: "/", device: "/dev/a" }, 0),
      sample("size", { mountpoint: "/snap", device: "/dev/loop0", fstype: "squashfs" }, 5), sample("free", { mountpoint: "/snap", device: "/dev/loop0" }, 0), sample("avail", { mountpoint: "/snap", device: "/dev/loop0" }, 0),
    ];
    const found = vitals(all, subject(), NOW);
    expect(found).toMatchObject({ cores: 8, usedCores: 2, load1: 4, memory: { total: 100, used: 75 }, swap: null, pressure: { cpu: 0.1, memory: null }, bootMs: 7000, network: { in: null } });
    expect(found.fullest).toMatchObject({ mountpoint: "/", share: 1, available: 0 });
  });

  it("have trends that add up", () => {
    const line = (name: string, values: number[]) => ({ labels: { __part: name }, t_ms: [0, 1000, 2000], values });
    const found = trends([line("in", [0, 10, 30]), line("out", [0, 1, 2]), line("available", [6, 5, 4]), line("psiCpu", [0, 0.5, 0.6]), line("psiIo", [0, 0.1, 0.9])], 10);
    expect([found.network?.values, found.memory?.values, found.cpu]).toEqual([[11, 21], [4, 5, 6], null]);
    expect(found.pressure?.values.map((value) => Number(value.toFixed(6)))).toEqual([0.5, 0.8]);
  });
});

describe("devices", () => {
  it("are one file system, however often it is mounted, full as df has it", () => {
    const at = (mountpoint: string, device: string) => (name: string, value: number) => sample(name, { mountpoint, device, fstype: "ext4" }, value);
    const of = (put: (name: string, value: number) => Sample): Sample[] => [put("size", 1000), put("free", 150), put("avail", 100), put("files", 10), put("filesFree", 4)];
    const [root, ...others] = mounts([...of(at("/srv/chroot", "/dev/a")), ...of(at("/", "/dev/a")), ...of(at("/run", "tmpfs")), ...of(at("/tmp", "tmpfs"))]);
    expect(root).toMatchObject({ mountpoint: "/", others: ["/srv/chroot"], used: 850, available: 100, share: 850 / 950, inodes: 0.6 });
    expect(others.map(({ mountpoint }) => mountpoint)).toEqual(["/run", "/tmp"]);
  });

  it("have a latency only with requests, errors of both directions, and a load only with a speed", () => {
    const [busy, idle] = disks([sample("reads", { device: "a" }, 3), sample("writes", { device: "a" }, 1), sample("readTime", { device: "a" }, 0.3), sample("writeTime", { device: "a" }, 0.1), sample("reads", { device: "b" }, 0), sample("writes", { device: "b" }, 0)]);
    expect([busy!.wait, idle!.wait, busy!.queue]).toEqual([expect.closeTo(0.1), null, NaN]);
    // What each core counts is added up.
    const [eth] = interfaces([sample("in", { device: "eth0", cpu: "0" }, 1), sample("in", { device: "eth0", cpu: "1" }, 2), sample("inErrors", { device: "eth0" }, 1), sample("outErrors", { device: "eth0" }, 2), sample("speed", { device: "eth0" }, -125_000)]);
    expect(eth).toMatchObject({ in: 3, errors: 3, speed: null, isUp: null });
  });

  it("send again a share of what TCP sends", () => {
    expect(tcp([sample("sent", {}, 200), sample("again", {}, 1), sample("established", {}, 7)])).toMatchObject({ again: 0.005, states: [["established", 7]], drops: null, reading: null });
    expect(tcp([sample("sent", {}, 0), sample("again", {}, 0), sample("states", { state: "time_wait" }, 2), sample("states", { state: "listen" }, 0), sample("states", { state: "rx_queued_bytes" }, 9), sample("reading", { cpu: "0" }, 3), sample("reading", { cpu: "1" }, 4)])).toMatchObject({ again: null, states: [["time wait", 2]], reading: 7 });
  });
});

describe("processes and the like", () => {
  const single = subject(series("onlooker_process_resident_bytes", { instance: "web-1", name: "a", pid: "1" }, { resolution_ms: 5000 }), series("onlooker_process_cpu_seconds_total", { name: "a", pid: "1", mode: "user" }, { resolution_ms: 5000 }));
  const byName = subject(series("onlooker_process_resident_bytes", { name: "a" }));

  it("are ranked by the controller, by what is sorted by", () => {
    expect([keysOf(PROCESSES, single), keysOf(PROCESSES, byName)]).toEqual([["pid", "name"], ["name"]]);
    const query = rankQuery(PROCESSES, single, NOW, { id: "cpu", descending: true }, 20, ['name=~"x"']);
    expect(query).toContain('topk(20, sum by (pid, name) (rate(onlooker_process_cpu_seconds_total{instance="web-1",name=~"x"}[15s])))');
    const all = 'onlooker_process_resident_bytes{instance="web-1",name=~"x"}';
    expect(query).toContain(`count(${all} and (time() - timestamp(${all}) < 20))`);
    expect(rankQuery(PROCESSES, single, NOW, { id: "memory", descending: false }, 20, [])).toContain("bottomk(20, onlooker_process_resident_bytes");
    const of = (name: string, pid: string): Sample => sample(name, { pid, name: "a" }, 1);
    const { total, first } = ranked([of("fill", "7"), of("fill", "3"), of("rank", "3"), of("rank", "9"), sample("total", {}, 40)], ["pid", "name"], 3);
    expect([total, first.map(mainOf)]).toEqual([40, ["3", "9", "7"]]);
    expect(ranked([], ["pid"], 3)).toEqual({ total: 0, first: [] });
  });

  it("are filtered by name, or by pid where there is one", () => {
    const words = (kind: Kind, keys: string[], text: string) => matching(kind, keys, text);
    expect([words(PROCESSES, ["pid", "name"], ""), words(PROCESSES, ["pid", "name"], "43"), words(PROCESSES, ["name"], "43"), words(PROCESSES, ["pid", "name"], "a+")]).toEqual([[], ['pid=~"43.*"'], ['name=~"(?i).*43.*"'], ['name=~"(?i).*a\\\\+.*"']]);
  });

  it("have a row while they are heard of, and the text of an info", () => {
    const of = (pid: string, age: number): Sample[] => [sample("cpu", { pid, name: "a" }, 0.5), sample("memory", { pid, name: "a", instance: "web-1" }, 7), sample("age", { pid, name: "a" }, age)];
    const rows = entities([...of("1", 9), ...of("2", 30), sample("cpu", { pid: "3", name: "a" }, 0.1)], ["pid", "name"], goneAfter(PROCESSES, single));
    expect(rows.map(({ labels, values }) => [labels, [...values]])).toEqual([[{ pid: "1", name: "a" }, [["cpu", 0.5], ["memory", 7], ["age", 9]]]]);
    const [group] = entities([sample("path", { cgroup: "5", name: "x", value: "/a/x" }, 1), sample("age", { cgroup: "5", name: "x" }, 1)], ["cgroup", "name"], 20);
    expect(group!.labels).toEqual({ cgroup: "5", name: "x", path: "/a/x" });
  });

  it("open charts of their own series", () => {
    const entity = { key: "1\u0000a", labels: { pid: "1", name: "a" }, values: new Map<string, number>() };
    const all = ["user", "system"].map((mode) => series("onlooker_process_cpu_seconds_total", { name: "a", pid: "1", mode }, { type: "counter" }));
    const other = series("onlooker_process_resident_bytes", { name: "a", pid: "12" });
    const specs = entityCharts(PROCESSES, entity, [...all, other]);
    expect(specs.map(({ title, kind, unit, detail, lines }) => [title, kind, unit, detail, lines.map(({ label }) => label)])).toEqual([["CPU", "stack", "cores", "pid=1 · name=a", ["user", "system"]]]);
  });
});

describe("standard charts of sections", () => {
  it("show file systems once, and of what users may have", () => {
    const of = (part: string, mountpoint: string, device = "/dev/a"): Series => series(`node_filesystem_${part}_bytes`, { device, mountpoint });
    const { disks: specs } = standard(["/srv", "/", "/run"].flatMap((mount) => ["size", "free", "avail"].map((part) => of(part, mount, mount === "/run" ? "tmpfs" : "/dev/a"))));
    expect(specs.map(({ id, lines }) => [id, lines.map(({ label }) => label)])).toEqual([["filesystems", ["/"]]]);
    expect(specs[0]!.lines[0]!.combine!([1000, 150, 100])).toBeCloseTo(850 / 950);
  });

  it("have a latency of 0 without I/O, pressure as shares, swap where there is some", () => {
    const parts = ["read_time_seconds", "write_time_seconds", "reads_completed", "writes_completed"].map((part) => series(`node_disk_${part}_total`, { device: "a" }, { type: "counter" }));
    const latency = standard(parts).disks.find(({ id }) => id === "disk-latency")!;
    expect([latency.lines[0]!.combine!([0.2, 0.1, 2, 1]), latency.lines[0]!.combine!([0, 0, 0, 0])]).toEqual([expect.closeTo(0.1), 0]);
    const { scheduler, memory } = standard([series("node_pressure_io_waiting_seconds_total", {}, { type: "counter", unit: "seconds" }), series("node_memory_SwapTotal_bytes", {}, { value: 0 }), series("node_memory_SwapFree_bytes", {}, { value: 0 })]);
    expect(scheduler.map(({ id, unit }) => [id, unit])).toEqual([["pressure-waiting", "share"]]);
    expect(memory).toEqual([]);
    expect(standard([series("node_memory_SwapTotal_bytes", {}, { value: 9 }), series("node_memory_SwapFree_bytes")]).memory.map(({ id }) => id)).toEqual(["swap"]);
  });
});
