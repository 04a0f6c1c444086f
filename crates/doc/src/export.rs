//! The canonical export: one text for one state, byte-identical on every node that holds the same
//! changes.

use serde_json::{Map, Value as Json, json};

use crate::{
    conflict,
    id::OpId,
    revision::Revision,
    view::{Located, View, ViewError},
};

/// One object with every visible value of every field, in canonical form: keys sorted, values
/// ascending by op id, nothing that depends on the node or the time.
///
/// # Errors
///
/// When the store fails.
pub fn object(view: &dyn View, at: &Located) -> Result<Json, ViewError> {
    let mut fields = Map::new();
    for (field, cell) in &at.row.cells {
        let mut values = Vec::new();
        for (op, value) in &cell.0 {
            let value = conflict::load(view, at, *op, value)?;
            values.push(json!({ "op": op_name(*op), "value": value.to_json() }));
        }
        fields.insert(field.clone(), values.into());
    }
    let collapsed: Vec<_> = at
        .row
        .collapsed
        .iter()
        .map(|(by, collapse)| {
            let lost: Vec<_> = collapse.lost.iter().map(|op| op_name(*op)).collect();
            json!({ "by": op_name(*by), "field": collapse.field, "lost": lost })
        })
        .collect();
    let mut suspended = view.suspended(at)?;
    suspended.sort_unstable();
    Ok(json!({
        "id": at.id.to_string(),
        "document": at.document.to_string(),
        "revision": Revision::of(&at.row).to_string(),
        "sum": format!("{:032x}", at.row.sum),
        "fields": fields,
        "collapsed": collapsed,
        "suspended": suspended,
    }))
}

/// An op id with its whole actor, so that it means the same everywhere.
fn op_name(op: OpId) -> String {
    format!("{}@{}", op.counter, op.actor)
}
