//! Drives machines of the core that do nothing but ask the node.

use tidelock_core::clients::NextAction;
use tidelock_core::command::{Reply, Request};

use crate::store::Store;

/// Submits all requests before the first reply is awaited. Returns the replies in the same order.
pub(super) async fn ask_all<S: Store>(store: &S, requests: Vec<Request>) -> Vec<Reply> {
    let submitted: Vec<_> = requests.into_iter().map(|request| store.submit(request)).collect();
    let mut replies = Vec::with_capacity(submitted.len());
    for reply in submitted {
        replies.push(reply.await);
    }
    replies
}

/// Executes the actions of a machine, of which `action` is the first, until its result.
pub(super) async fn until_done<S: Store, T>(
    store: &S,
    mut action: NextAction<T>,
    mut answered: impl FnMut(Vec<Reply>) -> NextAction<T>,
) -> T {
    loop {
        match action {
            NextAction::Ask(requests) => action = answered(ask_all(store, requests).await),
            NextAction::Done(result) => return result,
        }
    }
}
