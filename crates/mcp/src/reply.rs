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
