//! A store in memory with the semantics of the real one, that can be told to refuse or to wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

use bytes::Bytes;
use tidelock_core::command::{ClusterView, Item, Page, Read, Refusal, Reply, Request, Restoration, Write};
use tidelock_core::control::placement;
use tidelock_core::control::registry::Registry;
use tidelock_core::event::NodeStatus;
use tidelock_core::types::{LogIndex, Version};
use tidelock_server::store::Store;
use tokio::sync::watch;

/// A handle; clones share one store.
#[derive(Clone)]
pub struct FakeStore {
    state: Arc<Mutex<State>>,
    open: watch::Sender<bool>,
}

#[derive(Default)]
pub struct State {
    keys: BTreeMap<Bytes, (Version, Bytes)>,
    revision: u64,
    is_restoring: bool,
    /// What every request is answered, if set.
    pub refusal: Option<Refusal>,
    pub status: NodeStatus,
    pub cluster: ClusterView,
    /// What is wanted of hosts.
    pub registry: Registry,
    /// Told of each request that arrives while the store is held.
    arrivals: Option<mpsc::Sender<()>>,
}

impl FakeStore {
    pub fn new() -> FakeStore {
        FakeStore { state: Arc::default(), open: watch::Sender::new(true) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Makes requests wait; each that arrives sends a message.
    pub fn hold(&self) -> mpsc::Receiver<()> {
        let (sender, receiver) = mpsc::channel();
        self.state().arrivals = Some(sender);
        self.open.send_replace(false);
        receiver
    }

    /// Answers what waits.
    pub fn release(&self) {
        self.open.send_replace(true);
    }
}

impl Store for FakeStore {
    async fn submit(&self, request: Request) -> Reply {
        let mut open = self.open.subscribe();
        let held = !*open.borrow();
        if let Some(arrivals) = &self.state().arrivals
            && held
        {
            // Nobody need listen.
            let _ = arrivals.send(());
        }
        open.wait_for(|open| *open).await.unwrap();
        self.state().answer(request)
    }

    fn status(&self) -> NodeStatus {
        self.state().status.clone()
    }
}

impl State {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    fn answer(&mut self, request: Request) -> Reply {
        if let Some(refusal) = self.refusal {
            return Reply::Refused(refusal);
        }
        match request {
            Request::Write(write) => self.write(write),
            Request::Read { read: Read::Get { key }, .. } => match self.keys.get(&key) {
                Some((version, value)) => Reply::Value { version: *version, value: value.clone() },
                None => Reply::NotFound,
            },
            Request::Read { read: Read::List { prefix, after, limit, keys_only }, .. } => {
                let matching = self
                    .keys
                    .iter()
                    .filter(|(key, _)| key.starts_with(&prefix))
                    .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
                let mut items: Vec<Item> = matching
                    .map(|(key, (version, value))| Item {
                        key: key.clone(),
                        version: *version,
                        value: (!keys_only).then(|| value.clone()),
                    })
                    .collect();
                let more = items.len() > limit;
                items.truncate(limit);
                let next = more.then(|| items[limit - 1].key.clone());
                Reply::Page(Page { items, next })
            }
            Request::Cluster => Reply::Cluster(self.cluster.clone()),
            Request::Registry => Reply::Registry(self.registry.view()),
            Request::Explain { shard } => {
                let unknown = Reply::Refused(Refusal::Invalid("there is no such shard"));
                placement::explain(&self.registry, shard).map_or(unknown, Reply::Explained)
            }
            Request::SnapshotHere => Reply::Snapshots(vec![]),
            Request::Transfer { shard, to } => {
                match self.cluster.shards.iter_mut().find(|view| view.shard == shard) {
                    Some(view) => {
                        view.leader = Some(to);
                        Reply::Asked
                    }
                    None => Reply::Refused(Refusal::Invalid("there is no such shard")),
                }
            }
        }
    }

    fn write(&mut self, write: Write) -> Reply {
        if let Err(refusal) = write.validate() {
            return Reply::Refused(refusal);
        }
        let current = |key: &Bytes| self.keys.get(key).map_or(Version::ABSENT, |(version, _)| *version);
        match write {
            Write::Put { key, value, condition } => {
                let current = current(&key);
                if !condition.holds(current) {
                    return Reply::ConditionFailed { current };
                }
                self.revision += 1;
                let version = Version(self.revision);
                self.keys.insert(key, (version, value));
                Reply::Written { version, created: current == Version::ABSENT }
            }
            Write::Delete { key, condition } => {
                let current = current(&key);
                if !condition.holds(current) {
                    return Reply::ConditionFailed { current };
                }
                if self.keys.remove(&key).is_none() {
                    return Reply::NotFound;
                }
                self.revision += 1;
                Reply::Deleted { version: Version(self.revision) }
            }
            Write::Checkpoint { shard } => Reply::Checkpointed { index: LogIndex(100 + shard.0) },
            Write::Restore(restoration) => self.restore(&restoration),
            Write::RegisterHost(_) | Write::JoinHost(_) => panic!("HTTP registers no hosts"),
            Write::Assign { .. } | Write::ForgetReplica { .. } => panic!("HTTP places no replicas"),
            Write::TagShard(tags) => {
                self.revision += 1;
                self.registry.tag_shard(LogIndex(self.revision), tags.shard, &tags.tags)
            }
            Write::ChangeHost { node, change } => {
                self.revision += 1;
                self.registry.change(LogIndex(self.revision), node, change)
            }
        }
    }

    /// As one shard does it, without telling one backup from another.
    fn restore(&mut self, restoration: &Restoration) -> Reply {
        if self.revision != 0 && !self.is_restoring {
            return Reply::ConditionFailed { current: Version(self.revision) };
        }
        self.is_restoring = true;
        self.revision = self.revision.max(restoration.revision.0);
        for record in &restoration.records {
            self.keys.insert(record.key.clone(), (record.version, record.value.clone()));
        }
        Reply::Restored
    }
}
