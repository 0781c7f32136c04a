// SPDX-License-Identifier: Apache-2.0
//! `[kernel.acquisition]`: how values of a group of kernel metrics get where readers over the kernel responder read them.

use std::ops::RangeInclusive;

use onlooker_metrics::groups::Group;
use onlooker_metrics::scheduler;
use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kernel::{Kernel, Refused};
use crate::units::Span;

/// How often the kernel may be told to write values.
pub(super) const PUBLISHED: RangeInclusive<Span> = Span::from_ms(1)..=Span::from_s(3600);

/// A way of acquiring values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquisition {
    /// By the READ itself.
    Computed,
    /// By a timer of the kernel, into memory, so often.
    Published(Span),
    /// By the agent from procfs, every `[kernel] sample`.
    Sampled,
}

impl<'de> Deserialize<'de> for Acquisition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(' ') {
            None if text == "computed" => Ok(Self::Computed),
            None if text == "sampled" => Ok(Self::Sampled),
            Some(("published", interval)) => Span::deserialize(interval.into_deserializer()).map(Self::Published),
            _ => Err(D::Error::custom(format!(
                "`{text}` is no way of acquiring: take \"computed\", \"published 10ms\" (or another time), or \"sampled\" (every [kernel] sample)"
            ))),
        }
    }
}

impl Serialize for Acquisition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Computed => serializer.serialize_str("computed"),
            Self::Published(interval) => serializer.collect_str(&format_args!("published {interval}")),
            Self::Sampled => serializer.serialize_str("sampled"),
        }
    }
}

impl Kernel {
    /// How a group's values are acquired; [`Acquisition::Sampled`] where it is not in `groups`.
    #[must_use]
    pub fn acquisition_of(&self, group: Group) -> Acquisition {
        if !self.computed_groups().contains(&group) {
            return Acquisition::Sampled;
        }
        self.acquisition.get(group.name()).copied().unwrap_or(Acquisition::Computed)
    }

    /// Switches every group that would be computed at the READ to `published every <interval>`. Groups that the configuration sets to `computed` keep it.
    pub(super) fn publish(&mut self, interval: Span) {
        for group in self.computed_groups() {
            self.acquisition.entry(group.name().into()).or_insert(Acquisition::Published(interval));
        }
    }

    /// Whether the kernel writes a region of this name into memory.
    #[must_use]
    pub fn is_published(&self, region: &str) -> bool {
        if region == scheduler::REGION {
            return self.scheduler_latency;
        }
        let mut groups = Group::computed().filter(|group| group.region() == region);
        groups.any(|group| matches!(self.acquisition_of(group), Acquisition::Published(_)))
    }

    pub(super) fn check_acquisition(&self) -> Result<(), Refused> {
        const KEY: &str = "kernel.acquisition";
        for (name, acquisition) in &self.acquisition {
            let Some(group) = Group::computed().find(|group| group.name() == name) else {
                let advice = "is no group of computed metrics: take names of docs/kernel-metrics.md";
                return Err((KEY, name.clone(), advice));
            };
            match acquisition {
                Acquisition::Published(interval) if !PUBLISHED.contains(interval) => {
                    return Err((KEY, format!("{name} = published {interval}"), "must be every 1ms to 1h"));
                }
                Acquisition::Sampled if group == Group::RESPONDER => {
                    return Err((KEY, format!("{name} = sampled"), "cannot be: procfs knows nothing of the responder"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(text: &str) -> Kernel {
        toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn each_group_has_its_way() {
        let kernel = kernel(
            "groups = [\"cpu\", \"load\", \"memory\", \"netstat\"]\n[acquisition]\ncpu = \"published 10ms\"\nload = \"sampled\"\nmemory = \"computed\"\n",
        );
        assert_eq!(kernel.acquisition_of(Group::CPU), Acquisition::Published(Span::from_ms(10)));
        assert_eq!(kernel.acquisition_of(Group::LOAD), Acquisition::Sampled);
        assert_eq!(kernel.acquisition_of(Group::MEMORY), Acquisition::Computed);
        assert_eq!(kernel.acquisition_of(Group::NETSTAT), Acquisition::Computed);
        assert_eq!(kernel.acquisition_of(Group::NETWORK), Acquisition::Sampled, "it is not in groups");
        assert!(kernel.is_published("node_cpu") && !kernel.is_published("node_memory") && !kernel.is_published("x"));
        assert_eq!(
            kernel.computed_groups(),
            [Group::CPU, Group::MEMORY, Group::RESPONDER, Group::NETSTAT],
            "what is sampled needs no collector"
        );
        assert_eq!(kernel.check_acquisition(), Ok(()));
        // The loader is told all of it as JSON.
        let told = serde_json::to_string(&kernel.acquisition).unwrap();
        assert_eq!(told, r#"{"cpu":"published 10ms","load":"sampled","memory":"computed"}"#);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["cpu = \"polled\"", "cpu = \"published\"", "cpu = \"published soon\"", "cpu = 5"] {
            assert!(toml::from_str::<Kernel>(&format!("[acquisition]\n{text}\n")).is_err(), "{text}");
        }
        for text in ["cpus = \"computed\"", "cpu = \"published 100us\"", "responder = \"sampled\""] {
            let refused = kernel(&format!("[acquisition]\n{text}\n")).check_acquisition();
            assert!(matches!(refused, Err(("kernel.acquisition", ..))), "{text}: {refused:?}");
        }
    }
}
