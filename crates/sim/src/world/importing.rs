//! Clients that import configuration into namespaces that other clients write to as well: a
//! document into a container, or the content of a namespace.
//!
//! Owns where and when each importer begins, and how long its jobs take. The node that it asks
//! drives the core's machine, so an import ends with that process. A job takes a drawn time, so
//! jobs of several importers end in any order; some are refused or never end. It checks nothing;
//! `checkers::config` does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidelock_core::clients::import::{
    ContainerDocument, ImportAction, ImportContent, ImportJob, ImportOutcome, ImportRequest, ImportTarget,
};
use tidelock_core::command::config::{Change, Field, Name, Refers, Stamp, Value};
use tidelock_core::command::{Reply, Request, Write};
use tidelock_core::types::{NodeId, Token, UnixMillis};

use super::World;
use crate::config::CONTAINERS;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::history::{ImportedDocument, Incarnation};

/// Fields of a document. Other clients give their containers `a`, `b` and pairs of small numbers,
/// so an import often finds a field as it wants it.
const FIELDS: [&str; 4] = ["a", "b", "f", "g"];

/// A job that ends takes up to this long, or up to ten times as long if many others wait.
const JOB_MAX: Micros = Micros(20_000);

/// A client that imports repeatedly.
#[derive(Debug)]
pub struct Importer {
    current: Option<Import>,
    /// The last revision of each namespace that it has made.
    known: BTreeMap<Name, u64>,
    /// A step that is due at another time is obsolete.
    next_step: Micros,
    random: fastrand::Rng,
}

/// An import in progress.
#[derive(Debug)]
struct Import {
    request: ImportRequest,
    /// The process that drives it.
    at: Incarnation,
    namespace: Name,
    container: Arc<str>,
    document: Value,
    replaced_by: Option<BTreeSet<Arc<str>>>,
    expected: Option<u64>,
    /// The request that was sent last.
    token: Option<Token>,
    waits: ImportWait,
}

#[derive(Debug)]
enum ImportWait {
    /// For the reply to the last request.
    Reply,
    /// For the end of a job.
    Job(ImportJob),
    /// For a job that was lost: until the client gives up.
    Nothing,
}

impl Importer {
    /// An importer with its own generator.
    pub fn new(random: fastrand::Rng) -> Importer {
        Importer { current: None, known: BTreeMap::new(), next_step: Micros(0), random }
    }

    /// What it imports: the container resolves to the document then, and of a whole namespace that
    /// replaces all other content these pairs remain.
    fn content(&mut self, container: &Arc<str>) -> (ImportContent, Value, Option<BTreeSet<Arc<str>>>) {
        if self.random.u8(0..4) == 0 {
            let NamespaceFile { changes, pairs, document } = NamespaceFile::draw(container, &mut self.random);
            let replaces = self.random.bool();
            let content = ImportContent::Namespace { file: changes, replaces };
            return (content, document, replaces.then_some(pairs));
        }
        let (document, retype) = (self.document(), self.random.bool());
        let content = ContainerDocument::new(container.clone(), document.clone(), true, retype)
            .expect("invariant: a dict of few fields is a document");
        (ImportContent::Container(content), document, None)
    }

    fn document(&mut self) -> Value {
        let number = self.random.u8(1..=FIELDS.len() as u8);
        let field = |importer: &mut Importer| {
            let key = Arc::from(*choose(&mut importer.random, &FIELDS));
            (key, importer.value())
        };
        Value::Dict((0..number).map(|_| field(self)).collect())
    }

    fn value(&mut self) -> Value {
        let number = Value::Int(self.random.i64(0..3));
        match self.random.u8(0..10) {
            0 => Value::text("text"),
            1 => Value::float(0.5).expect("a finite number"),
            2 | 3 => Value::List(vec![number]),
            // No pair can hold these two: their items get pairs.
            4 => Value::List(vec![number, Value::text("text")]),
            5 => {
                let inner = Value::Dict([("w".into(), number.clone())].into());
                Value::Dict([("x".into(), number), ("y".into(), Value::Empty), ("z".into(), inner)].into())
            }
            _ => number,
        }
    }
}

