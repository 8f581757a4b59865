//! Serves one request, from its head to its answer.
//!
//! Owns the steps that every request shares, and their order: the limit of the head, the host, the
//! origin, the route, counting, discarding the body. It is generic over the store and allocates
//! nothing itself.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use tidelock_core::auth::Usage;
use tidelock_core::command::{Consistency, Item, Page, Read, Reply, Request, StoredValue};
use tidelock_core::limits;
use tidelock_core::types::ShardId;

use super::authentication::{Authentication, ClientIdentity};
use super::body::{BodyLimit, RequestBody};
use super::config::ApiError;
use super::connections::HttpConnection;
use super::fields::{Field, Fields};
use super::native::Keys;
use super::problem::{Problem, ProblemKind};
use super::request_charge::RequestCharge;
use super::response::{AnswerBody, Response};
use super::route::{Endpoint, NoRoute, Route};
use super::stream_permission::{PermissionLost, StreamDemand, permission_lost};
use super::uri::Parameters;
use super::{
    HttpContext, atomics, auth, cluster, config, console, cross_origin, health, kv1, leases, locks, native,
    raftdb, session, transactions,
};
use crate::audit_log::DeniedReason;
use crate::memory::{CONNECTION_BYTES, MemoryExhausted, Reservation};
use crate::metrics::{Dialect, Kind, MethodClass, Observation, StatusClass};
use crate::protocol::ListenerProtocol;
use crate::requests::{self, TypedRequest};
use crate::spans::RequestSpan;
use crate::store::Store;

/// A request, as its route receives it.
pub(super) struct Call<'a, S> {
    store: &'a S,
    /// What the server shares with its node.
    pub context: &'a HttpContext,
    identity: &'a ClientIdentity,
    connection: &'a HttpConnection,
    head: &'a Parts,
    fields: &'a Fields<'a>,
    body: &'a mut RequestBody,
    /// The part of the memory budget that this request holds.
    memory: &'a mut Reservation,
    findings: &'a Findings,
}

/// What a handler reports besides its answer: for the header that names the leader, and for the
/// charge against rate limits.
#[derive(Default)]
struct Findings {
    /// The shard that serves the request, if another node may lead it.
    led_elsewhere: Cell<Option<ShardId>>,
    /// See [`Call::charge_operations`].
    more_operations: Cell<u64>,
}

