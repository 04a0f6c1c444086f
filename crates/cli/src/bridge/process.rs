//! What a bridge says of itself: which process it is, who started it, and where.

use std::{collections::BTreeMap, path::Path};

use stead_node::connections::{PARENTS, Parent, Process, VARIABLES};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

/// Beginnings of the variables by which harnesses name themselves and their sessions.
const HARNESSES: [&str; 14] = [
    "AIDER_",
    "ANTHROPIC_MODEL",
    "CLAUDECODE",
    "CLAUDE_CODE_",
    "CLINE_",
    "CODEX_",
    "COPILOT_",
    "CURSOR_",
    "GEMINI_CLI",
    "GOOSE_",
    "OPENCODE",
    "TERM_PROGRAM",
    "VSCODE_",
    "ZED_",
];

/// Words in the name of a variable whose value is nobody else's.
const SECRET: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH"];

/// This process as it is now. What cannot be found out is left empty.
pub(crate) fn report() -> Process {
    let pid = std::process::id();
    // Not to be had on every platform.
    let mut system = System::new().ok();
    let mut look = |pid: Pid| {
        let system = system.as_mut()?;
        let kind = ProcessRefreshKind::nothing().with_exe(UpdateKind::Never);
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, kind);
        system.process(pid).map(|process| {
            (
                process.parent(),
                process.name().to_string_lossy().into_owned(),
                process.start_time(),
            )
        })
    };
    let own = look(Pid::from_u32(pid));
    let mut parents = Vec::new();
    let mut next = own.as_ref().and_then(|(parent, _, _)| *parent);
    while let Some(pid) = next.filter(|_| parents.len() < PARENTS) {
        let Some((parent, name, started_at)) = look(pid) else {
            break;
        };
        parents.push(Parent {
            pid: pid.as_u32(),
            name,
            started_at,
        });
        next = parent;
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Process {
        pid,
        started_at: own.map_or(0, |(_, _, started_at)| started_at),
        parents,
        cwd: std::env::current_dir().map_or_else(|_| String::new(), |path| text(&path)),
        user: ["USER", "USERNAME", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok())
            .unwrap_or_default(),
        harness: harness(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        })),
    }
}

/// Those of the variables that say which harness this is, without what is secret.
fn harness(variables: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    variables
        .filter(|(name, _)| {
            HARNESSES.iter().any(|front| name.starts_with(front))
                && !SECRET.iter().any(|word| name.contains(word))
        })
        .take(VARIABLES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_knows_itself_and_its_parents() {
        let report = report();
        assert_eq!(report.pid, std::process::id());
        assert!(report.started_at > 0);
        assert!(!report.parents.is_empty() && report.parents.iter().all(|parent| parent.pid > 0));
        assert!(Path::new(&report.cwd).is_absolute());
    }

    #[test]
    fn harnesses_are_named_and_secrets_are_not() {
        let given = [
            ("CLAUDE_CODE_SESSION_ID", "7"),
            ("CODEX_API_KEY", "s"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "s"),
            ("PATH", "/bin"),
        ];
        let owned = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = harness(owned.into_iter());
        assert_eq!(found.keys().collect::<Vec<_>>(), ["CLAUDE_CODE_SESSION_ID"]);
    }
}
