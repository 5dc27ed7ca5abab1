//! The methods of `RecoveryService`: each converts its request, calls the execution, and converts
//! back.
//!
//! A provider that failed for good is an OK response that holds a failure; statuses concern Relight
//! alone.

use tonic::{Request, Response, Status};

use super::{
    convert::{
        facts::failure_facts,
        outcome::{ResponseContext, response, wire_disposition},
        request::{
            StreamStart, cancel_request, get_request, invoke_request, stream_request, thread_id,
            watch_request,
        },
    },
    recovery::{Recovery, Streaming, lost},
    status,
    v1::{self, recovery_service_server::RecoveryService},
    watch,
};
use crate::execution::Started;

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
        let request =
            invoke_request(request, arrival).map_err(|faults| status::invalid_argument(&faults))?;
        let (operation, thread) = (request.operation.clone(), request.thread.clone());
        let incoming = self.resolve(request, &identity).await?;
        let Started {
            id,
            disposition,
            mut follower,
            ..
        } = self.start(incoming).await?;
        // When the caller goes, this future is dropped, and with it the follower.
        let outcome = follower.outcome().await.map_err(|why| lost(&id, &why))?;
        let context = ResponseContext {
            operation,
            thread,
            disposition: wire_disposition(disposition),
        };
        Ok(Response::new(response(&outcome, &context)))
    }

    async fn stream_with_recovery(
        &self,
        request: Request<v1::StreamWithRecoveryRequest>,
    ) -> Result<Response<Self::StreamWithRecoveryStream>, Status> {
        let identity = self.identify(&request)?;
        let (metadata, _, request) = request.into_parts();
        let arrival = Self::arrival(
            &identity,
            &metadata,
            "relight.v1.RecoveryService/StreamWithRecovery",
        )?;
        let start =
            stream_request(request, arrival).map_err(|faults| status::invalid_argument(&faults))?;
        let stream = match start {
            StreamStart::New(request) => self.stream_new(*request, &identity).await?,
            StreamStart::Resume(resume) => self.stream_resumed(resume, &identity).await?,
        };
        Ok(Response::new(stream))
    }

    async fn watch_recovery(
        &self,
        request: Request<v1::WatchRecoveryRequest>,
    ) -> Result<Response<Self::WatchRecoveryStream>, Status> {
        let identity = self.identify(&request)?;
        let (filter, start) = watch_request(request.into_inner())
            .map_err(|faults| status::invalid_argument(&faults))?;
        watch::check_names(&self.engine, &identity, &filter)?;
        Ok(Response::new(watch::stream(self, identity, filter, start)))
    }

    async fn get_invocation(
        &self,
        request: Request<v1::GetInvocationRequest>,
    ) -> Result<Response<v1::GetInvocationResponse>, Status> {
        let identity = self.identify(&request)?;
        let name = get_request(request.into_inner())
            .map_err(|faults| status::invalid_argument(&faults))?;
        self.explain(&identity, name).await.map(Response::new)
    }

    async fn list_invocations(
        &self,
        request: Request<v1::ListInvocationsRequest>,
    ) -> Result<Response<v1::ListInvocationsResponse>, Status> {
        let identity = self.identify(&request)?;
        self.list(&identity, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn list_executions(
        &self,
        request: Request<v1::ListExecutionsRequest>,
    ) -> Result<Response<v1::ListExecutionsResponse>, Status> {
        let identity = self.identify(&request)?;
        self.list_executed(&identity, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn cancel_invocation(
        &self,
        request: Request<v1::CancelInvocationRequest>,
    ) -> Result<Response<v1::CancelInvocationResponse>, Status> {
        let identity = self.identify(&request)?;
        let (name, reason) = cancel_request(request.into_inner())
            .map_err(|faults| status::invalid_argument(&faults))?;
        self.cancel(&identity, name, &reason)
            .await
            .map(Response::new)
    }

    async fn classify_failure(
        &self,
        request: Request<v1::ClassifyFailureRequest>,
    ) -> Result<Response<v1::ClassifyFailureResponse>, Status> {
        self.identify(&request)?;
        let facts = failure_facts(request.into_inner())
            .map_err(|faults| status::invalid_argument(&faults))?;
        super::dry_run::classify(&self.engine, &facts).map(Response::new)
    }

    async fn get_thread(
        &self,
        request: Request<v1::GetThreadRequest>,
    ) -> Result<Response<v1::GetThreadResponse>, Status> {
        let identity = self.identify(&request)?;
        let id = thread_id(request.into_inner().thread_id)
            .map_err(|faults| status::invalid_argument(&faults))?;
        self.thread(&identity, id).await.map(Response::new)
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
        let id = thread_id(id).map_err(|faults| status::invalid_argument(&faults))?;
        self.forget_thread(&identity, id, version)
            .await
            .map(Response::new)
    }
}
