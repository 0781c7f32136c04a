// SPDX-License-Identifier: Apache-2.0
//! What the programs have in common: variables of a guest, and endpoints as lines.

use onlooker_verbs::Endpoint;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What words are made with: odd, so that no two multiples are alike.
pub(crate) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

pub(crate) fn variable(name: &str) -> Result<String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}").into())
}

pub(crate) fn endpoint_line(endpoint: &Endpoint) -> String {
    let Endpoint { queue_pair, packet, gid, mtu_bytes, reads_answered } = endpoint;
    format!("{queue_pair} {packet} {} {mtu_bytes} {reads_answered}", u128::from_be_bytes(*gid))
}

pub(crate) fn numbers(line: &str) -> Result<Vec<u128>> {
    Ok(line.split_whitespace().map(str::parse::<u128>).collect::<std::result::Result<Vec<_>, _>>()?)
}

pub(crate) fn endpoint_of(line: &str) -> Result<Endpoint> {
    let numbers = numbers(line)?;
    let [queue_pair, packet, gid, mtu_bytes, reads_answered] = numbers[..] else {
        return Err(format!("no endpoint: {line:?}").into());
    };
    Ok(Endpoint {
        queue_pair: queue_pair.try_into()?,
        packet: packet.try_into()?,
        gid: gid.to_be_bytes(),
        mtu_bytes: mtu_bytes.try_into()?,
        reads_answered: reads_answered.try_into()?,
    })
}
