// SPDX-License-Identifier: Apache-2.0
//! Properties of the TCP read's framing.

use bolero::{TypeGenerator, check};
use onlooker_wire::tcp_read::{
    Decoded, Error, HEADER_BYTES, Header, ITEM_HEADER_BYTES, LONGEST_REQUEST_BYTES, MAX_READ_BYTES, Read, Refusal,
    Request, decode_answer_header, decode_answer_item, encode_item_header, encode_request,
};

/// Decodes from ever longer prefixes, as bytes arrive: each must ask for at least one byte more, never for more than there
/// are, until the message is complete.
fn in_pieces<'a, T>(
    message: &'a [u8],
    decode: impl Fn(&'a [u8]) -> Result<Decoded<T>, Error>,
) -> Result<(T, usize), Error> {
    let mut arrived = 0;
    loop {
        match decode(&message[..arrived])? {
            Decoded::Complete { value, consumed_bytes } => return Ok((value, consumed_bytes)),
            Decoded::Need { missing_bytes } => {
                assert!(missing_bytes > 0);
                arrived += missing_bytes;
                assert!(arrived <= message.len(), "asks for {arrived} of {} bytes", message.len());
            }
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    let expected = Header::new(1, 1).unwrap();
    check!().with_max_len(600).with_type::<(Vec<u8>, u32)>().for_each(|(bytes, read_bytes)| {
        if let Ok(Decoded::Complete { value, consumed_bytes }) = Request::decode(bytes) {
            assert!(consumed_bytes <= bytes.len());
            assert_eq!(value.reads().len(), usize::from(value.header.count()));
        }
        let _ = decode_answer_header(bytes, expected);
        if let Ok(Decoded::Complete { consumed_bytes, .. }) = decode_answer_item(bytes, *read_bytes) {
            assert!(consumed_bytes <= bytes.len());
        }
    });
}

#[test]
fn requests_survive_the_trip_in_pieces() {
    check!().with_type::<(u32, u8, [(u64, u32, u32); 4])>().for_each(|(id, count, seeds)| {
        let reads: Vec<Read> = (0..=usize::from(*count))
            .map(|at| {
                let (va, rkey, length) = seeds[at % 4];
                Read { va: va.wrapping_add(at as u64), rkey, length_bytes: length % MAX_READ_BYTES + 1 }
            })
            .collect();
        let mut out = [0xee; LONGEST_REQUEST_BYTES];
        let length = encode_request(*id, &reads, &mut out).unwrap();
        // What follows in the stream must not matter.
        let (request, consumed) = in_pieces(&out[..length], Request::decode).unwrap();
        assert_eq!((request.header.request_id(), consumed), (*id, length));
        assert!(request.reads().eq(reads.iter().copied()));
        assert_eq!(Request::decode(&out), Request::decode(&out[..length]));
        assert!(matches!(
            encode_request(*id, &reads, &mut out[..length - 1]),
            Err(Error::BufferTooSmall { needed_bytes, .. }) if needed_bytes == length
        ));
    });
}

#[derive(Debug, Clone, TypeGenerator)]
enum Item {
    Data(Vec<u8>),
    Refused(u8),
}

impl Item {
    fn outcome(&self) -> Result<&[u8], Refusal> {
        match self {
            Self::Data(data) if !data.is_empty() => Ok(data),
            Self::Refused(1) => Err(Refusal::Access),
            Self::Refused(2) => Err(Refusal::Overloaded),
            _ => Err(Refusal::InvalidRequest),
        }
    }
}

#[test]
fn answers_survive_the_trip_in_pieces() {
    check!().with_type::<(u32, Vec<Item>)>().for_each(|(id, items)| {
        let Ok(header) = Header::new(*id, items.len()) else { return };
        let mut message = header.to_bytes().to_vec();
        for item in items {
            let outcome = item.outcome();
            message.extend(encode_item_header(outcome.map(|data| u32::try_from(data.len()).unwrap())).unwrap());
            message.extend(outcome.unwrap_or_default());
        }
        let (_, mut at) = in_pieces(&message, |bytes| decode_answer_header(bytes, header)).unwrap();
        for item in items {
            let outcome = item.outcome();
            let read_bytes = u32::try_from(outcome.map_or(64, <[u8]>::len)).unwrap();
            let (value, consumed) = in_pieces(&message[at..], |bytes| decode_answer_item(bytes, read_bytes)).unwrap();
            assert_eq!(value, outcome);
            at += consumed;
        }
        assert_eq!(at, message.len());
    });
}

#[test]
fn every_error_has_its_cause() {
    let header = Header::new(7, 2).unwrap();
    let need = |missing_bytes| Decoded::Need { missing_bytes };
    assert_eq!(Header::new(7, 0), Err(Error::Count(0)));
    assert_eq!(Header::new(7, 257), Err(Error::Count(257)));
    assert_eq!(Header::new(7, 256).unwrap().count(), 256);
    assert_eq!(Request::decode(&[7, 0, 0, 0, 1, 1, 0, 0]), Err(Error::Count(257)));
    assert_eq!(Request::decode(&[7, 0, 0, 0, 0, 0, 0, 0]), Err(Error::Count(0)));
    assert_eq!(Request::decode(&[7, 0, 0, 0, 1, 0, 0, 2]), Err(Error::Reserved(0x200)));
    assert_eq!(Request::decode(&[7, 0, 0]), Ok(need(5)));
    assert_eq!(Request::decode(&[7, 0, 0, 0, 2, 0, 0, 0, 9]), Ok(need(31)));

    assert_eq!(
        decode_answer_header(&[8, 0, 0, 0, 2, 0, 0, 0], header),
        Err(Error::Unexpected { got: 8, got_count: 2, expected: 7, expected_count: 2 })
    );
    assert_eq!(
        decode_answer_header(&[7, 0, 0, 0, 3, 0, 0, 0], header),
        Err(Error::Unexpected { got: 7, got_count: 3, expected: 7, expected_count: 2 })
    );
    let complete = Decoded::Complete { value: header, consumed_bytes: HEADER_BYTES };
    assert_eq!(decode_answer_header(&[7, 0, 0, 0, 2, 0, 0, 0], header), Ok(complete));

    let item = |status: u8, length: u8| {
        let mut bytes = [0; ITEM_HEADER_BYTES];
        (bytes[0], bytes[4]) = (status, length);
        bytes
    };
    assert_eq!(decode_answer_item(&item(4, 0), 9), Err(Error::Status(4)));
    assert_eq!(decode_answer_item(&item(0, 8), 9), Err(Error::ItemLength { expected_bytes: 9, got_bytes: 8 }));
    assert_eq!(decode_answer_item(&item(1, 9), 9), Err(Error::ItemLength { expected_bytes: 0, got_bytes: 9 }));
    assert_eq!(decode_answer_item(&item(0, 9), 9), Ok(Decoded::Need { missing_bytes: 9 }));

    assert_eq!(encode_item_header(Ok(0)), Err(Error::ReadLength(0)));
    assert_eq!(encode_item_header(Ok(65537)), Err(Error::ReadLength(65537)));
    assert!(encode_item_header(Ok(65536)).is_ok());
    let read = |length_bytes| Read { va: 0, rkey: 0, length_bytes };
    let mut out = [0; LONGEST_REQUEST_BYTES];
    assert_eq!(encode_request(7, &[read(1), read(0)], &mut out), Err(Error::ReadLength(0)));
    assert_eq!(encode_request(7, &[read(65537)], &mut out), Err(Error::ReadLength(65537)));
    assert_eq!(encode_request(7, &[], &mut out), Err(Error::Count(0)));
    assert_eq!(encode_request(7, &[read(1); 257], &mut out), Err(Error::Count(257)));
    assert_eq!(encode_request(7, &[read(1); 256], &mut out), Ok(LONGEST_REQUEST_BYTES));
}
