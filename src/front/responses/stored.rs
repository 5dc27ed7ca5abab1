//! Responses that are stored: found by their ids, gone on with, and referred to item by item.

use serde_json::{Map, Value};

use super::{
    super::{Front, Principal, error::Refused},
    document::ResponseDocument,
    items,
};
use crate::{
    config::observe::Payloads,
    domain::{
        failure::FailureClass,
        fold::Block,
        ids::{InvocationId, RequestId, ThreadId},
        invocation::{Call, Outcome},
        message::Part,
    },
    execution::InvocationName,
    journal::{JournalError, Listing, Record, ThreadKey},
    provider::responses::custom_names,
};

/// How many turns of a conversation are looked through for its newest answer: those behind it
/// failed or run.
const NEWEST: usize = 32;

/// Whether responses can be stored at this moment.
pub(super) fn can(front: &Front) -> bool {
    front.engine.config().journal.payloads == Payloads::Full
        && front.executions.journal_standing().away.is_none()
}

/// The document of a response that was made before.
pub(super) async fn document(
    front: &Front,
    caller: &Principal,
    response: &str,
) -> Result<Value, Refused> {
    let record = record(front, caller, response).await?;
    let record = record.ok_or_else(|| Refused::no_such_response(response))?;
    let document = ResponseDocument::new(
        &record.id,
        record.created_at.as_second(),
        Map::new(),
        record.thread.is_some(),
    );
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
            let mut failed = document.in_state("failed", record.route.as_str(), &output);
            let error = Refused::failure(failure).object(crate::front::error::Protocol::Openai);
            failed["error"] = serde_json::json!({"code": error["error"]["code"], "message": error["error"]["message"]});
            failed
        }
    })
}

/// The thread that a response is a turn of; only the newest response can be continued. A request
/// that comes once more with its idempotency key continues where it did the first time, whatever
/// came after that.
pub(super) async fn conversation(
    front: &Front,
    caller: &Principal,
    previous: &str,
    idempotency_key: Option<&RequestId>,
) -> Result<ThreadId, Refused> {
    let record = record(front, caller, previous).await?;
    let turn = record.and_then(|record| Some((record.id, record.thread?)));
    let (id, thread) = turn.ok_or_else(|| Refused::no_previous_response(previous))?;
    let turns = Listing {
        tenant: Some(caller.tenant.clone()),
        thread: Some(thread.clone()),
        finished: Some(true),
        ..Listing::default()
    };
    let turns = front
        .executions
        .list(&turns, NEWEST)
        .await
        .map_err(unavailable)?;
    let newest = turns.iter().find(|turn| {
        turn.outcome
            .as_ref()
            .is_some_and(|outcome| outcome.result.is_ok())
    });
    if newest.is_none_or(|newest| newest.id != id) {
        return match idempotency_key {
            Some(key) if was_turn(front, caller, key, &thread).await? => Ok(thread),
            _ => Err(Refused::not_newest_response(previous)),
        };
    }
    let key = ThreadKey::new(caller.tenant.clone(), thread.clone());
    let kept = front.executions.thread(&key).await.map_err(unavailable)?;
    kept.map(|_| thread)
        .ok_or_else(|| Refused::no_previous_response(previous))
}

/// Whether the key is that of a turn of this thread. One that was cancelled is none: the key may be
/// free again, and the request would run anew.
async fn was_turn(
    front: &Front,
    caller: &Principal,
    key: &RequestId,
    thread: &ThreadId,
) -> Result<bool, Refused> {
    let name = InvocationName::Request(key.clone());
    let found = front
        .executions
        .find(&caller.tenant, &name)
        .await
        .map_err(unavailable)?;
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
) -> Result<(), Refused> {
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

/// The items of a response: as they were streamed, where they were.
fn output(record: &Record) -> Vec<Value> {
    let custom: Vec<String> = match record
        .request
        .as_ref()
        .and_then(|request| request.call.as_ref())
    {
        Some(Call::Model(call)) => custom_names(call.own_tools()).map(str::to_owned).collect(),
        Some(Call::Tool(_)) | None => Vec::new(),
    };
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

async fn record(
    front: &Front,
    caller: &Principal,
    response: &str,
) -> Result<Option<Record>, Refused> {
    match response.strip_prefix("resp_") {
        Some(id) => find(front, caller, InvocationId::from(id)).await,
        None => Ok(None),
    }
}

async fn find(
    front: &Front,
    caller: &Principal,
    id: InvocationId,
) -> Result<Option<Record>, Refused> {
    let found = front
        .executions
        .find(&caller.tenant, &InvocationName::Id(id))
        .await
        .map_err(unavailable)?;
    Ok(found.filter(|record| caller.may_use(&record.route)))
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn unavailable(error: JournalError) -> Refused {
    Refused::without_journal(&error)
}
