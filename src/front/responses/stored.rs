//! Responses that are stored: found by their ids, gone on with, and referred to item by item.

use std::time::Duration;

use serde_json::Value;

use super::{
    super::{Front, Principal, call::created_unix, error::CallError},
    document::ResponseDocument,
    items,
};
use crate::{
    call_error::table::{INPUT_NOT_KEPT, PREVIOUS_RESPONSE_NOT_FOUND, RESPONSE_NOT_FOUND},
    domain::{
        failure::FailureClass,
        fold::Block,
        ids::{InvocationId, RequestId, ThreadId},
        invocation::{Call, Outcome},
        message::{ModelCall, Part},
    },
    execution::{Cancelled, InvocationName},
    journal::{Listing, Payloads, Record, ThreadKey},
    provider::responses::{custom_names, translate},
};

/// Number of turns of a conversation that are looked through for its newest answer: those behind it
/// failed or run.
const NEWEST: usize = 32;
/// Time for which a cancellation waits for the end that it brings about.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Returns whether responses can be stored at this moment.
pub(super) fn can(front: &Front) -> bool {
    front.engine.config().journal.payloads == Payloads::Full
        && front.executions.journal_standing().away.is_none()
}

/// Returns the document of a response that was made before.
pub(super) async fn document(
    front: &Front,
    caller: &Principal,
    response: &str,
) -> Result<Value, CallError> {
    let record = known(front, caller, response).await?;
    let document = begun(&record);
    let Some(outcome) = &record.outcome else {
        let status = if record.is_finished() {
            "completed"
        } else {
            "in_progress"
        };
        return Ok(document.in_state(status, record.route.as_str(), &[]));
    };
    let output = output(&record);
    Ok(match &outcome.result {
        Ok(completion) => document.ended(completion, &output),
        Err(failure) => {
            let status = if failure.class == FailureClass::Cancelled {
                "cancelled"
            } else {
                "failed"
            };
            let mut failed = document.in_state(status, record.route.as_str(), &output);
            let error = CallError::from(failure).object(crate::front::error::Protocol::Openai);
            failed["error"] = serde_json::json!({"code": error["error"]["code"], "message": error["error"]["message"]});
            failed
        }
    })
}

/// Ends a response that is being made, and waits for its end.
pub(super) async fn cancel(
    front: &Front,
    caller: &Principal,
    response: &str,
) -> Result<Value, CallError> {
    let running = known(front, caller, response).await?;
    let reason = "POST /v1/responses/{id}/cancel";
    let cancellation = front.executions.cancel(&running.id, reason).await;
    if cancellation? == Cancelled::Accepted {
        let mut follower = front.executions.follow(&running, None).follower;
        // The wish is recorded, whether its end is seen here or not.
        let _ = tokio::time::timeout(END_WITHIN, follower.outcome()).await;
    }
    document(front, caller, response).await
}

/// Returns the model's input for a response without its instructions, as items with ids of their
/// own.
pub(super) async fn input(
    front: &Front,
    caller: &Principal,
    response: &str,
) -> Result<Vec<Value>, CallError> {
    let record = known(front, caller, response).await?;
    let Some(call) = model_call(&record) else {
        return Err(CallError::new(INPUT_NOT_KEPT).fact("name", response));
    };
    let custom: Vec<&str> = custom_names(call.own_tools()).collect();
    let input = call.messages.get(usize::from(call.own_instructions)..);
    let mut items = translate(input.unwrap_or_default(), &custom);
    for (index, item) in items.iter_mut().enumerate() {
        if item.get("id").is_none() {
            item["id"] = Value::from(format!("in_{}_{index}", record.id));
        }
    }
    Ok(items)
}

/// Returns the thread that a response is a turn of; only the newest response can be continued. A
/// request that comes once more with its idempotency key continues where it did the first time,
/// whatever came after that.
pub(super) async fn conversation(
    front: &Front,
    caller: &Principal,
    previous: &str,
    idempotency_key: Option<&RequestId>,
) -> Result<ThreadId, CallError> {
    let record = record(front, caller, previous).await?;
    let turn = record.and_then(|record| Some((record.id, record.thread?)));
    let (id, thread) =
        turn.ok_or_else(|| CallError::new(PREVIOUS_RESPONSE_NOT_FOUND).fact("name", previous))?;
    let turns = Listing {
        tenant: Some(caller.tenant.clone()),
        thread: Some(thread.clone()),
        finished: Some(true),
        ..Listing::default()
    };
    let turns = front.executions.list(&turns, NEWEST).await?;
    let newest = turns.iter().find(|turn| {
        turn.outcome
            .as_ref()
            .is_some_and(|outcome| outcome.result.is_ok())
    });
    if newest.is_none_or(|newest| newest.id != id) {
        return match idempotency_key {
            Some(key) if was_turn(front, caller, key, &thread).await? => Ok(thread),
            _ => Err(not_newest(previous)),
        };
    }
    let key = ThreadKey::new(caller.tenant.clone(), thread.clone());
    let kept = front.executions.thread(&key).await?;
    kept.map(|_| thread)
        .ok_or_else(|| CallError::new(PREVIOUS_RESPONSE_NOT_FOUND).fact("name", previous))
}

