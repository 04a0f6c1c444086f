//! One connection's server: the protocol's requests turned into calls of the node. It translates
//! and decides nothing.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
        CompletionInfo, DiscoverResult, GetPromptRequestParams, GetPromptResponse, Icon,
        Implementation, InitializeRequestParams, InitializeResult, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
        ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
        SubscriptionFilter, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde_json::{Value as Json, json};
use stead_doc::{
    context::Caller,
    refusal::{Code, Refusal},
};
use stead_node::handle::Node;
use stead_sync::CredentialId;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    completions, instructions, prompts,
    registry::{self, Selection},
    reply,
    resources::{self, Address},
    watch::{self, Watched},
};

/// The server of one connection, or of one request where the protocol has no connections.
#[derive(Debug, Clone)]
pub(crate) struct AgentServer {
    node: Node,
    credential: CredentialId,
    selection: Selection,
    /// Fires when the connection or the node ends.
    over: CancellationToken,
    /// Fires it when the last clone of this server is gone: that of a session that was ended.
    _alive: Arc<DropGuard>,
    /// What a client of the older protocol subscribed to; its watcher starts with the first.
    subscribed: Arc<Mutex<Option<Watched>>>,
}

impl AgentServer {
    pub(crate) fn new(
        node: Node,
        credential: CredentialId,
        selection: Selection,
        over: &CancellationToken,
    ) -> Self {
        let over = over.child_token();
        Self {
            node,
            credential,
            selection,
            _alive: Arc::new(over.clone().drop_guard()),
            over,
            subscribed: Arc::default(),
        }
    }

    /// Who asks, as the roster has it now: a role that changed or a credential that was revoked
    /// since the connection began counts from this request on.
    fn caller(&self) -> Result<Caller, Refusal> {
        self.node.caller(self.credential).ok_or_else(|| {
            Refusal::new(
                Code::Forbidden,
                "this credential is revoked.",
                "Ask your supervisor for a new one.",
            )
        })
    }

