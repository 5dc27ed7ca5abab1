//! A way to a server on which everything takes its time, and which can be cut.

#![expect(clippy::unwrap_used, reason = "a test ends where its world fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

/// Bytes that are under way at most in one direction.
const PIECE: usize = 16 << 10;

/// A port that leads to another one of this host.
pub(crate) struct SlowLink {
    pub(crate) port: u16,
    delay_ms: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

// === impl SlowLink ===

impl SlowLink {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let delay_ms = Arc::<AtomicU64>::default();
        let (delay, mut tasks) = (Arc::clone(&delay_ms), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let delay = Arc::clone(&delay);
                connections.spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                        return;
                    };
                    relay(client, server, &delay).await;
                });
            }
        });
        Self {
            port: own,
            delay_ms,
            _tasks: tasks,
        }
    }

    /// From now on each direction takes so long.
    pub(crate) fn set_delay(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.delay_ms.store(delay, Ordering::Relaxed);
    }
}

async fn relay(client: TcpStream, server: TcpStream, delay: &AtomicU64) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = one_way(from_client, to_server, delay) => {}
        () = one_way(from_server, to_client, delay) => {}
    }
}

async fn one_way(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    delay: &AtomicU64,
) {
    let mut piece = vec![0; PIECE];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        let due = Instant::now() + Duration::from_millis(delay.load(Ordering::Relaxed));
        tokio::time::sleep_until(due).await;
        if to.write_all(&piece[..read]).await.is_err() {
            break;
        }
    }
}
