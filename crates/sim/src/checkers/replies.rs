//! Checks that every request is answered exactly once, by its deadline in ticks of its node, unless
//! that node dies.

use std::collections::{BTreeMap, VecDeque};

use tidelock_core::types::{NodeId, Ticks, Token};

use super::Violation;
use super::online::{Observation, OnlineChecker};
use crate::event_queue::Micros;
use crate::history::{History, Outcome};

const CHECKER: &str = "replies";

/// A request enters between two ticks, and its deadline is seen at one.
const SLACK_TICKS: u64 = 2;

/// The requests that nodes have taken and not answered.
#[derive(Debug)]
pub struct Replies {
    request_ticks: u64,
    /// By node, in the order in which it took them.
    open: BTreeMap<NodeId, VecDeque<(Token, Ticks)>>,
}

impl Replies {
    /// Every request must be answered within `request_ticks`.
    pub fn new(request_ticks: u64) -> Replies {
        Replies { request_ticks, open: BTreeMap::new() }
    }

    /// Records that a node took a request.
    fn asked(&mut self, node: NodeId, token: Token, now: Ticks) {
        self.open.entry(node).or_default().push_back((token, now));
    }

    /// A node sent a reply; the argument says whether the history had an open operation for it.
    fn answered(&self, node: NodeId, token: Token, was_open: bool) -> Result<(), Violation> {
        if was_open {
            return Ok(());
        }
        let text = format!("node {node} answered request {token}, which was not open");
        Err(Violation::new(CHECKER, text))
    }

    /// A node has handled all events up to a tick.
    fn ticked(&mut self, node: NodeId, now: Ticks, history: &History) -> Result<(), Violation> {
        let queue = self.open.entry(node).or_default();
        while let Some(&(token, asked)) = queue.front() {
            let open = history.operation(token).is_some_and(|operation| operation.outcome == Outcome::Open);
            if open && now.0 > asked.0 + self.request_ticks + SLACK_TICKS {
                let text = format!("request {token} to node {node} is open {} ticks", now.0 - asked.0);
                return Err(Violation::new(CHECKER, text));
            }
            if open {
                break;
            }
            queue.pop_front();
        }
        Ok(())
    }

    /// A process died: its open requests need no answer.
    fn forget(&mut self, node: NodeId) {
        self.open.remove(&node);
    }
}

impl OnlineChecker for Replies {
    fn observe(&mut self, _: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        match observation {
            Observation::Asked { node, token, ticks, .. } => self.asked(*node, *token, *ticks),
            Observation::Answered { node, token, was_open, .. } => {
                return self.answered(*node, *token, *was_open);
            }
            Observation::TurnEnded { node, ticks, history } => {
                return self.ticked(*node, *ticks, history);
            }
            Observation::ProcessEnded(node) => self.forget(*node),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::HistoryBuilder;

    const NODE: NodeId = NodeId(1);

    #[test]
    fn a_second_answer_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let get = history_builder.get();
        let replies = Replies::new(10);
        let mut answer = || {
            history_builder.history.answer(
                get,
                tidelock_core::command::Reply::Read(tidelock_core::command::ReadReply::Value(None)),
            )
        };
        assert_eq!(replies.answered(NODE, get, answer()), Ok(()));
        assert!(replies.answered(NODE, get, answer()).is_err());
        assert!(
            replies
                .answered(
                    NODE,
                    Token(99),
                    history_builder.history.answer(
                        Token(99),
                        tidelock_core::command::Reply::Read(tidelock_core::command::ReadReply::Value(None))
                    )
                )
                .is_err()
        );
    }

    #[test]
    fn a_request_that_is_open_too_long_is_noticed_behind_answered_ones() {
        let mut history_builder = HistoryBuilder::default();
        let (first, second) = (history_builder.get(), history_builder.get());
        let mut replies = Replies::new(10);
        replies.asked(NODE, first, Ticks(5));
        replies.asked(NODE, second, Ticks(6));
        history_builder.not_found(first);
        assert_eq!(replies.ticked(NODE, Ticks(18), &history_builder.history), Ok(()));
        assert!(
            replies
                .ticked(NODE, Ticks(19), &history_builder.history)
                .unwrap_err()
                .message
                .contains("open 13 ticks")
        );
        replies.forget(NODE);
        assert_eq!(replies.ticked(NODE, Ticks(99), &history_builder.history), Ok(()));
    }
}
