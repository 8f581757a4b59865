//! Who makes a request.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::codec::{self, DecodeError, Decoder};

/// Who makes a request. It travels with a forwarded request, and the node that serves the request
/// checks it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Caller {
    /// A client that has not proved who it is. Nothing is allowed to it once authentication is
    /// required.
    #[default]
    Anonymous,
    /// A client that has proved to be the principal of this name.
    Principal(Arc<str>),
    /// The node itself, for its own work. No request of a client has this caller.
    Node,
}

impl Caller {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Caller::Anonymous => out.push(0),
            Caller::Principal(name) => {
                out.push(1);
                codec::put_bytes(out, name.as_bytes());
            }
            Caller::Node => out.push(2),
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Caller, DecodeError> {
        Ok(match decoder.u8()? {
            0 => Caller::Anonymous,
            1 => Caller::Principal(decoder.text()?.into()),
            2 => Caller::Node,
            _ => return Err(DecodeError::UnknownTag("caller")),
        })
    }
}