impl<'a, S: Store> Call<'a, S> {
    pub fn method(&self) -> &'a Method {
        &self.head.method
    }

    pub fn headers(&self) -> &'a HeaderMap {
        &self.head.headers
    }

    /// Who sends the request.
    pub fn identity(&self) -> &'a ClientIdentity {
        self.identity
    }

    /// Completes when the client loses the permission for a streamed answer.
    pub fn permission_lost(&self, demand: StreamDemand) -> PermissionLost {
        permission_lost(self.identity.clone(), self.store.access().clone(), self.context.clock, demand)
    }

    /// The header by which other nodes recognise the client; `None` if it has no token. A
    /// certificate cannot be passed on.
    pub fn authorization(&self) -> Option<HeaderValue> {
        match (self.fields.authorization, self.fields.cookie) {
            (Field::Once(header), _) => Some(header.clone()),
            (Field::Absent, Field::Once(cookie)) => {
                session::token(cookie).map(|token| session::authorization(&token))
            }
            _ => None,
        }
    }

    /// The connection, for requests that end with it.
    pub fn connection(&self) -> &'a HttpConnection {
        self.connection
    }

    /// The fields that most requests are checked for.
    pub fn fields(&self) -> &'a Fields<'a> {
        self.fields
    }

    pub fn parameters(&self) -> Parameters<'a> {
        Parameters::of_query(self.head.uri.query())
    }

    /// The store, for health checks and metrics.
    pub fn store(&self) -> &'a S {
        self.store
    }

    /// Submits a request to the store. A refusal is returned as a problem.
    pub async fn ask<A>(&self, request: TypedRequest<A>) -> Result<A, Problem> {
        self.find_leader(request.request());
        Ok(self.store.ask(request).await?)
    }

    /// As [`Call::ask`], for a machine that takes the reply itself.
    pub async fn submit(&self, request: Request) -> Reply {
        self.find_leader(&request);
        self.store.submit(request).await
    }

    /// The answer names the leader of the key's shard, if another node leads it.
    fn find_leader(&self, request: &Request) {
        if !self.store.leaders().is_empty()
            && !request.is_stale_read()
            && let Some(key) = request.routing_key()
        {
            self.findings.led_elsewhere.set(Some(self.store.shard_of(key)));
        }
    }

    /// Reads the body, see [`RequestBody::read`].
    pub async fn read_body(&mut self, limit: BodyLimit) -> Result<Bytes, Problem> {
        self.body.read(limit, self.memory).await
    }

    /// Reserves memory for so many bytes more.
    pub async fn reserve(&mut self, bytes: usize) -> Result<(), Problem> {
        Ok(self.memory.grow_to(self.memory.bytes() + bytes).await?)
    }

    /// Bytes of memory that the request holds.
    pub fn held_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// States how many bytes the request still holds, after it has dropped others.
    pub fn set_held_bytes(&mut self, bytes: usize) {
        self.memory.set(bytes);
    }

    /// States of how many operations the request consists, for the rate limits of its principal. It
    /// is one otherwise.
    pub fn charge_operations(&self, operations: usize) {
        self.findings.more_operations.set(operations.saturating_sub(1) as u64);
    }

    /// Reads a key, once there is memory for the largest possible value.
    pub async fn get(
        &mut self,
        key: Bytes,
        consistency: Consistency,
    ) -> Result<Option<StoredValue>, Problem> {
        let held = self.memory.bytes();
        if !self.memory.try_grow_to(held + limits::VALUE_BYTES_MAX) {
            if let Some(stored) = self.ask(requests::get_short(&key, SHORT_VALUE_BYTES, consistency)).await? {
                return Ok(stored);
            }
            self.memory.grow_to(held + limits::VALUE_BYTES_MAX).await?;
        }
        let stored = self.ask(requests::get(key, consistency)).await?;
        self.memory.set(held + stored.as_ref().map_or(0, |stored| stored.value.len()));
        Ok(stored)
    }

    /// Reads a page of keys, once there is memory for the largest possible page.
    pub async fn page(&mut self, read: Read, consistency: Consistency) -> Result<Page, Problem> {
        let held = self.memory.bytes();
        self.memory.grow_to(held + page_bytes_max(&read, self.memory.share())).await?;
        let page = self.ask(requests::page(read, consistency)).await?;
        self.memory.set(held + page_bytes(&page));
        Ok(page)
    }
}

/// Values up to this size are read even when the memory for clients is used up: with its encoding,
/// such a value fits into every connection's guaranteed share.
const SHORT_VALUE_BYTES: usize = CONNECTION_BYTES / 4;

/// The most bytes that a list may take before it is encoded: one page of each shard, up to a number
/// of shards, before they are merged. More pages take more memory only if all of them are large.
fn page_bytes_max(read: &Read, share: usize) -> usize {
    let Read::List { keys_only, limit, .. } = read else { return 0 };
    let item_bytes_max = if *keys_only { limits::KEY_BYTES_MAX } else { limits::VALUE_BYTES_MAX };
    let page_bytes_max = limits::LIST_PAGE_BYTES_MAX + limits::KEY_BYTES_MAX + limits::VALUE_BYTES_MAX;
    (LIST_PAGES * page_bytes_max.min(limit.saturating_mul(item_bytes_max))).min(share / 2)
}

/// Number of shards' pages for which a list reserves memory in advance.
const LIST_PAGES: usize = 4;

/// Bytes of a page while it is turned into an answer: it counts twice, as received and encoded.
fn page_bytes(page: &Page) -> usize {
    let item = |item: &Item| item.key.len() + item.value.as_ref().map_or(0, Bytes::len) + ITEM_BYTES;
    2 * page.items.iter().map(item).sum::<usize>()
}