    /// Asks the node from a thread that may wait for a disk.
    async fn ask<R: Send + 'static>(
        &self,
        ask: impl FnOnce(&Node, &Caller) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let caller = self.caller()?;
        let node = self.node.clone();
        tokio::task::spawn_blocking(move || ask(&node, &caller))
            .await
            .unwrap_or_else(|_| {
                Err(Refusal::new(
                    Code::Unavailable,
                    "the call met a fault.",
                    "Ask your supervisor to run `stead doctor` on this machine.",
                ))
            })
    }

    async fn call(&self, name: &str, arguments: Json) -> Result<Json, Refusal> {
        let caller = self.caller()?;
        let Some(method) = registry::shown(&self.selection, &caller).find(|tool| tool.name == name)
        else {
            return Err(self.not_shown(name, &caller));
        };
        self.ask(move |node, caller| node.call(caller, method.name, arguments))
            .await
    }

    /// Why a tool that there is may not be called here.
    fn not_shown(&self, name: &str, caller: &Caller) -> Refusal {
        let shown: Vec<_> = registry::shown(&self.selection, caller)
            .map(|tool| tool.name)
            .collect();
        let scope = registry::scope_of(name).unwrap_or_default();
        let refusal = match caller.need(scope, &self.node.shared().directory) {
            Err(refusal) => refusal,
            Ok(()) => Refusal::new(
                Code::Forbidden,
                format!("{name} is not among the tools that this connection was opened for."),
                "Use one of accepted, or ask your supervisor.",
            ),
        };
        refusal.with("accepted", shown)
    }

    async fn instructions(&self) -> Option<String> {
        let read_only = self.selection.read_only;
        self.ask(move |node, caller| {
            let who = node.call(caller, "whoami", json!({}))?;
            Ok(instructions::instructions(caller, read_only, &who))
        })
        .await
        .ok()
    }

    /// Watches an address for a client of the older protocol; the first starts the watcher.
    fn watch(&self, address: Address, peer: rmcp::Peer<RoleServer>) -> Result<(), Refusal> {
        let mut slot = self
            .subscribed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = slot.as_ref() {
            return if watched.add(address) {
                Ok(())
            } else {
                Err(too_many())
            };
        }
        let watched = Watched::of([address]);
        *slot = Some(watched.clone());
        let (node, credential, over) = (self.node.clone(), self.credential, self.over.clone());
        let events = node.subscribe();
        let subscribed = self.subscribed.clone();
        tokio::spawn(async move {
            let told = watch::run(node, credential, watched, events, |uri| {
                let peer = peer.clone();
                async move {
                    let note = ResourceUpdatedNotificationParam::new(uri);
                    peer.notify_resource_updated(note).await.is_ok()
                }
            });
            tokio::select! {
                () = told => {}
                () = over.cancelled() => {}
            }
            // The next subscription starts another.
            *subscribed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        Ok(())
    }
}

fn too_many() -> Refusal {
    Refusal::new(
        Code::TooLarge,
        format!("a connection watches at most {} resources.", watch::WATCHED),
        "Unsubscribe from some, or watch a project's sprint.",
    )
}

/// The address of a subscription; whatever cannot be watched is refused.
fn watchable(uri: &str) -> Result<Address, Refusal> {
    let address: Address = uri.parse()?;
    if address.is_watchable() {
        return Ok(address);
    }
    Err(Refusal::argument(
        "uri",
        "this resource cannot be subscribed; read it when you need it.",
        "Subscribe to one of accepted.",
    )
    .with(
        "accepted",
        json!([
            "stead://task/{id}",
            "stead://project/{slug}/sprint",
            "stead://conflicts"
        ]),
    ))
}

/// A square with a tick, as an address that needs no network.
const ICON: &str = "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%2024%2024'%3E%3Crect%20x='3'%20\
y='3'%20width='18'%20height='18'%20rx='4'%20fill='%23205493'/%3E%3Cpath%20d='M8%2012l3%203%205-6'%20fill='none'%20stroke='white'%20\
stroke-width='2'/%3E%3C/svg%3E";

impl ServerHandler for AgentServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_completions()
                .enable_prompts()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_tools()
                .build(),
        )
        .with_server_info(
            Implementation::new("stead", env!("CARGO_PKG_VERSION"))
                .with_title("Stead")
                .with_description(
                    "A task board shared by coding agents and the people they answer to",
                )
                .with_icons(vec![
                    Icon::new(ICON)
                        .with_mime_type("image/svg+xml")
                        .with_sizes(vec!["any".to_owned()]),
                ]),
        )
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        result.instructions = self.instructions().await;
        Ok(result)
    }

    async fn discover(
        &self,
        _context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut result = DiscoverResult::from_server_info(
            self.supported_protocol_versions().into_owned(),
            self.get_info(),
        );
        result.instructions = self.instructions().await;
        Ok(result)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self
            .caller()
            .map_err(|refusal| reply::protocol_error(&refusal))?;
        Ok(ListToolsResult {
            tools: registry::shown(&self.selection, &caller)
                .map(registry::ToolRow::tool)
                .collect(),
            ..ListToolsResult::default()
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name;
        if !registry::TOOLS.iter().any(|tool| tool.name == name) {
            return Err(ErrorData::invalid_params("tool not found", None));
        }
        let arguments = Json::Object(request.arguments.unwrap_or_default());
        let started = Instant::now();
        let answer = self.call(&name, arguments).await;
        // The audit trail: names and outcomes, never arguments, so no token and nobody's text.
        tracing::info!(
            target: stead_node::http::AUDIT,
            credential = %self.credential,
            tool = %name,
            outcome = answer.as_ref().map_or_else(|refusal| refusal.code.as_str(), |_| "ok"),
            micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            "call"
        );
        Ok(reply::result(answer).into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let offset: usize = match request.and_then(|request| request.cursor) {
            None => 0,
            Some(cursor) => cursor
                .parse()
                .map_err(|_| ErrorData::invalid_params("cursor is none that a list gave", None))?,
        };
        let projects = self
            .ask(|node, caller| {
                caller.need("tasks:read", &node.shared().directory)?;
                let projects = node.with_store(|store| Ok(store.projects()))?;
                Ok(projects
                    .into_iter()
                    .filter(|project| !project.archived && caller.reaches(project))
                    .map(|project| (project.slug, project.name))
                    .collect::<Vec<_>>())
            })
            .await
            .map_err(|refusal| reply::protocol_error(&refusal))?;
        let all = resources::listed(&projects);
        let next = offset.saturating_add(resources::PAGE);
        Ok(ListResourcesResult {
            next_cursor: (next < all.len()).then(|| next.to_string()),
            resources: all.into_iter().skip(offset).take(resources::PAGE).collect(),
            ..ListResourcesResult::default()
        })
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult {
            resource_templates: resources::templates(),
            ..ListResourceTemplatesResult::default()
        })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let address = uri.clone();
        let found = self
            .ask(move |node, caller| address.parse::<Address>()?.read(node, caller))
            .await
            .map_err(|refusal| reply::resource_error(&refusal, &uri))?;
        Ok(ReadResourceResult::new(vec![
            ResourceContents::text(found.to_string(), uri).with_mime_type("application/json"),
        ])
        .into())
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult {
            prompts: prompts::listed(),
            ..ListPromptsResult::default()
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.ask(move |node, caller| {
            prompts::get(node, caller, &request.name, request.arguments.as_ref())
        })
        .await
        .map(Into::into)
        .map_err(|refusal| ErrorData::invalid_params(refusal.to_string(), Some(refusal.to_json())))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let argument = request.argument;
        let values = self
            .ask(move |node, caller| {
                completions::complete(node, caller, &argument.name, &argument.value)
            })
            .await
            .map_err(|refusal| reply::protocol_error(&refusal))?;
        let info = CompletionInfo::with_all_values(values)
            .map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(info))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.resource_subscriptions = requested.resource_subscriptions.as_ref().map(|uris| {
            uris.iter()
                .filter(|uri| watchable(uri).is_ok())
                .take(watch::WATCHED)
                .cloned()
                .collect()
        });
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let accepted = context.accepted().resource_subscriptions.clone();
        let asked: Vec<Address> = accepted
            .unwrap_or_default()
            .iter()
            .filter_map(|uri| watchable(uri).ok())
            .collect();
        let sink = context.sink().clone();
        let events = self.node.subscribe();
        // Whoever may not read it may not hear of it either.
        let readable = self
            .ask(|node, caller| {
                Ok(asked
                    .into_iter()
                    .filter(|address| address.is_readable(node, caller))
                    .collect::<Vec<_>>())
            })
            .await
            .unwrap_or_default();
        let watched = Watched::of(readable);
        let told = watch::run(self.node.clone(), self.credential, watched, events, |uri| {
            let sink = sink.clone();
            async move { sink.notify_resource_updated(uri).await.is_ok() }
        });
        tokio::select! {
            () = told => {}
            () = context.cancelled() => {}
            () = self.over.cancelled() => {}
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri;
        let address = self
            .ask(move |node, caller| {
                let address = watchable(&uri)?;
                // Whoever may not read it may not hear of it either.
                address.read(node, caller)?;
                Ok(address)
            })
            .await
            .map_err(|refusal| reply::protocol_error(&refusal))?;
        self.watch(address, context.peer)
            .map_err(|refusal| reply::protocol_error(&refusal))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let address = watchable(&request.uri).map_err(|refusal| reply::protocol_error(&refusal))?;
        let slot = self
            .subscribed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = slot.as_ref() {
            watched.remove(&address);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that checks what it is told against the protocol's schema refuses the whole
    /// handshake for one space in here.
    #[test]
    fn the_icon_is_an_address_by_the_letter() {
        let may_stand =
            |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
        let wrong: Vec<u8> = ICON.bytes().filter(|byte| !may_stand(*byte)).collect();
        assert!(wrong.is_empty(), "{ICON}");
    }
}
