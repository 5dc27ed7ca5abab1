//! The calls of a model or a tool, with their options.

use std::{collections::HashMap, time::Duration};

use relight_proto::v1::{self, invocation, part};
use serde_json::Value;

/// Options that calls of models and of tools have in common.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    route: String,
    operation: String,
    thread_id: String,
    labels: HashMap<String, String>,
    overrides: Option<v1::Overrides>,
    request_id: Option<String>,
    pub(crate) timeout: Option<Duration>,
}

impl Options {
    /// Returns the invocation of a call, with a request id of its own unless the caller named one.
    fn invocation(self, call: invocation::Call) -> v1::Invocation {
        v1::Invocation {
            route: self.route,
            operation: self.operation,
            request_id: self
                .request_id
                .unwrap_or_else(|| format!("{:032x}", rand::random::<u128>())),
            thread_id: self.thread_id,
            labels: self.labels,
            overrides: self.overrides,
            call: Some(call),
            ..v1::Invocation::default()
        }
    }
}

macro_rules! common_options {
    ($type:ident) => {
        impl $type {
            /// Sets the route. Default: the server's.
            #[must_use]
            pub fn route(mut self, route: impl Into<String>) -> Self {
                self.options.route = route.into();
                self
            }

            /// Sets the operation, by which metrics and events are grouped.
            #[must_use]
            pub fn operation(mut self, operation: impl Into<String>) -> Self {
                self.options.operation = operation.into();
                self
            }

            /// Sets the id of the thread to which the call belongs.
            #[must_use]
            pub fn thread_id(mut self, thread_id: impl Into<String>) -> Self {
                self.options.thread_id = thread_id.into();
                self
            }

            /// Adds a label, which events carry.
            #[must_use]
            pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.options.labels.insert(name.into(), value.into());
                self
            }

            /// Sets what differs from the server's settings for this call.
            #[must_use]
            pub fn overrides(mut self, overrides: v1::Overrides) -> Self {
                self.options.overrides = Some(overrides);
                self
            }

            /// Sets the id by which a repeated call joins the first one, at most 256 bytes.
            /// Default: 32 random hexadecimal digits.
            #[must_use]
            pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
                self.options.request_id = Some(request_id.into());
                self
            }

            /// Sets the time for the call with all its connections and waits. Default: that of
            /// the client.
            #[must_use]
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.options.timeout = Some(timeout);
                self
            }
        }
    };
}

/// A call of a model, made from a prompt, from messages or from a whole [`v1::ModelCall`].
///
/// # Examples
///
/// ```
/// use relight_client::{Call, system, user};
///
/// let brief = Call::from(vec![system("Be brief."), user("Why is the sky blue?")]).route("fast");
/// # let _ = brief;
/// ```
#[derive(Debug, Clone)]
pub struct Call {
    model: v1::ModelCall,
    pub(crate) options: Options,
    pub(crate) is_resumable: bool,
    pub(crate) returns_failure: bool,
}

common_options!(Call);

impl Call {
    /// Creates a call with one user message.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self::from(vec![user(prompt)])
    }

    /// Cancels the invocation of a stream if its connection is lost.
    #[must_use]
    pub fn not_resumable(mut self) -> Self {
        self.is_resumable = false;
        self
    }

    /// Ends a stream without an error if the invocation failed;
    /// [`AnswerStream::outcome`](crate::AnswerStream::outcome) returns the failure.
    #[must_use]
    pub fn return_failure(mut self) -> Self {
        self.returns_failure = true;
        self
    }

    pub(crate) fn invocation(self) -> v1::Invocation {
        self.options.invocation(invocation::Call::Model(self.model))
    }
}

impl From<v1::ModelCall> for Call {
    fn from(model: v1::ModelCall) -> Self {
        Self {
            model,
            options: Options::default(),
            is_resumable: true,
            returns_failure: false,
        }
    }
}

impl From<Vec<v1::Message>> for Call {
    fn from(messages: Vec<v1::Message>) -> Self {
        Self::from(v1::ModelCall {
            messages,
            ..v1::ModelCall::default()
        })
    }
}

impl From<&Vec<v1::Message>> for Call {
    fn from(messages: &Vec<v1::Message>) -> Self {
        Self::from(messages.clone())
    }
}

impl From<&str> for Call {
    fn from(prompt: &str) -> Self {
        Self::new(prompt)
    }
}

impl From<String> for Call {
    fn from(prompt: String) -> Self {
        Self::new(prompt)
    }
}

/// A call of a tool of a tool server.
///
/// # Examples
///
/// ```
/// use relight_client::Tool;
/// use serde_json::json;
///
/// let weather = Tool::new("get_weather", json!({"city": "Oslo"})).goal("what to wear");
/// # let _ = weather;
/// ```
#[derive(Debug, Clone)]
pub struct Tool {
    call: v1::ToolCall,
    pub(crate) options: Options,
}

common_options!(Tool);

impl Tool {
    /// Creates a call of the tool with this name, or `server/tool` if several servers have it.
    /// `null` stands for no arguments.
    pub fn new(name: impl Into<String>, arguments: impl Into<Value>) -> Self {
        let arguments: Value = arguments.into();
        Self {
            call: v1::ToolCall {
                name: name.into(),
                arguments_json: if arguments.is_null() {
                    String::new()
                } else {
                    arguments.to_string()
                },
                ..v1::ToolCall::default()
            },
            options: Options::default(),
        }
    }

    /// Sets the purpose of the call, in a few words.
    #[must_use]
    pub fn goal(mut self, goal: impl Into<String>) -> Self {
        self.call.goal = goal.into();
        self
    }

    /// Sets the id of the call in the caller's conversation.
    #[must_use]
    pub fn call_id(mut self, call_id: impl Into<String>) -> Self {
        self.call.call_id = call_id.into();
        self
    }

    /// Sets the object that an MCP server gets as `_meta` of the request.
    #[must_use]
    pub fn meta(mut self, meta: impl Into<Value>) -> Self {
        self.call.meta_json = meta.into().to_string();
        self
    }

    /// Sets what is known of the call's side effects.
    #[must_use]
    pub fn side_effects(mut self, side_effects: v1::SideEffects) -> Self {
        self.call.side_effects = Some(side_effects);
        self
    }

    pub(crate) fn invocation(self) -> v1::Invocation {
        self.options.invocation(invocation::Call::Tool(self.call))
    }
}

/// A call that a model wants. Its arguments stay as the model wrote them, also if they are not
/// valid JSON: Relight reports that to the model.
impl From<&v1::ToolCallPart> for Tool {
    fn from(wanted: &v1::ToolCallPart) -> Self {
        Self {
            call: v1::ToolCall {
                name: wanted.name.clone(),
                arguments_json: wanted.arguments_json.clone(),
                call_id: wanted.id.clone(),
                ..v1::ToolCall::default()
            },
            options: Options::default(),
        }
    }
}

/// Creates a message of the user, or of the agent in its place.
pub fn user(text: impl Into<String>) -> v1::Message {
    message(v1::Role::User, text.into())
}

/// Creates a message with the operator's instructions.
pub fn system(text: impl Into<String>) -> v1::Message {
    message(v1::Role::System, text.into())
}

fn message(role: v1::Role, text: String) -> v1::Message {
    v1::Message {
        role: role.into(),
        parts: vec![v1::Part {
            content: Some(part::Content::Text(v1::TextPart { text })),
            ..v1::Part::default()
        }],
        ..v1::Message::default()
    }
}
