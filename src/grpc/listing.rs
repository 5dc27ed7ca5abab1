//! Lists the invocations that the journal knows, in pages.

mod all;

use jiff::Timestamp;

use super::{
    auth::Identity,
    convert::{
        Violations,
        enums::{class_field, strategies_field},
        invocation::{MAX_KEY_ID_BYTES, MAX_OPERATION_BYTES, check_id, named},
        outcome::{final_target, usage},
        time::wire_time,
    },
    lookup::state,
    recovery::Recovery,
    v1,
};
use crate::{
    call_error::CallError,
    domain::ids::{InvocationId, MAX_ID_BYTES},
    journal::{Listing, Record, RunState},
};

/// Invocations on a page that names no number.
const PAGE: usize = 50;
/// Invocations on a page at most.
const MAX_PAGE: u32 = 500;
/// Maximum number of invocations that are passed over for one page; then it ends, and names the
/// start of the next one.
const MAX_READ: usize = 5_000;

impl Recovery {
    /// Returns a page of the invocations in the journal of this replica that this caller may see.
    pub(super) async fn list_here(
        &self,
        identity: &Identity,
        request: v1::ListInvocationsRequest,
    ) -> Result<v1::ListInvocationsResponse, CallError> {
        let owner = match request.replica.as_str() {
            "" => None,
            name => {
                let member = self.peers.named(name)?;
                Some(member.map_or_else(|| self.peers.me().id.clone(), |member| member.id))
            }
        };
        let is_its_own = |record: &Record| {
            owner
                .as_ref()
                .is_none_or(|owner| record.owner.as_str() == owner)
        };
        let (mut wanted, states, page) = wanted(identity, request)?;
        let mut invocations = Vec::new();
        let mut read = 0;
        loop {
            let records = self.executions.list(&wanted, PAGE).await?;
            let is_last = records.len() < PAGE;
            read += records.len();
            for record in records {
                wanted.before = Some(record.id.clone());
                let state = state(record.outcome.as_deref(), &record, &[]);
                if (states.is_empty() || states.contains(&state)) && is_its_own(&record) {
                    let replica = self.peers.name_of(record.owner.as_str());
                    invocations.push(summary(&record, state, replica));
                }
                if invocations.len() == page {
                    return Ok(v1::ListInvocationsResponse {
                        invocations,
                        next_page_token: token(&wanted),
                        ..v1::ListInvocationsResponse::default()
                    });
                }
            }
            if is_last {
                return Ok(v1::ListInvocationsResponse {
                    invocations,
                    next_page_token: String::new(),
                    ..v1::ListInvocationsResponse::default()
                });
            }
            if read >= MAX_READ {
                return Ok(v1::ListInvocationsResponse {
                    invocations,
                    next_page_token: token(&wanted),
                    ..v1::ListInvocationsResponse::default()
                });
            }
        }
    }
}

/// Returns the requested states, page size and position.
fn wanted(
    identity: &Identity,
    request: v1::ListInvocationsRequest,
) -> Result<(Listing, Vec<v1::InvocationState>, usize), CallError> {
    let v1::ListInvocationsRequest {
        tenant,
        route,
        operation,
        thread_id,
        states,
        since,
        page_size,
        page_token,
        replica,
    } = request;
    let mut faults = Violations::default();
    for (field, value, max_bytes) in [
        ("tenant", &tenant, MAX_ID_BYTES),
        ("route", &route, MAX_ID_BYTES),
        ("operation", &operation, MAX_OPERATION_BYTES),
        ("thread_id", &thread_id, MAX_KEY_ID_BYTES),
        ("page_token", &page_token, MAX_ID_BYTES),
        ("replica", &replica, MAX_ID_BYTES),
    ] {
        check_id(field, value, max_bytes, &mut faults);
    }
    if page_size > MAX_PAGE {
        faults.add("page_size", format!("is out of range: 0 to {MAX_PAGE}"));
    }
    let mut named_states = Vec::new();
    for (index, state) in states.into_iter().enumerate() {
        match v1::InvocationState::try_from(state) {
            // One that waits is running as far as the journal knows.
            Ok(v1::InvocationState::Waiting) => named_states.push(v1::InvocationState::Running),
            Ok(state) if state != v1::InvocationState::Unspecified => named_states.push(state),
            Ok(_) | Err(_) => {
                faults.add(format!("states[{index}]"), format!("{state} is no state"));
            }
        }
    }
    let since = since.and_then(|at| {
        let time = Timestamp::new(at.seconds, at.nanos).ok();
        if time.is_none() {
            faults.add("since", "is no time");
        }
        time
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
    let routes = match named(route) {
        Some(route) => {
            let route = route.into();
            identity.may_use(&route)?;
            vec![route]
        }
        None => identity.routes.clone(),
    };
    // The kinds of end are distinguished by the outcome, which is read only here.
    let runs = |state: &v1::InvocationState| *state == v1::InvocationState::Running;
    let finished = match named_states.iter().any(runs) {
        _ if named_states.is_empty() => None,
        true if named_states.iter().all(runs) => Some(false),
        true => None,
        false => Some(true),
    };
    let wanted = Listing {
        tenant,
        routes,
        operation: named(operation).map(Into::into),
        thread: named(thread_id).map(Into::into),
        finished,
        since,
        before: named(page_token).map(InvocationId::from),
    };
    let page = if page_size == 0 {
        PAGE
    } else {
        page_size as usize
    };
    Ok((wanted, named_states, page))
}

/// Returns the start of the page after it.
fn token(wanted: &Listing) -> String {
    wanted
        .before
        .as_ref()
        .map(|before| before.as_str().to_owned())
        .unwrap_or_default()
}

fn summary(record: &Record, state: v1::InvocationState, replica: String) -> v1::InvocationSummary {
    let outcome = record.outcome.as_deref();
    let failure = outcome.and_then(|outcome| outcome.result.as_ref().err());
    v1::InvocationSummary {
        invocation_id: record.id.to_string(),
        tenant: record.tenant.to_string(),
        request_id: record
            .request_id
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        route: record.route.to_string(),
        operation: record.operation.to_string(),
        thread_id: record
            .thread
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        labels: record.labels.clone().into_iter().collect(),
        state: state.into(),
        created_at: Some(wire_time(record.created_at)),
        finished_at: match record.state {
            RunState::Finished { at } => Some(wire_time(at)),
            RunState::Running { .. } => None,
        },
        attempts: outcome.map_or(0, |outcome| {
            u32::try_from(outcome.attempts.len()).unwrap_or(u32::MAX)
        }),
        failure_class: class_field(failure.map(|failure| failure.class)),
        recovery_applied: outcome
            .map(|outcome| strategies_field(&outcome.recovery_applied))
            .unwrap_or_default(),
        final_target: outcome.map(final_target).unwrap_or_default(),
        usage: outcome.map(|outcome| usage(&outcome.usage)),
        replica,
    }
}
