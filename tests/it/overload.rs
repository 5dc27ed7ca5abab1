//! Too much work: what Relight refuses leaves next to nothing behind, and no tenant keeps another
//! one out.

use std::time::Duration;

use futures_util::{StreamExt as _, future::join_all, stream};
use relight::internals::grpc::v1::{
    FailureClass, GetInvocationRequest, InvokeWithRecoveryRequest, InvokeWithRecoveryResponse,
    get_invocation_request, invoke_with_recovery_response::Outcome,
    recovery_service_client::RecoveryServiceClient,
};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, transport::Channel};

use crate::support::{
    otlp::OtlpReceiver,
    process::{KEY, Process, key, with_key},
    relight::asking,
    room::room,
    upstream::{Reply, Upstream},
};

const PATIENCE: Duration = Duration::from_mins(1);
const CALLS: usize = 2_000;

/// One target with few slots; a call that finds none waits until its deadline is near.
fn few_slots(upstream: &Upstream, slots: u32, deadline: &str) -> String {
    format!(
        "providers: {{ model: {{ dialect: openai_chat, base_url: \"{}\", api_key: k-provider }} }}\n\
         targets: {{ main: {{ provider: model, model: m-1 }} }}\n\
         routes: {{ default: {{ targets: [main], deadline: {deadline} }} }}\n\
         concurrency: {{ max: {slots}, max_queue_wait: 100ms }}\n\
         timers: {{ first_token: 60s, first_token_alone: 60s, soft_first_token: 0ms, idle: 60s }}\n",
        upstream.base_url()
    )
}

async fn call(
    mut client: RecoveryServiceClient<Channel>,
    key: &str,
    text: &str,
) -> InvokeWithRecoveryResponse {
    let request = with_key(
        key,
        InvokeWithRecoveryRequest {
            invocation: Some(asking(text)),
        },
    );
    let called = timeout(PATIENCE, client.invoke_with_recovery(request)).await;
    called
        .expect("the call hangs")
        .expect("a refusal at a target is an outcome")
        .into_inner()
}

fn refused(response: &InvokeWithRecoveryResponse) -> bool {
    matches!(&response.outcome, Some(Outcome::Failure(failure)) if failure.failure_class() == FailureClass::Shed)
}

/// How many attempts the journal has of these invocations: in `fast` mode it drops records that it
/// cannot keep up with.
async fn journaled(
    client: &RecoveryServiceClient<Channel>,
    responses: &[InvokeWithRecoveryResponse],
) -> usize {
    let look = async |response: &InvokeWithRecoveryResponse| {
        for _ in 0..600 {
            let invocation = Some(get_invocation_request::Invocation::InvocationId(
                response.invocation_id.clone(),
            ));
            match client
                .clone()
                .get_invocation(with_key(KEY, GetInvocationRequest { invocation }))
                .await
            {
                Ok(found) => return found.into_inner().invocation.unwrap().attempts.len(),
                Err(status) if status.code() == Code::NotFound => return 0,
                // The journal still writes what the storm left, and reads wait for it.
                Err(status) if status.code() == Code::Unavailable => {
                    sleep(Duration::from_millis(100)).await;
                }
                Err(status) => panic!("{status}"),
            }
        }
        panic!("the journal cannot be read")
    };
    stream::iter(responses)
        .map(look)
        .buffer_unordered(8)
        .fold(0, async |sum, attempts| sum + attempts)
        .await
}

