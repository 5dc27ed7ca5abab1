//! Calls that come at a rate, through Relight and of a naive client beside it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use relight::internals::{domain::ids::InvocationId, policy::rng::SeededRng};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use super::{
    front::{Front, post_with, question},
    upstream::{Reply, Upstream},
};

/// The course of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallCourse {
    /// Time at which it came, from the first one on.
    pub(crate) came: Duration,
    pub(crate) took: Duration,
    pub(crate) answered: bool,
}

pub(crate) fn refused(status: u16, headers: &[(&str, &str)]) -> Reply {
    Reply::refusal(
        status,
        headers,
        &json!({"error": {"message": "Refused.", "type": "refused"}}),
    )
}

/// A lone target with the default settings.
pub(crate) fn lone(upstream: &Upstream, deadline: &str) -> String {
    format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\n\
         routes: {{ default: {{ targets: [main], deadline: {deadline} }} }}\n",
        upstream.base_url()
    )
}

/// So many calls, evenly, each as `call` makes it.
async fn load<F>(per_second: u32, count: u32, call: impl Fn() -> F) -> Vec<CallCourse>
where
    F: Future<Output = bool> + Send + 'static,
{
    let begin = Instant::now();
    let mut calls = JoinSet::new();
    for number in 0..count {
        let came = Duration::from_secs(1) * number / per_second;
        tokio::time::sleep_until(begin + came).await;
        let answering = call();
        calls.spawn(async move {
            let began = Instant::now();
            let answered = answering.await;
            CallCourse {
                came,
                took: began.elapsed(),
                answered,
            }
        });
    }
    let mut courses = calls.join_all().await;
    courses.sort_by_key(|one| one.came);
    courses
}

/// Calls through Relight.
pub(crate) async fn through(front: &Arc<Front>, per_second: u32, count: u32) -> Vec<CallCourse> {
    load(per_second, count, || {
        let front = Arc::clone(front);
        async move { front.ask("default", false).await.status == 200 }
    })
    .await
}

/// Calls of so many callers, each of whom makes its next call when the one before has ended.
pub(crate) async fn in_turn(front: &Arc<Front>, callers: u32, each: u32) -> Vec<CallCourse> {
    let begin = Instant::now();
    let callers: JoinSet<_> = (0..callers)
        .map(|_| {
            let front = Arc::clone(front);
            async move {
                let mut courses = Vec::new();
                for _ in 0..each {
                    let came = begin.elapsed();
                    let answered = front.ask("default", false).await.status == 200;
                    let took = begin.elapsed() - came;
                    courses.push(CallCourse {
                        came,
                        took,
                        answered,
                    });
                }
                courses
            }
        })
        .collect();
    callers.join_all().await.concat()
}

/// Calls of a naive client: three retries, full jitter.
pub(crate) async fn naive(upstream: &Upstream, per_second: u32, count: u32) -> Vec<CallCourse> {
    let base = upstream.base_url();
    let address = base.trim_start_matches("http://").trim_end_matches("/v1");
    let address: SocketAddr = address.parse().unwrap();
    let number = AtomicU32::new(0);
    load(per_second, count, || {
        let id = InvocationId::from(format!("n-{}", number.fetch_add(1, Ordering::Relaxed)));
        async move {
            for retry in 0..4 {
                if retry > 0 {
                    let wait = SeededRng::new(7, &id, retry).unit() * f64::from(1 << (retry - 1));
                    tokio::time::sleep(Duration::from_secs_f64(wait)).await;
                }
                let path = "/v1/chat/completions";
                let answer = post_with(address, path, &[], &question("m", false)).await;
                if answer.status == 200 {
                    return true;
                }
            }
            false
        }
    })
    .await
}

pub(crate) fn percentile(courses: &[CallCourse], percent: usize) -> Duration {
    let mut took: Vec<_> = courses.iter().map(|one| one.took).collect();
    took.sort();
    took[(took.len() * percent / 100).min(took.len() - 1)]
}

pub(crate) fn lost(courses: &[CallCourse]) -> usize {
    courses.iter().filter(|one| !one.answered).count()
}
