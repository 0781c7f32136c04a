// SPDX-License-Identifier: Apache-2.0
//! A tap device whose other end is a descriptor, as a virtual machine's or a VPN's is: frames are written and read there.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

/// The user-space end. The device goes with it.
pub(crate) struct Tap(File);

impl Tap {
    pub(crate) fn new(name: &str) -> Self {
        if !std::path::Path::new("/dev/net/tun").exists() {
            onlooker_testbed::run("modprobe", &["tun"]);
        }
        let mut options = File::options();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
        // SAFETY: a zeroed ifreq is valid; its name is NUL-terminated and it outlives the call.
        let result = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
                *to = libc::c_char::try_from(from).unwrap();
            }
            request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_TAP | libc::IFF_NO_PI).unwrap();
            libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        Self(file)
    }

    /// Sends a frame and waits for one that satisfies `wanted`.
    pub(crate) fn ask(&mut self, frame: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        assert_eq!(self.0.write(frame).unwrap(), frame.len());
        let (start, mut buffer) = (Instant::now(), vec![0; 16 << 10]);
        while start.elapsed() < Duration::from_millis(300) {
            match self.0.read(&mut buffer) {
                Ok(bytes) if wanted(&buffer[..bytes]) => return Some(buffer[..bytes].to_vec()),
                Ok(_) => {}
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    }
}
