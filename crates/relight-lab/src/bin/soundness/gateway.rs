//! A gateway as its description starts and configures it.

use std::{collections::BTreeMap, error::Error, fs, net::SocketAddr, path::Path, process::Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    caller::{self, HeldByCaller},
    caller_program,
};

/// The description of a gateway. `${FAKE}` is the address of the provider, `${HERE}` the folder of
/// the description, and any other `${NAME}` a variable of the environment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GatewayFile {
    name: String,
    /// Address at which it serves chat completions, as `host:port`.
    address: String,
    /// Its path of chat completions.
    #[serde(default = "default_path")]
    path: String,
    /// Address at which the provider listens, for a gateway that was configured before; a free port
    /// of loopback by default.
    #[serde(default = "free_port")]
    provider: SocketAddr,
    /// The command that starts it; empty if it runs already.
    #[serde(default)]
    start: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// A file that is written before it starts, by its path.
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The model, or headers, to be used for each dialect of a provider.
    models: BTreeMap<String, ModelUnderTest>,
}

/// A model of the gateway, and the headers that it wants.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelUnderTest {
    pub(crate) model: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// A running gateway; its process is ended when it is dropped, or before that by `stop`.
pub(crate) struct GatewayUnderTest {
    pub(crate) name: String,
    pub(crate) models: BTreeMap<String, ModelUnderTest>,
    address: String,
    path: String,
    headers: BTreeMap<String, String>,
    /// The program that calls in the place of plain HTTP, with its arguments; empty without one.
    caller: Vec<String>,
    process: Option<Child>,
}

// === impl GatewayFile ===

impl GatewayFile {
    fn read(file: &Path, provider: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let text =
            fs::read_to_string(file).map_err(|fault| format!("{}: {fault}", file.display()))?;
        Ok(serde_saphyr::from_str(&filled(&text, file, provider)?)?)
    }
}

// === impl GatewayUnderTest ===

impl GatewayUnderTest {
    /// Returns the address at which the provider of this description is to listen.
    pub(crate) fn provider(file: &Path) -> Result<SocketAddr, Box<dyn Error>> {
        Ok(GatewayFile::read(file, free_port())?.provider)
    }

    /// Starts the gateway that a file describes in front of a provider. It is called by a program
    /// unless `caller` is empty.
    pub(crate) fn start(
        file: &Path,
        provider: SocketAddr,
        caller: &[String],
    ) -> Result<Self, Box<dyn Error>> {
        let described = GatewayFile::read(file, provider)?;
        if !described.start.is_empty() && std::net::TcpStream::connect(&described.address).is_ok() {
            return Err(format!("something else listens at {}", described.address).into());
        }
        for (path, content) in &described.files {
            fs::write(path, content)?;
        }
        let process = match described.start.split_first() {
            Some((program, arguments)) => Some(
                Command::new(program)
                    .args(arguments)
                    .envs(&described.env)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(fs::File::create(
                        std::env::temp_dir().join(format!("soundness-{}.log", described.name)),
                    )?)
                    .kill_on_drop(true)
                    .spawn()
                    .map_err(|fault| format!("{program}: {fault}"))?,
            ),
            None => None,
        };
        Ok(Self {
            name: described.name,
            models: described.models,
            address: described.address,
            path: described.path,
            headers: described.headers,
            caller: caller.to_vec(),
            process,
        })
    }

    /// Ends its process, if it is one of ours, and waits for that: the next run takes its address.
    pub(crate) async fn stop(mut self) {
        if let Some(process) = &mut self.process {
            // It may have ended by itself.
            let _ = process.kill().await;
        }
    }

    /// Calls it, and returns what its caller holds in the end.
    pub(crate) async fn call(&self, body: &str, headers: &[(&str, &str)]) -> HeldByCaller {
        let named = serde_json::from_str::<Value>(body).unwrap_or_default();
        let own = self
            .models
            .values()
            .find(|model| named["model"] == model.model.as_str());
        let own = own.into_iter().flat_map(|model| &model.headers);
        let all: Vec<(&str, &str)> = self
            .headers
            .iter()
            .chain(own)
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .chain(headers.iter().copied())
            .collect();
        let Some((program, arguments)) = self.caller.split_first() else {
            return caller::call(&self.address, &self.path, &all, body).await;
        };
        let request = json!({
            "address": self.address,
            "path": self.path,
            "headers": all.into_iter().collect::<BTreeMap<_, _>>(),
            "body": named,
        });
        caller_program::call(program, arguments, &request).await
    }
}

fn free_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn default_path() -> String {
    "/v1/chat/completions".to_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a description names variables of the environment"
)]
fn filled(text: &str, file: &Path, provider: SocketAddr) -> Result<String, Box<dyn Error>> {
    let here = file.parent().unwrap_or_else(|| Path::new("."));
    let here = fs::canonicalize(if here.as_os_str().is_empty() {
        Path::new(".")
    } else {
        here
    })?;
    let mut pieces = text.split("${");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once('}').ok_or("a `${` without its `}`")?;
        match name {
            "FAKE" => filled.push_str(&provider.to_string()),
            "HERE" => filled.push_str(&here.to_string_lossy()),
            _ => filled.push_str(
                &std::env::var(name)
                    .map_err(|_| format!("the description wants ${name} in the environment"))?,
            ),
        }
        filled.push_str(rest);
    }
    Ok(filled)
}
