// SPDX-License-Identifier: Apache-2.0
//! Framing of the TCP read: the same regions over a TCP stream, where there is neither an RDMA card nor a BPF responder.
//!
//! All numbers little-endian. The requester writes requests; for each the responder writes one answer with as many items, in
//! the same order. Answers come in the order of their requests.
//!
//! ```text
//! request  u32 request_id | u16 count | u16 zero | count x { u64 va | u32 rkey | u32 length }
//! answer   u32 request_id | u16 count | u16 zero | count x { u32 status | u32 length | length bytes }
//! ```
//!
//! Decoders take what has arrived so far and say how many bytes are missing, so a caller needs no state of its own but a
//! buffer. After an [`Error`] the stream is out of step and must be closed. A single read that cannot be served is no error:
//! it gets a [`Refusal`].
//! Cost: no copies; an answer is decoded item by item, so that a receive buffer of [`LONGEST_ITEM_BYTES`] will do.

/// Most reads in one request.
pub const MAX_READS_PER_REQUEST: usize = 256;
/// Longest read, bytes.
pub const MAX_READ_BYTES: u32 = 65536;
/// Bytes of the header of requests and answers.
pub const HEADER_BYTES: usize = 8;
/// Bytes of one read in a request.
pub const READ_BYTES: usize = 16;
/// Bytes before the data of an item.
pub const ITEM_HEADER_BYTES: usize = 8;
/// Status of a read that was served.
const STATUS_OK: u32 = 0;
/// Bytes of the longest request.
pub const LONGEST_REQUEST_BYTES: usize = HEADER_BYTES + MAX_READS_PER_REQUEST * READ_BYTES;
/// Bytes of the longest item of an answer.
pub const LONGEST_ITEM_BYTES: usize = ITEM_HEADER_BYTES + MAX_READ_BYTES as usize;

/// Why a message was not encoded, or a stream is no TCP read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// No reads, or too many.
    #[error("TCP read: count {0} is not in 1 to 256; close the connection, or split the request")]
    Count(usize),
    /// The reserved field of a header is not 0: another protocol, or out of step.
    #[error("TCP read: reserved field is {0:#06x}, not 0; the stream is out of step, close the connection")]
    Reserved(u16),
    /// A status that does not exist.
    #[error("TCP read: status {0} is unknown; the stream is out of step, close the connection")]
    Status(u32),
    /// An item that is not as long as its read, or a refusal with data.
    #[error("TCP read: item of {got_bytes} bytes where {expected_bytes} belong; close the connection")]
    ItemLength {
        /// As the read asked for, or 0 for a refused read.
        expected_bytes: u32,
        /// As the item states.
        got_bytes: u32,
    },
    /// A read that no responder serves.
    #[error("TCP read: length of {0} bytes is not in 1 to 65536; split the read")]
    ReadLength(u32),
    /// The answer belongs to another request.
    #[error(
        "TCP read: answer to request {got} with {got_count} items, expected {expected} with {expected_count}; close"
    )]
    Unexpected {
        /// Request id in the answer.
        got: u32,
        /// Items in the answer.
        got_count: u16,
        /// Request id that was next.
        expected: u32,
        /// Reads in that request.
        expected_count: u16,
    },
    /// The caller's buffer is too small.
    #[error("TCP read: needs {needed_bytes} bytes of buffer, got {got_bytes}; pass a larger buffer")]
    BufferTooSmall {
        /// Bytes to be written.
        needed_bytes: usize,
        /// Bytes that were left.
        got_bytes: usize,
    },
}

/// Why one read of a request was not served. Status 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Refusal {
    /// 1: remote key, range or rights; what NAK 0x62 is to RoCEv2.
    Access = 1,
    /// 2: a length or alignment that this responder does not serve; what NAK 0x61 is.
    InvalidRequest = 2,
    /// 3: over the source's budget; later, not now.
    Overloaded = 3,
}

/// One read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Read {
    /// Virtual address at the responder, bytes.
    pub va: u64,
    /// Remote key of the memory region.
    pub rkey: u32,
    /// Length, bytes.
    pub length_bytes: u32,
}

