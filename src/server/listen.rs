//! The listeners: bound early, with a clear error when a port is taken, and served with the
//! protocol's bounds set.

use std::{future::Future, io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use futures_util::stream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
};
use tonic::{
    service::Routes,
    transport::{Server, server::Connected},
};
use tower_http::cors::CorsLayer;

use super::{
    ServeError, connection::LimitedListener, console::ConsoleLayer, intake::Intake,
    intake::MAX_HEADER_BYTES, refused_callers::RefusedCallers, rpc_metrics, tls::Certificates,
};
use crate::{
    config::{Config, server::ServerConfig},
    grpc::v1,
    telemetry::Metrics,
};

/// Calls at once on one connection; more wait in the client.
const MAX_CONCURRENT_STREAMS: u32 = 1024;
/// Interval at which an idle connection is probed, and time that the peer may take to respond.
const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_mins(1);
const KEEPALIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// The bound listeners.
#[derive(Debug)]
pub struct Listeners {
    /// For gRPC.
    pub grpc: TcpListener,
    /// For health and metrics, always in plaintext.
    pub admin: TcpListener,
    /// Listener for the OpenAI-compatible front, if it is switched on.
    pub openai_front: Option<TcpListener>,
    /// Listener for the `AdminService`, if it is apart from the rest of the API.
    pub admin_service: Option<TcpListener>,
    /// Listener for Relight as an MCP server, if that is switched on.
    pub mcp_front: Option<TcpListener>,
}

/// The addresses of the listeners; `None` for those that are switched off.
pub(super) struct ListenAddresses {
    pub(super) grpc: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) openai_front: Option<SocketAddr>,
    pub(super) admin_service: Option<SocketAddr>,
    pub(super) mcp_front: Option<SocketAddr>,
}

/// Error returned if an address cannot be bound, in one line.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The port is taken.
    #[error("{setting}: {address} is in use by another process; choose another port")]
    InUse {
        /// The setting that names it.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("{setting}: cannot listen on {address}: {source}")]
    Other {
        /// The setting that names it.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A bound listener does not know its address.
    #[error("a listener has no address: {0}")]
    Address(#[from] io::Error),
}

// === impl Listeners ===

impl Listeners {
    /// Binds what the configuration names.
    ///
    /// # Errors
    /// Returns an error if an address is taken or does not belong to this host.
    pub async fn bind(config: &Config) -> Result<Self, BindError> {
        let server = &config.server;
        let openai_front = match &server.openai_front {
            Some(front) => Some(bind("server.openai_front.listen", front.listen).await?),
            None => None,
        };
        let mcp_front = match &config.tools.mcp_front {
            Some(front) => Some(bind("tools.mcp_front.listen", front.listen).await?),
            None => None,
        };
        let admin_service = match &server.admin_service {
            Some(admin) => Some(bind("server.admin_service.listen", admin.listen).await?),
            None => None,
        };
        Ok(Self {
            openai_front,
            admin_service,
            mcp_front,
            grpc: bind("server.listen", server.listen).await?,
            admin: bind("server.admin_listen", server.admin_listen).await?,
        })
    }

    /// Returns their addresses.
    pub(super) fn addresses(&self) -> Result<ListenAddresses, BindError> {
        let of = |listener: &Option<TcpListener>| {
            let address = listener.as_ref().map(TcpListener::local_addr);
            address.transpose()
        };
        Ok(ListenAddresses {
            grpc: self.grpc.local_addr()?,
            admin: self.admin.local_addr()?,
            openai_front: of(&self.openai_front)?,
            admin_service: of(&self.admin_service)?,
            mcp_front: of(&self.mcp_front)?,
        })
    }
}

// === impl ListenAddresses ===

impl ListenAddresses {
    /// Returns those at which calls are made.
    pub(super) fn of_callers(&self) -> impl Iterator<Item = SocketAddr> {
        let fronts = [self.openai_front, self.mcp_front];
        fronts.into_iter().flatten().chain([self.grpc])
    }
}

/// Binds one address.
///
/// # Errors
/// Returns an error if the address is taken or does not belong to this host.
pub(super) async fn bind(
    setting: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { setting, address },
            _ => BindError::Other {
                setting,
                address,
                source,
            },
        })
}

/// The gRPC API, and what each of its calls passes through.
pub(super) struct GrpcApi {
    pub(super) routes: Routes,
    pub(super) intake: Intake,
    pub(super) metrics: Metrics,
    pub(super) refused: Arc<RefusedCallers>,
    /// Pages that may call by gRPC-Web.
    pub(super) cors: CorsLayer,
}

pub(super) fn serve_grpc(
    server: &ServerConfig,
    listener: TcpListener,
    api: GrpcApi,
    certificates: &Certificates,
    mut stop: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> Result<(), ServeError> {
    let GrpcApi {
        mut routes,
        intake,
        metrics,
        refused,
        cors,
    } = api;
    if server.reflection {
        routes = with_reflection(routes)?;
    }
    // Outermost, so that callers who are refused at the door are counted, too.
    let routes = rpc_metrics::recorded(intake.before(routes), &metrics, refused);
    let builder = Server::builder()
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        // With a grace set as well, tonic cuts the socket without a GOAWAY; alone, the age is the
        // right two-stage end.
        .max_connection_age(server.max_connection_age)
        .accept_http1(true);
    let stopped = async move {
        // An error means that the server is gone, which is a stop as well.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let console = ConsoleLayer::new(server.console);
    let api = Api {
        builder,
        console,
        web: cors,
        routes,
    };
    let listener = LimitedListener::new("grpc", listener, &server.limits, &server.timeouts);
    match certificates.listener(listener) {
        Ok(listener) => tasks.spawn(api.serve(listener, stopped)),
        Err(listener) => tasks.spawn(api.serve(listener, stopped)),
    };
    Ok(())
}

/// The gRPC API before it has connections.
struct Api {
    builder: Server,
    console: ConsoleLayer,
    /// CORS rules for gRPC-Web.
    web: CorsLayer,
    routes: Routes,
}

impl Api {
    async fn serve<L>(self, listener: L, stopped: impl Future<Output = ()>)
    where
        L: Listener<Io: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static>,
    {
        let connections = stream::unfold(listener, async |mut listener| {
            let (connection, _) = listener.accept().await;
            Some((Ok::<_, io::Error>(connection), listener))
        });
        let mut builder = self
            .builder
            .layer(self.console)
            .layer(self.web)
            .layer(tonic_web::GrpcWebLayer::new());
        let served = builder
            .add_routes(self.routes)
            .serve_with_incoming_shutdown(connections, stopped)
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "the gRPC listener ended");
        }
    }
}

/// Both versions of reflection: many clients support only the older one.
fn with_reflection(routes: Routes) -> Result<Routes, ServeError> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(v1::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = |error: tonic_reflection::server::Error| ServeError::Reflection(error.to_string());
    Ok(routes
        .add_service(builder().build_v1().map_err(broken)?)
        .add_service(builder().build_v1alpha().map_err(broken)?))
}