/// Bytes of a list's item besides key and value.
const ITEM_BYTES: usize = size_of::<Item>() + 48;

/// Names the node that leads the key's shard, if it is another than the one that answers. A client
/// that sends its next request there saves a forward.
const LEADER: HeaderName = HeaderName::from_static(tidelock_api::LEADER_HEADER);

/// A static, so that its bytes are checked once at compile time instead of for each answer.
static NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");

/// What a connection keeps from one request to the next.
pub(super) struct HttpClient<'a, S> {
    pub store: &'a S,
    pub context: &'a HttpContext,
    pub authentication: &'a Authentication,
    pub connection: &'a HttpConnection,
}

pub(super) async fn answer<S: Store>(
    request: hyper::Request<Incoming>,
    client: HttpClient<'_, S>,
) -> Response {
    let HttpClient { store, context, authentication, connection } = client;
    let started = Instant::now();
    let span = context.tracer.begin(request.headers());
    let (head, incoming) = request.into_parts();
    let mut body = RequestBody::new(incoming, &head.headers, context.options.body_read_timeout);
    let mut memory = context.memory.request();
    let findings = Findings::default();
    let fields = Fields::of(&head.headers);
    let route = Route::of(&head.method, head.uri.path());
    let (mut identity, mut charge) = (ClientIdentity::Unknown, RequestCharge::default());
    let checked = check_head(&head, &fields, context).and_then(|()| checked_route(&head, &route));
    let checked = checked.and_then(|route| check_fence(&fields, &route).map(|()| route));
    let result = match checked {
        Ok(route) => {
            // The only place that decides who makes the requests of a handler.
            identity = authentication.identify(&fields, store.access(), context.clock);
            let own = handle_for(store, &identity, span.as_ref());
            let store = own.as_ref().unwrap_or(store);
            let is_required = store.access().state().is_required();
            let mut admitted = if is_required || authentication.is_protected_from {
                authentication.check(route.endpoint, (&identity, store), (&head, context)).await
            } else {
                Ok(())
            };
            if is_required && route.endpoint.is_limited() {
                admitted = admitted.and_then(|()| charge.admit(&identity, (&head, &body)));
            }
            match admitted {
                Ok(()) => {
                    let (head, fields, body, memory) = (&head, &fields, &mut body, &mut memory);
                    let (identity, findings) = (&identity, &findings);
                    let call =
                        Call { store, context, identity, connection, head, fields, body, memory, findings };
                    dispatch(call, route).await
                }
                Err(problem) => Err(problem),
            }
        }
        Err(problem) => Err(problem),
    };
    let received_bytes = body.received_bytes();
    body.finish();
    let interface = Interface::of(&route, head.uri.path());
    let response = result.unwrap_or_else(|problem| interface.refusal(problem));
    let mut response = count(response, memory, interface);
    let more = Usage { operations: findings.more_operations.get(), bytes: received_bytes };
    charge.finish(more, &mut response);
    if let Some(reason) = response.extensions().get() {
        record_denied(context, *reason, &head, (authentication.address(), &identity));
    }
    // Values are arbitrary bytes from clients: a browser must not treat one as a page or a script.
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFFING.clone());
    if let Some(url) = findings.led_elsewhere.get().and_then(|shard| store.leaders().of(shard)) {
        response.headers_mut().insert(LEADER, url);
    }
    if head.method == Method::HEAD {
        state_empty_length(&mut response);
    }
    if let Some(span) = span {
        let path = route.as_ref().ok().map(|route| route.path);
        context.tracer.finish(span, (&head.method, path), response.status());
    }
    context.counters.observe(Observation {
        dialect: interface.dialect,
        kind: kind_of(&route, &head),
        method: method_class(&head.method),
        status: status_class(response.status()),
        duration: started.elapsed(),
    });
    response
}

