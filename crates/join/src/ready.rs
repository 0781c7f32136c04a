// SPDX-License-Identifier: Apache-2.0
//! Whether an agent runs here and serves as configured: it answers on its registration socket, its bootstrap endpoint takes connections where the configuration says, and
//! it was started after the configuration was written last, which it reads but once.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use onlooker_agent_lib::host::{boot_time_ns, wall_time_ns};
use onlooker_local::Client;
use onlooker_metrics::procfs::{process_stat, read_small};
use rustix::net::sockopt::socket_peercred;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nobody answers at the socket.
    Nobody,
    /// One that does not listen where this configuration says: it was started with another one.
    Other {
        /// Its process.
        pid: i32,
        /// What is wrong.
        what: String,
    },
    /// One that serves.
    Ready {
        /// Its process.
        pid: i32,
    },
}

/// Looks once. `config`: the file that it must have read.
#[must_use]
pub fn look(socket: &Path, bootstrap: SocketAddr, config: &Path) -> Found {
    let Some(pid) = serving(socket) else { return Found::Nobody };
    if !has_read(pid, config) {
        return Found::Other { pid, what: format!("it was started before {} was changed", config.display()) };
    }
    match TcpStream::connect_timeout(&reachable(bootstrap), ANSWER_TIMEOUT) {
        Ok(_) => Found::Ready { pid },
        Err(error) => Found::Other { pid, what: format!("its bootstrap endpoint is not at {bootstrap}: {error}") },
    }
}

/// Whether a process began after a file was changed. Yes where that cannot be told: the test read is the proof.
fn has_read(pid: i32, config: &Path) -> bool {
    let changed = fs::metadata(config).and_then(|file| file.modified());
    let stat = read_small(&format!("/proc/{pid}/stat")).ok();
    let began = stat.and_then(|stat| process_stat(stat.as_bytes()).map(|(_, ticks)| ticks));
    let (Ok(changed), Some(ticks)) = (changed, began) else { return true };
    let changed_ns =
        changed.duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (now_ns, since_boot_ns) = (wall_time_ns(), boot_time_ns());
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    // The end of the tick in which it began.
    let began_ns = now_ns.saturating_sub(since_boot_ns).saturating_add((ticks + 1).saturating_mul(tick_ns));
    // A file of the future was written before the clock was put right.
    began_ns >= changed_ns || changed_ns > now_ns
}

/// The process that answers a greeting, whatever it answers: the policy may not want us.
#[must_use]
pub fn serving(socket: &Path) -> Option<i32> {
    let client = Client::open(socket, ANSWER_TIMEOUT).ok()?;
    let _whatever = client.hello(concat!("join ", env!("CARGO_PKG_VERSION"))).ok()?;
    socket_peercred(&client).ok().map(|credentials| credentials.pid.as_raw_nonzero().get())
}

/// Waits until one serves.
///
/// # Errors
/// What was found at the end.
pub fn wait(socket: &Path, bootstrap: SocketAddr, config: &Path, time: Duration) -> Result<i32, Found> {
    let until = Instant::now() + time;
    loop {
        match look(socket, bootstrap, config) {
            Found::Ready { pid } => return Ok(pid),
            found if Instant::now() >= until => return Err(found),
            _ => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// An address to connect to for a listener.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_is_nobody_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let bootstrap = "127.0.0.1:1".parse().unwrap();
        let socket = dir.path().join("agent.sock");
        let config = dir.path().join("agent.toml");
        assert_eq!(look(&socket, bootstrap, &config), Found::Nobody);
        let began = Instant::now();
        assert_eq!(wait(&socket, bootstrap, &config, Duration::from_millis(150)), Err(Found::Nobody));
        assert!(began.elapsed() >= Duration::from_millis(150));
    }

    #[test]
    fn a_process_has_read_what_was_there_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.toml");
        let us = i32::try_from(std::process::id()).unwrap();
        assert!(has_read(us, &path), "nothing to be read");
        let file = fs::File::create(&path).unwrap();
        // Later than the tick in which we began.
        std::thread::sleep(Duration::from_millis(50));
        fs::write(&path, "changed").unwrap();
        assert!(!has_read(us, &path));
        let day = Duration::from_secs(24 * 3600);
        for (time, expected) in
            [(std::time::SystemTime::now() - 365 * day, true), (std::time::SystemTime::now() + day, true)]
        {
            file.set_modified(time).unwrap();
            assert_eq!(has_read(us, &path), expected, "{time:?}");
        }
    }

    #[test]
    fn listeners_everywhere_are_reached_on_loopback() {
        for (listen, expected) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.3:1", "10.0.0.3:1")] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expected);
        }
    }
}
