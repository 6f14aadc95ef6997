//! The tables as they stand in `data/*.toml`: what a row says, and where it comes from.
//!
//! Reading only; which row matches is the business of the index.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Class, Reason};

/// One table: a provider (or a layer that every provider shares), how to recognize it, and its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The name, which is also the first part of every rule: `anthropic` in `anthropic/overloaded`.
    pub name: String,
    /// The day on which the rows were last checked, `YYYY-MM-DD`.
    pub checked: String,
    /// Other names of the provider, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Words that give the provider away inside a text, in lower case: hosts, exception names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// Tables whose rows apply as well, after this one's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherits: Vec<String>,
    /// Whether other providers answer through this one, so that hints inside a text go first.
    #[serde(default)]
    pub gateway: bool,
    /// Whether the rows apply whoever the provider is.
    #[serde(default)]
    pub shared: bool,
    /// Where a person sees the balance and the limits; `None` when there is none.
    #[serde(default)]
    pub billing_url: Option<String>,
    /// Where the provider reports incidents; `None` when not known.
    #[serde(default)]
    pub status_url: Option<String>,
    /// The rows; of several that match, the first decides.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
}

/// One row: conditions, all of which must hold, and what they mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Unique within the table.
    pub id: String,
    /// HTTP statuses, one of which must be the one seen; empty for any, or for none at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<u16>,
    /// Codes, one of which must be a field's whole value, or stand in the text as a word of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<String>,
    /// Phrases, one of which, or of `words`, must occur.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<String>,
    /// As `any`, but to be counted a phrase must stand as words of its own: `overload`, not "overloading".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// Phrases that must all occur.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<String>,
    /// Phrases of which none may occur.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub none: Vec<String>,
    /// Headers as `name: value`, one of which must have been sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<String>,
    /// Whether the row is coarse: any row that is not, of any table, goes before it.
    #[serde(default)]
    pub weak: bool,
    /// Whether the row is a guess from single words, asked only where no other row and no status tells.
    #[serde(default)]
    pub guess: bool,
    /// Whether a guess is sure enough to go before a status that says no more than that a server failed, or that too
    /// much was asked: gateways send refusals with those, too.
    #[serde(default)]
    pub firm: bool,
    /// The class that follows.
    pub class: Class,
    /// The reason that follows.
    pub reason: Reason,
    /// Whether a retry can help, where the class alone does not say it right.
    #[serde(default)]
    pub retryable: Option<bool>,
    /// Where the row comes from: `[S]` source code, `[D]` documentation, `[U]` users' reports, `[K]` general
    /// knowledge, with a link or a name.
    pub source: String,
    /// Errors that this row must decide; each is a test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample: Vec<Sample>,
}

/// An error and what must be read from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// As [`crate::Failure::provider`]; the table's own name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// As [`crate::Failure::status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// As [`crate::Failure::body`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// As [`crate::Failure::code`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// As [`crate::Failure::message`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// As [`crate::Failure::headers`], each as `name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The wait that must be read, in milliseconds; absent when none must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The reset time that must be read, in epoch seconds; not checked when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<i64>,
    /// What a clock must show when the limit resets, as `YYYY-MM-DDTHH:MM:SS`; not checked when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_clock: Option<chrono::NaiveDateTime>,
    /// What [`crate::Judgement::retryable`] must be, where a stated wait changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// Says which table does not read.
#[derive(Debug, Error)]
#[error("table {name} does not read")]
pub(crate) struct TableError {
    name: &'static str,
    #[source]
    source: toml::de::Error,
}

macro_rules! tables {
    ($($name:literal),* $(,)?) => {
        /// File name and text of every table, in the order in which shared ones apply.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../data/", $name, ".toml")))),*];
    };
}

tables!(
    "anthropic",
    "azure",
    "bedrock",
    "cerebras",
    "claude-subscription",
    "codex",
    "cohere",
    "compatible",
    "copilot",
    "dashscope",
    "databricks",
    "deepseek",
    "fireworks",
    "google",
    "groq",
    "hunyuan",
    "local",
    "minimax",
    "mistral",
    "moonshot",
    "nvidia",
    "openai",
    "opencode",
    "openrouter",
    "qianfan",
    "siliconflow",
    "spark",
    "together",
    "volcengine",
    "watsonx",
    "xai",
    "zhipu",
    "litellm",
    "cloudflare",
    "workers-ai",
    "session",
    "transport",
    "refusals",
    "languages",
    "generic",
    "status",
);

/// Reads every embedded table.
pub(crate) fn embedded() -> Result<Vec<Table>, TableError> {
    FILES
        .iter()
        .map(|&(name, text)| toml::from_str(text).map_err(|source| TableError { name, source }))
        .collect()
}
