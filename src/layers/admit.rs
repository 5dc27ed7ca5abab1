//! Sheds excess work early, with a retry time, fairly among tenants.
//!
//! Admission is held until the invocation's stream ends or is dropped.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, StepStream, held::holding, invocation::InvocationScope};
use crate::{
    domain::{
        failure::{Failure, FailureClass, WaitSource},
        ids::TenantId,
    },
    policy::admission::Admission,
};

/// The layer that admits invocations.
#[derive(Debug, Clone)]
pub struct AdmitLayer {
    admission: Arc<Mutex<Admission>>,
}

/// The service of [`AdmitLayer`].
#[derive(Debug, Clone)]
pub struct Admit<S> {
    inner: S,
    admission: Arc<Mutex<Admission>>,
}

// === impl AdmitLayer ===

impl AdmitLayer {
    /// Admits as this core decides; the core is shared by every caller.
    pub fn new(admission: Arc<Mutex<Admission>>) -> Self {
        Self { admission }
    }
}

impl<S> tower::Layer<S> for AdmitLayer {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Admit<S> {
        Admit {
            inner,
            admission: Arc::clone(&self.admission),
        }
    }
}

// === impl Admit ===

impl<S> Service<Arc<InvocationScope>> for Admit<S>
where
    S: Service<Arc<InvocationScope>, Response = StepStream, Error = Failure>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = StepStream;
    type Error = Failure;
    type Future = BoxFuture<Result<StepStream, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, scope: Arc<InvocationScope>) -> Self::Future {
        let inner = self.inner.clone();
        let admission = Arc::clone(&self.admission);
        Box::pin(async move {
            let tenant = scope.invocation.tenant.clone();
            let entered = admission.lock().try_enter(&tenant, Instant::now());
            if let Err(shed) = entered {
                let refused =
                    Failure::local(FailureClass::Shed, "too many invocations are in flight");
                return Err(refused.with_retry_after(shed.retry_in, WaitSource::Backoff));
            }
            let place = AdmissionGuard { admission, tenant };
            let steps = inner.oneshot(scope).await?;
            Ok(holding(steps, place))
        })
    }
}

/// A guard for one admitted invocation; dropping it frees its place.
struct AdmissionGuard {
    admission: Arc<Mutex<Admission>>,
    tenant: TenantId,
}

impl Drop for AdmissionGuard {
    fn drop(&mut self) {
        self.admission.lock().leave(&self.tenant);
    }
}
