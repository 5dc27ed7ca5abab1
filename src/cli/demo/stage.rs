//! Plays a scene: asks over gRPC, and writes down and shows what a watcher is told meanwhile.

use std::{io, net::SocketAddr, time::Duration};

use crate::{
    domain::clock::wall_now,
    grpc::v1::{self, recovery_event::Body, recovery_service_client::RecoveryServiceClient},
};
use anyhow::{Context as _, bail};
use jiff::Timestamp;
use tokio::time::Instant;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use super::{
    scene::{Played, Scene, TOOL, reply},
    wires::Wires,
};
use crate::cli::{
    event_line,
    refusal::ServerRefusal,
    terminal::{Paint, answer, one_line},
};

/// How far apart the calls of a scene with many are.
const BETWEEN_CALLS: Duration = Duration::from_millis(150);

/// How long an event that belongs to an answer may be on its way behind it.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// A connection to the demo's server, and a watch of everything that happens there.
pub(super) struct Stage {
    client: RecoveryServiceClient<Channel>,
    events: Streaming<v1::WatchRecoveryResponse>,
    /// None: nothing is shown.
    paint: Option<Paint>,
}

/// A scene while it plays.
struct Playing {
    began: Timestamp,
    /// Invocations in the order in which they were first heard of.
    calls: Vec<String>,
    played: Played,
    paint: Option<Paint>,
}

// === impl Stage ===

impl Stage {
    /// Connects, and watches before anything happens.
    pub(super) async fn open(address: SocketAddr, paint: Option<Paint>) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let mut client = RecoveryServiceClient::new(channel);
        let start = Some(v1::watch_recovery_request::Start::Live(true));
        let request = v1::WatchRecoveryRequest { filter: None, start };
        let mut events = client.watch_recovery(request).await.map_err(ServerRefusal::from)?.into_inner();
        // The first word of a watch says that it stands.
        events.message().await.map_err(ServerRefusal::from)?;
        Ok(Self { client, events, paint })
    }

    /// Plays a scene to its end, on the wires where it is played on any.
    pub(super) async fn play(&mut self, scene: &Scene, wires: Option<&Wires>) -> anyhow::Result<Played> {
        let mut playing =
            Playing { began: wall_now(), calls: Vec::new(), played: Played::default(), paint: self.paint };
        let began = Instant::now();
        let seen = wires.map(Wires::seen).unwrap_or_default();
        if let Some(wires) = wires {
            (scene.prepare)(wires);
        }
        for number in 0..scene.calls {
            if number > 0 {
                self.listen(BETWEEN_CALLS, &mut playing).await?;
            }
            self.call(scene, &mut playing).await?;
        }
        if let Some(wires) = wires {
            (playing.played.requests, playing.played.spare_requests) = wires.since(seen);
        }
        playing.played.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(playing.played)
    }

    /// One call, and all that is told of it.
    async fn call(&mut self, scene: &Scene, playing: &mut Playing) -> anyhow::Result<()> {
        let mut client = self.client.clone();
        let call = client.invoke_with_recovery(request(scene));
        tokio::pin!(call);
        let response = loop {
            tokio::select! {
                biased;
                event = next(&mut self.events) => playing.hear(event?)?,
                response = &mut call => break response.map_err(ServerRefusal::from)?.into_inner(),
            }
        };
        let invocation = response.invocation_id.clone();
        let heard_of_its_end = async {
            while !playing.played.has_ended(&invocation) {
                playing.hear(next(&mut self.events).await?)?;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(LAST_EVENTS, heard_of_its_end)
            .await
            .context("the watch did not tell of a call's end")??;
        playing.tell_reply(&response)?;
        playing.played.responses.push(response);
        Ok(())
    }

    /// Hears what happens within that time.
    async fn listen(&mut self, time: Duration, playing: &mut Playing) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while let Ok(event) = tokio::time::timeout_at(until, next(&mut self.events)).await {
            playing.hear(event?)?;
        }
        Ok(())
    }
}

async fn next(events: &mut Streaming<v1::WatchRecoveryResponse>) -> anyhow::Result<v1::RecoveryEvent> {
    loop {
        match events.message().await.map_err(ServerRefusal::from)? {
            Some(v1::WatchRecoveryResponse { event: Some(event) }) => return Ok(event),
            Some(_) => {}
            None => bail!("the watch ended"),
        }
    }
}

fn request(scene: &Scene) -> v1::InvokeWithRecoveryRequest {
    let text = v1::part::Content::Text(v1::TextPart { text: scene.question.to_owned() });
    let message = v1::Message {
        role: v1::Role::User.into(),
        parts: vec![v1::Part { content: Some(text), ..v1::Part::default() }],
        ..v1::Message::default()
    };
    let tool = v1::ToolDefinition {
        name: TOOL.to_owned(),
        description: "The weather of a city.".to_owned(),
        input_schema_json:
            r#"{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string"}},"required":["city"]}"#
                .to_owned(),
        strict: None,
    };
    let call = v1::ModelCall {
        messages: vec![message],
        tools: if scene.with_tool { vec![tool] } else { Vec::new() },
        max_output_tokens: scene.max_output_tokens,
        ..v1::ModelCall::default()
    };
    let invocation = v1::Invocation {
        route: scene.route.to_owned(),
        operation: "executor".to_owned(),
        call: Some(v1::invocation::Call::Model(call)),
        ..v1::Invocation::default()
    };
    v1::InvokeWithRecoveryRequest { invocation: Some(invocation) }
}

// === impl Playing ===

impl Playing {
    /// Writes it down and shows it.
    fn hear(&mut self, event: v1::RecoveryEvent) -> io::Result<()> {
        let started = matches!(event.body, Some(Body::InvocationStarted(_)));
        if !event.invocation_id.is_empty() && !self.calls.contains(&event.invocation_id) {
            self.calls.push(event.invocation_id.clone());
        }
        if let (Some(paint), Some(words), false) = (self.paint, event_line::what(&event), started) {
            let at = event.time.as_ref().and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
            let ms = at.map_or(0, |at| at.as_millisecond() - self.began.as_millisecond()).max(0);
            self.tell(ms, &event.invocation_id, &event_line::painted(&event, &words, paint), paint)?;
        }
        self.played.events.push(event);
        Ok(())
    }

    fn tell_reply(&self, response: &v1::InvokeWithRecoveryResponse) -> io::Result<()> {
        let Some(paint) = self.paint else { return Ok(()) };
        let ms = wall_now().as_millisecond() - self.began.as_millisecond();
        let reply = format!("→ \"{}\" ({})", reply(response), one_line(&response.final_target));
        self.tell(ms, &response.invocation_id, &paint.bold(&reply), paint)
    }

    fn tell(&self, ms: i64, invocation: &str, words: &str, paint: Paint) -> io::Result<()> {
        let call = self.calls.iter().position(|call| call == invocation).map(|index| format!("call {}", index + 1));
        let prefix = format!("{ms:>7} ms  {:<8}", call.unwrap_or_default());
        answer(&format!("{}{words}", paint.dim(&prefix)))
    }
}
