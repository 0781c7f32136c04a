// SPDX-License-Identifier: Apache-2.0
//! Collectors whose values cannot be read when a READ comes: their block is refused and counted, others are answered. In a network namespace of the test's own thread.

use std::sync::mpsc;

use onlooker_metrics::user::SLOTS;
use onlooker_responder::Exit;
use onlooker_testbed::{own_network, run};

use crate::reading::{BUDGET, Files, SLOT, Served, check_one};
use crate::support::{SIDES, Side};

const OTHER: u32 = SLOT + 1;

fn table(name: &str, from: &str) -> String {
    format!("name = \"{name}\"\n[[value]]\nmetric = \"m\"\nkind = \"gauge\"\nfrom = \"{from}\"\n")
}

/// A thread in a network namespace of its own.
struct Inside {
    jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    thread: std::thread::JoinHandle<()>,
}

impl Inside {
    fn new() -> Self {
        let (jobs, todo) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let thread = std::thread::spawn(move || {
            own_network();
            todo.iter().for_each(|job| job());
        });
        Self { jobs, thread }
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        self.jobs.send(Box::new(move || tell.send(job()).unwrap())).unwrap();
        told.recv().unwrap()
    }

    /// The namespace ends, as nobody else is in it.
    fn end(self) {
        drop(self.jobs);
        self.thread.join().unwrap();
    }
}

#[test]
fn a_pointer_that_is_gone_costs_its_own_block_its_answer_until_it_is_back() {
    let inside = Inside::new();
    let files = Files::new();
    let path = files.put("ip.toml", table("ip", "net.loopback_dev->ip_ptr->mr_maxdelay"));
    let served = Served::new(inside.run(|| check_one(path, BUDGET)).unwrap());
    served.install(&files.check(&table("first", "init_task.pid")).unwrap(), OTHER);
    assert!(SLOTS.contains(&OTHER));
    let outcomes = |side: Side| [SLOT, OTHER].map(|slot| served.block(slot, 0, side).map(drop));
    for side in SIDES {
        assert_eq!(outcomes(side), [Ok(()), Ok(())]);
        // Below 68 bytes the kernel takes IPv4 off the device (inetdev_event of net/ipv4/devinet.c), and the pointer is null.
        inside.run(|| run("ip", &["link", "set", "lo", "mtu", "60"]));
        assert_eq!(outcomes(side), [Err(Exit::CollectorRefused), Ok(())]);
        inside.run(|| run("ip", &["link", "set", "lo", "mtu", "65536"]));
        assert_eq!(outcomes(side), [Ok(()), Ok(())]);
    }
    inside.end();
}

#[test]
fn a_namespace_that_has_gone_is_not_read_any_more() {
    let inside = Inside::new();
    let files = Files::new();
    let path = files.put("rmem.toml", table("rmem", "net.ipv4.sysctl_tcp_rmem[0]"));
    let served = Served::new(inside.run(|| check_one(path, BUDGET)).unwrap());
    served.install(&files.check(&table("first", "init_task.pid")).unwrap(), OTHER);
    assert!(served.block(SLOT, 0, SIDES[0]).is_ok());
    inside.end();
    // Namespaces are taken down by a worker, some time after the last task has left.
    let gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        served.block(SLOT, 0, SIDES[0]).is_err()
    });
    assert!(gone, "the namespace is still read");
    for side in SIDES {
        assert_eq!(served.block(SLOT, 0, side).map(drop), Err(Exit::CollectorRefused));
        assert!(served.block(OTHER, 0, side).is_ok());
    }
}
