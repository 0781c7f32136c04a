// SPDX-License-Identifier: Apache-2.0
//! The check of a two-guest wire: guest a exposes a BPF array, guest b READs it. They exchange addresses over TCP; a
//! stays until b has said what came of it, so that each guest's exit code tells the same.

use std::env;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sideway::ibverbs::completion::WorkCompletionStatus;

use crate::bpf::MappedArray;
use crate::rdma::{Address, End};
use crate::{BLOCK_BYTES, BLOCK_WORDS, Outcome};

const TCP_PORT: u16 = 7777;
const PATIENCE: Duration = Duration::from_secs(60);
const ADDRESS_BYTES: usize = 32;
const READS: u64 = 50;
const DONE: u8 = 1;

/// The half that this guest's role (`LAB_ROLE`) asks for.
pub(crate) fn read_across_the_wire() -> Outcome {
    match env::var("LAB_ROLE")?.as_str() {
        "a" => expose(),
        "b" => read(),
        role => Err(format!("role '{role}' is not one of a pair: use run-pair").into()),
    }
}

fn pattern(index: usize) -> u64 {
    0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1)
}

fn expose() -> Outcome {
    let mut end = End::exposing(MappedArray::new(BLOCK_BYTES, 4)?)?;
    for (index, word) in end.words().iter().enumerate() {
        word.store(pattern(index), Ordering::Release);
    }
    let (mut stream, _) = TcpListener::bind((env::var("LAB_IP4")?.as_str(), TCP_PORT))?.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let peer = exchange(&mut stream, &end.address())?;
    end.connect(&peer)?;
    stream.write_all(&[DONE])?; // ready to be read
    let mut verdict = [0];
    stream.read_exact(&mut verdict)?;
    if verdict[0] == DONE { Ok("the other guest has read it".to_owned()) } else { Err("the other guest failed".into()) }
}

fn read() -> Outcome {
    let mut end = End::reading()?;
    let mut stream = dial()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let peer = exchange(&mut stream, &end.address())?;
    end.connect(&peer)?;
    stream.read_exact(&mut [0])?; // the other end is ready
    let outcome = read_blocks(&mut end, &peer);
    stream.write_all(&[u8::from(outcome.is_ok())])?;
    outcome
}

fn read_blocks(end: &mut End, peer: &Address) -> Outcome {
    let started = Instant::now();
    for read in 0..READS {
        let block = usize::try_from(read % 4)?;
        let status = end.read(peer.rkey, peer.memory, block)?;
        if status != WorkCompletionStatus::Success {
            return Err(format!("READ {read} completed with {status:?}").into());
        }
        for (index, word) in end.block().into_iter().enumerate() {
            let wanted = pattern(block * BLOCK_WORDS + index);
            if word != wanted {
                return Err(format!("READ {read}: word {index} is {word:#x}, not {wanted:#x}").into());
            }
        }
    }
    Ok(format!("{READS} READs of {BLOCK_BYTES} bytes in {} ms", started.elapsed().as_millis()))
}

/// The other guest may be slower to start its payload.
fn dial() -> Result<TcpStream, Box<dyn Error>> {
    let address = env::var("LAB_PEER_IP4")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect((address.as_str(), TCP_PORT)) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(format!("dialling {address}: {error}").into()),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn exchange(stream: &mut TcpStream, own: &Address) -> Result<Address, Box<dyn Error>> {
    let mut bytes = [0_u8; ADDRESS_BYTES];
    bytes[..4].copy_from_slice(&own.queue_pair.to_le_bytes());
    bytes[4..8].copy_from_slice(&own.rkey.to_le_bytes());
    bytes[8..16].copy_from_slice(&own.memory.to_le_bytes());
    bytes[16..].copy_from_slice(&own.gid);
    stream.write_all(&bytes)?;
    stream.read_exact(&mut bytes)?;
    Ok(Address {
        queue_pair: u32::from_le_bytes(bytes[..4].try_into()?),
        rkey: u32::from_le_bytes(bytes[4..8].try_into()?),
        memory: u64::from_le_bytes(bytes[8..16].try_into()?),
        gid: bytes[16..].try_into()?,
    })
}
