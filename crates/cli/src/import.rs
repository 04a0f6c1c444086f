//! Tasks from elsewhere: what other systems export, as entries that the node takes in.

pub(crate) mod beads;
pub(crate) mod lines;

use serde_json::{Map, Value, json};

/// One task of another system.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// From which its id derives: the same on every node that imports it.
    pub(crate) name: String,
    /// Its fields, as `create` takes them, and where it comes from.
    pub(crate) fields: Map<String, Value>,
    /// Its links to other tasks, by their names.
    pub(crate) edges: Vec<Edge>,
    /// What was said about it.
    pub(crate) comments: Vec<Comment>,
}

/// A link to another task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    /// `parent`, or a relation of the schema.
    pub(crate) kind: String,
    /// The other task's name.
    pub(crate) target: String,
}

/// A comment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comment {
    /// From which its id derives.
    pub(crate) name: String,
    /// What it says.
    pub(crate) body: String,
    /// Who said it there.
    pub(crate) by: Option<String>,
    /// When it was said there.
    pub(crate) at: Option<String>,
}

impl Entry {
    /// As `import_tasks` takes it.
    pub(crate) fn to_json(&self) -> Value {
        let edges: Vec<_> = self
            .edges
            .iter()
            .map(|edge| json!({ "type": edge.kind, "target": edge.target }))
            .collect();
        let comments: Vec<_> = self
            .comments
            .iter()
            .map(|comment| {
                json!({ "name": comment.name, "body": comment.body, "by": comment.by, "at": comment.at })
            })
            .collect();
        json!({ "name": self.name, "fields": self.fields, "edges": edges, "comments": comments })
    }
}

/// What there is to say about a line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remark {
    /// The line, from 1.
    pub(crate) line: u64,
    /// The id there, where it has one.
    pub(crate) id: Option<String>,
    /// What it is.
    pub(crate) what: String,
}

/// Remarks, at most as many as somebody may want to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Remarks {
    /// The first ones.
    pub(crate) list: Vec<Remark>,
    /// How many there are.
    pub(crate) count: u64,
}

impl Remarks {
    /// One more.
    pub(crate) fn push(&mut self, line: u64, id: Option<&str>, what: impl Into<String>) {
        self.count += 1;
        if self.list.len() < REMARKS {
            self.list.push(Remark {
                line,
                id: id.map(str::to_owned),
                what: what.into(),
            });
        }
    }

    /// As an answer holds them.
    pub(crate) fn to_json(&self) -> Value {
        let mut list: Vec<_> = self
            .list
            .iter()
            .map(|remark| json!({ "line": remark.line, "id": remark.id, "what": remark.what }))
            .collect();
        let left = self.count - self.list.len() as u64;
        if left > 0 {
            list.push(json!({ "what": format!("{left} more, not listed") }));
        }
        list.into()
    }
}

/// Remarks that are kept: a file that is no export at all has one for every line.
const REMARKS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_end_and_are_still_counted() {
        let mut remarks = Remarks::default();
        for line in 0..REMARKS as u64 {
            remarks.push(line, None, "x");
        }
        assert_eq!(remarks.to_json().as_array().unwrap().len(), REMARKS);
        remarks.push(0, None, "x");
        let json = remarks.to_json();
        assert_eq!(json.as_array().unwrap().len(), REMARKS + 1);
        assert_eq!(json[REMARKS]["what"], "1 more, not listed");
    }
}
