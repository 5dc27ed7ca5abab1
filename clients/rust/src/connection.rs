//! The connections to all replicas of a target.

use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response, Uri, header::AUTHORIZATION};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    net::{TcpStream, lookup_host},
    sync::OnceCell,
    time::Instant,
};
use tonic::{
    Status,
    body::Body,
    codegen::StdError,
    transport::{self, Channel, ClientTlsConfig, Endpoint},
};
use tower_service::Service;

use crate::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
// Finds out about a peer that is gone without notice.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Age of the addresses of a name at which they are looked up again.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(30);
/// Least age of them if no replica can be reached.
const LOOKUP_AFTER_FAILURES: Duration = Duration::from_secs(1);
/// Time for which other replicas are preferred to one that failed, doubled with each failure in a
/// row up to `MAX_REST`.
const REST: Duration = Duration::from_secs(1);
const MAX_REST: Duration = Duration::from_secs(64);
/// Status of a replica that goes away (`UNAVAILABLE`), in the head of a response.
const UNAVAILABLE: &str = "14";

type BoxedFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The transport of all calls: each goes to the next replica, with the API key.
///
/// Made by [`Client`](crate::Client); a generated client over it calls every method of the
/// contract.
#[derive(Clone)]
pub struct Connection {
    replicas: Arc<Replicas>,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("target", &self.replicas.target)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection that is made with the first call.
    pub(crate) fn new(
        target: &str,
        tls: Option<ClientTlsConfig>,
        api_key: Option<&str>,
    ) -> Result<Self, Error> {
        let target: Target = target.parse()?;
        let authority = match &target {
            Target::Name(name) => name.as_str(),
            // A list of addresses is not a valid authority.
            Target::Addresses(_) => "relight",
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{authority}"))
            .map_err(|_| Error::Target(authority.to_owned()))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls)?;
        }
        let mut authorization = api_key
            .map(|key| HeaderValue::from_str(&format!("Bearer {key}")))
            .transpose()?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Ok(Self {
            replicas: Arc::new(Replicas {
                target,
                endpoint,
                state: Mutex::new(State {
                    replicas: Vec::new(),
                    next: rand::random_range(0..1024),
                    looked_up: None,
                }),
            }),
            authorization,
        })
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = BoxedFuture<Response<Body>, StdError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(key) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        let replicas = Arc::clone(&self.replicas);
        Box::pin(async move {
            let (picked, mut channel) = replicas.connected().await?;
            let result = match poll_fn(|cx| channel.poll_ready(cx)).await {
                Ok(()) => channel.call(request).await,
                Err(error) => Err(error),
            };
            let end = match &result {
                Ok(response) if is_unavailable(response) => CallEnd::Refused,
                Ok(_) => CallEnd::Served,
                Err(_) => CallEnd::Lost,
            };
            replicas.report(&picked, end);
            Ok(result?)
        })
    }
}

/// Returns whether a replica that goes away refused the call.
fn is_unavailable(response: &Response<Body>) -> bool {
    let status = response.headers().get("grpc-status");
    status.is_some_and(|status| status == UNAVAILABLE)
}

/// The end of a call, as far as it concerns its replica.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    Served,
    Refused,
    /// The connection could not be made, or broke.
    Lost,
}

/// The part of a target that tells the addresses.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// `host:port`.
    Name(String),
    Addresses(Vec<SocketAddr>),
}

impl std::str::FromStr for Target {
    type Err = Error;

    fn from_str(target: &str) -> Result<Self, Error> {
        let refused = || Error::Target(target.to_owned());
        if let Some(list) = target
            .strip_prefix("ipv4:")
            .or_else(|| target.strip_prefix("ipv6:"))
        {
            let addresses: Result<Vec<SocketAddr>, _> = list.split(',').map(str::parse).collect();
            return addresses.map(Self::Addresses).map_err(|_| refused());
        }
        let name = target.strip_prefix("dns:///").unwrap_or(target);
        let name = name.strip_prefix("dns:").unwrap_or(name);
        match name.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() =>
            {
                Ok(Self::Name(name.to_owned()))
            }
            _ => Err(refused()),
        }
    }
}

