//! Lists the executions of tools that the journal knows, in pages.

use jiff::Timestamp;

use super::{
    auth::Identity,
    convert::{
        Violations,
        enums::class_field,
        invocation::{MAX_KEY_ID_BYTES, MAX_OPERATION_BYTES, check_id, named},
        outcome::bounded,
        time::{millis, wire_time},
    },
    recovery::Recovery,
    v1,
};
use crate::{
    call_error::CallError,
    domain::ids::{InvocationId, MAX_ID_BYTES},
    journal::{ExecutionListing, ExecutionState, ToolExecution},
};

/// Executions on a page that names no number.
const PAGE: usize = 50;
/// Executions on a page at most.
const MAX_PAGE: u32 = 500;

impl Recovery {
    /// Returns a page of the executions that this caller may see.
    pub(super) async fn list_executed(
        &self,
        identity: &Identity,
        request: v1::ListExecutionsRequest,
    ) -> Result<v1::ListExecutionsResponse, CallError> {
        let (wanted, page) = wanted(identity, request)?;
        // One more than is shown says whether there are more.
        let mut found = self.executions.executions(&wanted, page + 1).await?;
        let has_more = found.len() > page;
        found.truncate(page);
        let last = found.last().filter(|_| has_more);
        let next_page_token = last
            .map(|last| format!("{}.{}", last.invocation, last.attempt))
            .unwrap_or_default();
        Ok(v1::ListExecutionsResponse {
            executions: found.iter().map(execution).collect(),
            next_page_token,
        })
    }
}

fn wanted(
    identity: &Identity,
    request: v1::ListExecutionsRequest,
) -> Result<(ExecutionListing, usize), CallError> {
    let v1::ListExecutionsRequest {
        tenant,
        target,
        operation,
        thread_id,
        invocation_id,
        state,
        since,
        page_size,
        page_token,
    } = request;
    let mut faults = Violations::default();
    for (field, value, max_bytes) in [
        ("tenant", &tenant, MAX_ID_BYTES),
        ("target", &target, MAX_ID_BYTES),
        ("operation", &operation, MAX_OPERATION_BYTES),
        ("thread_id", &thread_id, MAX_KEY_ID_BYTES),
        ("invocation_id", &invocation_id, MAX_ID_BYTES),
        ("page_token", &page_token, MAX_ID_BYTES),
    ] {
        check_id(field, value, max_bytes, &mut faults);
    }
    if page_size > MAX_PAGE {
        faults.add("page_size", format!("is out of range: 0 to {MAX_PAGE}"));
    }
    let state = match v1::ExecutionState::try_from(state) {
        Ok(v1::ExecutionState::Unspecified) => None,
        Ok(v1::ExecutionState::Succeeded) => Some(ExecutionState::Succeeded),
        Ok(v1::ExecutionState::Failed) => Some(ExecutionState::Failed),
        Ok(v1::ExecutionState::Unknown) => Some(ExecutionState::Unknown),
        Ok(v1::ExecutionState::Cancelled) => Some(ExecutionState::Cancelled),
        Err(_) => {
            faults.add("state", format!("{state} is no state"));
            None
        }
    };
    let since = since.and_then(|at| {
        let time = Timestamp::new(at.seconds, at.nanos).ok();
        if time.is_none() {
            faults.add("since", "is no time");
        }
        time
    });
    let before = named(page_token).and_then(|token| {
        let place = token
            .rsplit_once('.')
            .and_then(|(id, attempt)| Some((id.into(), attempt.parse().ok()?)));
        if place.is_none() {
            faults.add("page_token", "was not given by this service");
        }
        place
    });
    if !faults.is_empty() {
        return Err(faults.into());
    }
    let tenant = match named(tenant) {
        Some(other) if other != identity.tenant.as_str() => {
            identity.may_administer()?;
            Some(other.into())
        }
        None if identity.is_admin() => None,
        Some(_) | None => Some(identity.tenant.clone()),
    };
    let wanted = ExecutionListing {
        tenant,
        routes: identity.routes.clone(),
        target: named(target).map(Into::into),
        operation: named(operation).map(Into::into),
        thread: named(thread_id).map(Into::into),
        invocation: named(invocation_id).map(InvocationId::from),
        goal_key: None,
        state,
        since,
        before,
    };
    Ok((
        wanted,
        if page_size == 0 {
            PAGE
        } else {
            page_size as usize
        },
    ))
}

fn execution(one: &ToolExecution) -> v1::ToolExecution {
    let detail = one.detail.clone().unwrap_or_default();
    v1::ToolExecution {
        invocation_id: one.invocation.to_string(),
        attempt: one.attempt,
        tenant: one.tenant.to_string(),
        operation: one.operation.to_string(),
        thread_id: one
            .thread
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        target: one.target.to_string(),
        goal: detail.goal,
        arguments_json: detail.arguments,
        cause: one.cause.clone(),
        state: match one.state {
            ExecutionState::Succeeded => v1::ExecutionState::Succeeded,
            ExecutionState::Failed => v1::ExecutionState::Failed,
            ExecutionState::Unknown => v1::ExecutionState::Unknown,
            ExecutionState::Cancelled => v1::ExecutionState::Cancelled,
        }
        .into(),
        failure_class: class_field(one.class),
        error: bounded(&detail.error),
        release: one.release.clone(),
        started_at: Some(wire_time(one.started_at)),
        duration_ms: millis(one.duration),
    }
}
