//! Answers of the node as results of tools: complete in the structure and again as text, because
//! some clients show a model only the one and some only the other.

use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock},
};
use serde_json::{Value as Json, json};
use stead_doc::refusal::{Code, Refusal};

pub(crate) fn result(answer: Result<Json, Refusal>) -> CallToolResult {
    match answer {
        Ok(answer) => {
            let text = match answer.get("brief").and_then(Json::as_str) {
                // A brief is made to be handed on as it is.
                Some(brief) => brief.to_owned(),
                None => answer.to_string(),
            };
            let mut result = CallToolResult::structured(answer);
            result.content = vec![ContentBlock::text(text)];
            result
        }
        Err(refusal) => {
            let text = refusal.to_text();
            let mut result =
                CallToolResult::structured_error(json!({ "error": refusal.to_json() }));
            result.content = vec![ContentBlock::text(text)];
            result
        }
    }
}

/// A refusal of a resource: with its address in the data, where clients that read several at once
/// look for which of them it was.
pub(crate) fn resource_error(refusal: &Refusal, uri: &str) -> ErrorData {
    protocol_error(&refusal.clone().with("uri", uri))
}

/// A refusal where the protocol has no result for it: a resource, a prompt, a completion.
pub(crate) fn protocol_error(refusal: &Refusal) -> ErrorData {
    let data = Some(refusal.to_json());
    let message = refusal.to_string();
    match refusal.code {
        Code::UnknownId | Code::UnknownProject | Code::InvalidId => {
            ErrorData::resource_not_found(message, data)
        }
        Code::Unavailable | Code::Retry => ErrorData::internal_error(message, data),
        _ => ErrorData::invalid_params(message, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_that_there_is_not_is_named_in_the_data() {
        let refusal = Refusal::new(
            Code::UnknownId,
            "there is no such resource.",
            "Use another.",
        );
        let error = resource_error(&refusal, "stead://task/x");
        let data = error.data.unwrap();
        assert_eq!(data.get("uri"), Some(&json!("stead://task/x")));
        assert_eq!(data.get("code"), Some(&json!("UNKNOWN_ID")));
    }
}
