//! Plays a scene: calls over gRPC, and records and shows the events that a watcher receives
//! meanwhile.

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
    terminal::{Paint, one_line, print_line},
};

/// Time between the calls of a scene with many.
const BETWEEN_CALLS: Duration = Duration::from_millis(150);

/// Time after a response for which its events may still arrive.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// A connection to the demo's server, and a watch of everything that happens there.
pub(super) struct Stage {
    client: RecoveryServiceClient<Channel>,
    events: Streaming<v1::WatchRecoveryResponse>,
    /// `None`: nothing is shown.
    paint: Option<Paint>,
}

/// A scene while it plays.
struct Playing {
    began: Timestamp,
    /// Invocations in the order of their first event.
    calls: Vec<String>,
    played: Played,
    paint: Option<Paint>,
}

// === impl Stage ===

impl Stage {
    /// Connects, and watches before anything happens.
    pub(super) async fn open(address: SocketAddr, paint: Option<Paint>) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect()
            .await?;
        let mut client = RecoveryServiceClient::new(channel);
        let start = Some(v1::watch_recovery_request::Start::Live(true));
        let request = v1::WatchRecoveryRequest {
            filter: None,
            start,
        };
        let mut events = client
            .watch_recovery(request)
            .await
            .map_err(ServerRefusal::from)?
            .into_inner();
        // The first message of a watch confirms that it is established.
        events.message().await.map_err(ServerRefusal::from)?;
        Ok(Self {
            client,
            events,
            paint,
        })
    }

    /// Plays a scene to its end, on the wires if it is played on any.
    pub(super) async fn play(
        &mut self,
        scene: &Scene,
        wires: Option<&Wires>,
    ) -> anyhow::Result<Played> {
        let mut playing = Playing {
            began: wall_now(),
            calls: Vec::new(),
            played: Played::default(),
            paint: self.paint,
        };
        let began = Instant::now();
        let seen = wires.map(Wires::seen).unwrap_or_default();
        if let Some(wires) = wires {
            (scene.prepare)(wires);
        }
        for number in 0..scene.calls {
            if number > 0 {
                self.listen(BETWEEN_CALLS, &mut playing).await?;
            }
            self.call(request(scene), &mut playing).await?;
        }
        if let Some(wires) = wires {
            (playing.played.requests, playing.played.spare_requests) = wires.since(seen);
        }
        playing.played.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(playing.played)
    }

    /// One more call, and all that is printed of it, added to what was played before.
    pub(super) async fn play_call(
        &mut self,
        request: v1::InvokeWithRecoveryRequest,
        played: &mut Played,
    ) -> anyhow::Result<()> {
        let before = std::mem::take(played);
        let calls = before
            .responses
            .iter()
            .map(|response| response.invocation_id.clone())
            .collect();
        let mut playing = Playing {
            began: wall_now(),
            calls,
            played: before,
            paint: self.paint,
        };
        let called = self.call(request, &mut playing).await;
        *played = playing.played;
        called
    }

    /// One call, and all that is printed of it.
    async fn call(
        &mut self,
        request: v1::InvokeWithRecoveryRequest,
        playing: &mut Playing,
    ) -> anyhow::Result<()> {
        let mut client = self.client.clone();
        let call = client.invoke_with_recovery(request);
        tokio::pin!(call);
        let response = loop {
            tokio::select! {
                biased;
                event = next(&mut self.events) => playing.receive(event?)?,
                response = &mut call => break response.map_err(ServerRefusal::from)?.into_inner(),
            }
        };
        let invocation = response.invocation_id.clone();
        let saw_its_end = async {
            while !playing.played.has_ended(&invocation) {
                playing.receive(next(&mut self.events).await?)?;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(LAST_EVENTS, saw_its_end)
            .await
            .context("the watch did not report a call's end")??;
        playing.show_reply(&response)?;
        playing.played.responses.push(response);
        Ok(())
    }

    /// Receives events for that time.
    async fn listen(&mut self, time: Duration, playing: &mut Playing) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while let Ok(event) = tokio::time::timeout_at(until, next(&mut self.events)).await {
            playing.receive(event?)?;
        }
        Ok(())
    }
}

async fn next(
    events: &mut Streaming<v1::WatchRecoveryResponse>,
) -> anyhow::Result<v1::RecoveryEvent> {
    loop {
        match events.message().await.map_err(ServerRefusal::from)? {
            Some(v1::WatchRecoveryResponse { event: Some(event) }) => return Ok(event),
            Some(_) => {}
            None => bail!("the watch ended"),
        }
    }
}

fn request(scene: &Scene) -> v1::InvokeWithRecoveryRequest {
    let tool = v1::ToolDefinition {
        name: TOOL.to_owned(),
        description: "The weather of a city.".to_owned(),
        input_schema_json:
            r#"{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string"}},"required":["city"]}"#
                .to_owned(),
        strict: None,
    };
    let call = v1::ModelCall {
        text: scene.question.to_owned(),
        tools: if scene.with_tool {
            vec![tool]
        } else {
            Vec::new()
        },
        max_output_tokens: scene.max_output_tokens,
        ..v1::ModelCall::default()
    };
    let invocation = v1::Invocation {
        route: scene.route.to_owned(),
        operation: "executor".to_owned(),
        call: Some(v1::invocation::Call::Model(call)),
        ..v1::Invocation::default()
    };
    v1::InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    }
}

// === impl Playing ===

impl Playing {
    /// Records and shows an event.
    fn receive(&mut self, event: v1::RecoveryEvent) -> io::Result<()> {
        let started = matches!(event.body, Some(Body::InvocationStarted(_)));
        if !event.invocation_id.is_empty() && !self.calls.contains(&event.invocation_id) {
            self.calls.push(event.invocation_id.clone());
        }
        if let (Some(paint), Some(words), false) = (self.paint, event_line::what(&event), started) {
            let at = event
                .time
                .as_ref()
                .and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
            let ms = at
                .map_or(0, |at| at.as_millisecond() - self.began.as_millisecond())
                .max(0);
            self.show(
                ms,
                &event.invocation_id,
                &event_line::painted(&event, &words, paint),
                paint,
            )?;
        }
        self.played.events.push(event);
        Ok(())
    }

    fn show_reply(&self, response: &v1::InvokeWithRecoveryResponse) -> io::Result<()> {
        let Some(paint) = self.paint else {
            return Ok(());
        };
        let ms = wall_now().as_millisecond() - self.began.as_millisecond();
        let reply = format!(
            "→ \"{}\" ({})",
            reply(response),
            one_line(&response.final_target)
        );
        self.show(ms, &response.invocation_id, &paint.bold(&reply), paint)
    }

    fn show(&self, ms: i64, invocation: &str, words: &str, paint: Paint) -> io::Result<()> {
        let call = self
            .calls
            .iter()
            .position(|call| call == invocation)
            .map(|index| format!("call {}", index + 1));
        let prefix = format!("{ms:>7} ms  {:<8}", call.unwrap_or_default());
        print_line(&format!("{}{words}", paint.dim(&prefix)))
    }
}
