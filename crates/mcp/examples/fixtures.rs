//! What the protocol's conformance suite wants to find on a server and a task board has no reason
//! to have, behind the transport that serves the board. Listens on a free port of loopback, says
//! where, and serves until it is killed. No store, no token: never start it anywhere else.

#![expect(
    deprecated,
    reason = "logging is, and the suite for 2025-11-25 wants it"
)]

use std::{io::Write as _, time::Duration};

use axum::Router;
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientResult,
        CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams,
        GetPromptResponse, Implementation, InputRequiredResult, InputResponses, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse,
        ServerCapabilities, ServerConfig, ServerNotification, ServerRequest, SetLevelRequestParams,
        SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
    transport::streamable_http_server::StreamableHttpService,
};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::{net::TcpListener, sync::broadcast};
use tokio_util::sync::CancellationToken;

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// No sound at all.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// How long a tool works between two things that it tells.
const STEP: Duration = Duration::from_millis(50);

/// Seals what a client carries for this server: it is a fixture, so anybody may know the key.
const KEY: [u8; 32] = *b"a key that everybody may know...";

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let port = address.port();
    let (config, sessions) = stead_mcp::transport(&CancellationToken::new());
    let changes = broadcast::channel(16).0;
    let service = StreamableHttpService::new(
        move || Ok(Fixtures(changes.clone())),
        sessions,
        // There is no gate in front that looks at Host and Origin.
        config
            .with_allowed_origins([
                format!("http://127.0.0.1:{port}"),
                format!("http://localhost:{port}"),
            ])
            .enforce_origin_validation(),
    );
    let said = format!("http://{address}/mcp\n");
    std::io::stdout().write_all(said.as_bytes())?;
    axum::serve(listener, Router::new().nest_service("/mcp", service)).await
}

/// A list that a client may hold an old copy of.
#[derive(Debug, Clone, Copy)]
enum Changed {
    Tools,
    Prompts,
}

#[derive(Debug, Clone)]
struct Fixtures(broadcast::Sender<Changed>);

