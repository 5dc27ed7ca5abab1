//! The other replicas of the fleet, as this one asks them for what only they know.
//!
//! Nothing is sent unless a caller asks. A replica that is asked by another one responds for itself
//! alone, so that no question goes round; one that does not respond in time is named.

mod clocks;
mod feed;
mod link;
mod token;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use relight_fleet::{FleetMember, FleetStatus};
use tokio::{sync::watch, time::timeout};
use tonic::{
    Code, Request, Response, Status,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};

pub(in crate::grpc) use self::feed::{FeedItem, FeedStart, follow};
pub use self::token::{PEER_CLOCK_HEADER, PEER_HEADER, PeerCall, PeerKey};
use self::{
    clocks::PeerClocks,
    link::{PeerTls, endpoint},
};
use super::{auth::Identity, v1};
use crate::{
    call_error::{
        CallError,
        table::{REPLICA_NOT_FOUND, REPLICA_SILENT},
    },
    config::{Config, fault::nearest},
    fleet::Replicas,
};

/// Time that another replica may take to respond.
pub(in crate::grpc) const PATIENCE: Duration = Duration::from_secs(1);

/// Time until a replica that could not be reached is asked again.
const GREET_AGAIN: Duration = Duration::from_secs(30);

/// Largest response of another replica.
pub(in crate::grpc) const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// The other replicas; cheap to clone.
#[derive(Debug, Clone)]
pub struct Peers {
    me: Arc<FleetMember>,
    key: Arc<PeerKey>,
    clocks: PeerClocks,
    tls: Option<PeerTls>,
    replicas: Replicas,
    /// Connections by URL, for questions with one response.
    channels: Arc<Mutex<HashMap<String, Channel>>>,
    /// The result of the last question to each, by its name.
    reached: Arc<Mutex<HashMap<String, Result<(), String>>>>,
}

/// One caller's question to other replicas.
#[derive(Debug, Clone, Copy)]
pub(in crate::grpc) struct Question<'a> {
    /// Path of the method.
    pub(in crate::grpc) method: &'static str,
    /// The caller.
    pub(in crate::grpc) identity: &'a Identity,
}

/// The call of one replica.
pub(in crate::grpc) type Asking<T> = BoxFuture<'static, Result<Response<T>, Status>>;

/// The responses of other replicas, by ascending name, and those that did not respond.
pub(in crate::grpc) type Responses<T> = (Vec<(FleetMember, T)>, Vec<v1::SilentReplica>);

// === impl Peers ===

impl Peers {
    /// The replicas that this one, as it is configured, shares a store with.
    pub fn new(config: &Config, me: FleetMember, replicas: Replicas) -> Self {
        Self {
            key: Arc::new(PeerKey::new(config, &me.id)),
            me: Arc::new(me),
            clocks: PeerClocks::default(),
            tls: PeerTls::new(config),
            replicas,
            channels: Arc::default(),
            reached: Arc::default(),
        }
    }

    /// Returns the key by which other replicas are recognised.
    pub fn key(&self) -> Arc<PeerKey> {
        Arc::clone(&self.key)
    }

    /// Returns this replica.
    pub fn me(&self) -> &Arc<FleetMember> {
        &self.me
    }

    /// Returns who lives, now and as it changes; `None` if this replica is alone by its settings.
    pub(in crate::grpc) fn watch(&self) -> Option<watch::Receiver<FleetStatus>> {
        self.replicas.watch()
    }

    /// Returns the live replicas beside this one, by ascending name.
    pub fn others(&self) -> Vec<FleetMember> {
        let Some(status) = self.watch() else {
            return Vec::new();
        };
        let mut others = status.borrow().live.clone();
        others.retain(|member| member.id != self.me.id);
        others.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        others
    }

    /// Returns the number of live replicas, this one included; `None` if it is alone by its
    /// settings.
    pub fn live(&self) -> Option<u64> {
        Some(self.watch()?.borrow().live.len() as u64)
    }

    /// Returns the name of the live replica with this id; the id if there is none.
    pub(in crate::grpc) fn name_of(&self, id: &str) -> String {
        if self.me.id == id {
            return self.me.name.clone();
        }
        let Some(status) = self.watch() else {
            return id.to_owned();
        };
        let status = status.borrow();
        let member = status.live.iter().find(|member| member.id == id);
        member.map_or(id, |member| &member.name).to_owned()
    }

    /// Returns the live replica of this name, or id; `None` if it is this one, or none is named.
    ///
    /// # Errors
    /// `NOT_FOUND` with the nearest name.
    pub(in crate::grpc) fn named(&self, name: &str) -> Result<Option<FleetMember>, CallError> {
        let is_meant = |member: &FleetMember| member.name == name || member.id == name;
        if name.is_empty() || is_meant(&self.me) {
            return Ok(None);
        }
        let others = self.others();
        if let Some(found) = others.iter().find(|member| is_meant(member)) {
            return Ok(Some(found.clone()));
        }
        let names = others.iter().map(|member| member.name.as_str());
        let names: Vec<&str> = names.chain([self.me.name.as_str()]).collect();
        Err(CallError::not_found(
            REPLICA_NOT_FOUND,
            name,
            nearest(name, &names),
        ))
    }

    /// Asks these replicas at once.
    pub(in crate::grpc) async fn ask_all<T>(
        &self,
        members: Vec<FleetMember>,
        question: Question<'_>,
        ask: impl Fn(Channel, Request<()>) -> Asking<T>,
    ) -> Responses<T> {
        let asked = members.into_iter().map(|member| {
            let ask = &ask;
            async move { (self.asked(&member, question, ask).await, member) }
        });
        let mut responses = Vec::new();
        let mut silent = Vec::new();
        for (response, member) in join_all(asked).await {
            match response {
                Ok(response) => responses.push((member, response)),
                Err(reason) => silent.push(v1::SilentReplica {
                    replica: member.name,
                    reason,
                }),
            }
        }
        (responses, silent)
    }

