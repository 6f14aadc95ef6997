//! The small closed sets and records that event bodies are made of.
//!
//! Not for: deciding anything. A value that a reader does not know is kept by the caller as text, never guessed.

use serde::{Deserialize, Serialize};

use crate::body::Field;

/// Declares an enum whose members are lower-case words on the wire.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every member, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Returns the word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            /// Returns the member for a word on the wire, `None` for a word outside the set.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Who sent the request again.
    Layer {
        /// An SDK inside the agent process.
        Sdk = "sdk",
        /// The agent's HTTP request loop.
        Transport = "transport",
        /// The agent's stream loop, around the request loop.
        Stream = "stream",
        /// The agent's own turn loop.
        Agent = "agent",
        /// A work queue around the agent.
        Queue = "queue",
        /// A gateway or proxy between agent and provider.
        Gateway = "gateway",
        /// A person.
        User = "user",
    }
}

words! {
    /// On whose behalf a logical request was made.
    Source {
        /// A step of the run or of a subagent.
        Foreground = "foreground",
        /// Title, summary, compaction, warm-up and other side calls.
        Background = "background",
    }
}

words! {
    /// What an attempt was, seen from its logical request.
    AttemptKind {
        /// The first send.
        Original = "original",
        /// The same request sent again to the same candidate.
        Retry = "retry",
        /// The first send to another candidate.
        Fallback = "fallback",
        /// A parallel duplicate.
        Hedge = "hedge",
    }
}

words! {
    /// How an attempt ended.
    AttemptOutcome {
        /// It gave the answer.
        Ok = "ok",
        /// It failed.
        Failed = "failed",
        /// The client gave it up.
        Cancelled = "cancelled",
        /// Another attempt won.
        Superseded = "superseded",
    }
}

words! {
    /// Where an error came from.
    ErrorSource {
        /// The model provider.
        Provider = "provider",
        /// A gateway in between.
        Gateway = "gateway",
        /// The connection.
        Transport = "transport",
        /// The client library.
        Client = "client",
        /// The agent itself.
        Agent = "agent",
    }
}

words! {
    /// What decided the length of a wait.
    DelaySource {
        /// The provider's stated wait.
        Server = "server",
        /// The client's own back-off.
        Backoff = "backoff",
        /// A quota reset.
        Reset = "reset",
        /// A person.
        User = "user",
        /// A queue.
        Queue = "queue",
    }
}

words! {
    /// What differs between the two candidates of a fallback.
    FallbackKind {
        /// Another model or provider.
        Model = "model",
        /// Another transport to the same model.
        Transport = "transport",
        /// Another account or key.
        Credential = "credential",
        /// Another endpoint.
        Endpoint = "endpoint",
    }
}

words! {
    /// Why a logical request was given up.
    Decision {
        /// The attempts were used up.
        ExhaustedAttempts = "exhausted_attempts",
        /// The error was not worth another attempt.
        FailFast = "fail_fast",
        /// The retry budget was spent.
        Budget = "budget",
        /// The time was up.
        Deadline = "deadline",
        /// Somebody cancelled.
        Cancelled = "cancelled",
    }
}

words! {
    /// Whether a request left the process.
    Sent {
        /// It left.
        Yes = "true",
        /// It did not leave.
        No = "false",
        /// The writer cannot tell.
        Unknown = "unknown",
    }
}

words! {
    /// State of one tool attempt.
    ToolStatus {
        /// It began; its end is not known yet.
        Started = "started",
        /// It ended well.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
        /// Its side effect may or may not have happened.
        Uncertain = "uncertain",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It was not allowed.
        Denied = "denied",
        /// It ran out of time.
        TimedOut = "timed_out",
    }
}

/// Declares a record whose parts are all optional, and the list of its parts for schemas and checks.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])* $field:ident : $type:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[doc = $doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)+
        }

        impl $name {
            /// Its parts, in the order they are written.
            pub(crate) const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($field),
                kind: stringify!($type),
                doc: concat!($($doc),*),
            }),+];
        }
    };
}
pub(crate) use record;

record! {
    /// One (provider, model, endpoint, region, account, transport) that can answer.
    ///
    /// All parts are optional because few logs name them all; `None` means "not said", not "none".
    #[derive(Eq, PartialOrd, Ord, Hash)]
    Candidate {
        /// Provider name, for example `anthropic`.
        provider: String,
        /// Model as sent, for example `claude-opus-5-5`.
        model: String,
        /// The name under which the person asked for it, when different.
        alias: String,
        /// Host or URL without credentials.
        endpoint: String,
        /// Region of the endpoint.
        region: String,
        /// Opaque account label, never a key.
        account: String,
        /// For example `https` or `websocket`.
        transport: String,
    }
}

impl Candidate {
    /// Returns a candidate that names provider and model.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: Some(provider.into()), model: Some(model.into()), ..Self::default() }
    }

    /// Returns whether this is the name of a part.
    pub(crate) fn has_part(name: &str) -> bool {
        Self::FIELDS.iter().any(|part| part.name == name)
    }

    /// Returns whether nothing at all is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

record! {
    /// Tokens and money of one answer. All counts are tokens; absent means the provider did not say.
    Usage {
        /// Fresh input tokens.
        input_tokens: u64,
        /// Output tokens.
        output_tokens: u64,
        /// Input tokens read from a cache.
        cached_input_tokens: u64,
        /// Output tokens spent on reasoning.
        reasoning_tokens: u64,
        /// Price in US dollars.
        cost_usd: f64,
    }
}