type Context = RequestContext<RoleServer>;

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities: ServerCapabilities = serde_json::from_value(json!({
            "completions": {},
            "logging": {},
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true },
            "tools": { "listChanged": true },
        }))
        .unwrap_or_default();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("fixtures", "1.0.0"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = tools().into_iter().map(model).collect::<Result<_, _>>()?;
        Ok(ListToolsResult {
            tools,
            ..ListToolsResult::default()
        })
    }

    /// Where the transport looks which arguments are repeated as headers.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tool = tools().into_iter().find(|tool| tool["name"] == name)?;
        model(tool).ok()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if let Some(plain) = plain(name) {
            return complete(plain);
        }
        if name.starts_with("test_input_required_result_") {
            return rounds(&request, &context);
        }
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|all| all.get(name));
            value.and_then(Json::as_str).unwrap_or_default().to_owned()
        };
        match name {
            "test_tool_with_logging" => {
                for said in ["started", "processing data", "completed"] {
                    let verb = if said == "processing data" {
                        ""
                    } else {
                        "execution "
                    };
                    log(&context.peer, &format!("Tool {verb}{said}")).await?;
                    tokio::time::sleep(STEP).await;
                }
                complete(text("It was logged."))
            }
            // Says something only to those who asked for it.
            "test_logging_tool" => {
                if context.meta.log_level().is_some() {
                    log(&context.peer, "Asked for").await?;
                }
                complete(text("It was logged where that was asked for."))
            }
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let note = ProgressNotificationParam::new(token, progress);
                        let sent = context.peer.notify_progress(note.with_total(100.0)).await;
                        sent.map_err(internal)?;
                    }
                    tokio::time::sleep(STEP).await;
                }
                complete(text("It made progress."))
            }
            "test_sampling" => {
                let params = sampling(&argument("prompt"), 100);
                let answer = ask(&context.peer, "sampling/createMessage", params).await?;
                let said = &answer["content"]["text"];
                complete(text(&format!(
                    "LLM response: {}",
                    said.as_str().unwrap_or_default()
                )))
            }
            "test_elicitation" => {
                let form = json!({
                    "username": { "type": "string", "description": "User's response" },
                    "email": { "type": "string", "description": "User's email address" },
                });
                let params = elicitation(&argument("message"), &form, &["username", "email"]);
                let answer = ask(&context.peer, "elicitation/create", params).await?;
                complete(text(&format!("User response: {answer}")))
            }
            "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
                let form = if name.ends_with("defaults") {
                    defaults()
                } else {
                    enums()
                };
                let params = elicitation("Please choose", &form, &[]);
                let answer = ask(&context.peer, "elicitation/create", params).await?;
                let (action, content) = (&answer["action"], &answer["content"]);
                let action = action.as_str().unwrap_or_default();
                complete(text(&format!(
                    "Elicitation completed: action={action}, content={content}"
                )))
            }
            "test_missing_capability" => {
                let has = capabilities(&context).sampling.is_some();
                if has {
                    return complete(text("The client can sample."));
                }
                let required = model::<ClientCapabilities>(json!({ "sampling": {} }))?;
                Err(ErrorData::missing_required_client_capability(required))
            }
            "test_streaming_elicitation" => {
                let requests = json!({ "user_name": name_request("What is your name?") });
                Ok(required(&requests, None)?.into())
            }
            "test_trigger_tool_change" | "test_trigger_prompt_change" => {
                let changed = if name.contains("tool_change") {
                    Changed::Tools
                } else {
                    Changed::Prompts
                };
                // Nobody may be listening.
                let told = self.0.send(changed);
                drop(told);
                complete(text("It changed."))
            }
            "json_schema_2020_12_tool" | "test_custom_header" => complete(text("It was called.")),
            _ => Err(ErrorData::invalid_params("tool not found", None)),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut result = ListResourcesResult::default();
        for (name, mime) in [
            ("static-text", "text/plain"),
            ("static-binary", "image/png"),
            ("watched-resource", "text/plain"),
        ] {
            result.resources.push(model(json!({
                "uri": format!("test://{name}"),
                "name": name,
                "description": "A fixture",
                "mimeType": mime,
            }))?);
        }
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut result = ListResourceTemplatesResult::default();
        result.resource_templates.push(model(json!({
            "uriTemplate": "test://template/{id}/data",
            "name": "template",
            "description": "A fixture",
            "mimeType": "application/json",
        }))?);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let template = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let mut content = match (uri.as_str(), template) {
            ("test://static-text", _) => json!({
                "mimeType": "text/plain",
                "text": "This is the content of the static text resource.",
            }),
            ("test://static-binary", _) => json!({ "mimeType": "image/png", "blob": PNG }),
            ("test://watched-resource", _) => json!({
                "mimeType": "text/plain",
                "text": "Nobody changes this.",
            }),
            (_, Some(id)) => {
                let data = json!({
                    "id": id,
                    "templateTest": true,
                    "data": format!("Data for ID: {id}"),
                });
                json!({ "mimeType": "application/json", "text": data.to_string() })
            }
            _ => {
                let data = json!({ "uri": uri });
                return Err(ErrorData::resource_not_found(
                    "Resource not found",
                    Some(data),
                ));
            }
        };
        content["uri"] = uri.into();
        let contents = json!({ "resultType": "complete", "contents": [content] });
        Ok(ReadResourceResponse::Complete(model(contents)?))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut result = ListPromptsResult::default();
        for (name, arguments) in [
            ("test_simple_prompt", &[][..]),
            ("test_prompt_with_arguments", &["arg1", "arg2"]),
            ("test_prompt_with_embedded_resource", &["resourceUri"]),
            ("test_prompt_with_image", &[]),
            ("test_input_required_result_prompt", &[]),
        ] {
            let arguments: Vec<_> = arguments
                .iter()
                .map(|name| json!({ "name": name, "description": "A fixture", "required": true }))
                .collect();
            let prompt =
                json!({ "name": name, "description": "A fixture", "arguments": arguments });
            result.prompts.push(model(prompt)?);
        }
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|all| all.get(name));
            value.and_then(Json::as_str).unwrap_or_default().to_owned()
        };
        let said = |text: String| json!({ "type": "text", "text": text });
        let contents = match request.name.as_str() {
            "test_simple_prompt" => vec![said("This is a simple prompt for testing.".to_owned())],
            "test_prompt_with_arguments" => vec![said(format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                argument("arg1"),
                argument("arg2")
            ))],
            "test_prompt_with_embedded_resource" => vec![
                json!({ "type": "resource", "resource": {
                    "uri": argument("resourceUri"),
                    "mimeType": "text/plain",
                    "text": "Embedded resource content for testing.",
                } }),
                said("Please process the embedded resource above.".to_owned()),
            ],
            "test_prompt_with_image" => {
                vec![image(), said("Please analyze the image above.".to_owned())]
            }
            "test_input_required_result_prompt" => {
                let responses = request.input_responses.as_ref();
                let Some(context) = answer_of(responses, "user_context") else {
                    let form = json!({ "context": { "type": "string" } });
                    let params =
                        elicitation("What context should the prompt use?", &form, &["context"]);
                    let request = json!({ "method": "elicitation/create", "params": params });
                    return Ok(required(&json!({ "user_context": request }), None)?.into());
                };
                vec![said(format!("The context is {context}"))]
            }
            _ => return Err(ErrorData::invalid_params("prompt not found", None)),
        };
        let messages: Vec<_> = contents
            .into_iter()
            .map(|content| json!({ "role": "user", "content": content }))
            .collect();
        let result = json!({ "resultType": "complete", "messages": messages });
        Ok(GetPromptResponse::Complete(model(result)?))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let values = ["paris", "park", "party"]
            .into_iter()
            .filter(|value| value.starts_with(&request.argument.value))
            .map(str::to_owned)
            .collect();
        let info = CompletionInfo::with_all_values(values).map_err(internal)?;
        Ok(CompleteResult::new(info))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.subscribe();
        let sink = context.sink().clone();
        loop {
            let changed = tokio::select! {
                changed = changes.recv() => changed,
                () = context.cancelled() => return Ok(()),
            };
            // The sink drops what was not asked for.
            let told = match changed {
                Ok(Changed::Tools) => sink.notify_tool_list_changed().await,
                Ok(Changed::Prompts) => sink.notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
            drop(told);
        }
    }
}