/// Returns whether the key is that of a turn of this thread. One that was cancelled is not: the key
/// may be free again, and the request would run anew.
async fn was_turn(
    front: &Front,
    caller: &Principal,
    key: &RequestId,
    thread: &ThreadId,
) -> Result<bool, CallError> {
    let name = InvocationName::Request(key.clone());
    let found = front.executions.find(&caller.tenant, &name).await?;
    let is_cancelled = |outcome: &Outcome| {
        outcome
            .result
            .as_ref()
            .is_err_and(|failure| failure.class == FailureClass::Cancelled)
    };
    Ok(found.is_some_and(|record| {
        record.thread.as_ref() == Some(thread)
            && !record.outcome.as_deref().is_some_and(is_cancelled)
    }))
}

/// Puts items in the place of references to them; a reference that leads nowhere stays.
pub(super) async fn put_in_place(
    front: &Front,
    caller: &Principal,
    input: &mut [Value],
) -> Result<(), CallError> {
    // Items of one response are referred to one after the other.
    let mut last: Option<(InvocationId, Vec<Value>)> = None;
    for item in input
        .iter_mut()
        .filter(|item| item["type"] == "item_reference")
    {
        let Some((id, index)) = item["id"].as_str().and_then(items::read_id) else {
            continue;
        };
        if last.as_ref().is_none_or(|(known, _)| *known != id) {
            let record = find(front, caller, id.clone()).await?;
            last = record.map(|record| (id, output(&record)));
        }
        if let Some(found) = last.as_ref().and_then(|(_, items)| items.get(index)) {
            *item = found.clone();
        }
    }
    Ok(())
}

/// Returns the document of a response, before anything is in it. What it repeats of its request is
/// kept of those alone that were to be resumed.
pub(super) fn begun(record: &Record) -> ResponseDocument {
    let call = model_call(record);
    let repeated = call.map(|call| call.repeated.clone()).unwrap_or_default();
    let is_stored = record.thread.is_some();
    ResponseDocument::new(&record.id, created_unix(&record.id), repeated, is_stored)
        .with_custom_tools(custom_tools(record))
}

fn model_call(record: &Record) -> Option<&ModelCall> {
    let request = record.request.as_ref()?;
    match request.call.as_ref()? {
        Call::Model(call) => Some(call),
        Call::Tool(_) => None,
    }
}

/// Returns the names of the tools that take a text and no JSON.
fn custom_tools(record: &Record) -> Vec<String> {
    let own = model_call(record).map_or(&[][..], ModelCall::own_tools);
    custom_names(own).map(str::to_owned).collect()
}

/// Returns the items of a response: as they were streamed, if they were.
fn output(record: &Record) -> Vec<Value> {
    let custom = custom_tools(record);
    let blocks = record.snapshot.as_deref().unwrap_or_default();
    if !blocks.is_empty() {
        return items::of_parts(&record.id, &custom, blocks.iter().map(Block::part));
    }
    let completion = record
        .outcome
        .as_ref()
        .and_then(|outcome| outcome.result.as_ref().ok());
    let parts: Vec<Part> = completion
        .map(|completion| completion.message.parts.clone())
        .unwrap_or_default();
    items::of_parts(&record.id, &custom, parts)
}

/// Returns what the journal has of a response.
pub(super) async fn known(
    front: &Front,
    caller: &Principal,
    response: &str,
) -> Result<Record, CallError> {
    let record = record(front, caller, response).await?;
    record.ok_or_else(|| CallError::new(RESPONSE_NOT_FOUND).fact("name", response))
}

async fn record(
    front: &Front,
    caller: &Principal,
    response: &str,
) -> Result<Option<Record>, CallError> {
    match response.strip_prefix("resp_") {
        Some(id) => find(front, caller, InvocationId::from(id)).await,
        None => Ok(None),
    }
}

async fn find(
    front: &Front,
    caller: &Principal,
    id: InvocationId,
) -> Result<Option<Record>, CallError> {
    let found = front
        .executions
        .find(&caller.tenant, &InvocationName::Id(id))
        .await?;
    Ok(found.filter(|record| caller.may_use(&record.route)))
}

/// Returns the error if the conversation went on behind the response, or that failed.
fn not_newest(response: &str) -> CallError {
    let response = &response[..response.floor_char_boundary(128)];
    CallError::unsupported(
        "previous_response_id",
        format_args!(
            "`{response}` is not the newest answer of its conversation: only that one can be gone \
             on with; send the conversation as `input` to go on from an older one"
        ),
    )
}
