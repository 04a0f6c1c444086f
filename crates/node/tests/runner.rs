//! The integration tests of `stead-node`, in one binary.
//!
//! Everything but `network` runs on [`world::Replica`]: the running node as it is, over a [`disk::SimDisk`] that
//! a test can fail, cut and copy, with a clock that stands still until a test moves it and entropy
//! that is the same in every run.

mod runner {
    mod admission;
    mod agents;
    mod batches;
    mod crash;
    mod damage;
    mod disk;
    mod faults;
    mod files;
    mod keys;
    mod layers;
    mod lease;
    mod limits;
    mod network;
    mod packing;
    mod reads;
    mod search;
    mod two_nodes;
    mod world;
}