/// All tools as they are listed.
fn tools() -> Vec<Json> {
    let nothing = || json!({ "type": "object", "properties": {} });
    let one = |name: &str| {
        json!({
            "type": "object",
            "properties": { name: { "type": "string" } },
            "required": [name],
        })
    };
    let mut tools: Vec<(&str, Json)> = [
        "test_audio_content",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_embedded_resource",
        "test_error_handling",
        "test_image_content",
        "test_input_required_result_capabilities",
        "test_input_required_result_elicitation",
        "test_input_required_result_list_roots",
        "test_input_required_result_multi_round",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_request_state",
        "test_input_required_result_sampling",
        "test_input_required_result_tampered_state",
        "test_logging_tool",
        "test_missing_capability",
        "test_multiple_content_types",
        "test_simple_text",
        "test_streaming_elicitation",
        "test_tool_with_logging",
        "test_tool_with_progress",
        "test_trigger_prompt_change",
        "test_trigger_tool_change",
    ]
    .into_iter()
    .map(|name| (name, nothing()))
    .collect();
    tools.push(("test_elicitation", one("message")));
    tools.push(("test_sampling", one("prompt")));
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let headed = json!({ "type": "object", "properties": { "region": region } });
    tools.push(("test_custom_header", headed));
    tools.push(("json_schema_2020_12_tool", dialect()));
    tools.sort_by_key(|(name, _)| *name);
    tools
        .into_iter()
        .map(|(name, schema)| {
            json!({ "name": name, "description": "A fixture", "inputSchema": schema })
        })
        .collect()
}

