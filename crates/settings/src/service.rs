// SPDX-License-Identifier: Apache-2.0
//! What a service tells its manager (sd_notify(3)), without a library.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Tells the service manager something, `READY=1` for example. Without a manager this does nothing; nor can anything be done where telling fails.
pub fn notify(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(&socket, state);
    }
}

/// Whether a service manager waits for word of this program, which then may end to be started anew.
#[must_use]
pub fn is_supervised() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// How often a service manager is to be told `WATCHDOG=1`, lest it take this process for one that hangs: thrice in the time that it waits (sd_watchdog_enabled(3)). `None` where it does not
/// wait for that.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let is_ours =
        std::env::var_os("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(u64::from(std::process::id()));
    watchdog_of(number("WATCHDOG_USEC").filter(|_| is_ours && is_supervised()))
}

fn watchdog_of(usec: Option<u64>) -> Option<Duration> {
    usec.filter(|usec| *usec > 0).map(|usec| Duration::from_micros(usec.div_ceil(3)))
}

/// `@` stands for the zero byte of an abstract name.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_is_due_thrice_in_the_managers_patience() {
        assert_eq!(watchdog_of(Some(600_000_000)), Some(Duration::from_secs(200)));
        assert_eq!(watchdog_of(Some(1)), Some(Duration::from_micros(1)));
        assert_eq!((watchdog_of(Some(0)), watchdog_of(None)), (None, None));
    }

    #[test]
    fn both_kinds_of_names_are_told() {
        let name = format!("onlooker-settings-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(format!("@{name}").as_ref(), "READY=1").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(manager.recv(&mut buffer).unwrap(), 7);
        assert_eq!(&buffer[..7], b"READY=1");

        let path = std::env::temp_dir().join(&name);
        let manager = UnixDatagram::bind(&path).unwrap();
        let sent = send(path.as_os_str(), "STOPPING=1");
        let got = sent.is_ok().then(|| manager.recv(&mut buffer).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(got, Some(10));
        assert!(send(path.as_os_str(), "READY=1").is_err(), "nobody is there any more");
    }
}
