// SPDX-License-Identifier: Apache-2.0
//! 24-bit numbers of the InfiniBand transport: queue pair, packet sequence and message sequence numbers.

/// Values of a 24-bit field: 2^24.
const MODULUS: u32 = 1 << 24;

macro_rules! u24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// The number, or `None` if it needs more than 24 bits.
            #[must_use]
            pub const fn new(value: u32) -> Option<Self> {
                if value < MODULUS { Some(Self(value)) } else { None }
            }

            /// The lowest 24 bits of `value`.
            #[must_use]
            pub const fn wrapping(value: u32) -> Self {
                Self(value % MODULUS)
            }

            /// The number, below 2^24.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// From three bytes as on the wire, big-endian.
            #[must_use]
            pub const fn from_be_bytes(bytes: [u8; 3]) -> Self {
                Self(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]))
            }

            /// Three bytes as on the wire, big-endian.
            #[must_use]
            pub const fn to_be_bytes(self) -> [u8; 3] {
                let [_, a, b, c] = self.0.to_be_bytes();
                [a, b, c]
            }

            /// This number plus `count`, modulo 2^24.
            #[must_use]
            pub const fn wrapping_add(self, count: u32) -> Self {
                Self::wrapping(self.0.wrapping_add(count))
            }
        }
    };
}

u24! {
    /// Queue pair number (IBA 9.2, DestQP). Ours are random per incarnation of the responder.
    Qpn
}

impl Qpn {
    /// The first that anybody can have: 0 and 1 are the subnet's (IBA 3.2.1).
    pub const FIRST: Self = Self(2);
}

u24! {
    /// Packet sequence number (IBA 9.2, PSN; 9.7.1). Ordered only by [`Psn::distance_from`]: it wraps, so `<` has no meaning.
    Psn
}
u24! {
    /// Message sequence number (IBA 9.3.5; 9.7.7.1). Our responder is stateless and does not specify it.
    Msn
}

impl Psn {
    /// Steps from `earlier` to `self` modulo 2^24, in -2^23 ..= 2^23 - 1: positive if `self` is the later one. Exactly half
    /// the circle away (2^23) counts as earlier: the spec leaves it undefined, and a window never reaches that far.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> i32 {
        // The upper 24 bits of a word, so that the sign bit is the 24-bit number's.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }

    /// Whether `self` comes after `other` in sequence.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_four_bits() {
        assert_eq!(Qpn::new(0xff_ffff), Some(Qpn::wrapping(0xffff_ffff)));
        assert_eq!(Qpn::new(0x100_0000), None);
        assert_eq!(Psn::from_be_bytes([1, 2, 3]).get(), 0x01_0203);
        assert_eq!(Psn::wrapping(0x01_0203).to_be_bytes(), [1, 2, 3]);
        assert_eq!(Msn::wrapping(0xff_ffff).wrapping_add(2).get(), 1);
        assert_eq!(Msn::wrapping(3).wrapping_add(u32::MAX).get(), 2);
    }

    #[test]
    fn serial_order_wraps() {
        let last = Psn::wrapping(0xff_ffff);
        let first = Psn::wrapping(0);
        assert_eq!(first.distance_from(last), 1);
        assert_eq!(last.distance_from(first), -1);
        assert!(first.is_after(last) && !last.is_after(first) && !first.is_after(first));
        assert_eq!(Psn::wrapping(0x7f_ffff).distance_from(first), 0x7f_ffff);
        assert_eq!(Psn::wrapping(0x80_0000).distance_from(first), -0x80_0000);
    }
}
