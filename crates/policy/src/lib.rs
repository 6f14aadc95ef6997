//! Known retry policies of agents and SDKs as data, and one's own policy.toml.
