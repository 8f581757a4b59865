//! Checkpoints of all shards, so that replicas can be compared and copied at one index.
//!
//! Owns which shards get a checkpoint. Everything acknowledged before the machine begins precedes
//! the checkpoints.

use alloc::vec;
use alloc::vec::Vec;

use super::asking::{self, NextAction, Unanswered};
use crate::command::{Reply, Request, Write};
use crate::types::{LogIndex, ShardId};

/// The next action of a [`CheckpointRequest`]. The result is the index of each shard's checkpoint.
pub type CheckpointAction = NextAction<Result<Vec<(ShardId, LogIndex)>, Unanswered>>;

/// Appends a checkpoint to the log of every shard.
#[derive(Debug)]
pub struct CheckpointRequest {
    /// The shards, once the node has named them.
    shards: Option<Vec<ShardId>>,
}

impl CheckpointRequest {
    /// Begins with a question for the shards.
    pub fn begin() -> (CheckpointRequest, CheckpointAction) {
        (CheckpointRequest { shards: None }, NextAction::Ask(vec![Request::Cluster]))
    }

    /// Takes the replies to the last action.
    pub fn answered(&mut self, replies: Vec<Reply>) -> CheckpointAction {
        if let Some(shards) = self.shards.take() {
            return NextAction::Done(indexes(shards, replies));
        }
        let view = match asking::cluster_view(replies) {
            Ok(view) => view,
            Err(error) => return NextAction::Done(Err(error)),
        };
        let shards: Vec<ShardId> = view.shards.iter().map(|shard| shard.shard).collect();
        let requests = requests(&shards);
        self.shards = Some(shards);
        NextAction::Ask(requests)
    }
}

/// The requests that append a checkpoint to the log of each of these shards.
pub(super) fn requests(shards: &[ShardId]) -> Vec<Request> {
    shards.iter().map(|&shard| Request::Write(Write::Checkpoint { shard })).collect()
}

/// The index of each shard's checkpoint, from the replies to [`requests`].
pub(super) fn indexes(
    shards: Vec<ShardId>,
    replies: Vec<Reply>,
) -> Result<Vec<(ShardId, LogIndex)>, Unanswered> {
    if replies.len() != shards.len() {
        return Err(Unanswered::Mismatched);
    }
    let checkpoint = |(shard, reply)| Ok((shard, asking::checkpointed(reply)?));
    shards.into_iter().zip(replies).map(checkpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::super::backup::tests::fixture::{checkpointed, cluster};
    use super::*;
    use crate::command::Refusal;

    #[test]
    fn every_shard_gets_a_checkpoint() {
        let (mut request, action) = CheckpointRequest::begin();
        assert!(matches!(action, NextAction::Ask(requests) if requests == [Request::Cluster]));
        let NextAction::Ask(requests) = request.answered(vec![cluster(&[0, 1, 4])]) else { panic!("asks") };
        let of = |shard| Request::Write(Write::Checkpoint { shard: ShardId(shard) });
        assert_eq!(requests, [of(0), of(1), of(4)]);
        let replies = vec![checkpointed(7), checkpointed(9), checkpointed(2)];
        let NextAction::Done(Ok(indexes)) = request.answered(replies) else { panic!("done") };
        let expected = [(0, 7), (1, 9), (4, 2)].map(|(shard, index)| (ShardId(shard), LogIndex(index)));
        assert_eq!(indexes, expected);
    }

    #[test]
    fn a_refused_checkpoint_ends_the_request() {
        let (mut request, _) = CheckpointRequest::begin();
        request.answered(vec![cluster(&[0, 1])]);
        let replies = vec![checkpointed(7), Reply::Refused(Refusal::NoLeader)];
        let NextAction::Done(Err(error)) = request.answered(replies) else { panic!("done") };
        assert_eq!(error, Unanswered::Refused(Refusal::NoLeader));
        let (mut request, _) = CheckpointRequest::begin();
        let NextAction::Done(Err(error)) = request.answered(vec![checkpointed(7)]) else { panic!("done") };
        assert_eq!(error, Unanswered::Mismatched);
    }
}