    /// Asks one replica.
    ///
    /// # Errors
    /// `UNAVAILABLE` if it does not respond.
    pub(in crate::grpc) async fn ask<T>(
        &self,
        member: &FleetMember,
        question: Question<'_>,
        ask: impl Fn(Channel, Request<()>) -> Asking<T>,
    ) -> Result<T, CallError> {
        let asked = self.asked(member, question, &ask).await;
        asked.map_err(|why| {
            let error = CallError::new(REPLICA_SILENT).fact("name", &member.name);
            error.fact("why", why)
        })
    }

    async fn asked<T>(
        &self,
        member: &FleetMember,
        question: Question<'_>,
        ask: &impl Fn(Channel, Request<()>) -> Asking<T>,
    ) -> Result<T, String> {
        let asking = async {
            let channel = self.channel(member).await?;
            let ask = |request| ask(channel.clone(), request);
            let response = self.call(member, question, ask).await;
            response.map_err(|status| words(&status))
        };
        let asked = timeout(PATIENCE, asking)
            .await
            .unwrap_or_else(|_| Err(format!("no response within {PATIENCE:?}")));
        if asked.is_err() {
            // The next one reads renewed certificates, and finds a new process at this address.
            self.channels.lock().remove(&member.address);
        }
        self.note(member, asked.as_ref().map(|_| ()).map_err(Clone::clone));
        asked
    }

    /// Returns a request without a message, which a replica recognises as another one's.
    fn request(&self, member: &FleetMember, question: Question<'_>) -> Request<()> {
        let Question { method, identity } = question;
        let now = self.clocks.now_at(&member.id);
        let token = self.key.write(&member.id, method, identity, now);
        let mut request = Request::new(());
        if let Ok(mut token) = MetadataValue::try_from(token) {
            token.set_sensitive(true);
            request.metadata_mut().insert(PEER_HEADER, token);
        }
        request
    }

    async fn channel(&self, member: &FleetMember) -> Result<Channel, String> {
        if let Some(known) = self.channels.lock().get(&member.address) {
            return Ok(known.clone());
        }
        let channel = self.endpoint(member).await?.connect_lazy();
        let mut channels = self.channels.lock();
        let live = self.others();
        channels.retain(|url, _| live.iter().any(|member| member.address == *url));
        self.clocks.keep(&live);
        channels.insert(member.address.clone(), channel.clone());
        Ok(channel)
    }

    async fn endpoint(&self, member: &FleetMember) -> Result<Endpoint, String> {
        endpoint(&member.address, self.tls.as_ref(), PATIENCE).await
    }

    /// Notes whether a replica responded.
    fn note(&self, member: &FleetMember, result: Result<(), String>) {
        let mut reached = self.reached.lock();
        let before = reached.insert(member.name.clone(), result.clone());
        let was_reached = before.is_none_or(|before| before.is_ok());
        let replica = &member.name;
        match result {
            Err(reason) if was_reached => {
                tracing::warn!(replica, reason, "another replica cannot be reached");
            }
            Ok(()) if !was_reached => tracing::info!(replica, "another replica is reached again"),
            Err(_) | Ok(()) => {}
        }
    }

    /// Returns the live replicas that were asked, and whether the last question reached them.
    pub fn reached(&self) -> Vec<(String, Result<(), String>)> {
        let live = self.others();
        let mut reached = self.reached.lock();
        reached.retain(|name, _| live.iter().any(|member| member.name == *name));
        let mut reached: Vec<_> = reached.clone().into_iter().collect();
        reached.sort();
        reached
    }

    /// Asks each replica once as it joins, and again while it cannot be reached, so that it is known
    /// before somebody needs it. Returns if this replica is alone by its settings.
    pub async fn greet(self) {
        let Some(mut status) = self.watch() else {
            return;
        };
        let nobody = Identity::of_replica();
        let question = Question {
            method: "/relight.v1.AdminService/GetStatus",
            identity: &nobody,
        };
        loop {
            let known = self.reached();
            let mut strangers = self.others();
            strangers.retain(|member| {
                let is_known =
                    |(name, result): &(String, _)| *name == member.name && matches!(result, Ok(()));
                !known.iter().any(is_known)
            });
            self.ask_all(strangers, question, get_status).await;
            tokio::select! {
                changed = status.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(GREET_AGAIN) => {}
            }
        }
    }
}

/// Asks for the state of one replica.
pub(in crate::grpc) fn get_status(
    channel: Channel,
    request: Request<()>,
) -> Asking<v1::GetStatusResponse> {
    let request = request.map(|()| v1::GetStatusRequest::default());
    Box::pin(async move {
        v1::admin_service_client::AdminServiceClient::new(channel)
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
            .get_status(request)
            .await
    })
}

/// Returns the reason for which a replica did not respond as it should.
fn words(status: &Status) -> String {
    match status.code() {
        Code::Unauthenticated => "it does not recognise this replica: fleet.key differs or is not \
                                  set, or another process has its address"
            .to_owned(),
        code => {
            let mut source = std::error::Error::source(status);
            let mut last = status.message().to_owned();
            while let Some(error) = source {
                last = error.to_string();
                source = error.source();
            }
            format!("{code:?}: {last}")
        }
    }
}