/// The handle for the requests of a caller, or of a traced request; `None` if it is neither.
fn handle_for<S: Store>(store: &S, identity: &ClientIdentity, span: Option<&RequestSpan>) -> Option<S> {
    let as_caller = identity.proof().map(|proof| store.for_caller(proof.caller()));
    match span {
        Some(span) => Some(as_caller.as_ref().unwrap_or(store).for_trace(span.context())),
        None => as_caller,
    }
}

/// Records a denied request. The detail contains the path, which may name a key, but not the query.
fn record_denied(
    context: &HttpContext,
    reason: DeniedReason,
    head: &Parts,
    (address, identity): (Option<IpAddr>, &ClientIdentity),
) {
    let reason = match (reason, identity) {
        (DeniedReason::Unauthenticated, ClientIdentity::Refuted) => DeniedReason::AuthenticationFailed,
        (reason, _) => reason,
    };
    let client = || (address, identity.proof().map(|proof| proof.principal.to_string()));
    let detail = || format!("{} {}", head.method, head.uri.path());
    context.audit_log.denied(reason, ListenerProtocol::Http, client, detail);
}

/// The route of a request, if it has one, and takes its query parameters.
///
/// A change with a misspelt parameter is another change: a lock with `tll=30s` would stay forever.
/// So changes refuse unknown parameters. Reads ignore them, because clients add some to bypass
/// caches.
fn checked_route<'a>(head: &'a Parts, route: &Result<Route<'a>, NoRoute>) -> Result<Route<'a>, Problem> {
    let route = match route {
        Ok(route) => *route,
        Err(NoRoute::NoSuchPath) => return Err(Problem::no_such_route()),
        Err(NoRoute::NoSuchMethod { allow, below, .. }) => {
            return Err(Problem::method_not_allowed(allow, &head.method, below));
        }
    };
    if !matches!(head.method, Method::GET | Method::HEAD)
        && let Some(query) = head.uri.query()
        && let Some(name) = Parameters::of_query(Some(query)).first_besides(route.query)?
    {
        return Err(Problem::unknown_parameter(&name, route.query));
    }
    Ok(route)
}

/// Refuses a fence where it is not a condition. If it were ignored, a client could believe that its
/// write was guarded.
fn check_fence(fields: &Fields<'_>, route: &Route<'_>) -> Result<(), Problem> {
    let is_condition = matches!(route.endpoint, Endpoint::Keys(Keys::Put | Keys::Delete));
    if is_condition || fields.if_fence == Field::Absent {
        return Ok(());
    }
    let detail = "If-Fence is a condition of PUT and DELETE of /v1/keys only: a transaction compares the fence with \
                  `fence`; nothing was done";
    Err(Problem::invalid(detail))
}

/// What decides the form of errors, and the labels of metrics.
#[derive(Clone, Copy)]
struct Interface {
    dialect: Dialect,
    is_of_registry: bool,
}

impl Interface {
    fn of(route: &Result<Route<'_>, NoRoute>, path: &str) -> Interface {
        match route {
            Ok(Route { endpoint, .. }) => {
                Interface { dialect: endpoint.dialect(), is_of_registry: endpoint.is_of_registry() }
            }
            Err(NoRoute::NoSuchMethod { dialect, .. }) => {
                Interface { dialect: *dialect, is_of_registry: false }
            }
            Err(NoRoute::NoSuchPath) => {
                let is_config = path.starts_with("/api/");
                let dialect = if is_config { Dialect::Config } else { Dialect::Operations };
                Interface { dialect, is_of_registry: false }
            }
        }
    }

    fn refusal(self, problem: Problem) -> Response {
        match self.dialect {
            Dialect::Config => config::refusal(problem),
            _ if self.is_of_registry => problem.of_registry().into_response(),
            _ => problem.into_response(),
        }
    }
}

