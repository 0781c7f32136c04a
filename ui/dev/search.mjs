// SPDX-License-Identifier: Apache-2.0
// What the fixture finds: the controller's ranks (crates/controller/src/http/search), series by series, since its fleet is small.

const folded = (text) => text.toLowerCase().replaceAll('"', "");
const wordsOf = (text) => folded(text).split(/[\s,{}]+/).filter((word) => word !== "");

/** How well a word fits a name; Infinity: it does not occur. */
function named(word, name) {
  const own = name.slice(name.indexOf("_") + 1);
  if (name === word) return 0;
  if (name.startsWith(word) || own.startsWith(word)) return 1;
  if (name.split("_").some((part) => part.startsWith(word))) return 3;
  return name.includes(word) ? 6 : Infinity;
}

/** How well all words fit; Infinity: one does not occur. The texts are folded; what the names have is worked out once each. */
function ranks(words) {
  const byName = new Map();
  return (name, text, help) => {
    let fits = byName.get(name);
    if (fits === undefined) byName.set(name, (fits = words.map((word) => named(word, name))));
    return fits.reduce((sum, fit, i) => sum + (fit < Infinity ? fit : text.includes(words[i]) ? 20 : help.includes(words[i]) ? 60 : Infinity), 0);
  };
}

const known = new WeakMap();

/** Folded once: one host has 50,000 series. */
function textsOf(host, item) {
  let texts = known.get(item);
  if (texts === undefined) known.set(item, (texts = [item.name, `${item.series} instance=${host.name}`, item.help].map(folded)));
  return texts;
}

const inOrder = (a, b) => a.rank - b.rank || Number(b.name.startsWith("node_")) - Number(a.name.startsWith("node_")) || a.name.length - b.name.length || (a.name < b.name ? -1 : 1);

/** The series of a host that fit, with the name of the host among the labels. */
function fitting(fleet, host, search, metric = null) {
  const rankOf = ranks(wordsOf(search));
  const all = host.via === null ? [] : fleet.seriesOf(host).filter((item) => metric === null || item.name === metric);
  return all.map((item) => ({ item, rank: rankOf(...textsOf(host, item)), name: item.name })).filter(({ rank }) => rank < Infinity);
}

/** The best first. */
export const seriesOf = (fleet, host, search, metric) => fitting(fleet, host, search, metric).sort(inOrder);

const told = ({ name, address, labels, state }) => ({ name, address, labels, state });

export function find(fleet, hosts, rules, parameters) {
  const [search, limit, of] = [parameters.get("search") ?? "", Number(parameters.get("limit") ?? 50), parameters.get("host")];
  const rankOf = ranks(wordsOf(search));
  const searched = hosts.filter((host) => of === null || host.name === of);
  const metrics = new Map();
  for (const host of searched) {
    for (const { item, rank } of fitting(fleet, host, search)) {
      const before = metrics.get(`${item.type} ${item.name}`) ?? { name: item.name, type: item.type, unit: item.unit, help: item.help, series: 0, rank, names: new Set() };
      before.series++;
      before.rank = Math.min(before.rank, rank);
      before.names.add(host.name);
      metrics.set(`${item.type} ${item.name}`, before);
    }
  }
  const found = [...metrics.values()].sort(inOrder);
  const best = (all, tell) => {
    const found = all.filter(({ rank }) => rank < Infinity).sort(inOrder);
    return { total: found.length, list: found.slice(0, limit).map(({ item }) => tell(item)) };
  };
  const alerting = rules.flatMap((group) => group.rules.filter(({ type }) => type === "alerting").map((item) => ({ item: { ...item, group: group.name }, name: item.name, rank: rankOf(folded(item.name), "", folded(item.query)) })));
  return {
    searched: { hosts: searched.length, series: searched.reduce((sum, host) => sum + (host.via === null ? 0 : fleet.seriesOf(host).length), 0) },
    metrics: { total: found.length, series: found.reduce((sum, one) => sum + one.series, 0), list: found.slice(0, limit).map(({ name, type, unit, help, series, names }) => ({ name, type, unit, help, series, hosts: names.size })) },
    ...(of === null
      ? {
          hosts: best(hosts.map((item) => ({ item, name: item.name, rank: rankOf(folded(item.name), folded(`${item.address} ${Object.entries(item.labels).map((pair) => pair.join("=")).join(" ")}`), "") })), told),
          alerts: best(alerting, ({ name, group }) => ({ name, group, firing: name === "HostSilent" ? 2 : name === "MemoryShort" ? 1 : 0, pending: name === "DiskFull" ? 1 : 0 })),
        }
      : {}),
  };
}

export function hostsOf(fleet, hosts, metric, parameters) {
  const limit = Number(parameters.get("limit") ?? 50);
  const all = hosts.map((host) => ({ ...told(host), series: fitting(fleet, host, parameters.get("search") ?? "", metric).length })).filter(({ series }) => series > 0).sort((a, b) => (a.name < b.name ? -1 : 1));
  return { total: all.length, series: all.reduce((sum, { series }) => sum + series, 0), list: all.slice(0, limit) };
}
