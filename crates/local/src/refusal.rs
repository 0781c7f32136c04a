// SPDX-License-Identifier: Apache-2.0
//! Refused requests: a code for programs, a sentence for people. Each protocol has its own codes.

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal<C> {
    /// Which kind. A `String` where the peer may be newer and have codes that are not known here.
    pub code: C,
    /// What is wrong and what to do.
    pub message: String,
}

impl<C> Refusal<C> {
    /// A refusal with its sentence.
    pub fn new(code: C, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Declares the codes of a protocol, each with the name that packets and counters have for it. Users need `serde`.
#[macro_export]
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($code:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs)] // the protocol's page describes them one by one
        pub enum $name {
            $(#[serde(rename = $text)] $code,)+
        }

        impl $name {
            /// All codes, in the order of the protocol's page.
            pub const ALL: &'static [Self] = &[$(Self::$code,)+];

            /// As it stands in packets.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
