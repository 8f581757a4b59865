//! Messages to the subscribers of channels.

use bytes::Bytes;

use super::ShardRefusal;
use crate::limits;

/// The tag and the two lengths of a publication in a frame, rounded up.
const LINK_OVERHEAD_BYTES: usize = 16;

/// A message to the subscribers of a channel, on all nodes. It is stored nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// At most [`limits::CHANNEL_BYTES_MAX`] bytes, and at least one.
    pub channel: Bytes,
    /// At most [`limits::MESSAGE_BYTES_MAX`] bytes.
    pub message: Bytes,
}

impl Publication {
    /// Checks the limits that every protocol shares.
    ///
    /// # Errors
    /// [`ShardRefusal::Invalid`], with the limit.
    pub fn validate(&self) -> Result<(), ShardRefusal> {
        if self.channel.is_empty() {
            return Err(ShardRefusal::invalid("empty name of a channel"));
        }
        if self.channel.len() > limits::CHANNEL_BYTES_MAX {
            return Err(ShardRefusal::invalid("name of a channel longer than 4 KiB"));
        }
        if self.message.len() > limits::MESSAGE_BYTES_MAX {
            return Err(ShardRefusal::invalid("message longer than 1 MiB"));
        }
        Ok(())
    }

    /// Bytes of channel and message.
    pub fn content_bytes(&self) -> usize {
        self.channel.len() + self.message.len()
    }

    /// Bytes that it counts on a link between nodes: at least as many as it takes in a frame. Both
    /// ends of a link must count alike.
    pub(crate) fn link_bytes(&self) -> usize {
        self.content_bytes() + LINK_OVERHEAD_BYTES
    }
}
