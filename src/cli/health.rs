//! `relight health`: whether a server serves, as an exit code, for containers without a shell.

use std::process::ExitCode;

use clap::Args;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{client::ServerArguments, refusal::ServerRefusal, terminal::print_line};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relight health                          exit code 0: it serves; 1: it does not, or nobody answers
  relight health --service liveness       whether the process is alive, also while it drains")]
pub(super) struct HealthArguments {
    /// The service to check: empty for the server as a whole, `relight.v1.RecoveryService`, or
    /// `liveness`.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    service: String,
    #[command(flatten)]
    server: ServerArguments,
}

/// Calls the health protocol of gRPC, for which no key is needed.
pub(super) fn run(arguments: &HealthArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(async {
        let request = HealthCheckRequest {
            service: arguments.service.clone(),
        };
        let checked = HealthClient::new(arguments.server.channel().await?)
            .check(request)
            .await;
        let status = checked.map_err(ServerRefusal::from)?.into_inner().status();
        print_line(status.as_str_name())?;
        Ok(if status == ServingStatus::Serving {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}
