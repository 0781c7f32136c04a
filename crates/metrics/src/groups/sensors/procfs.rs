// SPDX-License-Identifier: Apache-2.0
//! Group `sensors`: hwmon, cooling devices, power supplies and CPU frequencies from sysfs. Reading a sensor may take milliseconds (a bus, firmware), hence a long
//! shortest interval. What is plugged in or out makes the region anew.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::procfs::read_small;
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

static CHIP: Definition = Definition::gauge("node_hwmon_chip_names", "Annotation metric for human-readable chip names")
    .labels(&["chip", "chip_name"]);
static COOLING: Definition =
    Definition::gauge("node_cooling_device_cur_state", "Current throttle state of the cooling device")
        .labels(&["name", "type"])
        .signed();
static COOLING_MOST: Definition =
    Definition::gauge("node_cooling_device_max_state", "Maximum throttle state of the cooling device")
        .labels(&["name", "type"])
        .signed();
static SUPPLY: Definition =
    Definition::gauge("node_power_supply_online", "online value of /sys/class/power_supply/<power_supply>.")
        .labels(&["power_supply"])
        .signed();

const fn sensor(name: &'static str, help: &'static str) -> Definition {
    Definition::gauge(name, help).labels(&["chip", "sensor"]).signed()
}
const fn temperature(name: &'static str, help: &'static str) -> Definition {
    sensor(name, help).unit("celsius", 1e-3)
}
const fn frequency(name: &'static str, help: &'static str) -> Definition {
    Definition::gauge(name, help).unit("hertz", 1e3).by("cpu")
}

/// Kind of a sensor, what of it, and its metric.
static ELEMENTS: [(&str, &str, Definition); 7] = [
    ("temp", "input", temperature("node_hwmon_temp_celsius", "Hardware monitor for temperature (input)")),
    ("temp", "max", temperature("node_hwmon_temp_max_celsius", "Hardware monitor for temperature (max)")),
    ("temp", "crit", temperature("node_hwmon_temp_crit_celsius", "Hardware monitor for temperature (crit)")),
    (
        "temp",
        "crit_hyst",
        temperature("node_hwmon_temp_crit_hyst_celsius", "Hardware monitor for temperature (crit_hyst)"),
    ),
    (
        "temp",
        "crit_alarm",
        temperature("node_hwmon_temp_crit_alarm_celsius", "Hardware monitor for temperature (crit_alarm)"),
    ),
    ("fan", "input", sensor("node_hwmon_fan_rpm", "Hardware monitor for fan revolutions per minute (input)")),
    ("fan", "min", sensor("node_hwmon_fan_min_rpm", "Hardware monitor for fan revolutions per minute (min)")),
];

static FREQUENCIES: [(&str, Definition); 3] = [
    (
        "scaling_cur_freq",
        frequency("node_cpu_scaling_frequency_hertz", "Current scaled CPU thread frequency in hertz."),
    ),
    (
        "scaling_max_freq",
        frequency("node_cpu_scaling_frequency_max_hertz", "Maximum scaled CPU thread frequency in hertz."),
    ),
    (
        "scaling_min_freq",
        frequency("node_cpu_scaling_frequency_min_hertz", "Minimum scaled CPU thread frequency in hertz."),
    ),
];

type Part = fn(&Sensors, &mut Values);

struct Sensors {
    sysfs: PathBuf,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    listed(Sensors { sysfs: "/sys".into() }, ask, context)
}

/// Entries of a directory in a fixed order; none where it is not there.
fn entries(path: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort_by(|a, b| (a.as_os_str().len(), a).cmp(&(b.as_os_str().len(), b)));
    entries
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn text(path: &Path) -> Option<String> {
    read_small(path.to_str()?).ok().map(|text| text.trim().to_owned())
}

fn integer(path: &Path) -> Option<i64> {
    text(path)?.parse().ok()
}

/// What node_exporter makes of a name: lower case, and `_` for what a metric's name has not (cleanMetricName in collector/hwmon_linux.go).
fn clean(name: &str) -> String {
    let lower = name.to_lowercase();
    let fine = lower.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == ':' { c } else { '_' });
    fine.collect::<String>().trim_matches('_').to_owned()
}