/// All replicas of a target.
struct Replicas {
    target: Target,
    endpoint: Endpoint,
    state: Mutex<State>,
}

struct State {
    replicas: Vec<Replica>,
    next: usize,
    looked_up: Option<Instant>,
}

/// A connection, once it is made, or why it could not be made: the same to all calls that wait.
type Connecting = Arc<OnceCell<Result<Channel, Arc<transport::Error>>>>;

/// A replica as one call got it.
struct Picked {
    address: SocketAddr,
    connecting: Connecting,
}

struct Replica {
    address: SocketAddr,
    connecting: Connecting,
    /// Failures in a row.
    failures: u32,
    failed: Option<Instant>,
}

impl Replica {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connecting: Arc::default(),
            failures: 0,
            failed: None,
        }
    }

    fn is_resting(&self) -> bool {
        let doubled = 1 << self.failures.saturating_sub(1).min(16);
        let rest = REST.saturating_mul(doubled).min(MAX_REST);
        self.failed.is_some_and(|failed| failed.elapsed() < rest)
    }
}

impl Replicas {
    /// Returns the connection of the next replica that can be reached.
    async fn connected(&self) -> Result<(Picked, Channel), StdError> {
        let mut failed: Vec<(SocketAddr, Arc<transport::Error>)> = Vec::new();
        loop {
            let picked = self.pick().await.map_err(|error| {
                Status::unavailable(format!("no address of {:?}: {error}", self.target))
            })?;
            let address = picked.address;
            if failed.iter().any(|(tried, _)| *tried == address)
                && let Some((_, error)) = failed.pop()
            {
                return Err(error.into());
            }
            let connect = || async {
                let connected = self.endpoint.connect_with_connector(Dialer(address));
                connected.await.map_err(Arc::new)
            };
            match picked.connecting.get_or_init(connect).await {
                Ok(channel) => {
                    let channel = channel.clone();
                    return Ok((picked, channel));
                }
                Err(error) => {
                    failed.push((address, Arc::clone(error)));
                    self.report(&picked, CallEnd::Lost);
                }
            }
        }
    }

    /// Returns the replica whose turn it is.
    async fn pick(&self) -> io::Result<Picked> {
        let is_due = self.state.lock().begin_lookup();
        if is_due {
            let found = self.addresses().await;
            let mut state = self.state.lock();
            match found {
                Ok(addresses) => state.update(&addresses),
                Err(error) if state.replicas.is_empty() => return Err(error),
                // The addresses that are known may still be right.
                Err(_) => {}
            }
        }
        self.state
            .lock()
            .pick()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "none is known"))
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.target {
            Target::Name(name) => Ok(lookup_host(name).await?.collect()),
            Target::Addresses(addresses) => Ok(addresses.clone()),
        }
    }

    /// Records the end of a call to a replica, unless its connection has been replaced since.
    fn report(&self, picked: &Picked, end: CallEnd) {
        let mut state = self.state.lock();
        let found = state
            .replicas
            .iter_mut()
            .find(|replica| Arc::ptr_eq(&replica.connecting, &picked.connecting));
        let Some(replica) = found else {
            return;
        };
        if end == CallEnd::Served {
            replica.failures = 0;
            replica.failed = None;
            return;
        }
        replica.failures = replica.failures.saturating_add(1);
        replica.failed = Some(Instant::now());
        if end == CallEnd::Lost {
            replica.connecting = Arc::default();
        }
    }
}

