// SPDX-License-Identifier: Apache-2.0
//! TLS: who speaks it is served, who does not is not, and a renewed certificate is used without a restart.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::from;
use onlooker_testbed::{Agent, Controller, until};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

/// A new certificate for `localhost` in the files, and itself.
pub(crate) fn renew(dir: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

/// Sends a request over TLS to whoever shows `trusted`; the answer as it came.
fn ask(address: SocketAddr, trusted: &CertificateDer<'static>, request: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut answer = Vec::new();
    {
        let mut tls = Stream::new(&mut client, &mut stream);
        tls.write_all(request.as_bytes())?;
        tls.read_to_end(&mut answer)?;
    }
    assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
    Ok(String::from_utf8(answer).unwrap())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

#[test]
fn tls_is_spoken_and_certificates_are_renewed() {
    const TOKEN: &str = "a-token-of-many-characters";
    let agent = Agent::start();
    let dir = tempfile::tempdir().unwrap();
    let first = renew(dir.path());
    fs::write(dir.path().join("token"), TOKEN).unwrap();
    let path = |name: &str| dir.path().join(name);
    let http = format!(
        "tls_certificate = {:?}\ntls_key = {:?}\ntoken_file = {:?}",
        path("cert.pem"),
        path("key.pem"),
        path("token")
    );
    let controller = Controller::start(&http, &agent.target("a"));
    let address = controller.address();

    // Who connects and says nothing keeps nobody else waiting, however often: a source has a share of all handshakes.
    let silent: Vec<TcpStream> = (0..300).map(|_| from(2, address)).collect();
    assert!(ask(address, &first, &get("/healthz")).unwrap().starts_with("HTTP/1.1 200"));
    assert!(ask(address, &first, &get("/api/onlooker/v1/hosts")).unwrap().starts_with("HTTP/1.1 401"));
    drop(silent);

    let body = format!("{{\"token\":\"{TOKEN}\"}}");
    let login = format!(
        "POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = ask(address, &first, &login).unwrap();
    let cookie = answer.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("; Secure") && cookie.contains("HttpOnly"), "{cookie}");

    // Plain HTTP gets nothing, nor does TLS 1.2.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(get("/healthz").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("ok"));
    let openssl = |version: &str| {
        let command = format!("openssl s_client -connect {address} {version} -alpn http/1.1 -brief </dev/null 2>&1");
        let output = Command::new("sh").arg("-c").arg(command).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let spoken = openssl("-tls1_3");
    assert!(spoken.contains("CONNECTION ESTABLISHED") && spoken.contains("Protocol version: TLSv1.3"), "{spoken}");
    assert!(!openssl("-tls1_2").contains("CONNECTION ESTABLISHED"));

    // A key alone is no pair: the certificate of before stays. With the certificate it is used.
    let second = renew(dir.path());
    fs::write(path("cert.pem"), "nonsense").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(ask(address, &first, &get("/healthz")).unwrap().starts_with("HTTP/1.1 200"));
    drop(second);
    let third = renew(dir.path());
    until("the renewed certificate", || ask(address, &third, &get("/healthz")).ok());
    assert!(ask(address, &first, &get("/healthz")).is_err());
}