/// The label of a chip: the device that it belongs to, else its name, else the directory's (hwmonName in collector/hwmon_linux.go).
fn chip(directory: &Path) -> String {
    if let Ok(device) = fs::canonicalize(directory.join("device")) {
        let above = device.parent().map(name_of).map(|name| clean(&name)).unwrap_or_default();
        let device = clean(&name_of(&device));
        if !device.is_empty() {
            return if above.is_empty() { device } else { format!("{above}_{device}") };
        }
    }
    let named = text(&directory.join("name")).map(|name| clean(&name)).filter(|name| !name.is_empty());
    named.unwrap_or_else(|| name_of(directory))
}

/// A file of hwmon taken apart: `temp1_crit_alarm` is `temp`, `temp1`, `crit_alarm`.
fn element(file: &str) -> Option<(&str, &str, &str)> {
    let (sensor, what) = file.split_once('_')?;
    let kind = sensor.trim_end_matches(|c: char| c.is_ascii_digit());
    (kind.len() < sensor.len() && !kind.is_empty()).then_some((kind, sensor, what))
}

impl Sensors {
    fn hwmon(&self, values: &mut Values) {
        for directory in entries(&self.sysfs.join("class/hwmon")) {
            let chip = chip(&directory);
            if let Some(name) = text(&directory.join("name")).map(|name| clean(&name)) {
                values.put(&CHIP, &[&chip, &name], 1);
            }
            // Older drivers have their files in the device's directory.
            for place in [directory.clone(), directory.join("device")] {
                for file in entries(&place) {
                    let name = name_of(&file);
                    let Some((kind, sensor, what)) = element(&name) else { continue };
                    let found = ELEMENTS.iter().find(|(of, which, _)| *of == kind && *which == what);
                    if let Some(((_, _, definition), value)) = found.zip(integer(&file)) {
                        values.put_signed(definition, &[&chip, sensor], value);
                    }
                }
            }
        }
    }

    fn cooling(&self, values: &mut Values) {
        for directory in entries(&self.sysfs.join("class/thermal")) {
            let name = name_of(&directory);
            let Some(number) = name.strip_prefix("cooling_device") else { continue };
            let kind = text(&directory.join("type")).unwrap_or_default();
            for (file, definition) in [("cur_state", &COOLING), ("max_state", &COOLING_MOST)] {
                if let Some(value) = integer(&directory.join(file)) {
                    values.put_signed(definition, &[number, &kind], value);
                }
            }
        }
    }

    fn supplies(&self, values: &mut Values) {
        for directory in entries(&self.sysfs.join("class/power_supply")) {
            if let Some(online) = integer(&directory.join("online")) {
                values.put_signed(&SUPPLY, &[&name_of(&directory)], online);
            }
        }
    }

    fn frequencies(&self, values: &mut Values) {
        for directory in entries(&self.sysfs.join("devices/system/cpu")) {
            let Some(cpu) = name_of(&directory).strip_prefix("cpu").and_then(|cpu| cpu.parse().ok()) else { continue };
            for (file, definition) in &FREQUENCIES {
                if let Some(khz) =
                    integer(&directory.join("cpufreq").join(file)).and_then(|khz| u64::try_from(khz).ok())
                {
                    values.put_at(definition, &[], cpu, khz);
                }
            }
        }
    }
}

impl Read for Sensors {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        // Without its directory there is none, which a collector of node_exporter calls a failure; the others are here all the same.
        let parts: [(&str, &str, Part); 4] = [
            ("hwmon", "class/hwmon", Self::hwmon),
            ("thermal_zone", "class/thermal", Self::cooling),
            ("powersupplyclass", "class/power_supply", Self::supplies),
            ("cpufreq", "devices/system/cpu", Self::frequencies),
        ];
        for (collector, directory, part) in parts {
            let _ = timed(context, &[collector], |_| {
                fs::metadata(self.sysfs.join(directory))?;
                part(self, values);
                Ok(())
            });
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "procfs_tests.rs"]
mod tests;
