//! The RPCs about releases, as `AdminService` serves them.

use super::{
    convert::release::{wire_release, wire_releases},
    v1,
};
use crate::{
    call_error::{CallError, table::SUBJECT_NOT_FOUND},
    config::fault::nearest,
    domain::clock,
    engine::Engine,
    execution::Executions,
    policy::release::{Release, ReleaseMonitor},
};

/// Longest reason of an operator, in bytes.
const MAX_REASON_BYTES: usize = 256;

/// Returns the releases, of one subject or of all.
pub(super) fn list(
    engine: &Engine,
    executions: &Executions,
    request: &v1::ListReleasesRequest,
) -> Result<v1::ListReleasesResponse, CallError> {
    let all = executions.releases().all();
    let subject = request.subject.as_str();
    if !subject.is_empty() && all.iter().all(|monitor| monitor.subject != subject) {
        let names: Vec<&str> = all.iter().map(|monitor| monitor.subject.as_str()).collect();
        return Err(CallError::not_found(
            SUBJECT_NOT_FOUND,
            subject,
            nearest(subject, &names),
        ));
    }
    let wanted = all
        .iter()
        .filter(|monitor| subject.is_empty() || monitor.subject == subject);
    Ok(v1::ListReleasesResponse {
        releases: wanted.flat_map(|monitor| listed(engine, monitor)).collect(),
    })
}

/// Takes the traffic from a release.
pub(super) async fn roll_back(
    engine: &Engine,
    executions: &Executions,
    request: v1::RollbackReleaseRequest,
) -> Result<v1::RollbackReleaseResponse, CallError> {
    let v1::RollbackReleaseRequest {
        release_id,
        reason,
        pin,
    } = request;
    let reason = bounded(&reason)?;
    let monitor = executions
        .releases()
        .roll_back(&release_id, reason, pin)
        .await?;
    let release = monitor.releases().find(|release| release.id == release_id);
    Ok(v1::RollbackReleaseResponse {
        release: release.map(|release| wire(engine, &monitor, release)),
        stable: Some(wire(engine, &monitor, &monitor.stable)),
    })
}

/// Makes a release the stable one.
pub(super) async fn promote(
    engine: &Engine,
    executions: &Executions,
    request: v1::PromoteReleaseRequest,
) -> Result<v1::PromoteReleaseResponse, CallError> {
    let v1::PromoteReleaseRequest {
        release_id,
        reason,
        pin,
    } = request;
    let reason = bounded(&reason)?;
    let monitor = executions
        .releases()
        .promote(&release_id, reason, pin)
        .await?;
    Ok(v1::PromoteReleaseResponse {
        release: Some(wire(engine, &monitor, &monitor.stable)),
    })
}

/// Pins the releases of a subject, or ends that.
pub(super) async fn pin(
    engine: &Engine,
    executions: &Executions,
    request: v1::PinReleaseRequest,
) -> Result<v1::PinReleaseResponse, CallError> {
    let v1::PinReleaseRequest {
        subject,
        pinned,
        reason,
    } = request;
    let reason = bounded(&reason)?;
    let monitor = executions.releases().pin(&subject, pinned).await?;
    tracing::info!(
        subject,
        pinned,
        reason,
        "an operator pinned releases, or ended that"
    );
    Ok(v1::PinReleaseResponse {
        releases: listed(engine, &monitor),
    })
}

fn listed(engine: &Engine, monitor: &ReleaseMonitor) -> Vec<v1::Release> {
    wire_releases(monitor, &engine.config().releases, clock::wall_now())
}

fn wire(engine: &Engine, monitor: &ReleaseMonitor, release: &Release) -> v1::Release {
    wire_release(
        monitor,
        release,
        &engine.config().releases,
        clock::wall_now(),
    )
}

fn bounded(reason: &str) -> Result<&str, CallError> {
    if reason.len() > MAX_REASON_BYTES {
        return Err(CallError::invalid_field(
            "reason",
            format!("is longer than {MAX_REASON_BYTES} bytes"),
        ));
    }
    Ok(reason)
}
