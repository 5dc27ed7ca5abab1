//! An MCP server over standard input and output that misbehaves on demand: this test binary again,
//! in one ignored test.
//!
//! The test harness writes to standard output, too, so that goes to `/dev/null` and the server
//! writes to descriptor 3.

#![expect(
    clippy::large_stack_arrays,
    clippy::duration_suboptimal_units,
    clippy::zombie_processes,
    clippy::print_stderr,
    reason = "a process that misbehaves on purpose"
)]

use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, Write},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// What runs this binary as a server: a shell exchanges the descriptors.
pub(super) const SHELL: &str = "exec \"$0\" --exact tool_children::process::serves_tools --ignored --nocapture 3>&1 1>/dev/null";

struct Server {
    out: File,
    /// What the parameter of `list_things` is called.
    parameter: &'static str,
    /// Set by the test that starts it.
    start: String,
}

#[test]
#[ignore = "is a tool server that other tests start"]
fn serves_tools() {
    let Ok(out) = OpenOptions::new().write(true).open("/dev/fd/3") else {
        return;
    };
    let mut server = Server {
        out,
        parameter: "limit",
        start: variable("START"),
    };
    match server.start.as_str() {
        "exit" => {
            eprintln!("ImportError: no module named strava");
            std::process::exit(3);
        }
        "silent" => loop {
            thread::sleep(Duration::from_secs(60));
        },
        "banner" => server.write_line("npm notice: a banner that is no message\n\nanother one"),
        _ => {}
    }
    for line in std::io::stdin().lock().lines() {
        server.take(&serde_json::from_str(&line.unwrap()).unwrap());
    }
}

#[expect(clippy::disallowed_methods, reason = "this is a process of its own")]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn note(line: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(variable("NOTES"))
        .unwrap();
    writeln!(file, "{line}").unwrap();
}

impl Server {
    fn write_line(&mut self, line: &str) {
        if writeln!(self.out, "{line}").is_err() {
            std::process::exit(0);
        }
    }

    fn respond(&mut self, id: &Value, result: &Value) {
        self.write_line(&json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string());
    }

    fn take(&mut self, message: &Value) {
        let (id, params) = (&message["id"], &message["params"]);
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                note("initialize");
                let capabilities = json!({ "tools": { "listChanged": true } });
                let info = json!({ "name": "misbehaving", "version": "1" });
                let version = &params["protocolVersion"];
                let result = json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": info });
                self.respond(id, &result);
            }
            // A server that says nothing to what it does not know is one, too.
            "server/discover" if self.start != "mute" => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                self.write_line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
            }
            "tools/list" => {
                note("list");
                let result = self.list(params);
                self.respond(id, &result);
            }
            "tools/call" => self.call(id, params["name"].as_str().unwrap(), &params["arguments"]),
            "notifications/cancelled" => note(&format!("cancelled {}", params["requestId"])),
            _ => {}
        }
    }

    fn list(&self, params: &Value) -> Value {
        let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        match self.start.as_str() {
            "many" => {
                let page: u64 = params["cursor"]
                    .as_str()
                    .map_or(0, |cursor| cursor.parse().unwrap());
                let tools: Vec<Value> = (page * 100..page * 100 + 100)
                    .map(|n| tool(&format!("tool_{n}")))
                    .collect();
                let next = (page < 4).then(|| (page + 1).to_string());
                json!({ "tools": tools, "nextCursor": next })
            }
            "endless" => json!({ "tools": [], "nextCursor": "again" }),
            "deep" => {
                let deep = (0..40).fold(
                    json!({}),
                    |inner, _| json!({ "properties": { "a": inner } }),
                );
                json!({ "tools": [tool("plain"), { "name": "deep", "inputSchema": deep }] })
            }
            _ => {
                let annotations = json!({ "readOnlyHint": true });
                let properties = json!({ self.parameter: { "type": "integer" } });
                let schema = json!({ "type": "object", "properties": properties });
                let things = json!({
                    "name": "list_things",
                    "description": "Lists things.",
                    "inputSchema": schema,
                    "annotations": annotations,
                });
                json!({ "tools": [things] })
            }
        }
    }

    fn call(&mut self, id: &Value, name: &str, arguments: &Value) {
        note(&format!("call {name}"));
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        match name {
            "echo" => {
                let mut result = text(&arguments.to_string());
                result["structuredContent"] = arguments.clone();
                self.respond(id, &result);
            }
            "forbidden" => {
                let mut result = text("403 Forbidden: these activities belong to somebody else");
                result["isError"] = json!(true);
                self.respond(id, &result);
            }
            "invalid" => {
                let error =
                    json!({ "code": -32602, "message": "Invalid params: missing field `path`" });
                self.write_line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
            }
            "picture" => {
                let picture =
                    json!({ "type": "image", "data": "iVBORw==", "mimeType": "image/png" });
                let file = json!({ "type": "resource", "resource": { "uri": "file:///a.bin", "blob": "AAE=" } });
                self.respond(id, &json!({ "content": [picture, file] }));
            }
            "size" => {
                let size = usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap();
                self.respond(id, &text(&"x".repeat(size)));
            }
            "late" => {
                thread::sleep(Duration::from_millis(300));
                self.respond(id, &text("late"));
            }
            "place" => {
                let variables: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                let folder = std::env::current_dir().unwrap();
                self.respond(id, &json!({ "content": [], "structuredContent": { "env": variables, "cwd": folder } }));
            }
            "rename" => {
                self.parameter = "max_results";
                self.write_line(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
                self.respond(id, &text("renamed"));
            }
            "spawn" => {
                let sleeping = std::process::Command::new("sleep")
                    .arg("600")
                    .spawn()
                    .unwrap();
                self.respond(id, &text(&sleeping.id().to_string()));
            }
            "crash" => {
                eprintln!("boom \u{1b}[31mred");
                thread::sleep(Duration::from_millis(100));
                std::process::exit(7);
            }
            "twice" => {
                self.respond(id, &text("once"));
                self.respond(id, &text("and again"));
            }
            // Whatever else its code prints, on both pipes, before the result.
            "noisy" => {
                let fill = arguments["fill"].as_u64().unwrap_or_default();
                let size = arguments["size"].as_u64().unwrap_or_default();
                let fill = vec![u8::try_from(fill).unwrap(); usize::try_from(size).unwrap()];
                let bytes: Vec<u8> = serde_json::from_value(arguments["bytes"].clone()).unwrap();
                for pipe in [&mut self.out as &mut dyn Write, &mut std::io::stderr()] {
                    pipe.write_all(&fill).unwrap();
                    pipe.write_all(&bytes).unwrap();
                }
                self.respond(id, &text("done"));
            }
            "broken" => self.write_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"no"}}"#)),
            "endless_line" => loop {
                if self.out.write_all(&[b'x'; 1 << 16]).is_err() {
                    std::process::exit(0);
                }
            },
            "endless_messages" => {
                let params = json!({ "level": "info", "data": "x".repeat(16 << 10) });
                let message = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params });
                let message = message.to_string();
                loop {
                    self.write_line(&message);
                }
            }
            "deaf" => loop {
                thread::sleep(Duration::from_secs(60));
            },
            // `hang` and whatever else: nothing.
            _ => {}
        }
    }
}
