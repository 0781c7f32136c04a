// SPDX-License-Identifier: Apache-2.0
//! An opened RDMA device: found by one of the machine's addresses, which is its RoCEv2 GID (A17.4.1: an IPv4 address is mapped into IPv6).
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rdma_mummy_sys::{ibv_ack_async_event, ibv_async_event, ibv_event_type, ibv_get_async_event};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use sideway::ibverbs::address::{Gid, GidType};
use sideway::ibverbs::device::{DeviceInfo as _, DeviceList};
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;

use crate::error::{Error, cause, last, system};

/// What the device allows (IBA 11.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests of a queue.
    pub work_requests: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// Memory regions.
    pub regions: u32,
    /// READs of one queue pair that it answers at once.
    pub reads_answered: u8,
    /// READs of one queue pair that it has under way at once.
    pub reads_sent: u8,
}

/// What the device tells beside completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The queue pair of this number is in error.
    QueuePair(u32),
    /// A completion queue of this device has lost completions; soft-RoCE tells it only so.
    CompletionQueue,
    /// The device is of no use any more, or is being removed.
    Device,
    /// The port has gone down.
    PortDown,
    /// The port has come up.
    PortUp,
    /// Its GIDs have changed: an address has come or gone.
    Addresses,
    /// Something else.
    Other,
}

#[derive(Debug)]
struct Inner {
    name: String,
    context: Arc<DeviceContext>,
    domain: Arc<ProtectionDomain>,
    gid: Gid,
    gid_index: u8,
    port: u8,
    mtu: Mtu,
    limits: Limits,
}

/// A device and one of its addresses. Clones are the same.
#[derive(Clone, Debug)]
pub struct Device(Arc<Inner>);

impl Device {
    /// The one that has `address`.
    ///
    /// # Errors
    /// [`Error::NoLibrary`], [`Error::NoDevice`], [`Error::System`].
    pub fn of(address: IpAddr) -> Result<Self, Error> {
        let wanted = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let list = DeviceList::new().map_err(|error| Error::NoLibrary(cause(&error)))?;
        let (mut names, mut failed) = (Vec::new(), None);
        for found in &list {
            let name = found.name();
            let asked = found.open().map_err(system(&name, "opening")).and_then(|context| {
                let table = context.query_gid_table().map_err(system(&name, "asking for its GIDs"))?;
                Ok((context, table))
            });
            // One that is closed to us may be followed by the one that is ours.
            let (context, table) = match asked {
                Ok(asked) => asked,
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            let entry = table
                .iter()
                .filter(|entry| entry.gid_type() == GidType::RoceV2)
                .find(|entry| Ipv6Addr::from(entry.gid().raw) == wanted);
            match entry {
                Some(entry) => {
                    let (index, port) = (entry.gid_index(), entry.port_num());
                    let (Ok(index), Ok(port)) = (u8::try_from(index), u8::try_from(port)) else {
                        return Err(Error::Limit { device: name, what: "GID", wanted: index.into(), limit: 255 });
                    };
                    return Self::opened(name, context, (entry.gid(), index, port));
                }
                None => names.push(name),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Error::NoDevice { address, there })
    }

    fn opened(name: String, context: Arc<DeviceContext>, (gid, gid_index, port): (Gid, u8, u8)) -> Result<Self, Error> {
        let told = context.query_device().map_err(system(&name, "asking for its limits"))?;
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let few = |number: i32| u8::try_from(number.clamp(0, 255)).unwrap_or(0);
        let limits = Limits {
            queue_pairs: count(told.max_qp()),
            work_requests: count(told.max_qp_wr()),
            completions: count(told.max_cqe()),
            regions: count(told.max_mr()),
            reads_answered: few(told.max_qp_rd_atom()),
            reads_sent: few(told.max_qp_init_rd_atom()),
        };
        let mtu = context.query_port(port).map_err(system(&name, "asking for its port"))?.active_mtu();
        let domain = context.alloc_pd().map_err(system(&name, "making a protection domain"))?;
        let device = Self(Arc::new(Inner { name, context, domain, gid, gid_index, port, mtu, limits }));
        // So that `event` never waits.
        let flags = fcntl_getfl(&device).and_then(|flags| fcntl_setfl(&device, flags | OFlags::NONBLOCK));
        flags.map_err(|errno| Error::System {
            device: device.name().to_owned(),
            operation: "fcntl of its events",
            source: errno.into(),
        })?;
        Ok(device)
    }

    /// As in `rdma link`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it allows.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// Its address, as a GID.
    #[must_use]
    pub fn gid(&self) -> [u8; 16] {
        self.0.gid.raw
    }

    /// The next thing that it has to tell, if there is one. Readable descriptor: [`AsFd`].
    ///
    /// # Errors
    /// [`Error::System`]: the device is gone.
    pub fn event(&self) -> Result<Option<Event>, Error> {
        let mut event = std::mem::MaybeUninit::<ibv_async_event>::uninit();
        // SAFETY: the context lives as long as `self`; the event is written before it is read, and acknowledged exactly once, after its queue pair's number was
        // read: until then libibverbs keeps the queue pair (ibv_destroy_qp waits).
        let kind = unsafe {
            if ibv_get_async_event(self.0.context.context().as_ptr(), event.as_mut_ptr()) != 0 {
                let error = io::Error::last_os_error();
                let is_none = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                return if is_none { Ok(None) } else { Err(last(self.name(), "asking for its events")) };
            }
            let mut event = event.assume_init();
            let kind = match event.event_type {
                ibv_event_type::IBV_EVENT_QP_FATAL
                | ibv_event_type::IBV_EVENT_QP_REQ_ERR
                | ibv_event_type::IBV_EVENT_QP_ACCESS_ERR
                | ibv_event_type::IBV_EVENT_PATH_MIG_ERR => Event::QueuePair((*event.element.qp).qp_num),
                ibv_event_type::IBV_EVENT_CQ_ERR => Event::CompletionQueue,
                ibv_event_type::IBV_EVENT_DEVICE_FATAL => Event::Device,
                ibv_event_type::IBV_EVENT_PORT_ERR => Event::PortDown,
                ibv_event_type::IBV_EVENT_PORT_ACTIVE => Event::PortUp,
                ibv_event_type::IBV_EVENT_GID_CHANGE => Event::Addresses,
                _ => Event::Other,
            };
            ibv_ack_async_event(&raw mut event);
            kind
        };
        Ok(Some(kind))
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.0.context
    }

    pub(crate) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.0.domain
    }

    pub(crate) fn address(&self) -> (u8, u8) {
        (self.0.port, self.0.gid_index)
    }

    pub(crate) fn mtu(&self) -> Mtu {
        self.0.mtu
    }
}

/// Readable when the device has something to tell.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the context, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.0.context.context().as_ptr()).async_fd) }
    }
}
