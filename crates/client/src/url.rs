// SPDX-License-Identifier: Apache-2.0
//! The controller's URL: scheme, host, port, and a path where it stands behind a proxy.

use std::fmt;
use std::net::IpAddr;

/// Port of the controller's HTTP interface unless configured otherwise.
const DEFAULT_PORT: u16 = 7180;

/// Where the controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether by TLS.
    pub tls: bool,
    /// Name or address, the latter without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Nothing, or `/a/b`.
    path: String,
}

impl Url {
    /// Reads `http://HOST[:PORT][/PATH]` or the same with https.
    ///
    /// # Errors
    /// What is wrong with it, and what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            |what: &str| format!("{text}: {what}; write http://HOST:PORT or https://HOST:PORT of the controller");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("not a URL"))?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("neither http nor https")),
        };
        if rest.contains(['?', '#', '@', ' ', '%']) {
            return Err(wrong("it has more than host, port and path"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| wrong("no ] behind the IPv6 address"))?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong("no IPv6 address between the brackets"))?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        if host.is_empty() {
            return Err(wrong("no host"));
        }
        let port = match port.ok_or_else(|| wrong("something stands behind the ]"))? {
            // As for any URL; without TLS it is the controller itself, which has a port of its own.
            "" => {
                if tls {
                    443
                } else {
                    DEFAULT_PORT
                }
            }
            port => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| wrong("the port is no number from 1 to 65535"))?,
        };
        Ok(Self { tls, host: host.to_owned(), port, path: path.trim_end_matches('/').to_owned() })
    }

    /// The URL of something at the controller; `path` begins with /.
    #[must_use]
    pub fn of(&self, path: &str) -> String {
        format!("{self}{path}")
    }

    /// Whether it names loopback, so that nothing crosses a network.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let Self { host, port, path, .. } = self;
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}{path}")
        } else {
            write!(f, "{scheme}://{host}:{port}{path}")
        }
    }
}

/// A path segment with everything but letters, digits and `-._~` percent-encoded (RFC 3986, section 2.3).
#[must_use]
pub fn segment(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_put_together() {
        for (text, shown, loopback) in [
            ("http://controller", "http://controller:7180", false),
            ("http://10.0.0.1:80/", "http://10.0.0.1:80", false),
            ("https://onlooker.example/a/b/", "https://onlooker.example:443/a/b", false),
            ("https://[fd00::1]:7180", "https://[fd00::1]:7180", false),
            ("http://[::1]", "http://[::1]:7180", true),
            ("http://localhost:1", "http://localhost:1", true),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.to_string().as_str(), url.is_loopback()), (shown, loopback));
            assert_eq!(url.of("/api"), format!("{shown}/api"));
        }
    }

    #[test]
    fn what_is_no_url_of_a_controller_is_told() {
        for text in [
            "controller:7180",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:b",
            "http://a:0",
            "http://a:70000",
            "http://user@a",
            "http://a?x",
            "http://[::1",
            "http://[zz]",
            "http://[::1]80",
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.starts_with(text) && error.contains("write http://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn path_segments_are_encoded() {
        assert_eq!(segment("web-3.example_~"), "web-3.example_~");
        assert_eq!(segment("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }
}
