//! The methods of `RecoveryService`: each converts its request, calls the execution, and converts
//! back.
//!
//! A provider that failed for good is an OK response that holds a failure; statuses concern Relight
//! alone.

use tonic::{Request, Response, Status};

use super::{
    auth::Access,
    convert::{
        answer_view::{answer_view, seen, stream_view},
        facts::failure_facts,
        outcome::{ResponseContext, response, wire_disposition},
        request::{
            StreamStart, cancel_request, get_request, invoke_request, stream_request, thread_id,
            watch_request,
        },
    },
    peers::PeerCall,
    recovery::{Recovery, Streaming},
    v1::{self, recovery_service_server::RecoveryService},
    watch::{self, WatchCall},
};
use crate::{domain::invocation::Call, execution::Started};

#[tonic::async_trait]
impl RecoveryService for Recovery {
    type StreamWithRecoveryStream = Streaming<v1::StreamWithRecoveryResponse>;
    type WatchRecoveryStream = Streaming<v1::WatchRecoveryResponse>;

    async fn invoke_with_recovery(
        &self,
        request: Request<v1::InvokeWithRecoveryRequest>,
    ) -> Result<Response<v1::InvokeWithRecoveryResponse>, Status> {
        let identity = self.identify(&request)?;
        let (metadata, _, request) = request.into_parts();
        let arrival = Self::arrival(
            &identity,
            &metadata,
            "relight.v1.RecoveryService/InvokeWithRecovery",
        )?;
        let view = answer_view(&request)?;
        let request = invoke_request(request, arrival)?;
        let operation = request.operation.clone();
        let thread = request.thread.clone();
        let has_request_id = request.request_id.is_some();
        let is_tool = matches!(request.call, Call::Tool(_));
        let incoming = self.resolve(request, &identity).await?;
        let Started {
            id,
            disposition,
            mut follower,
            ..
        } = self.executions.start(incoming).await?;
        // If the caller leaves, this future is dropped, and with it the follower.
        let outcome = follower.outcome().await;
        // One with a request id continues elsewhere, and the same request gets its outcome.
        let outcome = outcome.map_err(|why| {
            if has_request_id {
                why.of_resumable(&id)
            } else {
                why.of_call(&id, is_tool)
            }
        })?;
        let context = ResponseContext {
            operation,
            thread,
            disposition: wire_disposition(disposition),
        };
        Ok(Response::new(seen(view, response(&outcome, &context))))
    }

    async fn stream_with_recovery(
        &self,
        request: Request<v1::StreamWithRecoveryRequest>,
    ) -> Result<Response<Self::StreamWithRecoveryStream>, Status> {
        let identity = self.identify(&request)?;
        let (metadata, mut extensions, request) = request.into_parts();
        let access = extensions.remove::<Access>();
        let arrival = Self::arrival(
            &identity,
            &metadata,
            "relight.v1.RecoveryService/StreamWithRecovery",
        )?;
        let view = stream_view(&request)?;
        let caller = (&identity, access);
        let stream = match stream_request(request, arrival)? {
            StreamStart::New(request) => self.stream_new(*request, view, caller).await?,
            StreamStart::Resume(resume) => self.stream_resumed(resume, view, caller).await?,
        };
        Ok(Response::new(stream))
    }

    async fn watch_recovery(
        &self,
        request: Request<v1::WatchRecoveryRequest>,
    ) -> Result<Response<Self::WatchRecoveryStream>, Status> {
        let identity = self.identify(&request)?;
        let access = request.extensions().get::<Access>().cloned();
        let is_peer = request.extensions().get::<PeerCall>().is_some();
        let request = request.into_inner();
        let wire = request.filter.clone().unwrap_or_default();
        let (filter, start) = watch_request(request)?;
        let call = WatchCall {
            identity,
            access,
            wire,
            filter,
            start,
            is_peer,
        };
        watch::check_names(self, &call)?;
        Ok(Response::new(watch::stream(self, call)))
    }

    async fn get_invocation(
        &self,
        request: Request<v1::GetInvocationRequest>,
    ) -> Result<Response<v1::GetInvocationResponse>, Status> {
        let identity = self.identify(&request)?;
        let name = get_request(request.into_inner())?;
        Ok(Response::new(self.explain(&identity, name).await?))
    }

    async fn list_invocations(
        &self,
        request: Request<v1::ListInvocationsRequest>,
    ) -> Result<Response<v1::ListInvocationsResponse>, Status> {
        let identity = self.identify(&request)?;
        let is_peer = request.extensions().get::<PeerCall>().is_some();
        let request = request.into_inner();
        let page = if is_peer {
            self.list_here(&identity, request).await?
        } else {
            self.list(&identity, request).await?
        };
        Ok(Response::new(page))
    }

    async fn list_executions(
        &self,
        request: Request<v1::ListExecutionsRequest>,
    ) -> Result<Response<v1::ListExecutionsResponse>, Status> {
        let identity = self.identify(&request)?;
        let page = self.list_executed(&identity, request.into_inner()).await?;
        Ok(Response::new(page))
    }

    async fn cancel_invocation(
        &self,
        request: Request<v1::CancelInvocationRequest>,
    ) -> Result<Response<v1::CancelInvocationResponse>, Status> {
        let identity = self.identify(&request)?;
        let (name, reason) = cancel_request(request.into_inner())?;
        Ok(Response::new(self.cancel(&identity, name, &reason).await?))
    }

    async fn classify_failure(
        &self,
        request: Request<v1::ClassifyFailureRequest>,
    ) -> Result<Response<v1::ClassifyFailureResponse>, Status> {
        let identity = self.identify(&request)?;
        let facts = failure_facts(request.into_inner())?;
        let classified = super::dry_run::classify(&self.engine, &identity, &facts)?;
        Ok(Response::new(classified))
    }

    async fn get_thread(
        &self,
        request: Request<v1::GetThreadRequest>,
    ) -> Result<Response<v1::GetThreadResponse>, Status> {
        let identity = self.identify(&request)?;
        let id = thread_id(request.into_inner().thread_id)?;
        Ok(Response::new(self.thread(&identity, id).await?))
    }

    async fn delete_thread(
        &self,
        request: Request<v1::DeleteThreadRequest>,
    ) -> Result<Response<v1::DeleteThreadResponse>, Status> {
        let identity = self.identify(&request)?;
        let v1::DeleteThreadRequest {
            thread_id: id,
            version,
        } = request.into_inner();
        let id = thread_id(id)?;
        let forgotten = self.forget_thread(&identity, id, version).await?;
        Ok(Response::new(forgotten))
    }
}
