//! The schema and the policy data each name the retry layers, since neither knows the other: they name the same ones.

use retryscope_events::Layer as Written;
use retryscope_policy::Layer as Known;

/// No wildcard: a layer that is added to the policy data must be written, too.
fn written(layer: Known) -> Written {
    match layer {
        Known::Sdk => Written::Sdk,
        Known::Transport => Written::Transport,
        Known::Stream => Written::Stream,
        Known::Agent => Written::Agent,
        Known::Queue => Written::Queue,
        Known::Gateway => Written::Gateway,
        Known::User => Written::User,
    }
}

#[test]
fn both_name_the_same_layers_with_the_same_words() {
    for layer in Written::ALL {
        let known: Known = serde_json::from_value(layer.as_str().into()).unwrap();
        assert_eq!((known.as_str(), written(known)), (layer.as_str(), *layer));
    }
}