/// A schema with what the dialect of 2020-12 has and ours avoid.
fn dialect() -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// The answer of a tool that always answers the same.
fn plain(name: &str) -> Option<Json> {
    let audio = json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" });
    let said = |text: &str| json!({ "type": "text", "text": text });
    let resource = |uri: &str, mime: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } });
    let content = match name {
        "test_simple_text" => vec![said("This is a simple text response for testing.")],
        "test_image_content" => vec![image()],
        "test_audio_content" => vec![audio],
        "test_embedded_resource" => vec![resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )],
        "test_multiple_content_types" => vec![
            said("Multiple content types test:"),
            image(),
            resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            ),
        ],
        "test_error_handling" => {
            let content = [said("This tool intentionally returns an error for testing")];
            return Some(json!({ "content": content, "isError": true }));
        }
        _ => return None,
    };
    Some(json!({ "content": content }))
}

/// Tools that ask their client for something before they answer; a call may be any of the rounds.
fn rounds(
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let name = request.name.as_ref();
    let answer = |key: &str| answer_of(request.input_responses.as_ref(), key);
    // What the client brings back counts only as this server gave it.
    let state = match &request.request_state {
        Some(sealed) => Some(opened(name, sealed)?),
        None => None,
    };
    let state = state.as_deref();
    let confirm = |message: &str| {
        let form = json!({ "ok": { "type": "boolean" } });
        let params = elicitation(message, &form, &["ok"]);
        json!({ "method": "elicitation/create", "params": params })
    };
    let sample = |prompt: &str, tokens: u32| json!({ "method": "sampling/createMessage", "params": sampling(prompt, tokens) });
    let roots = json!({ "method": "roots/list", "params": {} });
    let seal = |state: &str| Some(sealed(name, state));
    let ask = |requests: Json, state: Option<String>| Ok(required(&requests, state)?.into());
    match name.trim_start_matches("test_input_required_result_") {
        "elicitation" => match answer("user_name") {
            Some(given) if given["content"]["name"].is_string() => {
                let name = given["content"]["name"].as_str().unwrap_or_default();
                complete(text(&format!("Hello, {name}!")))
            }
            _ => ask(
                json!({ "user_name": name_request("What is your name?") }),
                None,
            ),
        },
        "sampling" => match answer("capital_question") {
            Some(given) => complete(text(given["content"]["text"].as_str().unwrap_or_default())),
            None => ask(
                json!({ "capital_question": sample("What is the capital of France?", 100) }),
                None,
            ),
        },
        "list_roots" => match answer("client_roots") {
            Some(given) => complete(text(&format!("The roots are {}", given["roots"]))),
            None => ask(json!({ "client_roots": roots }), None),
        },
        "request_state" | "tampered_state" => match (answer("confirm"), state) {
            (Some(_), Some("asked")) => complete(text("state-ok")),
            _ => ask(
                json!({ "confirm": confirm("Please confirm") }),
                seal("asked"),
            ),
        },
        "multiple_inputs" => {
            let all = ["user_name", "greeting", "client_roots"];
            if all.into_iter().all(|key| answer(key).is_some()) && state == Some("asked") {
                return complete(text("All three were answered."));
            }
            let requests = json!({
                "user_name": name_request("What is your name?"),
                "greeting": sample("Generate a greeting", 50),
                "client_roots": roots,
            });
            ask(requests, seal("asked"))
        }
        "multi_round" => match state {
            Some("first") if answer("step1").is_some() => {
                let form = json!({ "color": { "type": "string" } });
                let params = elicitation("Step 2: What is your favorite color?", &form, &["color"]);
                let request = json!({ "method": "elicitation/create", "params": params });
                ask(json!({ "step2": request }), seal("second"))
            }
            Some("second") if answer("step2").is_some() => complete(text("Both were answered.")),
            _ => ask(
                json!({ "step1": name_request("Step 1: What is your name?") }),
                seal("first"),
            ),
        },
        "capabilities" => {
            let can = capabilities(context);
            let mut requests = json!({});
            if can.elicitation.is_some() {
                requests["name"] = name_request("What is your name?");
            }
            if can.sampling.is_some() {
                requests["greeting"] = sample("Generate a greeting", 50);
            }
            ask(requests, None)
        }
        _ => Err(ErrorData::invalid_params("tool not found", None)),
    }
}