impl State {
    /// Returns whether the caller has to look the addresses up; others go on with those that are
    /// known.
    fn begin_lookup(&mut self) -> bool {
        let is_cut_off = self.replicas.iter().all(|replica| replica.failed.is_some());
        let interval = if is_cut_off {
            LOOKUP_AFTER_FAILURES
        } else {
            LOOKUP_INTERVAL
        };
        let is_recent = self
            .looked_up
            .is_some_and(|looked_up| looked_up.elapsed() < interval);
        let is_due = self.replicas.is_empty() || !is_recent;
        if is_due {
            self.looked_up = Some(Instant::now());
        }
        is_due
    }

    fn update(&mut self, addresses: &[SocketAddr]) {
        self.replicas
            .retain(|replica| addresses.contains(&replica.address));
        for address in addresses {
            if !self.replicas.iter().any(|held| held.address == *address) {
                self.replicas.push(Replica::new(*address));
            }
        }
    }

    fn pick(&mut self) -> Option<Picked> {
        let count = self.replicas.len();
        let order = (0..count).map(|step| (self.next + step) % count);
        let at = order
            .clone()
            .find(|at| !self.replicas[*at].is_resting())
            .or_else(|| order.min_by_key(|at| self.replicas[*at].failed))?;
        self.next = at + 1;
        let replica = &self.replicas[at];
        Some(Picked {
            address: replica.address,
            connecting: Arc::clone(&replica.connecting),
        })
    }
}

/// A connector to one address, whatever name the URI has.
struct Dialer(SocketAddr);

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = BoxedFuture<TokioIo<TcpStream>, io::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let address = self.0;
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_name_or_a_list_of_addresses() {
        for (target, name) in [
            ("127.0.0.1:50051", "127.0.0.1:50051"),
            ("[::1]:50051", "[::1]:50051"),
            ("dns:///relight-headless:50051", "relight-headless:50051"),
            ("dns:relight-headless:50051", "relight-headless:50051"),
        ] {
            let parsed: Target = target.parse().unwrap();
            assert_eq!(parsed, Target::Name(name.to_owned()));
        }
        let list: Target = "ipv4:127.0.0.1:1,127.0.0.2:2".parse().unwrap();
        assert_eq!(
            list,
            Target::Addresses(vec![
                "127.0.0.1:1".parse().unwrap(),
                "127.0.0.2:2".parse().unwrap()
            ])
        );
        for refused in [
            "relight",
            "dns://10.0.0.1/relight:1",
            "ipv4:relight:1",
            ":1",
        ] {
            assert!(refused.parse::<Target>().is_err(), "{refused}");
        }
    }

    #[tokio::test]
    async fn calls_go_round_and_pass_over_a_replica_that_failed() {
        let target = "ipv4:127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
        let connection = Connection::new(target, None, None).unwrap();
        let replicas = &connection.replicas;
        let mut ports = Vec::new();
        for _ in 0..3 {
            ports.push(replicas.pick().await.unwrap().address.port());
        }
        ports.sort_unstable();
        assert_eq!(ports, [1, 2, 3]);

        tokio::time::pause();
        let lost = replicas.pick().await.unwrap();
        replicas.report(&lost, CallEnd::Lost);
        for _ in 0..6 {
            assert_ne!(replicas.pick().await.unwrap().address, lost.address);
        }
        tokio::time::advance(REST).await;
        let mut again = Vec::new();
        for _ in 0..3 {
            again.push(replicas.pick().await.unwrap().address);
        }
        assert!(again.contains(&lost.address), "{again:?}");
    }

    #[tokio::test]
    async fn a_replica_that_cannot_be_reached_costs_a_call_nothing() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        let target = format!("ipv4:127.0.0.1:1,{alive}");
        let connection = Connection::new(&target, None, None).unwrap();
        let replicas = &connection.replicas;
        for _ in 0..4 {
            let (picked, _) = replicas.connected().await.unwrap();
            assert_eq!(picked.address, alive);
        }
        drop(listener);
        let (picked, _) = replicas.connected().await.unwrap();
        replicas.report(&picked, CallEnd::Lost);
        assert!(replicas.connected().await.is_err());
    }
}
