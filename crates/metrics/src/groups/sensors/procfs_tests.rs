// SPDX-License-Identifier: Apache-2.0
//! Sensors of a machine that is made of files.

use super::*;
use crate::sampled::tests::{values_of, with_context};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn a_machine_with_sensors() {
    let dir = tempfile::tempdir().unwrap();
    let sysfs = dir.path();
    let device = sysfs.join("devices/platform/coretemp.0");
    let hwmon = device.join("hwmon/hwmon0");
    for (file, text) in [
        ("name", "coretemp\n"),
        ("temp1_input", "41000\n"),
        ("temp1_max", "80000\n"),
        ("temp1_crit", "100000\n"),
        ("temp1_crit_hyst", "97000\n"),
        ("temp1_crit_alarm", "0\n"),
        ("temp1_label", "Package id 0\n"),
        ("temp2_input", "-3500\n"),
        ("fan1_input", "1200\n"),
        ("fan1_min", "300\n"),
        ("temp3_input", "no number\n"),
        ("temp", "1\n"),
        ("input_1", "1\n"),
    ] {
        write(&hwmon.join(file), text);
    }
    fs::create_dir_all(sysfs.join("class/hwmon")).unwrap();
    std::os::unix::fs::symlink(&hwmon, sysfs.join("class/hwmon/hwmon0")).unwrap();
    std::os::unix::fs::symlink(&device, hwmon.join("device")).unwrap();
    // A chip without a device.
    write(&sysfs.join("class/hwmon/hwmon1/name"), "ACPI Fan!\n");
    write(&sysfs.join("class/hwmon/hwmon1/fan1_input"), "0\n");
    write(&sysfs.join("class/thermal/cooling_device3/type"), "Processor\n");
    write(&sysfs.join("class/thermal/cooling_device3/cur_state"), "1\n");
    write(&sysfs.join("class/thermal/cooling_device3/max_state"), "-1\n");
    write(&sysfs.join("class/thermal/thermal_zone0/type"), "x\n");
    write(&sysfs.join("class/power_supply/AC/online"), "1\n");
    write(&sysfs.join("class/power_supply/BAT0/capacity"), "1\n");
    for (cpu, khz) in [("cpu0", "800000"), ("cpu10", "900000"), ("cpu2", "700000"), ("cpuidle", "1")] {
        write(&sysfs.join("devices/system/cpu").join(cpu).join("cpufreq/scaling_cur_freq"), khz);
    }
    let made = with_context(|ask, context| listed(Sensors { sysfs: sysfs.into() }, ask, context)).unwrap();
    let seen = values_of(made);
    let expected = [
        ("node_cooling_device_cur_state{name=3,type=Processor}", 1.0),
        ("node_cooling_device_max_state{name=3,type=Processor}", -1.0),
        ("node_cpu_scaling_frequency_hertz{cpu=0}", 8e8),
        ("node_cpu_scaling_frequency_hertz{cpu=10}", 9e8),
        ("node_cpu_scaling_frequency_hertz{cpu=2}", 7e8),
        ("node_hwmon_chip_names{chip=acpi_fan,chip_name=acpi_fan}", 1.0),
        ("node_hwmon_chip_names{chip=platform_coretemp_0,chip_name=coretemp}", 1.0),
        ("node_hwmon_fan_min_rpm{chip=platform_coretemp_0,sensor=fan1}", 300.0),
        ("node_hwmon_fan_rpm{chip=acpi_fan,sensor=fan1}", 0.0),
        ("node_hwmon_fan_rpm{chip=platform_coretemp_0,sensor=fan1}", 1200.0),
        ("node_hwmon_temp_celsius{chip=platform_coretemp_0,sensor=temp1}", 41.0),
        ("node_hwmon_temp_celsius{chip=platform_coretemp_0,sensor=temp2}", -3.5),
        ("node_hwmon_temp_crit_alarm_celsius{chip=platform_coretemp_0,sensor=temp1}", 0.0),
        ("node_hwmon_temp_crit_celsius{chip=platform_coretemp_0,sensor=temp1}", 100.0),
        ("node_hwmon_temp_crit_hyst_celsius{chip=platform_coretemp_0,sensor=temp1}", 97.0),
        ("node_hwmon_temp_max_celsius{chip=platform_coretemp_0,sensor=temp1}", 80.0),
        ("node_power_supply_online{power_supply=AC}", 1.0),
    ];
    let seen: Vec<(&str, f64)> = seen.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_machine_without_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let made = with_context(|ask, context| listed(Sensors { sysfs: dir.path().into() }, ask, context)).unwrap();
    assert!(made.groups.is_empty());
}

#[test]
fn names() {
    assert_eq!(clean("0000:00:18.3"), "0000:00:18_3");
    assert_eq!(element("temp12_crit_alarm"), Some(("temp", "temp12", "crit_alarm")));
    for file in ["temp_input", "12_input", "name", "temp1", "_1"] {
        assert_eq!(element(file), None, "{file}");
    }
}