/// The sum of the calls that the summaries of the log name, once it is what is wanted.
async fn summed(server: &Process, wanted: u64) -> u64 {
    let sum = || -> u64 {
        let log = server.log();
        let summaries = log.iter().filter(|line| line["event"] == "calls_refused");
        summaries
            .filter_map(|line| line["detail"]["count"].as_u64())
            .sum()
    };
    for _ in 0..100 {
        if sum() >= wanted {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    sum()
}

#[tokio::test]
async fn a_storm_of_refused_calls_leaves_no_attempts_no_spans_and_a_few_lines() {
    let _room = room().await;
    let upstream = Upstream::start().await;
    // So slow that a slow machine, too, finds a slot for few calls.
    upstream.otherwise(Reply::text("Hello.").slow_head(Duration::from_millis(1500)));
    let receiver = OtlpReceiver::start().await;
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(&format!(
        "server: {{ keys: [{}] }}\njournal: {{ store: \"sqlite:{}\" }}\ntelemetry: {{ otlp_endpoint: \"{}\" }}\n{}",
        key("acme", KEY, ""),
        folder.path().join("journal.db").display(),
        receiver.endpoint(),
        few_slots(&upstream, 4, "3s"),
    ))
    .await;
    let client = server.recovery();
    let began = Instant::now();
    let calls = (0..CALLS).map(|_| call(client.clone(), KEY, "Hello"));
    let responses: Vec<_> = stream::iter(calls).buffer_unordered(500).collect().await;
    let shed = responses
        .iter()
        .filter(|response| refused(response))
        .count();
    assert!(
        shed > CALLS / 4,
        "{shed} of {CALLS} were refused: too few for a storm"
    );
    let attempts: Vec<_> = responses
        .iter()
        .flat_map(|response| &response.attempts)
        .collect();
    // Few calls find a slot, and a busy machine ends some of these at their deadline before they
    // reach the provider.
    let reported = attempts.len();
    assert!(
        reported < CALLS / 4,
        "{reported} attempts of {CALLS} calls: {:?}",
        attempts.last()
    );
    let refusals = [FailureClass::Shed, FailureClass::CircuitOpen];
    let refused = attempts
        .iter()
        .filter(|attempt| refusals.contains(&attempt.failure_class()))
        .count();
    assert_eq!(refused, 0, "a refusal is no attempt");
    let journaled = journaled(&client, &responses).await;
    assert!(
        journaled > 0 && journaled <= reported,
        "{journaled} attempts in the journal, of {reported}"
    );
    let shed = u64::try_from(shed).unwrap();
    assert_eq!(
        summed(&server, shed).await,
        shed,
        "each refused call is in one summary"
    );
    let log = server.log();
    let own = log
        .iter()
        .filter(|line| line["detail"]["class"] == "shed")
        .count();
    assert_eq!(
        own,
        0,
        "refused calls have no lines of their own: {:?}",
        log.last()
    );
    let summaries: Vec<&Value> = log
        .iter()
        .filter(|line| line["event"] == "calls_refused")
        .collect();
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(
        summaries.len() <= seconds + 2,
        "{} summaries in {seconds} s",
        summaries.len()
    );
    assert!(
        summaries[0]["message"]
            .as_str()
            .unwrap()
            .contains("refused at target main in the last second")
    );
    receiver
        .await_until(Duration::from_secs(15), |spans| !spans.is_empty())
        .await;
    let attempts = receiver
        .spans()
        .iter()
        .filter(|span| span.name.starts_with("attempt "))
        .count();
    assert!(
        attempts <= reported,
        "{attempts} spans of {reported} attempts"
    );
}

#[tokio::test]
async fn three_hundred_silent_calls_of_one_tenant_keep_no_call_of_another_out() {
    let _room = room().await;
    let upstream = Upstream::start().await;
    upstream.answering(|request| {
        let silent = request.body.to_string().contains("Be silent");
        if silent {
            Reply::silence()
        } else {
            Reply::text("Hello.").slow_head(Duration::from_millis(20))
        }
    });
    let keys = [key("acme", KEY, ""), key("rival", "rival-key", "")].join(", ");
    let few = few_slots(&upstream, 16, "50s");
    let server = Process::start(&format!(
        "server: {{ keys: [{keys}] }}\njournal: {{ store: memory }}\n{few}"
    ))
    .await;
    let client = server.recovery();
    let silent = join_all((0..300).map(|_| call(client.clone(), "rival-key", "Be silent")));
    let served = async {
        upstream.await_request(16).await;
        let mut served = 0;
        for _ in 0..5 {
            let calls = join_all((0..8).map(|_| call(client.clone(), KEY, "Hello"))).await;
            served += calls
                .iter()
                .filter(|response| matches!(response.outcome, Some(Outcome::Completion(_))))
                .count();
        }
        served
    };
    tokio::select! {
        served = served => assert_eq!(served, 40),
        _ = silent => panic!("the silent calls ended"),
    }
}
