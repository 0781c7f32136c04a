// SPDX-License-Identifier: Apache-2.0
//! What the engine is told, from any thread.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use onlooker_targets::Target;

use super::waiter::Bell;

/// What the engine is told.
pub(super) enum Order {
    Watch(Arc<Target>),
    Forget(String),
    /// These are to be read now.
    Call(Vec<String>),
    Stop,
}

/// The way to tell the engine something, from any thread.
#[derive(Clone)]
pub struct Orders {
    orders: Sender<Order>,
    bell: Bell,
}

impl Orders {
    /// To whoever receives, and sleeps on `bell`.
    pub(super) fn new(orders: Sender<Order>, bell: Bell) -> Self {
        Self { orders, bell }
    }

    /// Watches a host; one of the same name is replaced.
    pub fn watch(&self, target: Arc<Target>) {
        self.send(Order::Watch(target));
    }

    /// Watches a host no more.
    pub fn forget(&self, name: &str) {
        self.send(Order::Forget(name.to_owned()));
    }

    /// Reads hosts now, beside their due times.
    pub fn call(&self, names: Vec<String>) {
        self.send(Order::Call(names));
    }

    pub(super) fn stop(&self) {
        self.send(Order::Stop);
    }

    fn send(&self, order: Order) {
        // An engine that is gone needs no orders.
        let _ = self.orders.send(order);
        self.bell.ring();
    }
}
