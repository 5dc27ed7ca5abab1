//! Counterparts that fail on demand: providers of models and servers of tools, over real sockets.

use relight_policy::domain;

pub mod fake_llm;
pub mod prompt_cache;
pub mod wire_server;