impl Read {
    /// Whether the length is in 1 to [`MAX_READ_BYTES`]. A responder answers other reads with [`Refusal::InvalidRequest`].
    ///
    /// # Errors
    /// [`Error::ReadLength`].
    pub fn check_length(&self) -> Result<(), Error> {
        check_length(self.length_bytes).map(|_| ())
    }

    const fn to_bytes(self) -> [u8; READ_BYTES] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.va.to_le_bytes();
        let [k0, k1, k2, k3] = self.rkey.to_le_bytes();
        let [l0, l1, l2, l3] = self.length_bytes.to_le_bytes();
        [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3]
    }

    const fn from_bytes(bytes: &[u8; READ_BYTES]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        Self {
            va: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            rkey: u32::from_le_bytes([k0, k1, k2, k3]),
            length_bytes: u32::from_le_bytes([l0, l1, l2, l3]),
        }
    }
}

fn check_length(length_bytes: u32) -> Result<u32, Error> {
    if length_bytes == 0 || length_bytes > MAX_READ_BYTES {
        return Err(Error::ReadLength(length_bytes));
    }
    Ok(length_bytes)
}

/// What a decoder made of the bytes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<T> {
    /// Not enough: call again with at least this many bytes more (the next estimate may ask for more again).
    Need {
        /// Missing bytes, at least 1.
        missing_bytes: usize,
    },
    /// A whole message or item at the front of the bytes.
    Complete {
        /// What was decoded.
        value: T,
        /// Bytes that it took; the next one starts behind them.
        consumed_bytes: usize,
    },
}

impl<T> Decoded<T> {
    const fn missing(wanted_bytes: usize, got_bytes: usize) -> Self {
        Self::Need { missing_bytes: wanted_bytes - got_bytes }
    }
}

/// Which request a message belongs to, and how many reads it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    request_id: u32,
    count: u16,
}

impl Header {
    /// A header for `count` reads.
    ///
    /// # Errors
    /// [`Error::Count`].
    pub fn new(request_id: u32, count: usize) -> Result<Self, Error> {
        match u16::try_from(count) {
            Ok(short) if (1..=MAX_READS_PER_REQUEST).contains(&count) => Ok(Self { request_id, count: short }),
            _ => Err(Error::Count(count)),
        }
    }

    /// Chosen by the requester, echoed by the responder.
    #[must_use]
    pub const fn request_id(self) -> u32 {
        self.request_id
    }

    /// Reads in the request, items in the answer: 1 to [`MAX_READS_PER_REQUEST`].
    #[must_use]
    pub const fn count(self) -> u16 {
        self.count
    }

    /// The header as it begins a request or an answer.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [i0, i1, i2, i3] = self.request_id.to_le_bytes();
        let [c0, c1] = self.count.to_le_bytes();
        [i0, i1, i2, i3, c0, c1, 0, 0]
    }

    fn decode(bytes: &[u8]) -> Result<Decoded<Self>, Error> {
        let Some(&[i0, i1, i2, i3, c0, c1, z0, z1]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(Decoded::missing(HEADER_BYTES, bytes.len()));
        };
        let reserved = u16::from_le_bytes([z0, z1]);
        if reserved != 0 {
            return Err(Error::Reserved(reserved));
        }
        let value = Self::new(u32::from_le_bytes([i0, i1, i2, i3]), usize::from(u16::from_le_bytes([c0, c1])))?;
        Ok(Decoded::Complete { value, consumed_bytes: HEADER_BYTES })
    }
}

/// A decoded request. Its reads have any length: see [`Read::check_length`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Id and count.
    pub header: Header,
    reads: &'a [[u8; READ_BYTES]],
}

impl<'a> Request<'a> {
    /// The reads, in order.
    pub fn reads(&self) -> impl ExactSizeIterator<Item = Read> + 'a {
        self.reads.iter().map(Read::from_bytes)
    }

    /// Decodes a request at the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::Reserved`], [`Error::Count`].
    pub fn decode(bytes: &'a [u8]) -> Result<Decoded<Self>, Error> {
        let header = match Header::decode(bytes)? {
            Decoded::Complete { value, .. } => value,
            Decoded::Need { missing_bytes } => return Ok(Decoded::Need { missing_bytes }),
        };
        let consumed_bytes = HEADER_BYTES + usize::from(header.count) * READ_BYTES;
        let Some(message) = bytes.get(..consumed_bytes) else {
            return Ok(Decoded::missing(consumed_bytes, bytes.len()));
        };
        let (reads, _) = message[HEADER_BYTES..].as_chunks();
        Ok(Decoded::Complete { value: Self { header, reads }, consumed_bytes })
    }
}

