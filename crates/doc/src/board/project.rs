//! Projects.

use super::{Edits, Effect, Outcome, Reply, project_id, project_name};
use crate::{
    arguments::line,
    context::Context,
    document::DocumentName,
    limits,
    message::Message,
    refusal::{Code, Refusal},
    row::Row,
    view::View,
};

pub(super) fn project_create(
    view: &dyn View,
    cx: &Context<'_>,
    slug: &str,
    name: &str,
) -> Result<Outcome, Refusal> {
    cx.need("projects:write")?;
    if cx.caller.grants.is_some() {
        return Err(Refusal::new(
            Code::Forbidden,
            "this credential is limited to some projects and makes none.",
            "Ask your supervisor.",
        ));
    }
    let slug_ok = (1..=64).contains(&slug.len())
        && slug
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !slug.starts_with('-');
    if !slug_ok {
        return Err(Refusal::argument(
            "slug",
            "a slug is 1 to 64 of a-z, 0-9 and -, not - first.",
            "Choose another.",
        )
        .with("given", slug));
    }
    let name = line("name", &name.into(), limits::TITLE_CHARS)?;
    let id = project_id(cx.workspace, slug);
    let row = view.object(id)?.map(|at| at.row);
    if row.is_some() {
        return Ok(Outcome::Nothing(Reply::Project(id)));
    }
    let empty = Row::default();
    let mut edits = Edits::new(id, &empty);
    edits.put("kind", "project");
    edits.put("slug", slug);
    edits.put(
        "name",
        if name.is_empty() {
            slug.to_owned()
        } else {
            name
        },
    );
    let message = Message {
        command: "project_create".into(),
        credential: cx.caller.credential.clone(),
        hlc: cx.hlc.0,
        names: vec![project_name(slug)],
        label: cx.caller.label.clone(),
        ..Message::default()
    };
    Ok(Outcome::Write(Box::new(Effect {
        document: DocumentName::workspace(),
        message,
        edits: edits.list,
        reply: Reply::Project(id),
    })))
}
