//! The integration tests of `stead-doc`, in one binary.
//!
//! Everything runs on [`replica::Replica`], a node without IO: the rows of the view in maps, the
//! changes in a list, and, where a test asks for it, a real Automerge document beside each.

mod runner {
    mod cases;
    mod commands;
    mod differential;
    mod files;
    mod hostile;
    mod limits;
    mod model;
    mod random;
    mod replica;
    mod revisions;
    mod seed;
    mod sha256;
}
