// SPDX-License-Identifier: Apache-2.0
//! NAPI instances of a device, by the netlink family `netdev` (Documentation/netlink/specs/netdev.yaml): Linux 6.8 lists
//! them, 6.17 gives one of them a thread. Before that a device's have threads all or none, by `threaded` in sysfs.

use std::collections::BTreeMap;

use onlooker_responder::netlink::{Dump, GENERIC, Kind, attribute, u16_at, u32_at};

use rustix::io::Errno;

use crate::LaneError;
use crate::device::{self, Device};
use crate::threads;

/// `GENL_ID_CTRL`, the family of families; its `CTRL_CMD_GETFAMILY`, whose answers are `CTRL_CMD_NEWFAMILY`.
const FAMILIES: Kind = Kind { new: 16, delete: 0, get: 16 };
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Commands and attributes of `netdev`.
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const RECEIVE: u32 = 0;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_THREADED: u16 = 8;
/// `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

/// Number of an instance, and whether it has a thread, where the kernel says so.
type Listed = (u32, Option<bool>);

/// The family.
struct Netdev {
    dump: Dump,
    kind: Kind,
}

fn request(command: u8, attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    for (kind, value) in attributes {
        body.extend(8u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value.to_ne_bytes());
    }
    body
}

/// A number that is an attribute of an answer.
fn number(answer: &[u8], kind: u16) -> Option<u32> {
    u32_at(attribute(answer.get(GENERIC_HEADER..)?, kind)?, 0)
}

impl Netdev {
    /// `None` where this kernel has no such family.
    fn open() -> Result<Option<Self>, LaneError> {
        let mut dump = Dump::new(GENERIC).map_err(LaneError::Netlink)?;
        let mut id = None;
        let each = |answer: &[u8]| {
            let attributes = answer.get(GENERIC_HEADER..).unwrap_or_default();
            if attribute(attributes, FAMILY_NAME) == Some(b"netdev\0") {
                id = attribute(attributes, FAMILY_ID).and_then(|value| u16_at(value, 0));
            }
        };
        dump.ask(FAMILIES, &request(GET_FAMILY, &[]), each).map_err(LaneError::Netlink)?;
        Ok(id.map(|id| Self { dump, kind: Kind { new: id, delete: 0, get: id } }))
    }

    /// Those of a device, in the order in which its driver made them; `None` where the kernel has no list.
    fn list(&mut self, index: u32) -> Result<Option<Vec<Listed>>, LaneError> {
        let mut ids = Vec::new();
        let body = request(NAPI_GET, &[(NAPI_IFINDEX, index)]);
        let each = |answer: &[u8]| {
            let is_threaded = number(answer, NAPI_THREADED).map(|threaded| threaded != 0);
            ids.extend(number(answer, NAPI_ID).map(|id| (id, is_threaded)));
        };
        match self.dump.ask(self.kind, &body, each).map_err(|error| (Errno::from_io_error(&error), error)) {
            Err((Some(Errno::OPNOTSUPP), _)) => Ok(None),
            Err((_, error)) => Err(LaneError::Netlink(error)),
            Ok(()) => {
                ids.sort_unstable();
                Ok(Some(ids))
            }
        }
    }

    /// By receive queue, where the driver says so.
    fn by_queue(&mut self, index: u32) -> Result<BTreeMap<u32, u32>, LaneError> {
        let mut queues = BTreeMap::new();
        let each = |answer: &[u8]| {
            if let (Some(RECEIVE), Some(queue), Some(napi)) =
                (number(answer, QUEUE_TYPE), number(answer, QUEUE_ID), number(answer, QUEUE_NAPI))
            {
                queues.insert(queue, napi);
            }
        };
        let body = request(QUEUE_GET, &[(QUEUE_IFINDEX, index)]);
        self.dump.ask_if_any(self.kind, &body, each).map_err(LaneError::Netlink)?;
        Ok(queues)
    }
}

/// The NAPI instances of a device.
#[derive(Debug, Default)]
pub struct Instances {
    /// By receive queue; empty where nobody says which is whose.
    pub by_queue: BTreeMap<u32, u32>,
    /// Process numbers of the threads of those that have one.
    pub threads: BTreeMap<u32, u32>,
}

/// Those of a device.
///
/// # Errors
/// Netlink is forbidden.
pub fn of(device: &Device) -> Result<Instances, LaneError> {
    // A device of another network namespace may have the name, so that names alone do where there is no list.
    let mut threads = threads::of_device(&device.name);
    let (mut by_queue, mut list) = (BTreeMap::new(), None);
    if let Some(mut netdev) = Netdev::open()? {
        (by_queue, list) = (netdev.by_queue(device.index)?, netdev.list(device.index)?);
    }
    // Before 6.17 a thread that was there once stays, and sleeps.
    let are_all_threaded = device::read(&device.file("threaded")).is_ok_and(|text| text == "1");
    let list = list.unwrap_or_else(|| threads.keys().map(|id| (*id, None)).collect());
    threads.retain(|id, _| {
        list.iter().any(|(listed, is_threaded)| listed == id && is_threaded.unwrap_or(are_all_threaded))
    });
    let ids: Vec<u32> = list.into_iter().map(|(id, _)| id).collect();
    // Drivers that do not say which is whose make one for each queue, in order.
    if by_queue.is_empty() && u32::try_from(ids.len()) == Ok(device.queues) {
        by_queue = (0..).zip(ids).collect();
    }
    Ok(Instances { by_queue, threads })
}

/// Gives a NAPI instance a thread, or takes it away.
///
/// # Errors
/// This kernel cannot do that to a single one.
pub fn set_threaded(napi: u32, is_threaded: bool) -> Result<(), LaneError> {
    let Some(mut netdev) = Netdev::open()? else {
        return Err(LaneError::Unable("this kernel has no netlink family netdev".to_owned()));
    };
    let body = request(NAPI_SET, &[(NAPI_ID, napi), (NAPI_THREADED, is_threaded.into())]);
    let kind = netdev.kind;
    netdev.dump.tell(kind, &body).map_err(LaneError::Netlink)
}