async fn dispatch<S: Store>(call: Call<'_, S>, route: Route<'_>) -> Result<Response, Problem> {
    let arguments = route.arguments;
    match route.endpoint {
        Endpoint::Keys(operation) => native::answer(call, operation, arguments).await,
        Endpoint::Kv1(operation) => kv1::answer(call, operation, arguments).await,
        Endpoint::Raftdb(operation) => raftdb::answer(call, operation, arguments).await,
        Endpoint::Registers(operation) => atomics::answer(call, operation, arguments).await,
        Endpoint::Transactions(operation) => Box::pin(transactions::answer(call, operation)).await,
        Endpoint::Leases(operation) => Box::pin(leases::answer(call, operation, arguments)).await,
        Endpoint::Locks(operation) => Box::pin(locks::answer(call, operation, arguments)).await,
        // Boxed, too: a watcher's connection holds this memory as long as it is open.
        Endpoint::Config(operation) => Ok(Box::pin(config::answer(call, operation, arguments)).await),
        // Boxed because these are rare and large: unboxed, every request would reserve memory for
        // them.
        Endpoint::Cluster(operation) => Box::pin(cluster::answer(call, operation, arguments)).await,
        Endpoint::Auth(operation) => Box::pin(auth::answer(call, operation, arguments)).await,
        Endpoint::Health(operation) => Box::pin(health::answer(&call, operation)).await,
        Endpoint::Console(operation) => console::answer(&call, operation, arguments),
    }
}

/// Counts an answer until it is sent. Without memory for it, the answer becomes a refusal, unless
/// it is small or operational.
fn count(mut response: Response, mut memory: Reservation, interface: Interface) -> Response {
    let is_needed = interface.dialect == Dialect::Operations || !response.status().is_success();
    let AnswerBody::Whole(whole) = response.body_mut() else { return response };
    if memory.try_set(whole.len()) || is_needed {
        whole.count(memory);
        return response;
    }
    drop(response);
    memory.note_refused();
    match interface.dialect {
        Dialect::Config => ApiError::from(MemoryExhausted).into_response(),
        _ => Problem::from(MemoryExhausted).into_response(),
    }
}

/// Checks the head before the request is interpreted.
fn check_head(head: &Parts, fields: &Fields<'_>, context: &HttpContext) -> Result<(), Problem> {
    check_length(head, fields, context.options.head_bytes_max)?;
    let authority = context.allowed_hosts.authority(head, fields.host)?;
    if fields.has_origin { cross_origin::check(head, authority) } else { Ok(()) }
}

/// Checks the length of the head. The parser's own limit is higher, so that a head that is only a
/// little too long gets an answer that names the limit, on a connection that stays usable.
fn check_length(head: &Parts, fields: &Fields<'_>, bytes_max: usize) -> Result<(), Problem> {
    const REQUEST_LINE_BYTES: usize = "  HTTP/1.1\r\n\r\n".len();
    let target_bytes = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let bytes = head.method.as_str().len() + target_bytes + REQUEST_LINE_BYTES + fields.bytes;
    if bytes > bytes_max {
        let what = "the request line with its headers";
        return Err(Problem::over_limit(ProblemKind::HeadTooLarge, what, bytes_max));
    }
    Ok(())
}

/// For HEAD, hyper states the length of a body that it then leaves out, unless that length is zero.
fn state_empty_length(response: &mut Response) {
    use hyper::body::Body;
    if response.body().is_end_stream() && response.status() == StatusCode::OK {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

fn kind_of(route: &Result<Route<'_>, NoRoute>, head: &Parts) -> Kind {
    let Ok(route) = route else { return Kind::Other };
    let stale = || Parameters::of_query(head.uri.query()).flag("stale");
    match route.endpoint.kind(&head.method) {
        Kind::Read | Kind::List if stale() == Ok(true) => Kind::StaleRead,
        kind => kind,
    }
}

fn method_class(method: &Method) -> MethodClass {
    match *method {
        Method::GET | Method::HEAD => MethodClass::Read,
        Method::PUT | Method::POST | Method::DELETE | Method::PATCH => MethodClass::Write,
        _ => MethodClass::Other,
    }
}

fn status_class(status: StatusCode) -> StatusClass {
    match status.as_u16() {
        ..300 => StatusClass::Success,
        300..400 => StatusClass::Redirection,
        400..500 => StatusClass::ClientError,
        500.. => StatusClass::ServerError,
    }
}