/// Encodes a request; returns its length.
///
/// # Errors
/// [`Error::Count`], [`Error::ReadLength`], [`Error::BufferTooSmall`].
pub fn encode_request(request_id: u32, reads: &[Read], out: &mut [u8]) -> Result<usize, Error> {
    let header = Header::new(request_id, reads.len())?;
    let needed_bytes = HEADER_BYTES + reads.len() * READ_BYTES;
    let got_bytes = out.len();
    let out = out.get_mut(..needed_bytes).ok_or(Error::BufferTooSmall { needed_bytes, got_bytes })?;
    let (head, body) = out.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header.to_bytes());
    let (chunks, _) = body.as_chunks_mut();
    for (chunk, read) in chunks.iter_mut().zip(reads) {
        read.check_length()?;
        *chunk = read.to_bytes();
    }
    Ok(needed_bytes)
}

/// Encodes what goes before an item's data: `Ok(length)` if that many bytes of data follow, or the refusal, which has none.
/// A responder writes [`Header::to_bytes`] of the request, then for each read this and the data.
///
/// # Errors
/// [`Error::ReadLength`].
pub fn encode_item_header(outcome: Result<u32, Refusal>) -> Result<[u8; ITEM_HEADER_BYTES], Error> {
    let (status, length_bytes) = match outcome {
        Ok(length_bytes) => (STATUS_OK, check_length(length_bytes)?),
        Err(refusal) => (refusal as u32, 0),
    };
    let mut bytes = [0; ITEM_HEADER_BYTES];
    bytes[..4].copy_from_slice(&status.to_le_bytes());
    bytes[4..].copy_from_slice(&length_bytes.to_le_bytes());
    Ok(bytes)
}

/// Decodes the header of an answer, which must be that of `expected`: the oldest request without an answer.
///
/// # Errors
/// [`Error::Reserved`], [`Error::Count`], [`Error::Unexpected`].
pub fn decode_answer_header(bytes: &[u8], expected: Header) -> Result<Decoded<Header>, Error> {
    let decoded = Header::decode(bytes)?;
    if let Decoded::Complete { value, .. } = decoded
        && value != expected
    {
        return Err(Error::Unexpected {
            got: value.request_id,
            got_count: value.count,
            expected: expected.request_id,
            expected_count: expected.count,
        });
    }
    Ok(decoded)
}

/// Decodes one item of an answer: the data of a read of `read_bytes`, or why it was refused.
///
/// # Errors
/// [`Error::Status`], [`Error::ItemLength`].
pub fn decode_answer_item(bytes: &[u8], read_bytes: u32) -> Result<Decoded<Result<&[u8], Refusal>>, Error> {
    let Some(&[s0, s1, s2, s3, l0, l1, l2, l3]) = bytes.first_chunk::<ITEM_HEADER_BYTES>() else {
        return Ok(Decoded::missing(ITEM_HEADER_BYTES, bytes.len()));
    };
    let refusal = match u32::from_le_bytes([s0, s1, s2, s3]) {
        STATUS_OK => None,
        1 => Some(Refusal::Access),
        2 => Some(Refusal::InvalidRequest),
        3 => Some(Refusal::Overloaded),
        unknown => return Err(Error::Status(unknown)),
    };
    let got_bytes = u32::from_le_bytes([l0, l1, l2, l3]);
    let expected_bytes = if refusal.is_none() { read_bytes } else { 0 };
    if got_bytes != expected_bytes {
        return Err(Error::ItemLength { expected_bytes, got_bytes });
    }
    let consumed_bytes = ITEM_HEADER_BYTES + got_bytes as usize;
    let Some(item) = bytes.get(..consumed_bytes) else {
        return Ok(Decoded::missing(consumed_bytes, bytes.len()));
    };
    let value = refusal.map_or(Ok(&item[ITEM_HEADER_BYTES..]), Err);
    Ok(Decoded::Complete { value, consumed_bytes })
}
