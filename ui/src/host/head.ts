// SPDX-License-Identifier: Apache-2.0
//! The head of a host's page: name, state, alerts and what the machine is; and how it is read.

import { nameOf, ofHost, showAlertState, summaryOf } from "../alerts";
import type { HostDetail } from "../api";
import { now } from "../clock";
import { h, setClass, setHidden, setText } from "../dom";
import { age, bytes, count, duration, moment, reasons, sum } from "../format";
import { hostAddress, queryAddress } from "../router";
import { overQuota, pairHelp, pairLong, showRemoved, showState } from "../state";
import type { Subject } from "./subject";

/** Names with values, of which only the values change. */
class Facts {
  readonly element = h("dl", { class: "facts" });
  private readonly values = new Map<string, HTMLElement>();

  constructor(labels: string[]) {
    for (const label of labels) {
      const value = h("dd", { class: "num" }, "–");
      this.values.set(label, value);
      this.element.append(h("div", {}, h("dt", {}, label), value));
    }
  }

  of(label: string): HTMLElement {
    return this.values.get(label)!;
  }

  show(texts: Record<string, string>): void {
    for (const [label, text] of Object.entries(texts)) setText(this.of(label), text);
  }
}

export class Head {
  private readonly state = h("span");
  private readonly labels = h("span", { class: "dim" });
  private readonly error = h("p", { class: "problem", role: "alert", hidden: true });
  private readonly alerts = h("ul", { class: "host-alerts", "aria-label": "Alerts of this host", hidden: true });
  private readonly machine = new Facts(["Age", "Kernel", "Cores", "Memory", "Booted"]);
  /** How it is read: stands elsewhere. */
  readonly reading = new Facts(["Read every", "Read via", "Address", "Clock ±", "Series", "Regions", "Gaps", "Invalid samples", "Since"]);
  readonly element: HTMLElement;

  constructor(private readonly name: string) {
    const title = h("h1", {}, h("a", { href: hostAddress(name) }, name));
    this.element = h("header", { class: "host-head" }, h("div", { class: "host-title" }, title, this.state, this.labels), this.error, this.alerts, this.machine.element);
    this.machine.of("Age").title = "Of the newest values";
    this.showAlerts();
  }

  showAlerts(): void {
    const alerts = ofHost(this.name);
    setHidden(this.alerts, alerts.length === 0);
    this.alerts.replaceChildren(
      ...alerts.map((alert) => {
        const state = h("span");
        showAlertState(state, alert.state);
        return h("li", {}, state, " ", h("a", { href: `#/alerts?q=${encodeURIComponent(nameOf(alert))}` }, nameOf(alert)), ` ${summaryOf(alert)} `, h("span", { class: "dim" }, `since ${moment(alert.since_ms, now())}`));
      }),
    );
  }

  show(host: HostDetail): void {
    showState(this.state, host.state);
    setText(this.labels, Object.entries(host.labels).map(([name, value]) => `${name}=${value}`).join(" · "));
    const problem = [host.error, overQuota(host)].filter((text) => text !== null).join(" ");
    setHidden(this.error, problem === "");
    setText(this.error, problem);
    this.reading.of("Read via").title = pairHelp(host);
    const gaps = sum(host.gaps);
    this.reading.show({
      "Read every": duration(host.interval_ms) + (host.priority === "normal" ? "" : ` (${host.priority} priority)`),
      "Read via": pairLong(host),
      Address: host.address,
      "Clock ±": duration(host.clock_error_ms),
      Series: count(host.series),
      Regions: count(host.regions),
      Gaps: gaps === 0 ? "0" : `${count(gaps)} (${reasons(host.gaps)})`,
      Since: moment(host.since_ms, now()),
    });
    this.showInvalid(host);
  }

  /** How many there were, by reason, with a way to them. */
  private showInvalid(host: HostDetail): void {
    const invalid = sum(host.invalid_samples);
    const value = this.reading.of("Invalid samples");
    const text = invalid === 0 ? "0" : `${count(invalid)} (${reasons(host.invalid_samples)})`;
    if (value.textContent === text) return;
    const query = `sum by (metric, reason) (increase(onlooker_invalid_samples_total{instance=${JSON.stringify(host.name)}}[1m])) > 0`;
    value.replaceChildren(invalid === 0 ? text : h("a", { href: queryAddress(query), title: "Which series, and when" }, text));
  }

  showMachine(subject: Subject): void {
    const { sysname = "", release = "", machine = "" } = subject.of("node_uname_info")[0]?.labels ?? {};
    const boot = subject.of("node_boot_time_seconds")[0]?.value;
    this.machine.show({
      Kernel: [sysname, release, machine].filter((word) => word !== "").join(" ") || "–",
      Cores: subject.cores === 0 ? "–" : count(subject.cores),
      Memory: bytes(subject.memoryBytes),
      Booted: typeof boot === "number" ? moment(boot * 1000, now()) : "–",
    });
  }

  showRemoved(): void {
    showRemoved(this.state);
    setHidden(this.error, true);
  }

  showAge(ms: number | null, bad: boolean): void {
    setText(this.machine.of("Age"), age(ms));
    setClass(this.machine.of("Age"), "bad", bad);
  }
}