/// What a client answered to one of the things that it was asked.
fn answer_of(responses: Option<&InputResponses>, key: &str) -> Option<Json> {
    responses?
        .get(key)
        .filter(|answer| answer.is_object())
        .cloned()
}

fn required(requests: &Json, state: Option<String>) -> Result<InputRequiredResult, ErrorData> {
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    model(result)
}

fn name_request(message: &str) -> Json {
    let params = elicitation(message, &json!({ "name": { "type": "string" } }), &["name"]);
    json!({ "method": "elicitation/create", "params": params })
}

/// What a client carries for this server, so that it is known again.
fn sealed(tool: &str, state: &str) -> String {
    let mark = blake3::keyed_hash(&KEY, format!("{tool} {state}").as_bytes());
    format!("{state}.{mark}")
}

fn opened(tool: &str, given: &str) -> Result<String, ErrorData> {
    let state = given.rsplit_once('.').map(|(state, _)| state);
    state
        .filter(|state| sealed(tool, state) == given)
        .map(str::to_owned)
        .ok_or_else(|| ErrorData::invalid_params("requestState is not as it was given", None))
}

fn defaults() -> Json {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": { "type": "boolean", "default": true },
    })
}

fn enums() -> Json {
    let titled = |count: &str| {
        let entry = |value: &str, title: &str| json!({ "const": value, "title": format!("{title} {count}") });
        json!([
            entry("value1", "First"),
            entry("value2", "Second"),
            entry("value3", "Third")
        ])
    };
    let options = ["option1", "option2", "option3"];
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    })
}

fn elicitation(message: &str, form: &Json, required: &[&str]) -> Json {
    let mut schema = json!({ "type": "object", "properties": form });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    json!({ "mode": "form", "message": message, "requestedSchema": schema })
}

fn sampling(prompt: &str, tokens: u32) -> Json {
    let content = json!({ "type": "text", "text": prompt });
    json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": tokens })
}

fn image() -> Json {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn text(said: &str) -> Json {
    json!({ "content": [{ "type": "text", "text": said }] })
}

fn complete(mut result: Json) -> Result<CallToolResponse, ErrorData> {
    result["resultType"] = "complete".into();
    Ok(CallToolResponse::Complete(model(result)?))
}

fn capabilities(context: &Context) -> ClientCapabilities {
    context.client_capabilities().unwrap_or_default()
}

/// Asks a client of the older protocol.
async fn ask(peer: &Peer<RoleServer>, method: &str, params: Json) -> Result<Json, ErrorData> {
    let request: ServerRequest = model(json!({ "method": method, "params": params }))?;
    let answer: ClientResult = peer.send_request(request).await.map_err(internal)?;
    serde_json::to_value(answer).map_err(internal)
}

async fn log(peer: &Peer<RoleServer>, said: &str) -> Result<(), ErrorData> {
    let params = json!({ "level": "info", "data": said });
    let note: ServerNotification =
        model(json!({ "method": "notifications/message", "params": params }))?;
    peer.send_notification(note).await.map_err(internal)
}

fn model<T: DeserializeOwned>(json: Json) -> Result<T, ErrorData> {
    serde_json::from_value(json).map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
