//! What kinds, statuses, priorities, types and relations there are: a value that rules receive.
//! Never part of admission: what a schema refuses is shown as invalid and kept.

/// The schema of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The statuses of tasks, in board order.
    pub statuses: Vec<Status>,
    /// Priorities, most urgent first; the index is the priority's rank.
    pub priorities: Vec<String>,
    /// The types of tasks.
    pub types: Vec<String>,
    /// Relations between objects that `link` accepts.
    pub relations: Vec<Relation>,
}

/// One status of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The group that filters know it by.
    pub group: Group,
    /// Other names that are accepted in writes.
    pub aliases: Vec<String>,
}

/// What a status means to filters and rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Not yet meant to be taken up.
    Backlog,
    /// Being worked on, or about to be.
    Active,
    /// Over, with or without success.
    Closed,
}

/// A relation between two objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Its name, as edges are stored.
    pub name: String,
    /// The name of the same relation seen from the other end, stored as this one with the ends
    /// swapped.
    pub inverse: Option<String>,
    /// Whether a cycle of it means nothing and is refused.
    pub acyclic: bool,
}

impl Schema {
    /// The status that a text names, by name or alias, in any case.
    pub fn status(&self, text: &str) -> Option<&Status> {
        let text = normal(text);
        self.statuses
            .iter()
            .find(|status| status.name == text || status.aliases.contains(&text))
    }

    /// The priority that a text names: a name, `0` to `4`, or `P0` to `P4`.
    pub fn priority(&self, text: &str) -> Option<&str> {
        let text = normal(text);
        let digit = text.strip_prefix('p').unwrap_or(&text);
        let by_number = digit
            .parse::<usize>()
            .ok()
            .and_then(|rank| self.priorities.get(rank));
        self.priorities
            .iter()
            .find(|name| **name == text)
            .or(by_number)
            .map(String::as_str)
    }

    /// The place of a priority among the others, most urgent 0; last where it is unknown.
    pub fn priority_rank(&self, name: &str) -> usize {
        self.priorities
            .iter()
            .position(|known| known == name)
            .unwrap_or(self.priorities.len())
    }

    /// The type that a text names.
    pub fn task_type(&self, text: &str) -> Option<&str> {
        let text = normal(text);
        self.types
            .iter()
            .find(|name| **name == text)
            .map(String::as_str)
    }

    /// The relation that a text names, and whether the text is its inverse name.
    pub fn relation(&self, text: &str) -> Option<(&Relation, bool)> {
        let text = normal(text);
        self.relations.iter().find_map(|relation| {
            if relation.name == text {
                Some((relation, false))
            } else if relation.inverse.as_ref() == Some(&text) {
                Some((relation, true))
            } else {
                None
            }
        })
    }

    /// The names of all statuses of a group.
    pub fn in_group(&self, group: Group) -> impl Iterator<Item = &str> {
        self.statuses
            .iter()
            .filter(move |status| status.group == group)
            .map(|status| status.name.as_str())
    }

    /// The group of a stored status; an unknown one of a newer peer counts as active, so that it
    /// is seen.
    pub fn group_of(&self, name: &str) -> Group {
        self.statuses
            .iter()
            .find(|status| status.name == name)
            .map_or(Group::Active, |status| status.group)
    }

    /// The board's own schema.
    pub fn board() -> Self {
        let status = |name: &str, group, aliases: &[&str]| Status {
            name: name.into(),
            group,
            aliases: aliases.iter().map(|alias| (*alias).into()).collect(),
        };
        let relation = |name: &str, inverse: Option<&str>, acyclic| Relation {
            name: name.into(),
            inverse: inverse.map(Into::into),
            acyclic,
        };
        Self {
            statuses: vec![
                status("backlog", Group::Backlog, &[]),
                status("ready", Group::Active, &["pending", "todo", "open"]),
                status("in_progress", Group::Active, &["active"]),
                status("blocked", Group::Active, &[]),
                status("review", Group::Active, &["in_review"]),
                status("done", Group::Closed, &["completed", "closed"]),
                status("abandoned", Group::Closed, &["cancelled", "canceled"]),
            ],
            priorities: ["urgent", "high", "medium", "low", "lowest"]
                .map(String::from)
                .to_vec(),
            types: ["task", "bug", "feature", "epic", "chore"]
                .map(String::from)
                .to_vec(),
            relations: vec![
                relation("depends_on", Some("blocks"), true),
                relation("relates_to", None, false),
                relation("duplicates", Some("duplicated_by"), false),
                relation("discovered_from", Some("discovered"), false),
                relation("supersedes", Some("superseded_by"), false),
                relation("tracks", Some("tracked_by"), false),
            ],
        }
    }
}

/// Lower case with underscores: `dependsOn`, `depends-on` and `Depends On` are `depends_on`.
fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    let mut lower_before = false;
    for character in text.trim().chars() {
        if character == '-' || character == ' ' {
            out.push('_');
            lower_before = false;
            continue;
        }
        if character.is_ascii_uppercase() && lower_before {
            out.push('_');
        }
        lower_before = character.is_ascii_lowercase();
        out.extend(character.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_other_spellings_are_accepted() {
        let schema = Schema::board();
        for (text, name) in [
            ("pending", "ready"),
            ("active", "in_progress"),
            ("Completed", "done"),
            ("In Progress", "in_progress"),
            ("inProgress", "in_progress"),
        ] {
            assert_eq!(schema.status(text).unwrap().name, name);
        }
        assert_eq!(schema.status("nope"), None);
        for (text, name) in [
            ("P0", "urgent"),
            ("0", "urgent"),
            ("4", "lowest"),
            ("High", "high"),
        ] {
            assert_eq!(schema.priority(text), Some(name));
        }
        assert_eq!(schema.priority("5"), None);
        assert_eq!(schema.priority("P5"), None);
        let (relation, inverse) = schema.relation("dependsOn").unwrap();
        assert_eq!((relation.name.as_str(), inverse), ("depends_on", false));
        let (relation, inverse) = schema.relation("blocks").unwrap();
        assert_eq!((relation.name.as_str(), inverse), ("depends_on", true));
    }
}