/// A namespace with a container whose fields refer to a pair each, like those of other clients.
#[derive(Debug)]
struct NamespaceFile {
    changes: Vec<Change>,
    pairs: BTreeSet<Arc<str>>,
    /// What the container resolves to.
    document: Value,
}

impl NamespaceFile {
    fn draw(container: &Arc<str>, random: &mut fastrand::Rng) -> NamespaceFile {
        let values: BTreeMap<&str, i64> = FIELDS
            .into_iter()
            .filter_map(|field| Some((field, random.bool().then(|| random.i64(0..3))?)))
            .collect();
        let pair = |field: &str| Arc::<str>::from(format!("p{field}"));
        let field = |field: &str| Field { key: field.into(), refers: Refers::One(pair(field)) };
        let fields = values.keys().map(|key| field(key)).collect();
        let put = Change::PutContainer { key: container.clone(), fields, retype: true };
        let puts = values.iter().map(|(key, value)| {
            let value = Value::Int(*value);
            Change::PutPair { key: pair(key), value, retype: true }
        });
        NamespaceFile {
            changes: puts.chain([put]).collect(),
            pairs: values.keys().map(|key| pair(key)).collect(),
            document: Value::Dict(
                values.iter().map(|(key, value)| (Arc::from(*key), Value::Int(*value))).collect(),
            ),
        }
    }
}

