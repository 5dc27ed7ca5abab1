//! A judgement of a gateway: drives it by plain HTTP in front of a provider that fails on demand,
//! and compares what a caller holds with what the provider sent.
//!
//! `soundness GATEWAY.yaml… [--only PART] [--caller PROGRAM] [--json FILE] [--junit FILE] [--markdown
//! FILE]`. It ends with 1 if a gateway was unsound anywhere.

mod caller;
mod caller_program;
mod cases;
mod gateway;
mod judge;
mod results;

use std::{
    error::Error,
    io::{Write as _, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use relight_lab::fake_llm::{FakeLlm, FakeScript};

use self::{
    caller::HeldByCaller,
    cases::{CallPattern, Case},
    gateway::GatewayUnderTest,
    judge::CaseJudgement,
    results::{CaseResult, GatewayResult},
};

/// Longest wait for a gateway to serve, and to recover from the case before.
const READY: Duration = Duration::from_secs(90);

struct Options {
    gateways: Vec<PathBuf>,
    only: String,
    /// A program that calls, with its arguments; empty for plain HTTP.
    caller: Vec<String>,
    files: Vec<(String, PathBuf)>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = options()?;
    let mut results = Vec::new();
    for gateway in &options.gateways {
        let result = judge_gateway(gateway, &options).await?;
        writeln!(stdout(), "\n{}\n", result.summary())?;
        results.push(result);
    }
    for (format, path) in &options.files {
        let text = match format.as_str() {
            "--json" => results::json(&results),
            "--junit" => results::junit(&results),
            _ => results::markdown(&results),
        };
        std::fs::write(path, text)?;
    }
    let unsound = results.iter().any(GatewayResult::is_unsound);
    Ok(ExitCode::from(u8::from(unsound)))
}

async fn judge_gateway(file: &Path, options: &Options) -> Result<GatewayResult, Box<dyn Error>> {
    let provider = FakeLlm::start(GatewayUnderTest::provider(file)?).await?;
    let gateway = GatewayUnderTest::start(file, provider.address(), &options.caller)?;
    settle(&gateway, &provider).await?;
    let mut cases = Vec::new();
    for case in cases::all()?
        .into_iter()
        .filter(|case| case.id.contains(&options.only))
    {
        let result = run(&gateway, &provider, case).await?;
        writeln!(stdout(), "{}", result.line())?;
        cases.push(result);
    }
    let name = gateway.name.clone();
    gateway.stop().await;
    Ok(GatewayResult { name, cases })
}

fn options() -> Result<Options, Box<dyn Error>> {
    let usage = "usage: soundness GATEWAY.yaml… [--only PART] [--caller PROGRAM] [--json FILE] [--junit FILE] [--markdown FILE]";
    let mut words = std::env::args().skip(1);
    let mut options = Options {
        gateways: Vec::new(),
        only: String::new(),
        caller: Vec::new(),
        files: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => options.only = words.next().ok_or(usage)?,
            "--caller" => {
                let command = words.next().ok_or(usage)?;
                options.caller = command.split_whitespace().map(str::to_owned).collect();
            }
            "--json" | "--junit" | "--markdown" => options
                .files
                .push((word, words.next().ok_or(usage)?.into())),
            _ if word.starts_with('-') => return Err(usage.into()),
            _ => options.gateways.push(word.into()),
        }
    }
    if options.gateways.is_empty() {
        return Err(usage.into());
    }
    Ok(options)
}

async fn run(
    gateway: &GatewayUnderTest,
    provider: &FakeLlm,
    case: Case,
) -> Result<CaseResult, Box<dyn Error>> {
    let Some(model) = gateway.models.get(&case.dialect) else {
        return Ok(CaseResult::not_run(
            case,
            "this gateway has no such provider, or cannot be pointed at one",
        ));
    };
    settle(gateway, provider).await?;
    provider.play(case.script());
    let body = case.body(model);
    let mut held = match case.calls {
        CallPattern::Once => gateway.call(&body, &[]).await,
        CallPattern::TwiceWithOneKey => {
            let key = [("idempotency-key", case.id.as_str())];
            gateway.call(&body, &key).await;
            gateway.call(&body, &key).await
        }
        CallPattern::Abandoned => abandon(gateway, provider, &body).await,
    };
    // An attempt that nobody waits for any more may still begin.
    tokio::time::sleep(Duration::from_millis(300)).await;
    held.record = provider.record();
    let judgement = CaseJudgement::of(&case, &held);
    Ok(CaseResult {
        case,
        held: Some(held),
        judgement,
    })
}

/// Leaves after the first bytes, and sees whether the provider is left, too.
async fn abandon(gateway: &GatewayUnderTest, provider: &FakeLlm, body: &str) -> HeldByCaller {
    let before = provider.cancelled();
    let leaving = Duration::from_millis(1500);
    let _ = tokio::time::timeout(leaving, gateway.call(body, &[])).await;
    for _ in 0..60 {
        if provider.cancelled() > before {
            return HeldByCaller {
                provider_left: true,
                ..HeldByCaller::default()
            };
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    HeldByCaller::default()
}

/// Waits until a healthy provider is called and its answer arrives: what one case taught a circuit
/// is not to decide the next.
async fn settle(gateway: &GatewayUnderTest, provider: &FakeLlm) -> Result<(), Box<dyn Error>> {
    let Some(model) = gateway.models.get("openai") else {
        return Err("the description has no model `openai`".into());
    };
    provider.play(FakeScript::default());
    let probe = Case::probe(model);
    let waiting = async {
        loop {
            let held = gateway.call(&probe, &[]).await;
            if held.status == 200 && held.error.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let settled = tokio::time::timeout(READY, waiting).await;
    settled.map_err(|_| {
        format!(
            "{} gives no answer of a healthy provider within {READY:?}",
            gateway.name
        )
        .into()
    })
}
