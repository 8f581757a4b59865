use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::*;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

const MIB: usize = 1 << 20;

/// The smallest budget: 48 of its 64 MiB are for large requests.
fn memory() -> Memory {
    Memory::new(0)
}

/// Uses up the part that is for large requests.
fn exhaust(memory: &Memory) -> Vec<Reservation> {
    let reservations: Vec<Reservation> = (0..2)
        .map(|_| {
            let mut reservation = memory.connection();
            assert!(reservation.try_grow_to(24 * MIB));
            reservation
        })
        .collect();
    assert_eq!(memory.used(), 48 * MIB);
    reservations
}

#[test]
fn what_is_reserved_is_given_back() {
    let memory = memory();
    let mut connection = memory.connection();
    assert_eq!(memory.used(), CONNECTION_BYTES);
    assert!(connection.try_grow_to(3 * MIB));
    assert!(connection.try_grow_to(2 * MIB), "what is there suffices");
    assert_eq!((memory.used(), connection.bytes()), (3 * MIB, 3 * MIB));
    connection.set(MIB);
    assert_eq!(memory.used(), MIB);
    connection.set(0);
    assert_eq!(memory.used(), CONNECTION_BYTES);
    drop(connection);
    assert_eq!(memory.used(), 0);
}

#[test]
fn small_requests_count_with_their_connection() {
    let memory = memory();
    let mut request = memory.request();
    assert!(request.try_grow_to(CONNECTION_BYTES));
    assert_eq!(memory.used(), 0);
    assert!(request.try_grow_to(CONNECTION_BYTES + 1));
    assert_eq!(memory.used(), 1);
    request.set(5);
    assert_eq!(memory.used(), 0);
}

#[test]
fn bytes_count_until_their_last_handle_is_dropped() {
    let memory = memory();
    let mut request = memory.request();
    assert!(request.try_grow_to(3 * MIB));
    let held = request.hold(Bytes::from(vec![7; MIB]));
    let part = held.slice(5..6);
    assert_eq!((held.len(), memory.used()), (MIB, MIB - CONNECTION_BYTES));
    drop(held);
    assert_eq!((part[0], memory.used()), (7, MIB - CONNECTION_BYTES));
    drop(part);
    assert_eq!(memory.used(), 0);
    let small = memory.request().hold(Bytes::from_static(b"small"));
    assert_eq!((small.len(), memory.used()), (5, 0));
    let mut answer = memory.request();
    assert!(answer.try_set(40 * MIB), "an answer that is there may be larger than a share");
    assert!(!memory.request().try_set(9 * MIB));
}

#[test]
fn a_connection_that_gave_its_buffers_up_counts_less() {
    let memory = memory();
    let mut connection = memory.connection();
    connection.reduce_base(2 << 10);
    connection.reduce_base(4 << 10);
    assert_eq!(memory.used(), 2 << 10);
    drop(connection);
    assert_eq!(memory.used(), 0);
}

#[test]
fn one_connection_has_a_share_and_large_requests_leave_room_for_others() {
    let memory = memory();
    assert_eq!(memory.share(), 24 * MIB);
    assert_eq!(Memory::new(1 << 30).share(), 128 * MIB);
    let mut greedy = memory.connection();
    assert!(!greedy.try_grow_to(24 * MIB + 1));
    drop(greedy);
    let held = exhaust(&memory);
    let mut large = memory.connection();
    assert!(!large.try_grow_to(MIB));
    let connections: Vec<Reservation> =
        std::iter::from_fn(|| memory.has_room_for_connection().then(|| memory.connection())).collect();
    assert_eq!(connections.len() + 1, 16 * MIB / CONNECTION_BYTES, "a quarter is theirs");
    assert!(connections.into_iter().all(|mut connection| connection.try_grow_to(CONNECTION_BYTES)));
    assert!(memory.request().try_grow_to(CONNECTION_BYTES));
    drop((held, large));
    assert_eq!(memory.used(), 0);
}

#[test]
fn those_who_wait_are_woken_in_order_as_far_as_there_is_room() {
    let memory = memory();
    let held = exhaust(&memory);
    let wakes: Vec<Arc<Wakes>> = (0..3).map(|_| Arc::default()).collect();
    let wakers: Vec<Waker> = wakes.iter().cloned().map(Waker::from).collect();
    let mut requests: Vec<Reservation> = (0..3).map(|_| memory.request()).collect();
    for (request, waker) in requests.iter_mut().zip(&wakers) {
        assert!(request.poll_grow_to(10 * MIB, &Context::from_waker(waker)).is_pending());
    }
    let counts = || wakes.iter().map(|wakes| wakes.count()).collect::<Vec<_>>();
    assert_eq!(counts(), [0, 0, 0]);
    drop(held);
    // 48 MiB hold four of these.
    assert_eq!(counts(), [1, 1, 1]);
    for (request, waker) in requests.iter_mut().zip(&wakers) {
        assert!(request.poll_grow_to(10 * MIB, &Context::from_waker(waker)).is_ready());
    }
    drop(requests);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_waiter_that_leaves_after_its_call_wakes_the_next() {
    let memory = memory();
    let mut held = exhaust(&memory);
    let wakes: Vec<Arc<Wakes>> = (0..2).map(|_| Arc::default()).collect();
    let wakers: Vec<Waker> = wakes.iter().cloned().map(Waker::from).collect();
    let (mut first, mut second) = (memory.request(), memory.request());
    assert!(first.poll_grow_to(20 * MIB, &Context::from_waker(&wakers[0])).is_pending());
    assert!(second.poll_grow_to(20 * MIB, &Context::from_waker(&wakers[1])).is_pending());
    held.pop();
    assert_eq!((wakes[0].count(), wakes[1].count()), (1, 0), "there is room for one");
    drop(first);
    assert_eq!(wakes[1].count(), 1);
    assert!(second.poll_grow_to(20 * MIB, &Context::from_waker(&wakers[1])).is_ready());
}

#[tokio::test(flavor = "current_thread")]
async fn a_request_waits_and_is_refused() {
    let memory = memory();
    let held = exhaust(&memory);
    let mut request = memory.request();
    assert_eq!(request.grow_to(MIB).await, Err(MemoryExhausted));
    assert_eq!(memory.refused(), 1);
    assert_eq!(memory.0.lock().waiters.len(), 0);
    drop(held);
    assert_eq!(request.grow_to(MIB).await, Ok(()));
    let mut refused = memory.request();
    assert_eq!(refused.grow_to(25 * MIB).await, Err(MemoryExhausted), "more than a share");
    assert_eq!((refused.waiter, memory.refused()), (None, 2));
}

#[test]
fn many_threads_leave_nothing_behind() {
    let memory = memory();
    std::thread::scope(|scope| {
        for seed in 0..8_u64 {
            let memory = memory.clone();
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let mut random = fastrand::Rng::with_seed(seed);
                runtime.block_on(async {
                    for _ in 0..2_000 {
                        let mut request = memory.request();
                        let bytes = random.usize(1..12 * MIB);
                        poll_fn(|task| request.poll_grow_to(bytes, task)).await;
                        assert!(memory.used() <= 48 * MIB);
                        request.set(bytes / 2);
                        if random.bool() {
                            tokio::task::yield_now().await;
                        }
                    }
                });
            });
        }
    });
    assert_eq!((memory.used(), memory.0.waiting.load(Ordering::SeqCst)), (0, 0));
    assert!(matches!(
        memory.request().poll_grow_to(MIB, &Context::from_waker(Waker::noop())),
        Poll::Ready(())
    ));
}