impl World<'_> {
    /// Schedules the first step of every importer.
    pub(crate) fn start_importers(&mut self) {
        for position in 0..self.importers.len() {
            self.import_after(position, Micros::MILLISECOND * 10);
        }
    }

    /// Takes an importer's next step: a job ends, or a new import begins. The previous one, if it
    /// has not ended, is abandoned.
    pub(crate) fn import(&mut self, position: usize) {
        if self.importers[position].next_step != self.event_queue.now() {
            return;
        }
        match self.importers[position].current.take() {
            Some(Import { at, waits: ImportWait::Job(_), .. }) if !self.has_process(at) => {
                self.begin_import(position);
            }
            Some(current @ Import { waits: ImportWait::Job(_), .. }) if self.is_paused(current.at.node) => {
                self.importers[position].current = Some(current);
                self.import_after(position, Micros::MILLISECOND * 10);
            }
            Some(mut current) if matches!(current.waits, ImportWait::Job(_)) => {
                let ImportWait::Job(job) = std::mem::replace(&mut current.waits, ImportWait::Nothing) else {
                    return;
                };
                let now = self.stamp_time();
                let action = current.request.finished(job.run(), now);
                self.continue_import(position, current, action);
            }
            _ => self.begin_import(position),
        }
    }

    /// Handles a reply that may be for an importer. The history has recorded it already.
    pub(crate) fn importer_hears(&mut self, token: Token, reply: &Reply) {
        let is_asked = |importer: &Importer| {
            let current = importer.current.as_ref();
            current.is_some_and(|current| {
                matches!(current.waits, ImportWait::Reply) && current.token == Some(token)
            })
        };
        let Some(position) = self.importers.iter().position(is_asked) else { return };
        let mut current = self.importers[position].current.take().expect("invariant: it waits");
        let action = current.request.answered(reply.clone());
        self.continue_import(position, current, action);
    }

    fn begin_import(&mut self, position: usize) {
        let up = self.running_nodes();
        let namespaces = self.workload.namespaces();
        let importer = &mut self.importers[position];
        if up.is_empty() {
            return self.import_after(position, Micros::MILLISECOND * 10);
        }
        let node = *choose(&mut importer.random, &up);
        let namespace = choose(&mut importer.random, &namespaces).clone();
        let container: Arc<str> = (*choose(&mut importer.random, &CONTAINERS)).into();
        let create = importer.random.u8(0..4) > 0;
        let (content, document, replaced_by) = importer.content(&container);
        // Often an old one: then the import fails.
        let known = importer.known.get(&namespace).copied();
        let expected = known.filter(|_| importer.random.u8(0..4) == 0);
        let target = ImportTarget {
            namespace: namespace.clone(),
            create,
            stamp: Stamp::default(),
            expected,
            is_dry_run: importer.random.u8(0..6) == 0,
            draft: None,
        };
        let (request, action) = ImportRequest::begin(target, content, self.plan.deliberate);
        let at = self.host(node).incarnation();
        let (token, waits) = (None, ImportWait::Nothing);
        let current =
            Import { request, at, namespace, container, document, replaced_by, expected, token, waits };
        self.continue_import(position, current, action);
    }

    fn continue_import(&mut self, position: usize, mut current: Import, action: ImportAction) {
        match action {
            ImportAction::Ask(mut request) => {
                let token = self.history.next_token();
                if let Request::Write(Write::Config(write)) = &mut request {
                    // A revision names the request that made it.
                    write.stamp.author = token.0.to_string().into();
                }
                current.token = Some(token);
                current.waits = ImportWait::Reply;
                let node = current.at.node;
                self.importers[position].current = Some(current);
                let asked = self.ask(node, request, false);
                assert_eq!(asked, token, "tokens are given in order");
                self.import_after(position, self.plan.load.client_timeout);
            }
            ImportAction::Run(job) => self.begin_job(position, current, job),
            ImportAction::Done(result) => {
                if let (Ok(ImportOutcome::Written(written)), Some(token)) = (result, current.token) {
                    self.tally.imports += 1;
                    let document = current.document.to_json();
                    let Import { namespace, container, replaced_by, expected, .. } = current;
                    let revision = written.revision;
                    self.importers[position].known.insert(namespace.clone(), revision);
                    self.imports.push(ImportedDocument {
                        namespace,
                        container,
                        document,
                        replaced_by,
                        expected,
                        token,
                        revision,
                    });
                }
                let pause = self.plan.load.pause_max.0;
                let pause = Micros(self.importers[position].random.u64(1..=pause));
                self.import_after(position, pause);
            }
        }
    }

    /// Begins a job, which is refused, lost, or ends after a while.
    fn begin_job(&mut self, position: usize, mut current: Import, job: ImportJob) {
        let random = &mut self.importers[position].random;
        let duration = Micros(random.u64(0..=JOB_MAX.0));
        match random.u8(0..16) {
            0 => {
                let action = current.request.refused();
                self.continue_import(position, current, action);
            }
            1 => {
                current.waits = ImportWait::Nothing;
                self.importers[position].current = Some(current);
                self.import_after(position, self.plan.load.client_timeout);
            }
            drawn => {
                current.waits = ImportWait::Job(job);
                self.importers[position].current = Some(current);
                self.import_after(position, if drawn == 2 { duration * 10 } else { duration });
            }
        }
    }

    fn import_after(&mut self, position: usize, delay: Micros) {
        let at = self.event_queue.now() + delay;
        self.importers[position].next_step = at;
        self.event_queue.at(at, SimEvent::Import(position));
    }

    /// Whether a process still runs.
    pub(super) fn has_process(&mut self, at: Incarnation) -> bool {
        self.lives(at.node, at.life)
    }

    /// Whether the process of a node makes no progress.
    pub(super) fn is_paused(&mut self, node: NodeId) -> bool {
        !self.host(node).is_running()
    }

    /// The time of a stamp, of the same order as those of other clients, so that histories keep
    /// revisions of both.
    fn stamp_time(&self) -> UnixMillis {
        UnixMillis(1_000_000 + self.history.next_token().0 * 10)
    }
}
